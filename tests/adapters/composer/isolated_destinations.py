"""Composer's loggers as loggers of our Trainer."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

import trainer_hooks

pytest.importorskip("composer", reason="needs tests/adapters/composer/requirements.txt")

import composer
from composer.loggers import FileLogger, InMemoryLogger, LoggerDestination, TensorboardLogger
from running import Hearing, Ours, Theirs, loader, train

pytestmark = pytest.mark.filterwarnings("ignore")

IMPORTS = ("tests/adapters/composer/stand_ins", "composer")


class Noting(LoggerDestination):
    """Write down all that a destination is told, in its order."""

    def __init__(self):
        self.calls = []

    def init(self, state, logger):
        self.calls.append("init")

    def log_metrics(self, metrics, step=None):
        self.calls.append(["metrics", sorted(metrics), step])

    def log_hyperparameters(self, hyperparameters):
        self.calls.append(["hyperparameters", dict(hyperparameters)])

    def log_table(self, columns, rows, name="Table", step=None):
        self.calls.append(["table", columns, rows, name])

    def log_images(self, images, name="Images", channels_last=False, step=None, *rest, **named):
        self.calls.append(["images", name, len(images)])

    def epoch_end(self, state, logger):
        self.calls.append("epoch_end")


class Logs(composer.Callback):
    """Log something of each kind."""

    def epoch_start(self, state, logger):
        logger.log_metrics({"seen": 1.0})
        logger.log_hyperparameters({"a": 1})
        logger.log_table(["x"], [[1]], name="t")


class Saved(Ours):
    """A module with a hyperparameter, which is logged before the model is on its device."""

    def __init__(self, width=3):
        super().__init__()
        self.save_hyperparameters()


def test_it_is_told_all_once_and_after_its_init():
    noting = Noting()
    trainer = train([Logs()], Saved(), logger=noting, log_every_n_steps=2)
    assert trainer.logger.experiment is noting
    assert noting.calls[:2] == ["init", ["hyperparameters", {"width": 3}]], noting.calls
    for kind in ("seen", "table", "epoch_end"):
        assert sum(kind in str(call) for call in noting.calls) == 1, (kind, noting.calls)
    assert noting.calls.count(["hyperparameters", {"a": 1}]) == 1
    losses = [call for call in noting.calls if "train_loss" in call[1]]
    assert len(losses) == 2, losses


def test_it_may_be_a_callback_and_a_logger():
    noting = Noting()
    trainer = train([noting, Logs()], logger=[noting], log_every_n_steps=2)
    assert len(trainer.loggers) == 1
    assert sum("seen" in str(call) for call in noting.calls) == 1, noting.calls


def test_a_module_logs_tables_and_images_to_it():
    class Shows(Ours):
        def on_train_epoch_end(self):
            self.trainer.logger.log_table("t", columns=["x"], data=[[1]])
            self.trainer.logger.log_images(next(iter(loader()))[0], "i")

    noting = Noting()
    train([], Shows(), logger=noting)
    assert ["table", ["x"], [[1]], "t"] in noting.calls, noting.calls
    assert ["images", "i", 4] in noting.calls, noting.calls


def test_the_same_is_in_memory_as_at_home():
    class Losses(composer.Callback):
        def batch_end(self, state, logger):
            logger.log_metrics({"double": 2.0 * float(state.loss)})

    def kept(memory):
        return [[t.epoch.value, t.batch.value, round(v, 5)] for t, v in memory.data["double"]]

    there, here = InMemoryLogger(), InMemoryLogger()
    torch.manual_seed(1)
    model = Theirs()
    composer.Trainer(
        model=model, train_dataloader=loader(), max_duration="2ep", callbacks=[Losses()],
        optimizers=torch.optim.SGD(model.parameters(), 0.1), loggers=there, device="cpu",
        progress_bar=False, auto_log_hparams=False,
    ).fit()  # fmt: skip
    torch.manual_seed(1)
    train([Losses()], logger=here, max_epochs=2)
    assert kept(here) == kept(there)
    assert len(here.get_timeseries("double")["batch"]) == 8


def test_a_file_is_written_and_closed():
    file = FileLogger("log.txt", flush_interval=1, capture_stdout=False, capture_stderr=False)
    trainer = train([], Saved(), logger=file, log_every_n_steps=1)
    trainer.close()
    text = Path("log.txt").read_text()
    assert text.count("train_loss:") == 4, text
    assert "[hyperparameter]: width: 3" in text
    assert file.file is None


def test_tensorboard_writes_its_events():
    train([], Saved(), logger=TensorboardLogger("events"), log_every_n_steps=1).close()
    found = list(Path("events/run").rglob("events.*"))
    assert max(events.stat().st_size for events in found) > 200


def test_two_fits_and_a_validation_go_on_with_it():
    noting = Noting()
    trainer, module = train([], fits=False, logger=noting, log_every_n_steps=4), Ours()
    trainer.fit(module, loader())
    trainer.max_epochs = 2
    trainer.fit(module, loader())
    trainer.validate(module, loader(), verbose=False)
    assert noting.calls.count("init") == 1
    assert noting.calls.count("epoch_end") == 2
    assert "MulticlassAccuracy" in str(noting.calls[-1])


def test_it_stands_beside_ours():
    noting, native = Noting(), trainer_hooks.loggers.InMemoryLogger()
    train([], logger=[native, noting], log_every_n_steps=2)
    assert len(native.history("train_loss")) == 2
    assert sum("train_loss'" in str(call) for call in noting.calls) == 2


def test_a_trainer_that_is_gone_has_closed_it():
    class Ending(Hearing, LoggerDestination):
        pass

    ending = Ending()
    train([], logger=ending)
    gc.collect()
    assert ending.events[-2:] == ["close", "post_close"]
