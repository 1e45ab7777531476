from __future__ import annotations

import argparse
import csv
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import fsspec
import pytest
import torch

from trainer_hooks import Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.loggers import CSVLogger, Logger, TensorBoardLogger
from trainer_hooks.testing import TinyModule


def names(folder: str | Path) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def read(path: str | Path) -> list[dict[str, str]]:
    with Path(path, "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"save_dir": None}, "save_dir None of CSVLogger: it must be a path"),
        ({"save_dir": "x", "name": 3}, "name 3 of CSVLogger: it must be a string"),
        ({"save_dir": "x", "prefix": None}, "prefix None of CSVLogger: it must be a string"),
        (
            {"save_dir": "x", "version": -1},
            "version -1 of CSVLogger: it must be a number from 0 on",
        ),
        ({"save_dir": "x", "version": ""}, "version '' of CSVLogger"),
        ({"save_dir": "x", "version": True}, "version True of CSVLogger"),
        ({"save_dir": "x", "version": 1.5}, "version 1.5 of CSVLogger"),
        ({"save_dir": "x", "flush_logs_every_n_steps": 0}, "flush_logs_every_n_steps 0"),
        ({"save_dir": "x", "flush_logs_every_n_steps": True}, "flush_logs_every_n_steps True"),
    ],
)
def test_argument_that_breaks_its_rule_is_named(arguments, message):
    """A bad argument is refused at construction, with its name, its value and the rule."""
    with pytest.raises(OptionError, match=message):
        CSVLogger(**arguments)


def test_save_dir_that_is_a_file(tmp_path):
    """A save_dir that is a file is refused at construction, before a run is spent."""
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="is a file, and must be a folder"):
        CSVLogger(tmp_path / "file")


@pytest.mark.parametrize("version", [None, 3, "mine"])
def test_folder_that_cannot_be_made(tmp_path, version):
    """A file in the way of the run's folder is reported with the path and the cause."""
    (tmp_path / "runs").touch()
    logger = CSVLogger(tmp_path, name="runs", version=version)
    with pytest.raises(OptionError, match=r"runs.* cannot be made \(.+\)\. Give a folder"):
        logger.log_hyperparams({"lr": 0.1})


def test_file_of_somebody_else_is_left_alone(tmp_path):
    """A metrics.csv that this class did not write is refused and not changed."""
    folder = tmp_path / "trainer_logs" / "mine"
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text("time,loss\n1,2\n")
    logger = CSVLogger(tmp_path, version="mine")
    logger.log_metrics({"loss": 1.0}, step=0)
    with pytest.raises(OptionError, match="first column is 'time', not 'step'"):
        logger.save()
    assert (folder / "metrics.csv").read_text() == "time,loss\n1,2\n"


def test_a_damaged_file_is_not_continued(tmp_path) -> None:
    """A byte that is no text is told with its place; the file stays as it is."""
    file = tmp_path / "trainer_logs" / "version_0" / "metrics.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"step,loss\n0,1.0\n1,\xff\n2,")
    with pytest.raises(OptionError, match=r"is damaged \(.*byte 0xff in position 18"):
        logger = CSVLogger(tmp_path, version=0)
        logger.log_metrics({"loss": 1.0}, 2)
        logger.save()
    assert file.read_bytes() == b"step,loss\n0,1.0\n1,\xff\n2,"


def test_rows_have_a_step_column_and_exact_values(tmp_path):
    """Each call is one row; a float is read back as the same float."""
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 0.1 + 0.2, "epoch": 0}, step=49)
    logger.log_metrics({"loss": 1e-30, "epoch": 1}, step=99)
    assert (tmp_path / "trainer_logs/version_0/metrics.csv").read_text() == (
        "step,loss,epoch\n49,0.30000000000000004,0\n99,1e-30,1\n"
    )


def test_late_column_rewrites_the_file(tmp_path):
    """A metric that appears late gets a column; old rows are kept, with nothing in it."""
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.log_metrics({"val_loss": 2.0}, step=1)
    logger.log_metrics({"loss": 3.0}, step=2)
    assert read(logger.log_dir) == [
        {"step": "0", "loss": "1.0", "val_loss": ""},
        {"step": "1", "loss": "", "val_loss": "2.0"},
        {"step": "2", "loss": "3.0", "val_loss": ""},
    ]


def test_late_column_leaves_the_old_file_if_writing_fails(tmp_path, monkeypatch):
    """A rewrite that fails leaves the old file whole, no other file, and the rows in memory."""
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.save()
    before = Path(logger.log_dir, "metrics.csv").read_bytes()
    logger.log_metrics({"accuracy": 0.5}, step=1)

    def refuse(self, target):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        with pytest.raises(OSError, match="No space left"):
            logger.save()
    assert Path(logger.log_dir, "metrics.csv").read_bytes() == before
    assert names(logger.log_dir) == ["metrics.csv"]
    logger.save()
    assert [row["accuracy"] for row in read(logger.log_dir)] == ["", "0.5"]


def test_known_columns_are_appended(tmp_path):
    """Without a new column the file is added to, not written anew."""
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.save()
    inode = Path(logger.log_dir, "metrics.csv").stat().st_ino
    logger.log_metrics({"loss": 2.0}, step=1)
    logger.save()
    assert Path(logger.log_dir, "metrics.csv").stat().st_ino == inode
    assert len(read(logger.log_dir)) == 2


def test_flush_every_n_steps(tmp_path):
    """Rows stay in memory until the step count says otherwise, whatever steps are logged at."""
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=100)
    logger.log_metrics({"loss": 1.0}, step=49)
    assert not (tmp_path / "trainer_logs").exists()
    logger.log_metrics({"loss": 1.0}, step=99)
    assert len(read(logger.log_dir)) == 2
    logger.log_metrics({"loss": 1.0}, step=149)
    logger.log_metrics({"loss": 1.0}, step=198)
    assert len(read(logger.log_dir)) == 2
    logger.log_metrics({"loss": 1.0}, step=205)
    assert len(read(logger.log_dir)) == 5


def test_flush_when_steps_start_again(tmp_path):
    """Rows of a second fit, whose steps start at 0, are not held back by the first's steps."""
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=10)
    logger.log_metrics({"loss": 1.0}, step=10_000)
    for step in range(10):
        logger.log_metrics({"loss": 1.0}, step=step)
    assert len(read(logger.log_dir)) == 11


def test_finalize_writes_what_is_left_and_the_logger_goes_on(tmp_path):
    """finalize leaves nothing in memory; the same logger can be used for the next fit."""
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.finalize("failed")
    assert len(read(logger.log_dir)) == 1
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.finalize("success")
    assert len(read(logger.log_dir)) == 2


def test_logger_that_was_given_nothing_creates_nothing(tmp_path):
    """Neither asking for the folder nor an empty finalize leaves anything on the disk."""
    logger = CSVLogger(tmp_path / "logs")
    assert logger.log_dir == str(tmp_path / "logs/trainer_logs/version_0")
    assert (logger.version, logger.name, logger.save_dir) == (
        0,
        "trainer_logs",
        str(tmp_path / "logs"),
    )
    logger.finalize("success")
    assert not (tmp_path / "logs").exists()


def test_versions_count_up_past_gaps(tmp_path):
    """The next number is one more than the highest, numerically, whatever else lies there."""
    for name in ("version_2", "version_10", "version_x", "checkpoints"):
        (tmp_path / "trainer_logs" / name).mkdir(parents=True)
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 1.0})
    logger.save()
    assert logger.version == 11


def test_empty_name_leaves_the_level_out(tmp_path):
    """With name="" the versions lie in save_dir itself."""
    assert CSVLogger(tmp_path, name="").log_dir == str(tmp_path / "version_0")


def test_checkpoint_saved_first_stays_with_its_metrics(tmp_path):
    """A folder that somebody made because log_dir told them to stays this logger's folder."""
    logger = CSVLogger(tmp_path)
    Path(logger.log_dir, "checkpoints").mkdir(parents=True)
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.save()
    assert names(tmp_path / "trainer_logs") == ["version_0"]
    assert names(logger.log_dir) == ["checkpoints", "metrics.csv"]


def test_folder_taken_between_asking_and_writing(tmp_path):
    """Where another run took the folder that was told, this one moves on and says so."""
    late, fast = CSVLogger(tmp_path), CSVLogger(tmp_path)
    assert late.log_dir == fast.log_dir
    fast.log_hyperparams({"lr": 1})
    late.log_metrics({"loss": 1.0}, step=0)
    with pytest.warns(TrainerHooksWarning, match="which another logger took meanwhile"):
        late.save()
    assert (fast.version, late.version) == (0, 1)
    assert len(read(late.log_dir)) == 1
    assert read(fast.log_dir) == []


def test_folder_made_by_somebody_else_since_it_was_looked_for(tmp_path, monkeypatch):
    """A folder that appears between looking and making is somebody else's, even without a file."""
    monkeypatch.setattr("trainer_hooks.loggers.run_folder.RunFolder._next", lambda folder: 0)
    (tmp_path / "trainer_logs/version_0/checkpoints").mkdir(parents=True)
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.save()
    assert logger.version == 1
    assert names(tmp_path / "trainer_logs/version_0") == ["checkpoints"]


def test_loggers_racing_for_a_version(tmp_path):
    """Loggers that write at the same moment are given a folder each."""
    loggers = [CSVLogger(tmp_path) for _ in range(16)]
    barrier = threading.Barrier(len(loggers))

    def write(logger, value):
        barrier.wait()
        logger.log_metrics({"loss": value}, step=0)
        logger.save()

    threads = [
        threading.Thread(target=write, args=(logger, float(index)))
        for index, logger in enumerate(loggers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(logger.version for logger in loggers) == list(range(16))
    written = [read(logger.log_dir)[0]["loss"] for logger in loggers]
    assert written == [str(float(index)) for index in range(16)]


def test_chosen_version_is_continued(tmp_path):
    """A second run with the same version adds to the rows of the first, late columns included."""
    for step, metrics in enumerate(({"loss": 1.0}, {"loss": 2.0}, {"accuracy": 0.5})):
        logger = CSVLogger(tmp_path, version="mine")
        logger.log_metrics(metrics, step=step)
        logger.finalize("success")
    assert read(tmp_path / "trainer_logs/mine") == [
        {"step": "0", "loss": "1.0", "accuracy": ""},
        {"step": "1", "loss": "2.0", "accuracy": ""},
        {"step": "2", "loss": "", "accuracy": "0.5"},
    ]


@pytest.mark.parametrize(
    ("torn", "kept"), [("step,loss\n0,1.0\n1,2", ["0"]), ("step,lo", []), ("", [])]
)
def test_row_that_was_cut_off_is_dropped(tmp_path, torn, kept):
    """Half a row at the end of a continued file does not run into the next row."""
    folder = tmp_path / "trainer_logs" / "version_7"
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text(torn)
    logger = CSVLogger(tmp_path, version=7)
    logger.log_metrics({"loss": 3.0}, step=1)
    logger.save()
    assert [row["step"] for row in read(folder)] == [*kept, "1"]
    assert read(folder)[-1] == {"step": "1", "loss": "3.0"}


def test_prefix_is_put_before_metric_names_only(tmp_path):
    """With a prefix the columns are named prefix-metric, and step stays step."""
    logger = CSVLogger(tmp_path, prefix="run", flush_logs_every_n_steps=1)
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.log_metrics({"loss": 2.0, "accuracy": 0.5}, step=1)
    assert read(logger.log_dir) == [
        {"step": "0", "run-loss": "1.0", "run-accuracy": ""},
        {"step": "1", "run-loss": "2.0", "run-accuracy": "0.5"},
    ]


def test_names_that_csv_must_quote(tmp_path):
    """A metric's name may hold commas, quotes and line breaks."""
    name = 'a,"b"\nc'
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    logger.log_metrics({name: 1.0}, step=0)
    logger.log_metrics({"late": 2.0}, step=1)
    assert read(logger.log_dir)[0] == {"step": "0", name: "1.0", "late": ""}


def test_step_argument_wins_over_a_metric_of_that_name(tmp_path):
    """A metric called step does not make a second column of that name."""
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"step": 5.0, "loss": 1.0}, step=1)
    logger.save()
    assert read(logger.log_dir) == [{"step": "1", "loss": "1.0"}]


def test_rows_without_step_are_numbered(tmp_path):
    """Without a step, rows count up from 0, past rows that were written already."""
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=2)
    for _ in range(3):
        logger.log_metrics({"loss": 1.0})
    logger.save()
    assert [row["step"] for row in read(logger.log_dir)] == ["0", "1", "2"]


def test_values_are_those_of_the_moment(tmp_path):
    """What the caller does to its dict or tensor afterwards changes no row."""
    logger = CSVLogger(tmp_path)
    running = torch.tensor(1.0)
    metrics = {"loss": running}
    logger.log_metrics(metrics, step=0)
    running.add_(1)
    metrics["late"] = 1.0
    logger.save()
    assert read(logger.log_dir) == [{"step": "0", "loss": "1.0"}]


def test_hyperparameters_are_json_and_add_up(tmp_path):
    """Hyperparameters are valid JSON; what JSON has no form for is written as its repr."""
    logger = CSVLogger(tmp_path)
    logger.log_hyperparams({"lr": 0.1, "sizes": (1, 2), "optimizer": {"kind": dict}})
    logger.log_hyperparams(argparse.Namespace(limit=float("inf"), name=None, lr=0.2))
    assert json.loads(Path(logger.log_dir, "hparams.json").read_text()) == {
        "lr": 0.2,
        "sizes": [1, 2],
        "optimizer": {"kind": "<class 'dict'>"},
        "limit": "inf",
        "name": None,
    }


def test_files_keep_the_usual_permissions(tmp_path):
    """A rewritten file can be read by whom the umask lets, not by its owner alone."""
    logger = CSVLogger(tmp_path)
    logger.log_hyperparams({"lr": 0.1})
    logger.log_metrics({"loss": 1.0}, step=0)
    logger.save()
    (tmp_path / "usual").touch()
    usual = stat.S_IMODE((tmp_path / "usual").stat().st_mode)
    for path in Path(logger.log_dir).iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == usual


_KILLED = """
import os, signal, sys
from trainer_hooks.loggers import CSVLogger
logger = CSVLogger(sys.argv[1], version="killed", flush_logs_every_n_steps=10)
for step in range(25):
    logger.log_metrics({"loss": step / 2}, step=step)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_process_keeps_flushed_rows(tmp_path):
    """After SIGKILL every row that was flushed is in the file, whole."""
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    rows = read(tmp_path / "trainer_logs/killed")
    assert rows == [{"step": str(step), "loss": str(step / 2)} for step in range(20)]


def test_smallest_logger():
    """A logger needs log_metrics and nothing else; the rest does nothing."""

    class Last(Logger):
        def log_metrics(self, metrics, step=None):
            self.seen = (metrics, step)

    logger = Last()
    logger.log_metrics({"loss": 1.0}, 3)
    logger.log_hyperparams({"lr": 1})
    logger.finalize("success")
    assert logger.seen == ({"loss": 1.0}, 3)
    assert (logger.name, logger.version, logger.save_dir, logger.log_dir) == (
        "Last",
        None,
        None,
        None,
    )
    with pytest.raises(TypeError, match="abstract"):
        Logger()


def test_custom_logger_saves_when_it_is_finalized():
    """finalize saves, so that a logger which buffers needs no more than save."""
    saved = []

    class Buffered(Logger):
        def log_metrics(self, metrics, step=None):
            pass

        def save(self):
            saved.append(True)

    Buffered().finalize("success")
    assert saved == [True]


def test_a_continued_run_removes_what_a_killed_write_left(tmp_path):
    """A file that a killed process was writing goes; that of a live process stays."""
    first = CSVLogger(tmp_path, version=0)
    first.log_metrics({"a": 1.0}, 0)
    first.save()
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    folder = Path(first.log_dir)
    stale = [folder / f".{name}.{killed.pid}.tmp" for name in ("metrics.csv", "hparams.json")]
    live = [folder / f".metrics.csv.{os.getppid()}.tmp", folder / ".metrics.csv.tmp"]
    for path in (*stale, *live):
        path.touch()
    second = CSVLogger(tmp_path, version=0)
    second.resume_run(first.run_state())
    second.log_metrics({"a": 2.0}, 1)
    second.save()
    assert not [path for path in stale if path.exists()]
    assert [path for path in live if path.exists()] == live


@pytest.mark.parametrize("kind", [CSVLogger, TensorBoardLogger])
def test_an_address_is_refused(kind, tmp_path, monkeypatch):
    """It would be a local folder `memory:`."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=r"'memory://logs' of .*Logger: is an address"):
        kind("memory://logs")
    assert list(tmp_path.iterdir()) == []


def test_the_advice_on_an_address_works(tmp_path, monkeypatch):
    """Both lines of the message, as they stand there: checkpoints at once, the logs afterwards."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError) as caught:
        CSVLogger("memory://bucket/runs")
    copying = re.search(r"when the run is over: (fsspec\..*?\))\. ", str(caught.value))
    saving = re.search(r"at once: (ModelCheckpoint\(.*\))\.$", str(caught.value))
    names_there = {"fsspec": fsspec, "ModelCheckpoint": ModelCheckpoint}
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=CSVLogger("logs"), enable_progress_bar=False,
        callbacks=[eval(saving[1], names_there)], enable_model_summary=False, log_every_n_steps=1,
    )  # fmt: skip
    trainer.fit(TinyModule())
    eval(copying[1], {**names_there, "trainer": trainer})
    store = fsspec.filesystem("memory")
    try:
        found = [path.rpartition("/")[2] for path in store.find("/bucket/runs")]
        assert {"metrics.csv", "epoch=0-step=3.ckpt"} <= set(found)
    finally:
        store.rm("/bucket", recursive=True)


@pytest.mark.parametrize("kind", [CSVLogger, TensorBoardLogger])
def test_an_address_of_a_file_is_a_path(kind, tmp_path):
    """As where checkpoints go, `file://` stands for a folder of this machine."""
    assert kind(f"file://{tmp_path}", name="x", version=2).log_dir == str(tmp_path / "x/version_2")
