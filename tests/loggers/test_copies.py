"""Loggers that have written, or are in a run, can be copied and pickled."""

from __future__ import annotations

import copy
import pickle

import pytest

from trainer_hooks import Callback
from trainer_hooks.loggers import CSVLogger, MLflowLogger, TensorBoardLogger


class Copies(Callback):
    """Copy the run's logger and module at each end of an epoch."""

    def __init__(self) -> None:
        self.copies: list = []

    def on_train_epoch_end(self, trainer, module):
        logger = trainer.logger
        self.copies += [copy.deepcopy(logger), pickle.loads(pickle.dumps(logger))]
        assert copy.deepcopy(module).layer.weight.equal(module.layer.weight)


def events(folder) -> list[tuple[int, float]]:
    """Return the steps and values of the metric `number` in a folder of event files."""
    tensorboard = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    reader = tensorboard.EventAccumulator(str(folder))
    reader.Reload()
    return [(one.step, one.value) for one in reader.Scalars("number")]


@pytest.mark.parametrize("kind", [TensorBoardLogger, CSVLogger])
def test_loggers_in_a_run_are_copied(Tiny, quiet_trainer, batches, tmp_path, kind) -> None:
    """The copies have no part in the run, and the run goes on."""
    logger = kind(tmp_path)
    watcher = Copies()
    trainer = quiet_trainer(max_epochs=2, logger=logger, callbacks=[watcher], log_every_n_steps=1)
    trainer.fit(Tiny(), batches(3))
    assert len(watcher.copies) == 4
    for made in [*watcher.copies, copy.deepcopy(logger)]:
        assert type(made) is kind
        assert (made.name, made.version) == (logger.name, logger.version)
        assert not [name for name in vars(made) if name.startswith("log_")]


def test_a_logger_that_has_written_is_copied(tmp_path) -> None:
    """Each of the two goes on in its own event file, and no event is lost or there twice."""
    logger = TensorBoardLogger(tmp_path)
    logger.log_metrics({"number": 3.0}, 1)
    made = pickle.loads(pickle.dumps(logger))
    logger.log_metrics({"number": 4.0}, 2)
    logger.save()
    made.log_metrics({"number": 5.0}, 3)
    for one in (made, logger):
        one.finalize("success")
    assert made.log_dir == logger.log_dir
    assert sorted(events(logger.log_dir)) == [(1, 3.0), (2, 4.0), (3, 5.0)]


def test_a_logger_of_a_service_is_copied(tmp_path) -> None:
    """The copy has a lock of its own, and no open connection."""
    pytest.importorskip("mlflow")
    logger = MLflowLogger("numbers", save_dir=tmp_path)
    made = copy.deepcopy(logger)
    assert made._lock is not logger._lock
    with made._lock:
        assert made.name == logger.name
