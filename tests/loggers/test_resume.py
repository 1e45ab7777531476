"""A run that is resumed goes on in the same place, and nothing stands there twice."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import warm_python

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.loggers import ConsoleLogger, CSVLogger, InMemoryLogger, TensorBoardLogger

if TYPE_CHECKING:
    import subprocess

STEPS = 12


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:fit has nothing to do")
def test_every_cut_gives_the_rows_of_the_uncut_run(train, save_each, tmp_path, rows, scalars):
    """From each checkpoint of a run that went on after it, another process's run is whole again.

    The files hold rows of after the checkpoint, which are not to stand there twice.
    """
    base = tmp_path / "logs"
    loggers = [CSVLogger(base), TensorBoardLogger(base), InMemoryLogger()]
    train(*loggers, callbacks=[save_each])
    uncut = rows(loggers[0].log_dir), scalars(loggers[1].log_dir), loggers[2].metrics
    assert len(uncut[0]) == 10
    shutil.copytree(base, tmp_path / "kept")
    for path in save_each.paths:
        shutil.rmtree(base)
        shutil.copytree(tmp_path / "kept", base)
        again = [CSVLogger(base), TensorBoardLogger(base), InMemoryLogger()]
        train(*again, callbacks=[], ckpt_path=path, seed=99)
        assert again[0].log_dir == loggers[0].log_dir
        assert rows(again[0].log_dir) == uncut[0], path.name
        assert scalars(again[1].log_dir) == uncut[1], path.name
        assert again[2].metrics == uncut[2], path.name
    assert sorted(path.name for path in (base / "trainer_logs").iterdir()) == ["version_0"]


def test_rows_that_are_cut_off_are_kept_beside(train, save_each, tmp_path):
    """What was logged after the checkpoint is moved to a file that no reader takes for the run."""
    train(CSVLogger(tmp_path), TensorBoardLogger(tmp_path), callbacks=[save_each])
    folder = tmp_path / "trainer_logs/version_0"
    before = (folder / "metrics.csv").read_text().splitlines()
    path = save_each.folder / "batch-04.ckpt"
    again = [CSVLogger(tmp_path), TensorBoardLogger(tmp_path)]
    train(*again, callbacks=[], ckpt_path=path)
    moved = (folder / "metrics.after_resume_0.csv").read_text().splitlines()
    assert moved == [before[0], *before[3:]]
    assert len(list(folder.glob("events.out.after_resume_0*"))) == 1


def test_unwritten_rows_are_in_the_checkpoint(tmp_path, monkeypatch, rows):
    """Rows that the disk had no room for as a checkpoint was saved are not lost."""
    logger = CSVLogger(tmp_path)
    for step in range(3):
        logger.log_metrics({"loss": 1.0}, step)
    logger.run_state()
    logger.log_metrics({"loss": 2.0}, 3)

    def full(path, lines):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("trainer_hooks.loggers.csv.append_rows", full)
        state = logger.run_state()
    again = CSVLogger(tmp_path)
    again.resume_run(state)
    again.log_metrics({"loss": 3.0}, 4)
    again.save()
    assert [row["step"] for row in rows(again.log_dir)] == ["0", "1", "2", "3", "4"]


@pytest.mark.slow
def test_a_fit_that_failed_is_resumed_by_the_same_trainer(
    train, save_each, tmp_path, rows, scalars
):
    """The same objects, resumed after an exception, write each step once."""

    class Fail(Callback):
        is_armed = True

        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if self.is_armed and trainer.progress.batches_completed == 9:
                raise RuntimeError("cut")

    whole = [CSVLogger(tmp_path / "whole"), TensorBoardLogger(tmp_path / "whole")]
    train(*whole)
    loggers = [CSVLogger(tmp_path / "cut"), TensorBoardLogger(tmp_path / "cut")]
    fail = Fail()
    from trainer_hooks import Trainer

    trainers = []

    class Keep(Callback):
        def setup(self, trainer, module, stage):
            trainers.append(trainer)

    with pytest.raises(RuntimeError, match="cut"):
        train(*loggers, callbacks=[fail, save_each, Keep()])
    fail.is_armed = False
    assert isinstance(trainers[0], Trainer)
    train(trainer=trainers[0], ckpt_path=save_each.folder / "batch-05.ckpt")
    assert rows(loggers[0].log_dir) == rows(whole[0].log_dir)
    assert scalars(loggers[1].log_dir) == scalars(whole[1].log_dir)


def test_fits_in_a_row_go_on_in_one_run(train, tmp_path, rows, scalars):
    """A trainer that fits again without a checkpoint adds to the same files."""
    loggers = [CSVLogger(tmp_path), TensorBoardLogger(tmp_path)]
    trainer = train(*loggers, max_epochs=1)
    module = trainer.lightning_module
    trainer.max_epochs = 2
    train(trainer=trainer, module=module)
    assert [row["step"] for row in rows(loggers[0].log_dir)] == [
        "1", "3", "5", "5", "5", "7", "9", "11", "11", "11",
    ]  # fmt: skip
    assert len(scalars(loggers[1].log_dir)["loss_step"]) == 6
    assert sorted(p.name for p in (tmp_path / "trainer_logs").iterdir()) == ["version_0"]


def test_another_version_of_the_users_choice_is_taken(train, save_each, tmp_path, rows):
    """Who chooses another version gets it, and the old run stays as it is."""
    logger = CSVLogger(tmp_path)
    train(logger, callbacks=[save_each])
    whole = rows(logger.log_dir)
    again = CSVLogger(tmp_path, version="branch")
    train(again, ckpt_path=save_each.folder / "batch-06.ckpt")
    assert rows(logger.log_dir) == whole
    assert rows(again.log_dir) == whole[3:]


def test_the_same_version_of_the_users_choice_goes_on(train, save_each, tmp_path, rows):
    """Who chooses the version that was saved has each step once."""
    train(CSVLogger(tmp_path, version="mine"), callbacks=[save_each])
    whole = rows(tmp_path / "trainer_logs/mine")
    train(CSVLogger(tmp_path, version="mine"), ckpt_path=save_each.folder / "batch-06.ckpt")
    assert rows(tmp_path / "trainer_logs/mine") == whole


def test_another_folder_of_the_users_choice_begins_a_run(train, save_each, tmp_path, rows):
    """A resume with another save_dir begins a run there, with the steps of after the checkpoint."""
    logger = CSVLogger(tmp_path / "one")
    train(logger, TensorBoardLogger(tmp_path / "one"), callbacks=[save_each])
    whole = rows(logger.log_dir)
    again = CSVLogger(tmp_path / "two")
    train(again, TensorBoardLogger(tmp_path / "two"), ckpt_path=save_each.folder / "batch-06.ckpt")
    assert rows(again.log_dir) == whole[3:]
    assert rows(logger.log_dir) == whole


DIFFER = "the checkpoint and this run's loggers differ: "


@pytest.mark.parametrize("kind", [CSVLogger, TensorBoardLogger])
@pytest.mark.parametrize("names", ["ba", "b", "abc", "cb", "ab"])
def test_loggers_in_another_order_go_on_each_in_its_folder(
    train, save_each, tmp_path, steps, caplog, kind, names
):
    """A logger finds its own folder, whichever stand beside it; one line tells what differs."""
    caplog.set_level("INFO", "trainer_hooks")
    train(*(kind(tmp_path, name) for name in "ab"), callbacks=[save_each])
    caplog.clear()
    again = {name: kind(tmp_path, name) for name in names}
    train(*again.values(), ckpt_path=save_each.folder / "batch-06.ckpt")
    for name in set("ab") & set(names):
        assert again[name].version == 0
        assert steps(tmp_path / name / "version_0") == [1, 3, 5, 7, 9, 11]
    a, c = (f"{kind.__name__} of {str(tmp_path / name)!r}" for name in "ac")
    told = [text.removeprefix(DIFFER) for text in caplog.messages if text.startswith(DIFFER)]
    assert (
        told
        == {
            "ba": [],
            "ab": [],
            "b": [f"no logger goes on with {a}"],
            "abc": [],
            "cb": [f"no logger goes on with {a}; {c} begins a run of its own"],
        }[names]
    )


def test_loggers_of_one_folder_go_on_in_order_and_a_chosen_version_comes_first(
    train, save_each, tmp_path, steps
):
    """Of two with equal folders the first has the first run, unless one names its own."""
    train(CSVLogger(tmp_path), CSVLogger(tmp_path), callbacks=[save_each])
    path = save_each.folder / "batch-06.ckpt"
    for versions in ([None, None], [None, 0], [1, None]):
        again = [CSVLogger(tmp_path, version=version) for version in versions]
        train(*again, ckpt_path=path)
        expected = [1, 0] if versions != [None, None] else [0, 1]
        assert [logger.version for logger in again] == expected
        for number in (0, 1):
            assert steps(tmp_path / f"trainer_logs/version_{number}") == [1, 3, 5, 7, 9, 11]


def test_loggers_that_are_left_out_are_named_unless_they_have_nothing_to_go_on_with(
    train, save_each, tmp_path, caplog
):
    """A log on the console is no run that could go on; values in memory are lost."""
    caplog.set_level("INFO", "trainer_hooks")
    train(ConsoleLogger(), InMemoryLogger(), callbacks=[save_each])
    train(CSVLogger(tmp_path), ckpt_path=save_each.folder / "batch-06.ckpt")
    assert f"{DIFFER}no logger goes on with InMemoryLogger" in caplog.messages
    caplog.clear()
    train(fast_dev_run=True, ckpt_path=save_each.folder / "batch-06.ckpt")
    assert not [text for text in caplog.messages if text.startswith(DIFFER)]


@pytest.fixture
def steps(rows, scalars):
    """A function that reads the steps of a folder's values of `loss_step`."""

    def read(folder: Path) -> list[int]:
        if (folder / "metrics.csv").exists():
            return [int(row["step"]) for row in rows(folder) if "loss_step" in row]
        return [step for step, _ in scalars(folder)["loss_step"]]

    return read


def test_a_folder_that_is_gone_is_made_anew(train, save_each, tmp_path, rows, scalars):
    """A resume whose folder was removed goes on in a new one of the same name."""
    train(CSVLogger(tmp_path), TensorBoardLogger(tmp_path), callbacks=[save_each])
    whole = rows(tmp_path / "trainer_logs/version_0")
    shutil.rmtree(tmp_path / "trainer_logs")
    again, board = CSVLogger(tmp_path), TensorBoardLogger(tmp_path)
    train(again, board, ckpt_path=save_each.folder / "batch-06.ckpt")
    assert again.version == 0
    assert rows(again.log_dir) == whole[3:]
    assert [step for step, _ in scalars(board.log_dir)["loss_step"]] == [7, 9, 11]


@pytest.mark.parametrize("kind", [CSVLogger, TensorBoardLogger])
def test_another_runs_folder_is_left_alone(train, save_each, tmp_path, kind):
    """Where another run has the folder by now, this one goes on in a new one and says so."""
    train(kind(tmp_path), callbacks=[save_each])
    shutil.rmtree(tmp_path / "trainer_logs")
    other = kind(tmp_path)
    train(other, seed=44)
    held = {path.name: path.read_bytes() for path in Path(other.log_dir).iterdir()}
    again = kind(tmp_path)
    with pytest.warns(TrainerHooksWarning, match="does not hold what it did"):
        train(again, ckpt_path=save_each.folder / "batch-06.ckpt")
    assert again.version == 1
    assert {path.name: path.read_bytes() for path in Path(other.log_dir).iterdir()} == held


def test_checkpoints_go_to_the_resumed_runs_folder(train, tmp_path):
    """The checkpoints of a resumed run lie beside those of its beginning; "auto" finds them."""
    train(CSVLogger(tmp_path), enable_checkpointing=True, max_epochs=1)
    trainer = train(CSVLogger(tmp_path), enable_checkpointing=True, ckpt_path="auto")
    assert trainer.checkpoint_callback.dirpath == str(
        tmp_path / "trainer_logs/version_0/checkpoints"
    )
    assert sorted(p.name for p in (tmp_path / "trainer_logs").iterdir()) == ["version_0"]


def test_checkpoints_without_loggers_or_with_others(train, save_each, tmp_path, rows):
    """A checkpoint of a run without loggers is resumed with some, and the other way round."""
    train(callbacks=[save_each])
    logger = CSVLogger(tmp_path)
    train(logger, ckpt_path=save_each.folder / "batch-06.ckpt")
    assert len(rows(logger.log_dir)) == 7


SCRIPT = textwrap.dedent(
    """
    import os, signal, sys, warnings
    import torch
    from torch.utils.data import DataLoader
    from trainer_hooks import Callback, Module, Trainer, seed_everything
    from trainer_hooks.callbacks import ModelCheckpoint
    from trainer_hooks.loggers import CSVLogger, MLflowLogger, TensorBoardLogger, WandbLogger
    from trainer_hooks.loggers import guard

    guard.PATIENCE = 300  # the test is about what is written, however busy the machine
    torch.set_num_threads(1)
    kill_at = int(sys.argv[1])

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            self.save_hyperparameters({"lr": 0.1})
        def training_step(self, batch, batch_idx):
            loss = self.layer(batch).square().mean()
            self.log("loss", loss, on_step=True, on_epoch=True)
            return loss
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    class Kill(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if trainer.progress.batches_completed == kill_at:
                import time
                deadline = time.monotonic() + 300
                # until the rows of after the checkpoint are there
                while len(loggers[2].logged) < 7 and time.monotonic() < deadline:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)

    class Counted(MLflowLogger):
        logged = ()
        def log_metrics(self, metrics, step=None):
            super().log_metrics(metrics, step)
            self.logged = (*self.logged, step)

    loggers = [
        CSVLogger("logs", flush_logs_every_n_steps=1),
        TensorBoardLogger("logs"),
        Counted(save_dir="ml"),
        WandbLogger(save_dir="wb", offline=True),
    ]
    seed_everything(5, verbose=False)
    data = torch.arange(48, dtype=torch.float32).reshape(24, 2).sin()
    Trainer(
        max_epochs=2, accelerator="cpu", log_every_n_steps=1, logger=loggers, plugins=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[Kill(), ModelCheckpoint("saved", every_n_train_steps=5, save_top_k=-1)],
    ).fit(Net(), DataLoader(data, batch_size=4, shuffle=True), ckpt_path="auto")
    print(loggers[2].run_id, loggers[3].version)
    """
)


def start(folder: Path, kill_at: int) -> subprocess.CompletedProcess:
    """Run the script; what it prints goes to files, which no process that it leaves holds open."""
    folder.mkdir(exist_ok=True)
    with (folder / "out.txt").open("w") as out, (folder / "err.txt").open("w") as err:
        return warm_python.run(
            [sys.executable, "-c", SCRIPT, str(kill_at)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "WANDB_SILENT": "true"},
            stdout=out,
            stderr=err,
            timeout=700,
            check=False,
        )


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
def test_a_killed_process_goes_on_in_the_same_run(tmp_path, rows, scalars):
    """After SIGKILL, `ckpt_path="auto"` in a new process: one run everywhere, each step once."""
    from mlflow.tracking import MlflowClient

    from trainer_hooks.loggers.wandb import rows_of_run

    assert start(tmp_path / "cut", 8).returncode == -signal.SIGKILL
    for folder in (tmp_path / "cut", tmp_path / "whole"):
        done = start(folder, -1)
        assert done.returncode == 0, (folder / "err.txt").read_text()[-3000:]
        run_id, wandb_id = (folder / "out.txt").read_text().split()[-2:]
        client = MlflowClient(f"sqlite:///{folder}/ml/mlflow.db")
        experiment = client.get_experiment_by_name("trainer_logs")
        runs = client.search_runs([experiment.experiment_id])
        assert [run.info.run_id for run in runs] == [run_id]
        assert runs[0].info.status == "FINISHED"
        history = client.get_metric_history(run_id, "loss_step")
        assert sorted(entry.step for entry in history) == list(range(STEPS))
        assert len(client.get_metric_history(run_id, "loss_epoch")) == 2
        steps = [
            row["trainer/global_step"]
            for row in rows_of_run(folder / "wb/wandb", wandb_id)
            if "loss_step" in row
        ]
        # what W&B's own process had not yet written when it was killed is lost, nothing comes twice
        missing = set(range(8)) if folder.name == "cut" else set()
        assert len(steps) == len(set(steps))
        assert set(range(STEPS)) - missing <= set(steps) <= set(range(STEPS))
    assert len(list((tmp_path / "cut/wb/wandb").glob("offline-run-*"))) == 2
    cut, whole = (tmp_path / name / "logs/trainer_logs" for name in ("cut", "whole"))
    assert [path.name for path in cut.iterdir()] == ["version_0"]
    assert rows(cut / "version_0") == rows(whole / "version_0")
    assert scalars(cut / "version_0") == scalars(whole / "version_0")


def test_a_damaged_file_of_metrics_does_not_keep_a_run_from_going_on(train, save_each, tmp_path):
    """A byte that is no text makes it another program's file, which is left alone."""
    first = train(CSVLogger(tmp_path), callbacks=[save_each]).logger
    path = Path(first.log_dir) / "metrics.csv"
    damaged = path.read_bytes()[:30] + b"\xff" + path.read_bytes()[31:]
    path.write_bytes(damaged)
    again = CSVLogger(tmp_path)
    with pytest.warns(TrainerHooksWarning, match="does not hold what it did"):
        train(again, ckpt_path=save_each.folder / "batch-06.ckpt")
    assert again.version == 1
    assert path.read_bytes() == damaged


class Crash(Callback):
    """Raises after a batch."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.progress.batches_completed == self.batch:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kind", [CSVLogger, TensorBoardLogger])
def test_what_a_run_without_a_checkpoint_has_logged_is_set_aside(
    train, tmp_path, rows, scalars, kind, caplog
):
    """A new training in a chosen folder has its own rows alone; those of the dead run are kept."""

    def logger():
        return kind(tmp_path, name="trial", version="seven")

    def steps(folder):
        if kind is CSVLogger:
            return [int(row["step"]) for row in rows(folder)]
        return [step for step, _ in scalars(folder)["loss_step"]]

    uncut = train(kind(tmp_path, name="uncut"))
    for batch in (5, 3):
        with pytest.raises(KeyboardInterrupt):
            train(logger(), callbacks=[Crash(batch)], ckpt_path="auto")
    whole = train(logger(), ckpt_path="auto")
    assert steps(whole.log_dir) == steps(uncut.log_dir)
    kept = sorted(path for path in Path(whole.log_dir).iterdir() if "earlier_run" in path.name)
    assert len(kept) == 2
    if kind is CSVLogger:
        assert [len(path.read_text().splitlines()) - 1 for path in kept] == [2, 1]
        assert caplog.text.count("of an earlier run moved to") == 2
    # an evaluation adds to what the training has logged, also in a process of its own
    again = Trainer(
        logger=logger(), accelerator="cpu", enable_progress_bar=False, default_root_dir=tmp_path
    )
    again.validate(LogsOnce(), [1], verbose=False)
    if kind is CSVLogger:
        assert [int(row["step"]) for row in rows(whole.log_dir)] == [*steps(uncut.log_dir), 0]


class LogsOnce(Module):
    """Logs a value in its validation."""

    def validation_step(self, batch, batch_idx):
        self.log("value", 1.0)
