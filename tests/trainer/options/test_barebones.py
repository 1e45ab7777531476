"""`barebones`, `benchmark`, `enable_autolog_hparams`: what they switch, and that it is put back."""

from __future__ import annotations

import warnings

import pytest
import torch

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import OptionError, TrainerHooksWarning


@pytest.mark.parametrize(
    "asked",
    [
        {"logger": True},
        {"enable_checkpointing": True},
        {"enable_progress_bar": True},
        {"enable_model_summary": True},
        {"enable_run_manifest": True},
        {"log_every_n_steps": 10},
        {"num_sanity_val_steps": 3},
        {"fast_dev_run": True},
        {"detect_anomaly": True},
        {"profiler": "simple"},
        {"profile_hooks": True},
        {"hook_budget": 0.02},
        {"logger": True, "fast_dev_run": 2},
    ],
    ids=str,
)
def test_what_asks_for_what_is_off_is_refused(asked) -> None:
    """The error names every option that contradicts."""
    with pytest.raises(OptionError) as caught:
        Trainer(barebones=True, **asked)
    for name, value in asked.items():
        assert f"{name}={value!r}" in str(caught.value)


def test_a_callback_of_what_is_off_is_refused() -> None:
    """A saver among the callbacks contradicts, too."""
    with pytest.raises(OptionError, match=r"enable_checkpointing=False.*ModelCheckpoint"):
        Trainer(barebones=True, callbacks=ModelCheckpoint())


class Logs(Module):
    """Logs in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters({"size": 2})
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).mean()
        self.log("loss", loss)
        self.log_dict({"again": loss})
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val", 1.0)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_a_bare_run_logs_nothing_and_says_so_once(batches, tmp_path, monkeypatch) -> None:
    """It trains and validates, calls its callbacks, and leaves no file."""
    monkeypatch.chdir(tmp_path)
    trainer = Trainer(barebones=True, max_epochs=2, accelerator="cpu")
    assert (trainer.barebones, trainer.callbacks, trainer.loggers) == (True, [], [])
    assert trainer.num_sanity_val_steps == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrainerHooksWarning)
        trainer.fit(Logs(), batches(3), batches(2))
        assert trainer.validate(Logs(), batches(2), verbose=False) == [{}]
    told = [str(one.message) for one in caught if "barebones" in str(one.message)]
    assert [text.partition(",")[0] for text in told] == [
        "log('loss') was called under Trainer(barebones=True)"
    ]
    assert (trainer.callback_metrics, trainer.logged_metrics) == ({}, {})
    assert trainer.global_step == 6
    assert list(tmp_path.iterdir()) == []


def test_a_bare_run_of_default_steps_says_nothing(batches, tmp_path) -> None:
    """What the steps would log by themselves nobody has called `log` for."""

    class Plain(Logs):
        training_step, validation_step = Module.training_step, Module.validation_step

        def forward(self, batch):
            return self.layer(batch)

        def loss(self, outputs, batch):
            return outputs.mean()

    trainer = Trainer(barebones=True, max_epochs=1, accelerator="cpu", default_root_dir=tmp_path)
    trainer.fit(Plain(), batches(2), batches(2))
    assert trainer.callback_metrics == {}


class Looks(Callback):
    """Notes how torch is switched inside a run."""

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.benchmark = torch.backends.cudnn.benchmark


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    ("given", "deterministic", "inside"),
    [
        (True, None, True),
        (False, None, False),
        (True, "warn", True),
        (None, "warn", False),
        (None, False, None),
        (None, None, None),
    ],
)
def test_benchmark_lasts_for_a_run(
    given, deterministic, inside, before, bare, Tiny, batches, monkeypatch
) -> None:
    """None leaves it as it is, but off where algorithms are to be deterministic."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    looks = Looks()
    trainer = bare(looks, benchmark=given, deterministic=deterministic)
    assert torch.backends.cudnn.benchmark is before
    trainer.fit(Tiny(), batches(1))
    assert looks.benchmark is (before if inside is None else inside)
    assert torch.backends.cudnn.benchmark is before


def test_benchmark_is_put_back_after_an_error(bare, Tiny, monkeypatch) -> None:
    """Whatever ends the run."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    with pytest.raises(RuntimeError):
        bare(benchmark=True).fit(Tiny(), [torch.ones(1, 9)])
    assert torch.backends.cudnn.benchmark is False


@pytest.mark.parametrize("is_on", [True, False])
def test_hyperparameters_go_to_the_loggers_unless_switched_off(
    is_on, bare, batches, MemoryLogger
) -> None:
    """They are in the checkpoints all the same."""

    class Notes(MemoryLogger):
        def log_hyperparams(self, params):
            self.params = dict(params)

    class Tests(Logs):
        test_step = Logs.validation_step

    logger = Notes()
    logger.params = {}
    trainer = bare(logger=logger, enable_autolog_hparams=is_on)
    for run in (trainer.fit, trainer.validate, trainer.test):
        logger.params = {}
        run(Tests(), batches(1))
        assert logger.params == ({"size": 2} if is_on else {}), run
    assert trainer.dump_checkpoint()["hyper_parameters"] == {"size": 2}
    assert trainer.enable_autolog_hparams is is_on
