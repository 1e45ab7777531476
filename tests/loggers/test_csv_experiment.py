"""`CSVLogger.experiment`: what Lightning's scripts do with it the logger does."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_hooks.errors import TrainerHooksError
from trainer_hooks.loggers import CSVLogger
from trainer_hooks.loggers.csv import CSVExperiment


def test_a_step_that_is_no_number_is_an_error(tmp_path) -> None:
    """It is refused as the logger refuses it."""
    experiment = CSVLogger(tmp_path).experiment
    with pytest.raises((TypeError, TrainerHooksError)):
        experiment.log_metrics({"a": 1.0}, step="one")


def test_asking_for_it_writes_nothing(tmp_path) -> None:
    """The folder is made at the first write."""
    experiment = CSVLogger(tmp_path, name="run").experiment
    assert (experiment.metrics, experiment.metrics_keys, experiment.hparams) == ([], [], {})
    assert list(tmp_path.iterdir()) == []


def test_rows_and_hyperparameters_are_the_loggers(tmp_path) -> None:
    """What is logged by it stands in the same files, beside what the logger was given."""
    logger = CSVLogger(tmp_path, name="run", prefix="p")
    logger.log_metrics({"a": 1.0}, 0)
    experiment = logger.experiment
    experiment.log_metrics({"b": 2.0}, step=1)
    experiment.log_hparams({"size": 3})
    assert experiment.metrics == [{"step": 0, "p-a": 1.0}, {"step": 1, "p-b": 2.0}]
    assert logger.experiment.hparams == {"size": 3}
    experiment.save()
    assert (experiment.metrics, experiment.metrics_keys) == ([], ["p-a", "p-b"])
    assert experiment.log_dir == logger.log_dir
    assert Path(experiment.metrics_file_path).read_text() == "step,p-a,p-b\n0,1.0,\n1,,2.0\n"


def test_the_names_of_the_files_are_lightnings(tmp_path):
    """`ExperimentWriter.NAME_METRICS_FILE` and the other are the files that are written."""
    logger = CSVLogger(tmp_path)
    logger.log_hyperparams({"width": 3})
    logger.log_hyperparams()
    logger.log_metrics({"loss": 1.0}, 0)
    logger.save()
    written = {file.name for file in Path(logger.log_dir).iterdir()}
    assert {CSVExperiment.NAME_METRICS_FILE, CSVExperiment.NAME_HPARAMS_FILE} <= written
    assert "width" in Path(logger.log_dir, CSVExperiment.NAME_HPARAMS_FILE).read_text()


def test_a_picture_for_a_csv_file_is_told_which_logger_takes_it(tmp_path) -> None:
    """Modules for Lightning, whose default logger is TensorBoard's, call such methods."""
    experiment = CSVLogger(tmp_path).experiment
    with pytest.raises(AttributeError, match=r"'add_image': .*TensorBoardLogger\('logs'\)"):
        experiment.add_image("picture", None)
    assert not hasattr(experiment, "add_scalars")
    with pytest.raises(AttributeError, match=r"no attribute 'other'$"):
        experiment.other  # noqa: B018
