"""Behaviour of Lightning that differs from trainer_hooks, and that code for it relies on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.utils import prune

import trainer_hooks
import trainer_hooks.compat.lightning as pl
from trainer_hooks.compat.lightning import base_classes
from trainer_hooks.compat.lightning.demos import boring_classes
from trainer_hooks.compat.lightning.loggers import CSVLogger, Logger, TensorBoardLogger
from trainer_hooks.compat.lightning.loggers.logger import DummyExperiment, DummyLogger
from trainer_hooks.compat.lightning.utilities import rank_zero_experiment
from trainer_hooks.compat.lightning.utilities.exceptions import MisconfigurationException

QUIET = {
    "accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False,
    "num_sanity_val_steps": 0, "max_epochs": 1,
}  # fmt: skip
DATA = list(torch.ones(2, 3, 4))


class Line(pl.LightningModule):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.seen: list[int] = []

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("has_tensorboard", "kind"), [(True, TensorBoardLogger), (False, CSVLogger)]
)
def test_the_default_logger_is_lightnings(tmp_path, monkeypatch, has_tensorboard, kind):
    """It is TensorBoard where that is installed, in lightning_logs, with the checkpoints there."""
    monkeypatch.setattr(base_classes, "find_spec", lambda name: has_tensorboard or None)
    trainer = pl.Trainer(**QUIET, default_root_dir=tmp_path)
    trainer.fit(Line(), DATA)
    assert type(trainer.logger) is kind
    assert Path(trainer.log_dir) == tmp_path / "lightning_logs/version_0"
    (path,) = tmp_path.rglob("*.ckpt")
    assert path.relative_to(trainer.log_dir) == Path("checkpoints/epoch=0-step=2.ckpt")


def test_errors_are_lightnings():
    """What is set up wrongly is a MisconfigurationException."""
    with pytest.raises(MisconfigurationException, match="gradient_clip_algorithm"):
        pl.Trainer(gradient_clip_algorithm="most")
    callbacks = [pl.callbacks.EarlyStopping("no_such_metric")]
    trainer = pl.Trainer(**QUIET, logger=False, enable_checkpointing=False, callbacks=callbacks)
    with pytest.raises(MisconfigurationException, match="no_such_metric"):
        trainer.fit(Line(), DATA)


def test_what_is_made_is_trainer_hooks_own():
    """There is no second trainer: everything is, or is made of, what trainer_hooks has."""
    assert issubclass(pl.Trainer, trainer_hooks.Trainer)
    assert issubclass(pl.LightningModule, trainer_hooks.Module)
    assert issubclass(pl.LightningDataModule, trainer_hooks.DataModule)
    assert issubclass(pl.Callback, trainer_hooks.Callback)
    assert issubclass(pl.callbacks.ModelCheckpoint, trainer_hooks.callbacks.ModelCheckpoint)


def test_a_logger_of_ones_own_has_its_experiment():
    """`rank_zero_experiment` makes it in the first process."""

    class Mine(Logger):
        @property
        @rank_zero_experiment
        def experiment(self):
            return ["made"]

        def log_metrics(self, metrics, step=None):
            self.experiment.append(metrics)

    assert Mine().experiment == ["made"]


def test_the_command_line_has_lightnings_name(tmp_path, monkeypatch):
    """`LightningCLI` makes Lightning's Trainer, and writes the config beside its logs."""
    from trainer_hooks.compat.lightning.cli import LightningCLI

    monkeypatch.chdir(tmp_path)

    class Numbers(pl.LightningDataModule):
        def train_dataloader(self):
            return DATA

    words = ["fit", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    cli = LightningCLI(Line, Numbers, args=[*words, "--trainer.enable_progress_bar=false"])
    assert type(cli.trainer) is pl.Trainer
    assert cli.trainer.global_step == 2
    assert (Path(cli.trainer.log_dir) / "config.yaml").exists()
    with pytest.raises(ImportError, match="instantiate_module is not in trainer_hooks: the comman"):
        from trainer_hooks.compat.lightning.cli import instantiate_module  # noqa: F401


def test_an_epoch_that_an_earlier_run_began_is_told(tmp_path):
    """`fit_loop.restarting` is True in the rest of an epoch that a checkpoint was saved in."""
    seen = []

    class Watch(pl.Callback):
        def on_train_start(self, trainer, pl_module):
            seen.append(trainer.fit_loop.restarting)

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            seen.append((trainer.current_epoch, trainer.fit_loop.restarting))

    options = {**QUIET, "max_epochs": 2, "logger": False}
    saver = pl.callbacks.ModelCheckpoint(
        tmp_path, "{step}", monitor="step", save_top_k=-1, every_n_train_steps=1
    )
    trainer = pl.Trainer(**options, callbacks=[Watch(), saver], default_root_dir=tmp_path)
    trainer.fit(Line(), DATA)
    assert seen == [False, *[(epoch, False) for epoch in (0, 0, 1, 1)]]
    assert not trainer.fit_loop.restarting
    seen.clear()
    trainer = pl.Trainer(**options, callbacks=[Watch(), saver], default_root_dir=tmp_path)
    trainer.fit(Line(), DATA, ckpt_path=tmp_path / "step=1.ckpt")
    assert seen == [True, (0, True), (1, False), (1, False)]


@pytest.mark.filterwarnings(r"ignore:.torch\.jit\.:DeprecationWarning")
def test_torchscript_is_deprecated_as_in_lightning():
    """A LightningModule warns of it; a Module does not, as it keeps the method."""

    class Forward(Line):
        def forward(self, x):
            return self.layer(x)

    with pytest.warns(DeprecationWarning, match="has been deprecated in v2.7 and will be removed"):
        scripted = Forward().to_torchscript(method="trace", example_inputs=DATA[0])
    assert scripted(DATA[0]).shape == (3, 1)


def test_a_data_module_is_printed_as_the_sizes_of_its_data():
    """Loaders that cannot be made yet are None, and the global random state stays."""
    data = boring_classes.IterableBoringDataModule()
    before = torch.get_rng_state()
    assert str(data).splitlines() == [
        f"{{{name} dataloader: None}}" for name in ("Train", "Validation", "Test", "Predict")
    ]
    data.setup("fit")
    torch.set_rng_state(before)
    assert str(data).splitlines()[:2] == [
        "{Train dataloader: 1. size=16 ; 2. size=NA}",
        "{Validation dataloader: 1. size=32 ; 2. size=NA}",
    ]
    assert torch.equal(torch.get_rng_state(), before)
    single = boring_classes.BoringDataModule()
    single.setup("test")
    assert str(single).splitlines()[2] == "{Test dataloader: size=64}"


@pytest.mark.parametrize("kind", [CSVLogger, TensorBoardLogger])
def test_a_run_without_hyperparameters_has_their_file(tmp_path, kind):
    """`hparams.yaml` is there for `load_from_checkpoint(hparams_file=)`, as in Lightning."""
    logger = kind(tmp_path, "a")
    trainer = pl.Trainer(**QUIET, logger=logger, default_root_dir=tmp_path)
    trainer.fit(Line(), DATA)
    assert logger.root_dir == str(tmp_path / "a")
    path = Path(logger.log_dir, logger.NAME_HPARAMS_FILE)
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    assert isinstance(Line.load_from_checkpoint(checkpoint, hparams_file=path), Line)


def test_loggers_are_set_between_runs(tmp_path):
    """`trainer.logger` and `loggers` may be set, but not inside a run."""
    first, second = CSVLogger(tmp_path, "a"), CSVLogger(tmp_path, "b")
    trainer = pl.Trainer(**QUIET, logger=False, default_root_dir=tmp_path)
    trainer.logger = first
    assert trainer.loggers == [first]
    trainer.loggers = [first, second]
    assert trainer.logger is first
    with pytest.raises(MisconfigurationException, match="must be True, False, a trainer_hooks Log"):
        trainer.logger = "no logger of this name"
    trainer.fit(Line(), DATA)
    assert (tmp_path / "b" / "version_0" / "metrics.csv").exists()
    trainer.loggers = None
    assert trainer.loggers == []
    assert trainer.logger is None

    class Late(pl.Callback):
        def on_train_start(self, trainer, pl_module):
            trainer.logger = first

    trainer = pl.Trainer(**QUIET, logger=False, callbacks=[Late()], default_root_dir=tmp_path)
    with pytest.raises(MisconfigurationException, match="loggers was set inside a run"):
        trainer.fit(Line(), DATA)


def test_a_dummy_logger_takes_any_arguments():
    """Also its experiment, which keeps nothing."""
    logger = DummyLogger()
    logger.log_hyperparams("1", 2, three="three")
    logger.log_metrics("1", 2, three="three")
    experiment = DummyExperiment()
    experiment["a"] = 1
    assert experiment["a"] != 1


class EveryOther(prune.BasePruningMethod):
    """Prunes every other entry, however large an amount is."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


def test_pruning_takes_none_and_a_class_without_an_amount(tmp_path):
    """`parameters_to_prune=None` means all, and a class may decide on the amount itself."""
    pruning = pl.callbacks.ModelPruning(
        EveryOther, parameters_to_prune=None, parameter_names=["weight"],
        use_lottery_ticket_hypothesis=False,
    )  # fmt: skip
    model = Line()
    trainer = pl.Trainer(**QUIET, logger=False, callbacks=[pruning], default_root_dir=tmp_path)
    trainer.fit(model, DATA)
    assert (model.layer.weight == 0).flatten().tolist() == [True, False, True, False]
    layer = Line().layer
    choose = pl.callbacks.ModelPruning.sanitize_parameters_to_prune
    assert choose(layer, None, ["weight", "training"]) == [(layer, "weight")]
    assert choose(layer, [(layer, "bias")]) == [(layer, "bias")]
    with pytest.raises(MisconfigurationException, match="must be a pair"):
        choose(layer, ["bias"])


def test_the_bars_count_no_validation_in_an_epoch_without_one(tmp_path):
    """`total_val_batches` goes by check_val_every_n_epoch; a dry run's bar shows no version."""
    seen = []

    class Bar(pl.callbacks.ProgressBar):
        def on_train_epoch_start(self, trainer, pl_module):
            seen.append((trainer.current_epoch, self.total_val_batches))

    class Validated(Line):
        def validation_step(self, batch, batch_idx):
            pass

    options = {**QUIET, "enable_progress_bar": True, "max_epochs": 4}
    trainer = pl.Trainer(
        **options, logger=False, check_val_every_n_epoch=2, callbacks=[Bar()],
        default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Validated(), DATA, DATA)
    assert seen == [(0, 0), (1, 2), (2, 0), (3, 2)]
    assert trainer.num_sanity_val_batches == [0]
    trainer.validate(Validated(), DATA, verbose=False)
    assert trainer.num_sanity_val_batches == []
    assert trainer.progress_bar_callback.total_val_batches == 2
    dry = pl.Trainer(accelerator="cpu", fast_dev_run=True, default_root_dir=tmp_path)
    bar = dry.progress_bar_callback
    assert bar.get_metrics(dry, Line()) == {}


@pytest.mark.slow
def test_the_packages_logger_has_the_handler_that_shows_its_records():
    """A program formats or silences the console's messages by it; without one there is none."""
    program = (
        "import logging, trainer_hooks.compat.lightning as pl\n"
        "assert not logging.getLogger('trainer_hooks').handlers\n"
        "(handler,) = pl._logger.handlers\n"
        "handler.setFormatter(logging.Formatter('[%(levelname)s] %(message)s'))\n"
        "pl._logger.info('shown')\n"
        "handler.setLevel(logging.ERROR)\n"
        "pl._logger.info('hidden')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    assert ran.stderr == "[INFO] shown\n"


def test_a_validation_in_an_epoch_sees_its_batch_completed():
    """Between the hooks of the batch and those of the next, as in Lightning."""
    seen = []

    class Sees(boring_classes.BoringModel):
        def _note(self):
            seen.append(self.trainer.fit_loop.epoch_loop.batch_progress.current.completed)

        def on_train_batch_end(self, *args):
            self._note()

        def on_validation_start(self):
            self._note()

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    pl.Trainer(
        max_epochs=1, limit_train_batches=4, limit_val_batches=1, val_check_interval=2,
        num_sanity_val_steps=0, enable_checkpointing=False, **quiet,
    ).fit(Sees())  # fmt: skip
    assert seen == [0, 1, 2, 2, 3, 4]
