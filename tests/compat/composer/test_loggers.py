"""Destinations."""

from __future__ import annotations

import io

import pytest
import torch

from trainer_hooks.compat.composer import Callback, loggers
from trainer_hooks.compat.composer.loggers import (
    ConsoleLogger,
    FileLogger,
    InMemoryLogger,
    LoggerDestination,
    MLFlowLogger,
    TensorboardLogger,
    format_log_data_value,
)


class Logs(Callback):
    def fit_start(self, state, logger):
        logger.log_hyperparameters({"width": 4})
        logger.log_table(["a", "b"], [[1, 2]], name="table")
        logger.log_images(torch.rand(2, 3, 4, 4), name="images")


def test_a_file_has_a_line_for_each_value(make, tmp_path) -> None:
    """`FileLogger` writes Composer's lines, into a file of the run's name."""
    trainer = make(Logs(), loggers=[FileLogger()], train_subset_num_batches=1)
    trainer.fit()
    trainer.close()
    lines = (tmp_path / "run" / "logs-rank0.txt").read_text().splitlines()
    assert "[hyperparameter]: width: 4 " in lines
    assert '[table]: table: {"columns":["a","b"],"data":[[1,2]]}' in lines
    assert "[metric][batch=1]: time/epoch: 1 " in lines
    with pytest.raises(RuntimeError, match="the file is there"):
        make(loggers=[FileLogger()])
    make(loggers=[FileLogger(overwrite=True)])
    with pytest.raises(ValueError, match="Redirect the program's output"):
        FileLogger(capture_stdout=True)


def test_a_file_goes_to_destinations_that_keep_files(make) -> None:
    """`upload_file` reaches the destinations that override it, with names filled in."""
    sent = []

    class Keeps(LoggerDestination):
        def upload_file(self, state, remote_file_name, file_path, *, overwrite):
            sent.append((remote_file_name, file_path.name, overwrite))

    trainer = make(loggers=[FileLogger("{run_name}.txt"), Keeps()])
    trainer.logger.upload_file("{run_name}/a", "a-{rank}.txt")
    assert sent == [("run/a", "a-0.txt", False)]
    assert trainer.logger.has_file_upload_destination()
    assert not make().logger.has_file_upload_destination()
    with pytest.raises(RuntimeError, match="it keeps no files"):
        Keeps().download_file("a", "b")


def test_the_console(make, loader) -> None:
    """`ConsoleLogger` prints at its interval, and the metrics of evaluations apart."""
    out = io.StringIO()
    make(loggers=[ConsoleLogger("2ba", out)], eval_dataloader=loader(4)).fit()
    text = out.getvalue()
    assert text.count("[epoch=0][batch=2]:") == 1
    assert text.count("[Eval eval epoch=1]:") == 1
    assert "\t Train loss/train/total: " in text
    with pytest.raises(ValueError, match="must be in epochs or batches"):
        ConsoleLogger("5sp")
    with pytest.raises(ValueError, match="must be 'stdout'"):
        ConsoleLogger(stream="nowhere")


def test_log_to_console(make, capsys) -> None:
    """The trainer adds one if it is told to."""
    make(log_to_console=True, console_stream="stdout").fit()
    assert "[epoch=0][batch=1]:" in capsys.readouterr().out


def test_in_memory(make) -> None:
    """Values, timestamps, tables and hyperparameters are kept; an unknown name is an error."""
    kept = InMemoryLogger()
    make(Logs(), loggers=[kept]).fit()
    of_run = {"num_nodes", "num_cpus_per_node", "node_name", "rank_zero_seed"}
    assert kept.hyperparameters["width"] == 4
    assert set(kept.hyperparameters) == {"width", *of_run}
    assert kept.tables["table"] == '{"columns":["a","b"],"data":[[1,2]]}'
    assert kept.most_recent_values["time/epoch"] == 1
    assert kept.most_recent_timestamps["time/epoch"].batch == 4
    with pytest.raises(ValueError, match=r"Did you mean 'time/epoch'"):
        kept.get_timeseries("time/epoc")


def test_tensorboard(make, tmp_path) -> None:
    """`TensorboardLogger` writes the run's file below its folder."""
    pytest.importorskip("tensorboard")
    trainer = make(Logs(), loggers=[TensorboardLogger("logs")])
    trainer.fit()
    trainer.close()
    assert list((tmp_path / "logs" / "run").glob("events*"))


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
@pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes")
@pytest.mark.exhaustive
def test_mlflow(make, tmp_path) -> None:
    """`MLFlowLogger` logs under other names, and leaves out what it is told to."""
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    destination = MLFlowLogger(
        "tries",
        tracking_uri=uri,
        rename_metrics={"loss/train/total": "loss"},
        ignore_metrics=["time/sample"],
        synchronous=True,
    )
    trainer = make(loggers=[destination])
    trainer.fit()
    trainer.close()
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("tries")
    (run,) = client.search_runs([experiment.experiment_id])
    assert "loss" in run.data.metrics
    assert "time/sample" not in run.data.metrics
    assert run.info.run_name == "run"


@pytest.mark.parametrize("name", ["SlackLogger", "ProgressBarLogger", "MosaicMLLogger"])
def test_what_is_not_here_says_so(name) -> None:
    """A destination that is not here is an error at its import, with what to do instead."""
    told = f"composer.loggers.{name} is not in trainer_hooks: "
    with pytest.raises(ImportError, match=told):
        exec(f"from {loggers.__name__} import {name}")
    with pytest.raises(AttributeError, match=told):
        getattr(loggers, name)


def test_a_logger_that_is_none_is_refused(make) -> None:
    """What is neither a destination nor a logger of trainer_hooks is an error."""
    with pytest.raises(ValueError, match="must be a LoggerDestination"):
        make(loggers=[print])


def test_values_as_texts() -> None:
    """Values are shown as Composer's files show them."""
    assert format_log_data_value({"a": [1, 0.5, "x", None, torch.ones(2)]}) == (
        '{ "a": [1, 0.5000, "x", None, Tensor of shape torch.Size([2])], }'
    )
    assert format_log_data_value(torch.tensor(2)) == "2"


@pytest.mark.parametrize("name", ["CometMLLogger", "WandBLogger"])
def test_a_hosted_destination_opens_nothing_before_the_trainer_is_made(name) -> None:
    """Making one needs neither its library nor a connection."""
    destination = getattr(loggers, name)()
    assert destination.logger is None
    destination.log_metrics({"a": 1.0})  # nobody is there to take it
    assert destination.state_dict() == {"run": {}}


def test_artifacts_go_elsewhere() -> None:
    """W&B is sent no files."""
    with pytest.raises(ValueError, match="files are not sent to it"):
        loggers.WandBLogger(log_artifacts=True)
