"""DummyLogger and the other name of MLflowLogger."""

from __future__ import annotations

import copy

from trainer_hooks import loggers
from trainer_hooks.loggers import DummyLogger


def test_every_call_does_nothing(train):
    """A training runs with it, and what code calls on it or its experiment is taken."""
    logger = DummyLogger()
    trainer = train(logger)
    assert trainer.logger is logger
    assert (logger.name, logger.version, logger.log_dir) == ("", "", None)
    logger.experiment.add_image("a", [1], step=3)
    logger.experiment["any"]["place"].append(1.0)
    logger[0].watch_everything().at_once()
    logger.experiment["any"] = 3
    assert copy.deepcopy(logger).name == ""
    assert not hasattr(logger, "_private")
    assert not hasattr(logger.experiment, "__wrapped__")


def test_lightnings_name_for_mlflow():
    """`MLFlowLogger` is the same class."""
    assert loggers.MLFlowLogger is loggers.MLflowLogger
