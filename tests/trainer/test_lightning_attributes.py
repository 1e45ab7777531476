"""Attributes and arguments that Lightning's users look for on a trainer."""

from __future__ import annotations

import os
import signal
import warnings
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import Literal

import pytest
import torch
from small_modules import ValidatedLinear
from torch import nn

from trainer_hooks import Callback, DataModule, Module, Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import (
    CheckpointError,
    ModuleError,
    TerminationSignal,
    TrainerHooksWarning,
    UsageError,
)


def test_a_file_that_only_code_can_open_is_refused_whatever_is_asked(
    bare, Tiny, batches, tmp_path
) -> None:
    """`weights_only=False` opens no file in another way."""
    path = tmp_path / "odd.ckpt"
    torch.save({"state_dict": {}, "odd": nn.Linear(1, 1)}, path)
    for given in (None, True, False):
        with pytest.raises(CheckpointError, match="only code could rebuild"):
            bare().fit(Tiny(), batches(1), ckpt_path=path, weights_only=given)


@pytest.mark.parametrize("given", [None, True, False])
def test_weights_only_is_taken_by_all_entry_points(given, bare, batches, tmp_path) -> None:
    """A script that passes it runs as it is."""

    class EvaluatesInEachStage(ValidatedLinear):
        def test_step(self, batch, batch_idx):
            pass

        def predict_step(self, batch, batch_idx):
            return 1

    trainer, path = bare(), tmp_path / "net.ckpt"
    trainer.fit(EvaluatesInEachStage(), batches(1), weights_only=given)
    trainer.save_checkpoint(path)
    options = {"ckpt_path": path, "weights_only": given}
    assert trainer.validate(EvaluatesInEachStage(), batches(1), verbose=False, **options) == [{}]
    assert trainer.test(EvaluatesInEachStage(), batches(1), verbose=False, **options) == [{}]
    assert trainer.predict(EvaluatesInEachStage(), batches(1), **options) == [1]


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("32-true", torch.float32), ("64-true", torch.float64), ("bf16-mixed", torch.float32)],
)
def test_layers_are_made_as_they_will_run(precision, dtype, bare) -> None:
    """In `init_module` they have the run's type and device; after it all is as before."""
    trainer = bare(precision=precision)
    with trainer.init_module():
        layer = nn.Linear(3, 3)
    assert (layer.weight.dtype, layer.weight.device) == (dtype, trainer.device)
    assert nn.Linear(3, 3).weight.dtype is torch.float32


@pytest.mark.parametrize(("is_empty", "count"), [(None, 2), (False, 2), (True, 0)])
def test_first_weights_are_left_out_where_that_is_asked(is_empty, count, bare) -> None:
    """Random numbers are drawn for them, or not; buffers and constants are made all the same."""
    before = torch.get_rng_state()
    with bare().init_module(empty_init=is_empty):
        made = nn.Linear(4, 4)
        norm = nn.BatchNorm1d(2)
    assert torch.equal(before, torch.get_rng_state()) is (count == 0)
    assert (made.weight.shape, norm.running_mean.tolist()) == ((4, 4), [0.0, 0.0])
    assert made.weight.requires_grad


def test_init_module_is_over_after_an_error(bare) -> None:
    """The default type is put back."""
    with pytest.raises(ValueError, match="no"), bare(precision="64-true").init_module():
        raise ValueError("no")
    assert torch.get_default_dtype() is torch.float32


class Sees(Callback):
    """Notes what a trainer says in its hooks."""

    def __init__(self) -> None:
        self.validates: list[bool] = []
        self.signals: list[bool] = []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.validates.append(trainer.enable_validation)
        self.signals.append(trainer.received_sigterm)
        os.kill(os.getpid(), signal.SIGTERM)
        self.signals.append(trainer.received_sigterm)

    def on_train_end(self, trainer, module):
        self.signals.append(trainer.received_sigterm)


def test_sigterm_is_known_as_soon_as_it_has_come(bare, Tiny, batches, tmp_path) -> None:
    """Before the batch's end heeds it, and until the run is over."""
    sees = Sees()
    trainer = bare(sees, ModelCheckpoint(tmp_path), enable_checkpointing=True)
    assert trainer.received_sigterm is False
    with pytest.raises(TerminationSignal):
        trainer.fit(Tiny(), batches(3))
    assert sees.signals == [False, True, True]
    assert trainer.received_sigterm is False


@pytest.mark.parametrize("limit", [1.0, 0])
@pytest.mark.parametrize("has_step", [True, False])
def test_whether_there_is_a_validation(limit, has_step, bare, Tiny, batches) -> None:
    """There is one with a step, loaders and a limit that leaves some."""

    class MayValidate(Tiny):
        if has_step:

            def validation_step(self, batch, batch_idx):
                pass

        def val_dataloader(self):
            return batches(1)

    trainer = bare(limit_val_batches=limit, overfit_batches=0)
    assert trainer.enable_validation is False
    warned = pytest.warns(TrainerHooksWarning, match="has no validation_step")
    with nullcontext() if has_step or not limit else warned:
        trainer.fit(MayValidate(), batches(1))
    assert trainer.enable_validation is bool(limit and has_step)
    assert (trainer.overfit_batches, trainer.barebones) == (0, False)


@pytest.mark.parametrize("name", ["on_init_start", "on_init_end"])
def test_a_hook_that_a_module_is_too_late_for_is_told_of(name, bare, Tiny, batches) -> None:
    """It is said once of a run, and an error where misspelt hooks are."""

    def hook(self, trainer):
        raise AssertionError

    module = type("Late", (Tiny,), {name: hook})()
    with pytest.raises(ModuleError, match=f"module Late: nothing calls the hook '{name}'"):
        bare(strict_hooks=True).fit(module, batches(1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrainerHooksWarning)
        bare().fit(module, batches(1))
    assert [name in str(one.message) for one in caught] == [True]


def test_a_checkpoint_is_saved_before_any_run(bare, Tiny, batches, tmp_path) -> None:
    """`trainer.strategy.connect(module)` makes the module the trainer's, with hyperparameters."""

    class Sized(Module):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters()
            self.layer = nn.Linear(width, 1)

    trainer, path = bare(), tmp_path / "saved.ckpt"
    with pytest.raises(UsageError, match="nothing to save yet"):
        trainer.save_checkpoint(path)
    module = Sized(3)
    trainer.strategy.connect(module)
    assert trainer.lightning_module is module
    trainer.save_checkpoint(path)
    assert torch.equal(Sized.load_from_checkpoint(path).layer.weight, module.layer.weight)
    trainer.fit(Tiny(), batches(1))
    assert trainer.lightning_module is not module
    with pytest.raises(UsageError, match=r"connect.* was given Linear: it must be an instance"):
        trainer.strategy.connect(nn.Linear(1, 1))


def test_no_module_is_connected_in_a_run(bare, Tiny, batches) -> None:
    """The run has one."""

    class Connects(Callback):
        def on_train_start(self, trainer, module):
            trainer.strategy.connect(Tiny())

    with pytest.raises(UsageError, match=r"strategy\.connect\(\) was called in a run"):
        bare(Connects()).fit(Tiny(), batches(1))


def test_the_data_module_may_be_set(bare) -> None:
    """For code that reads it before a run."""
    trainer, datamodule = bare(), DataModule()
    trainer.datamodule = datamodule
    assert trainer.datamodule is datamodule


@pytest.mark.parametrize("name", ["state_dict", "load_state_dict", "val_loop"])
def test_an_internal_part_of_a_loop_names_the_public_way(name, bare) -> None:
    """Not the class of an object that the user does not know."""
    with pytest.raises(AttributeError, match=f"fit_loop.{name} is an internal part of Lightning's"):
        getattr(bare().fit_loop, name)


def test_environment_variables_of_lightning_are_not_read(monkeypatch, bare) -> None:
    """An option that is not given has its default."""
    monkeypatch.setenv("PL_TRAINER_ACCUMULATE_GRAD_BATCHES", "7")
    assert bare().accumulate_grad_batches == 1


def test_the_paths_of_a_saver_may_be_set_and_no_scores(Tiny, batches, tmp_path) -> None:
    """For a file from elsewhere, which `ckpt_path="best"` takes then."""

    class Validated(Tiny):
        def validation_step(self, batch, batch_idx):
            pass

    saver = ModelCheckpoint(tmp_path / "saved")
    trainer = Trainer(
        max_epochs=2, callbacks=[saver], logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, accelerator="cpu",
    )  # fmt: skip
    module = Validated()
    trainer.fit(module, batches(2))
    saved = saver.best_model_path
    moved = Path(saved).rename(tmp_path / "moved.ckpt")
    saver.best_model_path = moved
    assert (saver.best_model_path, saver.state_dict()["best_model_path"]) == (str(moved),) * 2
    trainer.validate(module, batches(2), ckpt_path="best", verbose=False)
    assert trainer.ckpt_path == str(moved)
    saver.last_model_path = ""
    with pytest.raises(AttributeError, match="can only be read, but for best_model_path"):
        saver.best_model_score = torch.tensor(1.0)


def test_the_fit_loop_says_whether_it_is_done(bare, Tiny, batches) -> None:
    """By the limits alone before a fit; then by what was trained, or a stop that takes effect."""
    limits = [
        ({"max_epochs": 0}, True), ({"max_steps": 0}, True), ({"max_epochs": -1}, False),
        ({"max_epochs": 5}, False), ({"max_steps": 5}, False),
        ({"max_epochs": 0, "max_steps": 5}, True),
    ]  # fmt: skip
    for options, is_done in limits:
        assert bare(**{"max_epochs": None, **options}).fit_loop.done is is_done, options
    seen = []

    class Stops(Tiny):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            loop = self.trainer.fit_loop
            self.trainer.should_stop = self.trainer.current_epoch >= 1
            seen.append((loop.done, loop._can_stop_early))

    trainer = bare(max_epochs=5, min_epochs=3)
    trainer.fit(Stops(), batches(1))
    # in its batches an epoch does not count yet
    assert seen == [(False, False)] * 3
    assert trainer.fit_loop.done
    trainer.fit_loop.max_batches = 7
    assert trainer.num_training_batches == 7
    trainer.fit_loop.max_batches = 0
    assert bare().fit_loop.done is False

    class Sets(Tiny):
        def on_train_start(self):
            self.trainer.fit_loop.max_batches = 3

    with pytest.raises(UsageError, match=r"max_batches = 3 in a run: .*end_epoch\(\)"):
        bare().fit(Sets(), batches(1))


def test_a_parser_takes_the_type_of_save_last_from_the_signature() -> None:
    """A type, and no text as of all other arguments."""
    annotation = signature(ModelCheckpoint).parameters["save_last"].annotation
    assert annotation == bool | Literal["link"] | None


def test_the_bar_and_the_summary_are_plain_ones(tmp_path) -> None:
    """Also where rich is installed."""
    trainer = Trainer(default_root_dir=tmp_path, logger=False, plugins=False, accelerator="cpu")
    names = {type(callback).__name__ for callback in trainer.callbacks}
    assert {"TQDMProgressBar", "ModelSummary"} <= names


def test_a_loggers_folder_is_that_of_its_arguments(tmp_path) -> None:
    """A subclass that overrides `name` passes it to `super().__init__`."""
    from trainer_hooks.loggers import CSVLogger

    class Named(CSVLogger):
        name = "overridden"

    assert Path(Named(tmp_path, name="given").log_dir).parent.name == "given"


def test_a_module_has_its_own_hyperparameters() -> None:
    """And not those of the module that makes it in its `__init__`."""

    class Inner(Module):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters()

    class Outer(Module):
        def __init__(self, depth):
            super().__init__()
            self.save_hyperparameters()
            self.inner = Inner(width=3)

    outer = Outer(depth=2)
    assert dict(outer.hparams) == {"depth": 2}
    assert dict(outer.inner.hparams) == {"width": 3}


def test_one_process_has_nothing_to_shard(bare) -> None:
    """`distributed_sampler_kwargs` is None where the strategy is not distributed."""
    assert bare().distributed_sampler_kwargs is None
