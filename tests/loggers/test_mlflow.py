"""MLflowLogger, against a database on this machine and MLflow's own server."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import torch
from launchers import free_port

from trainer_hooks import Callback
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import MetricError, OptionError
from trainer_hooks.loggers import CSVLogger, MLflowLogger

pytestmark = [
    # of MLflow's own use of SQLAlchemy and pandas
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),
    pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"experiment_name": None}, "experiment_name None of MLflowLogger: it must be a string"),
        ({"run_name": 3}, "run_name 3 of MLflowLogger: it must be a string"),
        ({"run_id": 3}, "run_id 3 of MLflowLogger: it must be a string"),
        ({"prefix": None}, "prefix None of MLflowLogger: it must be a string"),
        ({"log_model": 1}, "log_model 1 of MLflowLogger: it must be True, False or 'all'"),
        ({"save_dir": None}, "save_dir None of MLflowLogger: it must be a folder"),
    ],
)
def test_an_argument_that_breaks_its_rule(arguments, message, monkeypatch):
    """A bad argument is refused at construction."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(OptionError, match=message):
        MLflowLogger(**arguments)


def test_without_mlflow(monkeypatch):
    """Where mlflow is not installed, the extra to install is named."""
    monkeypatch.setattr("trainer_hooks.loggers.conversion.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'trainer-hooks\[mlflow\]'"):
        MLflowLogger()


def test_asking_contacts_nobody(monkeypatch, tmp_path):
    """Name, version and address are known without a server; the environment gives the address."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    logger = MLflowLogger("digits", save_dir=tmp_path)
    assert (logger.name, logger.version, logger.log_dir) == ("digits", None, None)
    assert (logger.tracking_uri, logger.save_dir) == ("http://127.0.0.1:9", None)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def patient(monkeypatch):
    """The end of a run waits for MLflow as long as it takes, however busy the machine."""
    monkeypatch.setattr("trainer_hooks.loggers.guard.PATIENCE", 300)


@pytest.mark.slow
def test_a_training_is_read_back(train, tmp_path, monkeypatch, patient):
    """MLflow's client finds metrics, parameters, media and checkpoints of a training."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    logger = MLflowLogger(
        "digits", "first", save_dir=tmp_path / "ml", tags={"kind": "test"}, log_model="all"
    )
    saver = ModelCheckpoint(tmp_path / "saved", save_top_k=-1, filename="{epoch}")
    train(logger, callbacks=[saver], enable_checkpointing=True)
    run_id, client = logger.version, logger.experiment
    logger.log_image("map", [torch.zeros(3, 4, 5)], 7)
    logger.log_table("t", ["a", "b"], [[1, "x"], [2, None]], step=7)
    logger.log_text("note", "hello", 7)
    logger.log_metrics({"accuracy (top 1)": torch.tensor(0.5), "bad": float("nan")}, 12)
    with pytest.raises(MetricError, match="value 'high' of metric 'loss' for MLflowLogger"):
        logger.log_metrics({"loss": "high"}, 13)
    logger.finalize("failed")
    run = client.get_run(run_id)
    assert (run.info.run_name, run.info.status, run.data.tags["kind"]) == (
        "first",
        "FAILED",
        "test",
    )
    assert run.data.params == {"lr": "0.1", "layers/width": "4"}
    steps = [entry.step for entry in client.get_metric_history(run_id, "loss_step")]
    assert steps == [1, 3, 5, 7, 9, 11]
    assert run.data.metrics["accuracy _top 1_"] == 0.5
    names = {item.path for item in client.list_artifacts(run_id)}
    assert names == {"images", "model", "t-step-7.json", "note-step-7.txt"}
    checkpoints = client.list_artifacts(run_id, "model/checkpoints")
    assert {Path(item.path).name for item in checkpoints} == {"epoch=0", "epoch=1"}
    table = json.loads(
        Path(client.download_artifacts(run_id, "t-step-7.json", str(tmp_path))).read_text()
    )
    assert table == {"columns": ["a", "b"], "data": [[1, "x"], [2, None]]}


@pytest.mark.slow
def test_parameters_stay_as_they_were_first(tmp_path, monkeypatch, caplog):
    """A parameter that is given another value stays, and that is reported; new ones are added."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    caplog.set_level(logging.WARNING, logger="trainer_hooks")
    logger = MLflowLogger(save_dir=tmp_path)
    logger.log_hyperparams({"lr": 0.1, "long": "z" * 7000})
    logger.log_hyperparams({"lr": 0.2, "depth": 3, "long": "z" * 7000})
    logger.finalize("success")
    stored = logger.experiment.get_run(logger.run_id).data.params
    assert "z" * 7000 > stored.pop("long")[:500] == "z" * 500
    assert stored == {"lr": "0.1", "depth": "3"}
    assert (
        logger.experiment.get_run(logger.run_id).info.status == "FINISHED"
    )  # asking changes nothing
    assert "a parameter: lr='0.1' (now '0.2') stay as they are" in caplog.text


@pytest.mark.slow
def test_no_name_loses_the_values_beside_it(tmp_path, monkeypatch, caplog):
    """Letters of any language stay; other names are stored under distinct ones, with a warning."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    caplog.set_level(logging.WARNING, logger="trainer_hooks")
    logger = MLflowLogger(save_dir=tmp_path)
    values = {"精度": 7.0, "acc@1": 1.0, "acc_1": 2.0, "a/../b": 3.0, "": 4.0, "m" * 300: 5.0}
    values["n" * 248 + "//n"] = 11.0
    paths = {"..c": 6.0, "/d": 8.0, "e/": 9.0, "f\n": 10.0}
    stored = {
        "精度": 7.0,
        "acc_1_2": 1.0,
        "acc_1": 2.0,
        "a/_/b": 3.0,
        "_": 4.0,
        "m" * 249 + "_": 5.0,
        "n" * 248 + "/_": 11.0,
        "__c": 6.0,
        "_/d": 8.0,
        "e/_": 9.0,
        "f_": 10.0,
    }
    for step in range(2):
        logger.log_metrics({"loss": 0.5, **values, **paths}, step)
    logger.log_hyperparams({"lr": 0.1, **values, **paths})
    logger.log_text("模型", "hello")
    logger.log_table("模型", ["a"], [[1]])
    logger.log_image("模型", [torch.zeros(3, 4, 5)], 0)
    logger.log_image("精度", [torch.zeros(3, 4, 5)], 0)
    logger.finalize("success")
    data = logger.experiment.get_run(logger.run_id).data
    assert data.metrics == {"loss": 0.5, **stored}
    assert data.params == {name: str(value) for name, value in {"lr": 0.1, **stored}.items()}
    names = {item.path for item in logger.experiment.list_artifacts(logger.run_id)}
    assert names == {"模型.txt", "模型.json", "images"}
    images = {item.path for item in logger.experiment.list_artifacts(logger.run_id, "images")}
    assert {path.partition("~")[0] for path in images} == {"images/__", "images/___2"}
    # once for a name, however often it is logged
    assert caplog.text.count("stores the metric 'acc@1' as 'acc_1_2'") == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("acc@1", "'acc@1' as 'acc_1_2': MLflow does not allow '@', and another metric is stored"),
        ("loss/a!", "'loss/a!' as 'loss/a_': MLflow does not allow '!'. Rename"),
        ("a//b", "'a//b' as 'a/_/b': MLflow takes '.', '..' and an empty part"),
        ("n" * 300, "nnn...nnn"),
    ],
)
def test_a_warning_gives_the_reason_of_a_stored_name(name, told, tmp_path, caplog):
    """And it shows a long name without its middle."""
    caplog.set_level(logging.WARNING, logger="trainer_hooks")
    names = MLflowLogger(save_dir=tmp_path)._names["metric"]
    names.name_for("acc_1")
    names.name_for(name)
    assert told in caplog.text
    assert len(caplog.messages[0]) < 250
    if name.startswith("n"):
        assert "MLflow allows 250 characters. Rename" in caplog.text


def test_a_name_that_gives_way_is_told_why(tmp_path, caplog):
    """Another value has its name already."""
    caplog.set_level(logging.WARNING, logger="trainer_hooks")
    names = MLflowLogger(save_dir=tmp_path)._names["metric"]
    for name in ("acc@1", "acc_1"):
        names.name_for(name)
    told = "'acc_1' as 'acc_1_2': another metric is stored as 'acc_1'. Rename"
    assert told in caplog.messages[1]


def test_a_resumed_run_stores_names_as_before(tmp_path, monkeypatch):
    """A name that gave way to another one gives way to it after a resume too."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    logger, resumed = MLflowLogger(save_dir=tmp_path), MLflowLogger(save_dir=tmp_path)
    logger._names["metric"].name_for("acc_1")
    assert logger._names["metric"].name_for("acc@1") == "acc_1_2"
    resumed.resume_run(logger.run_state())
    assert resumed._names["metric"].name_for("acc@1") == "acc_1_2"


def test_a_run_of_another_experiment_is_another_loggers(tmp_path, monkeypatch):
    """Each goes on in its own experiment; a run that the user chose is that in any."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    first, other = (MLflowLogger(name, save_dir=tmp_path) for name in ("first", "other"))
    state = {**first.run_state(), "run_id": "1f"}
    assert (first.owns_run(state), other.owns_run(state)) == (True, False)
    other.resume_run(state)
    assert other.version != "1f"
    del state["experiment"]  # as older versions have saved it
    assert other.owns_run(state)
    assert MLflowLogger("other", save_dir=tmp_path, run_id="1f").owns_run(state)
    assert not MLflowLogger("first", save_dir=tmp_path, run_id="2e").owns_run(state)


class Server:
    """MLflow's server on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.folder / "server.log").open("a") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
                    *("--host", "127.0.0.1", "--port", str(self.port)),
                    *("--backend-store-uri", f"sqlite:///{self.folder}/server.db"),
                    *("--artifacts-destination", str(self.folder / "artifacts")),
                ],
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        deadline = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                    return
            except OSError:
                assert time.monotonic() < deadline, (self.folder / "server.log").read_text()
                time.sleep(0.2)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def server(tmp_path, monkeypatch, patient):
    """A server that is running; requests to it are tried once, so that it is known to be gone."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    found = Server(tmp_path)
    found.start()
    yield found
    found.kill()


@pytest.mark.exhaustive
def test_a_server_that_dies_stops_no_training(train, server, tmp_path, caplog, rows):
    """The server is killed in a training, which goes on; once it is back, nothing is missing."""
    from mlflow.tracking import MlflowClient

    caplog.set_level(logging.WARNING, logger="trainer_hooks")

    class Kill(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if trainer.progress.batches_completed == 5:
                deadline = time.monotonic() + 300
                while logger.version is None and time.monotonic() < deadline:
                    time.sleep(0.01)
                server.kill()

    logger, table = MLflowLogger(tracking_uri=server.uri), CSVLogger(tmp_path)
    trainer = train(logger, table, callbacks=[Kill()])
    assert trainer.global_step == 12
    assert "MLflowLogger failed in log_" in caplog.text
    assert "still to be written: " in caplog.text
    server.start()
    trainer.max_epochs = 3
    train(trainer=trainer, module=trainer.lightning_module)
    client = MlflowClient(server.uri)
    history = client.get_metric_history(logger.version, "loss_step")
    written = [int(row["step"]) for row in rows(table.log_dir) if "loss_step" in row]
    assert sorted(entry.step for entry in history) == written
    assert len(written) == 9
    assert client.get_run(logger.version).info.status == "FINISHED"
