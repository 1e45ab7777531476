"""Callbacks under the names of pytorch-accelerated: each does what it says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from trainer_hooks import Callback, Trainer
from trainer_hooks.callbacks import (
    Checkpoint,
    ConvertSyncBatchNormCallback,
    EarlyStopping,
    EarlyStoppingCallback,
    LimitBatchesCallback,
    LimitEvalStepsCallback,
    LogMetricsCallback,
    ModelCheckpoint,
    MoveModulesToDeviceCallback,
    NaNGuard,
    PrintMetricsCallback,
    PrintProgressCallback,
    ProgressBarCallback,
    SaveBestModelCallback,
    SaveTrainingStateCallback,
    StepBasedEvaluationCallback,
    TerminateOnNaNCallback,
    TQDMProgressBar,
    WSDCheckpointCallback,
)
from trainer_hooks.errors import OptimizationError, OptionError, UsageError
from trainer_hooks.testing import TinyModule

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "plugins": False,
    "accelerator": "cpu",
    "num_sanity_val_steps": 0,
}


def _trained(callback: Callback, module: TinyModule | None = None, **options) -> Trainer:
    saves = {"enable_checkpointing": isinstance(callback, Checkpoint)}
    trainer = Trainer(callbacks=[callback], **{"max_epochs": 3, **QUIET, **saves, **options})
    trainer.fit(module or TinyModule())
    return trainer


class _Scripted(TinyModule):
    """Logs a given validation loss in each epoch."""

    losses = (3.0, 1.0, 2.0, 2.0, 2.0)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.losses[self.trainer.current_epoch])
        return self(batch)


@pytest.mark.parametrize(
    "make",
    [
        lambda: EarlyStoppingCallback(0),
        lambda: EarlyStoppingCallback(early_stopping_threshold=-1.0),
        lambda: EarlyStoppingCallback(watch_metric=""),
        lambda: EarlyStoppingCallback(greater_is_better="yes"),
        lambda: SaveBestModelCallback(""),
        lambda: SaveBestModelCallback(3),
        lambda: SaveBestModelCallback(reset_on_train=1),
        lambda: SaveTrainingStateCallback(save_every_n_epochs=0),
        lambda: SaveTrainingStateCallback(max_checkpoints=-1, save_every_n_steps=1),
        lambda: SaveTrainingStateCallback(save_at_end=False),
        lambda: LimitBatchesCallback(0),
        lambda: LimitEvalStepsCallback(True),
        lambda: LimitEvalStepsCallback(1, "no"),
        lambda: StepBasedEvaluationCallback(0),
        lambda: WSDCheckpointCallback(initial_checkpoint=3),
    ],
)
def test_arguments_outside_their_rule_are_refused(make) -> None:
    """Each is an OptionError that names the argument's owner and what to do."""
    with pytest.raises(OptionError, match=r" of \w+Callback|ModelCheckpoint"):
        make()


def test_one_implementation_serves_both_names() -> None:
    """Those that do what another callback does are that callback, with other arguments."""
    assert issubclass(TerminateOnNaNCallback, NaNGuard)
    assert issubclass(EarlyStoppingCallback, EarlyStopping)
    assert issubclass(SaveBestModelCallback, ModelCheckpoint)
    assert issubclass(ProgressBarCallback, TQDMProgressBar)
    assert PrintMetricsCallback is LogMetricsCallback


# --- ending a run ---


def test_a_broken_training_loss_ends_the_run_in_order() -> None:
    """The fit returns, its end hooks fire, the steps after it are not made, and it says why."""

    class Broken(TinyModule):
        def loss(self, outputs, batch):
            loss = super().loss(outputs, batch)
            return loss * math.nan if self.trainer.global_step == 4 else loss

    trainer = _trained(TerminateOnNaNCallback(), Broken(), log_every_n_steps=1)
    assert trainer.global_step == 4
    assert "NaN or infinite" in trainer.stop_reason
    assert not trainer.interrupted


def test_a_broken_validation_loss_ends_the_run_in_order() -> None:
    """What a validation step returns is looked at too."""

    class Broken(TinyModule):
        def validation_step(self, batch, batch_idx):
            return {"loss": torch.tensor(math.inf)}

        def on_validation_batch_end(self, outputs, batch, batch_idx):
            pass

    trainer = _trained(TerminateOnNaNCallback(), Broken())
    assert trainer.progress.epochs_completed == 1
    assert "validation loss" in trainer.stop_reason


def test_it_stops_early_by_their_name_of_the_validation_loss() -> None:
    """`eval_loss_epoch` is `val_loss`; two epochs without improvement end the fit."""
    callback = EarlyStoppingCallback(2)
    trainer = _trained(callback, _Scripted(), max_epochs=5)
    assert trainer.current_epoch == 4
    assert callback.best_score == 1.0


def test_an_improvement_must_beat_the_threshold() -> None:
    """With a threshold of 2 a loss that falls from 3 to 1 is no improvement."""
    trainer = _trained(EarlyStoppingCallback(1, 2.0), _Scripted(), max_epochs=5)
    assert trainer.current_epoch == 2


@pytest.mark.parametrize(("reset", "best"), [(True, 2.0), (False, 1.0)])
def test_a_second_fit_begins_anew_if_that_is_wanted(reset, best) -> None:
    """With `reset_on_train` the best value of the first fit does not count in the second."""
    callback = EarlyStoppingCallback(9, reset_on_train=reset)
    module = _Scripted()
    trainer = _trained(callback, module, max_epochs=2)
    trainer.max_epochs = 4
    trainer.fit(module)
    assert callback.best_score == best


# --- saving ---


def test_the_best_weights_are_in_the_file_and_in_the_module(tmp_path) -> None:
    """The second of three epochs is the best, so the fit ends with its weights."""
    path, kept = tmp_path / "best.pt", []

    class Keeping(_Scripted):
        def on_train_epoch_end(self):
            kept.append({name: value.clone() for name, value in self.state_dict().items()})

    module, callback = Keeping(), SaveBestModelCallback(path)
    _trained(callback, module)
    saved = torch.load(path, weights_only=True)
    assert (callback.best_model_path, callback.best_model_score) == (str(path), 1.0)
    assert saved["epoch"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["best.pt"]
    for name, value in module.state_dict().items():
        assert torch.equal(value, kept[1][name])
        assert torch.equal(value, saved["state_dict"][name])
    assert not torch.equal(module.layer.weight, kept[2]["layer.weight"])


def test_weights_alone_are_saved_and_not_loaded_if_so_wanted(tmp_path) -> None:
    """Without optimizers the file is one of weights; without a reload the last weights stay."""
    module = _Scripted()
    path = tmp_path / "best.pt"
    callback = SaveBestModelCallback(
        path, save_optimizer=False, save_scheduler=False, load_saved_checkpoint=False
    )
    _trained(callback, module)
    saved = torch.load(path, weights_only=True)
    assert "optimizer_states" not in saved
    assert not torch.equal(module.layer.weight, saved["state_dict"]["layer.weight"])


def test_a_greater_value_is_better_if_so_said(tmp_path) -> None:
    """The first epoch has the greatest loss."""
    callback = SaveBestModelCallback(tmp_path / "best.pt", "val_loss", greater_is_better=True)
    _trained(callback, _Scripted())
    assert callback.best_model_score == 3.0


@pytest.mark.parametrize(("reset", "best"), [(True, 2.0), (False, 1.0)])
def test_a_second_fit_replaces_the_file_if_that_is_wanted(reset, best, tmp_path) -> None:
    """With `reset_on_train` the best of the first fit does not count in the second."""
    callback = SaveBestModelCallback(tmp_path / "best.pt", reset_on_train=reset)
    module = _Scripted()
    trainer = _trained(callback, module, max_epochs=2)
    trainer.max_epochs = 4
    trainer.fit(module)
    assert callback.best_model_score == best


def test_training_states_are_named_and_the_newest_kept(tmp_path) -> None:
    """Files are named after what is done, and only so many are kept beside the final one."""
    _trained(SaveTrainingStateCallback(tmp_path / "all", 1, 2))
    assert {file.name for file in (tmp_path / "all").iterdir()} == {
        "epoch_1.ckpt", "epoch_2.ckpt", "epoch_3.ckpt",
        "step_2.ckpt", "step_4.ckpt", "step_6.ckpt", "step_8.ckpt", "final.ckpt",
    }  # fmt: skip
    _trained(SaveTrainingStateCallback(tmp_path / "few", save_every_n_steps=2, max_checkpoints=2))
    kept = {file.name for file in (tmp_path / "few").iterdir()}
    assert kept == {"step_6.ckpt", "step_8.ckpt", "final.ckpt"}


def test_a_run_resumed_from_a_training_state_ends_as_if_uncut(tmp_path) -> None:
    """From `epoch_2` a fit of three epochs trains one, and keeps to the number of files."""
    whole, resumed = TinyModule(), TinyModule()
    options = {"save_every_n_epochs": 1, "max_checkpoints": 2, "save_at_end": False}
    _trained(SaveTrainingStateCallback(tmp_path, **options), whole)
    (tmp_path / "epoch_3.ckpt").unlink()
    callbacks = [SaveTrainingStateCallback(tmp_path, **options)]
    trainer = Trainer(max_epochs=3, callbacks=callbacks, **{**QUIET, "enable_checkpointing": True})
    trainer.fit(resumed, ckpt_path=tmp_path / "epoch_2.ckpt")
    assert trainer.current_epoch == 3
    assert torch.equal(whole.layer.weight, resumed.layer.weight)
    assert {file.name for file in tmp_path.iterdir()} == {"epoch_2.ckpt", "epoch_3.ckpt"}


class _Decays(torch.optim.lr_scheduler.LambdaLR):
    def get_checkpoint_steps(self):
        return [4, 8]

    decay_phase_ratio = 0.25


class _Decaying(TinyModule):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = _Decays(optimizer, lambda step: 0.5**step)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def test_files_before_and_after_each_decay(tmp_path) -> None:
    """A full one before each decay, and after it one with as much as was asked for."""
    _trained(WSDCheckpointCallback(tmp_path, False, False), _Decaying())
    names = {
        "checkpoint_3_wsd_pre_decay", "checkpoint_4_wsd_post_decay",
        "checkpoint_7_wsd_pre_decay", "checkpoint_8_wsd_post_decay",
    }  # fmt: skip
    assert {file.stem for file in tmp_path.iterdir()} == names
    for name in names:
        saved = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)
        assert saved["global_step"] == int(name.split("_")[1])
        assert ("optimizer_states" in saved) == ("pre" in name)


def test_a_new_training_begins_with_what_was_decayed(tmp_path) -> None:
    """Weights and schedule are those of the file, and the counters begin at 0."""
    _trained(WSDCheckpointCallback(tmp_path), _Decaying())
    path = tmp_path / "checkpoint_8_wsd_post_decay.ckpt"
    saved, begun = torch.load(path, weights_only=True), []

    class Looking(Callback):
        def on_train_start(self, trainer, module):
            begun.append((trainer.global_step, trainer.optimizers[0].param_groups[0]["lr"]))
            assert torch.equal(module.layer.weight, saved["state_dict"]["layer.weight"])

    callback = WSDCheckpointCallback(tmp_path / "more", initial_checkpoint=path)
    options = {**QUIET, "enable_checkpointing": True}
    Trainer(max_epochs=1, callbacks=[callback, Looking()], **options).fit(_Decaying())
    assert begun == [(0, pytest.approx(0.1 * 0.5**8))]


def test_a_schedule_without_phases_is_refused(tmp_path) -> None:
    """The error names the schedulers that there are."""
    with pytest.raises(OptimizationError, match="StepLR"):
        _trained(WSDCheckpointCallback(tmp_path))


# --- how much is run, and when ---


class _Counting(Callback):
    def __init__(self):
        self.validated = []

    def on_validation_start(self, trainer, module):
        self.validated.append([trainer.progress.batches_completed, 0])

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.validated[-1][1] += 1


def test_so_many_batches_of_each_loader_are_run() -> None:
    """Training, validation, test and prediction take one batch, and the next run takes all."""
    count, callback, module = _Counting(), LimitBatchesCallback(1), TinyModule()
    trainer = Trainer(max_epochs=2, callbacks=[callback, count], **QUIET)
    trainer.fit(module)
    assert trainer.global_step == 2
    assert count.validated == [[1, 1], [2, 1]]
    assert len(trainer.predict(module)) == 1
    trainer.remove_callback(callback)
    assert len(trainer.predict(module)) == 2


def test_it_validates_after_so_many_batches() -> None:
    """Batches are counted over epochs, and the epochs' own validations stay."""
    count = _Counting()
    trainer = Trainer(max_epochs=2, callbacks=[StepBasedEvaluationCallback(2), count], **QUIET)
    trainer.fit(TinyModule())
    assert [place for place, _ in count.validated] == [2, 3, 4, 6]


@pytest.mark.parametrize(
    ("only", "expected"), [(True, [[2, 1], [3, 2], [4, 1], [6, 2]]), (False, None)]
)
def test_validations_between_batches_are_cut_short(only, expected) -> None:
    """Those at the end of an epoch stay whole, unless all are to be cut."""
    count = _Counting()
    callbacks = [StepBasedEvaluationCallback(2), LimitEvalStepsCallback(1, only), count]
    trainer = Trainer(max_epochs=2, callbacks=callbacks, **QUIET)
    trainer.fit(TinyModule())
    assert count.validated == (expected or [[2, 1], [3, 1], [4, 1], [6, 1]])
    count.validated.clear()
    trainer.validate(verbose=False)
    assert count.validated[0][1] == (2 if only else 1)


def test_limits_are_for_their_moment() -> None:
    """Outside of it they are refused, with the moment at which to call them."""
    trainer = Trainer(**QUIET)
    with pytest.raises(UsageError, match="hook `setup`"):
        trainer.limit_batches(1)
    with pytest.raises(UsageError, match="on_validation_run_start"):
        trainer.limit_validation(1)


# --- modules ---


def test_modules_of_trainer_and_callbacks_are_moved() -> None:
    """Each is moved to the run's device before the first batch."""
    moved = []

    class Noting(nn.Module):
        def to(self, device):
            moved.append((self, device))
            return self

    class Owner(Callback):
        def __init__(self):
            self.metric = Noting()

    owner, own = Owner(), Noting()
    trainer = Trainer(max_epochs=1, callbacks=[MoveModulesToDeviceCallback(), owner], **QUIET)
    trainer.metric = own
    trainer.fit(TinyModule())
    assert moved == [(own, trainer.device), (owner.metric, trainer.device)]


@pytest.mark.parametrize("processes", [1, 2])
def test_batch_norm_is_converted_for_several_processes(processes) -> None:
    """Layers inside of others too, with the same names; of one process nothing is."""

    class Several(Trainer):
        world_size = processes

    class Normed(TinyModule):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)
            self.more = nn.Sequential(nn.BatchNorm1d(2))

    module = Normed()
    names = list(module.state_dict())
    ConvertSyncBatchNormCallback().on_configure_model(Several(**QUIET), module)
    kind = nn.SyncBatchNorm if processes > 1 else nn.BatchNorm1d
    assert type(module.norm) is type(module.more[0]) is kind
    assert list(module.state_dict()) == names


# --- what is printed ---


def test_epochs_and_runs_are_printed(capsys) -> None:
    """A line as each begins, and as a run ends."""
    trainer = _trained(PrintProgressCallback(), max_epochs=2)
    trainer.validate(verbose=False)
    assert capsys.readouterr().out.splitlines() == [
        "training run begins",
        "epoch 1 of 2",
        "epoch 2 of 2",
        "training run is over",
        "evaluation run begins (validate)",
        "evaluation run is over (validate)",
    ]


def test_metrics_are_printed_with_their_epoch(capsys) -> None:
    """Training metrics at an epoch's end, others at a validation's, with the latest values."""
    trainer = _trained(LogMetricsCallback(), max_epochs=1, log_every_n_steps=1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["val_acc", "val_loss", "train_loss"]
    for line in lines:
        name, _, value = line.partition(": ")
        assert float(value) == pytest.approx(trainer.run_history.get_latest_metric(name), rel=1e-5)


def test_the_bar_is_drawn(capsys) -> None:
    """Its lines show the epochs."""
    _trained(ProgressBarCallback(), enable_progress_bar=True)
    assert "Epoch 1" in capsys.readouterr().out
