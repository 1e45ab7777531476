"""What fails in a logger stops no training, costs little, and is written later."""

from __future__ import annotations

import logging
import os
import random
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import warm_python

from trainer_hooks import Callback
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import ConsoleLogger, CSVLogger, InMemoryLogger, Logger
from trainer_hooks.loggers import guard as guard_module
from trainer_hooks.loggers.guard import BackgroundGuard, CallBuffer, Guard, LoggerCall


class Flaky(InMemoryLogger):
    """Fails in its calls of some numbers."""

    def __init__(self, fails=lambda number: True, error=None) -> None:
        super().__init__()
        self.fails = fails
        self.error = error or ConnectionError("gone")
        self.tries = 0

    def log_metrics(self, metrics, step=None):
        self.tries += 1
        if self.fails(self.tries):
            raise self.error
        super().log_metrics(metrics, step)


class Other(Flaky):
    """The same, called from a thread."""

    in_background = True


@pytest.fixture
def reports(caplog):
    """What was reported: messages of level warning and above."""
    caplog.set_level(logging.WARNING, logger="trainer_hooks")
    return caplog


def guarded(logger, kind=Guard, **options):
    guard = kind(logger, **options)
    guard.install()
    return guard


def test_a_policy_that_is_none(train):
    """An on_error that means nothing is refused as a run begins."""
    logger = InMemoryLogger()
    logger.on_error = "ignore"
    with pytest.raises(
        OptionError, match="on_error 'ignore' of InMemoryLogger: it must be 'report'"
    ):
        train(logger)


def test_a_logger_that_fails_does_not_stop_a_training(train, reports):
    """The training goes on, other loggers get everything, and the fault is told once."""
    broken, whole = Flaky(), InMemoryLogger()
    trainer = train(broken, whole)
    assert trainer.global_step == 12
    assert len(whole.metrics) == 10
    assert broken.metrics == []
    first, last = reports.records
    assert "Flaky failed in log_metrics: ConnectionError: gone" in first.getMessage()
    assert first.exc_info[1] is broken.error
    assert "still to be written: 10 rows (" in last.getMessage()


def test_what_failed_is_written_later_in_order(train):
    """Values of an outage are kept, and the next calls write them before their own."""
    flaky, whole = Flaky(lambda number: number in (2, 3)), InMemoryLogger()
    train(flaky, whole)
    assert flaky.metrics == whole.metrics


def test_the_end_of_a_run_writes_what_is_left(train):
    """An outage that ends with the run loses nothing, although the pause was not over."""
    flaky, whole = Flaky(lambda number: number < 5), InMemoryLogger()
    train(flaky, whole)
    assert sorted(flaky.metrics, key=str) == sorted(whole.metrics, key=str)


def test_what_is_down_is_tried_ever_less_often():
    """1,000 calls of a logger that is down are tried a few dozen times, not 1,000."""
    flaky = Flaky()
    guarded(flaky)
    for step in range(1000):
        flaky.log_metrics({"loss": 1.0}, step)
    assert 10 < flaky.tries < 40


def test_one_call_makes_up_for_a_bounded_number():
    """After a long outage a step writes a hundred kept calls at most, the rest later."""
    flaky = Flaky(lambda number: down)
    down = True
    guarded(flaky)
    for step in range(500):
        flaky.log_metrics({"loss": 1.0}, step)
    down = False
    sizes = []
    while len(flaky.metrics) < 500:
        before = len(flaky.metrics)
        flaky.log_metrics({"loss": 1.0}, 1000)
        sizes.append(len(flaky.metrics) - before)
    assert max(sizes) == 100
    assert [step for step, _ in flaky.metrics[:500]] == list(range(500))


def test_a_refused_value_does_not_hold_up_the_rest():
    """What fails again and again is given up after twenty tries; the others are written."""

    class Picky(InMemoryLogger):
        def log_metrics(self, metrics, step=None):
            if step == 3:
                raise RuntimeError("not this one")
            super().log_metrics(metrics, step)

    picky = Picky()
    guard = guarded(picky)
    for step in range(2000):
        picky.log_metrics({"loss": 1.0}, step)
    assert [step for step, _ in picky.metrics] == [s for s in range(2000) if s != 3]
    assert guard.lost.steps == [3]


def test_a_mistake_is_not_tried_again(reports):
    """A value of the wrong kind is given up at once, and what follows is written."""
    flaky = Flaky(lambda number: number == 1, TypeError("no number"))
    guard = guarded(flaky)
    flaky.log_metrics({"loss": "high"}, 0)
    flaky.log_metrics({"loss": 1.0}, 1)
    assert flaky.metrics == [(1, {"loss": 1.0})]
    assert (flaky.tries, guard.lost.steps) == (2, [0])
    guard.finish()
    message = reports.records[-1].getMessage()
    assert message == "Flaky failed once in this run. Lost: 1 row (step 0)."


def test_an_outage_that_ended_is_told_as_one(train, reports):
    """Where everything was written later, the last line says so."""
    train(Flaky(lambda number: number in (2, 3)))
    assert (
        reports.records[-1]
        .getMessage()
        .endswith("failed twice in this run; all rows were written later.")
    )


def test_rows_that_are_dropped_are_told_with_their_steps(reports, monkeypatch):
    """Calls beyond the bound are lost: the report counts rows and other calls apart."""
    monkeypatch.setattr(guard_module, "_MOST_CALLS", 4)
    flaky = Flaky()
    flaky.log_text = flaky.log_metrics
    guard = guarded(flaky)
    guard.buffer = CallBuffer(most_calls=4)
    flaky.log_text("note", "a text")
    for step in range(10):
        flaky.log_metrics({"loss": 1.0}, step)
    guard.finish()
    message = reports.records[-1].getMessage()
    assert "still to be written: 4 rows (steps 6 to 9)" in message
    assert "Lost: 6 rows (steps 0 to 5) and 1 other call." in message


def test_rows_that_a_logger_holds_itself_are_counted(tmp_path, reports):
    """Those that a CSVLogger collects before it writes them are not written either."""
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=10)
    guard = guarded(logger)
    logger.log_metrics({"loss": 1.0}, 0)
    (tmp_path / "trainer_logs").write_text("in the way of the folder", encoding="utf-8")
    for step in range(1, 25):
        logger.log_metrics({"loss": 1.0}, step)
    logger.finalize("success")
    guard.finish()
    message = reports.records[-1].getMessage()
    assert "still to be written: 25 rows (steps 0 to 24)" in message
    assert "Lost" not in message


def test_kept_values_are_those_of_the_moment():
    """What the caller changes afterwards is not what is written later."""
    flaky = Flaky(lambda number: number == 1)
    guard = guarded(flaky)
    metrics, image = {"loss": torch.tensor(1.0)}, torch.zeros(2, 2)
    flaky.log_metrics(metrics, 0)
    flaky.log_image("map", [image])
    metrics["loss"].fill_(5)
    image.fill_(1)
    guard.logger.finalize("success")
    assert flaky.metrics == [(0, {"loss": 1.0})]
    assert flaky.images["map"][0][1][0].max() == 0


def test_a_saved_checkpoint_is_that_of_the_moment(train, tmp_path):
    """A logger in the background hears late of a save, and is told what was saved then."""
    go_on = threading.Event()

    class Late(InMemoryLogger):
        in_background = True

        def after_save_checkpoint(self, checkpoint_callback):
            assert go_on.wait(60)
            paths.append(Path(checkpoint_callback.best_model_path).name)

    class LetGo(Callback):
        def on_fit_end(self, trainer, module):
            go_on.set()

    paths = []
    saver = ModelCheckpoint(tmp_path / "saved", save_top_k=-1, filename="{epoch}")
    train(Late(), callbacks=[saver, LetGo()], enable_checkpointing=True)
    assert paths == ["epoch=0.ckpt", "epoch=1.ckpt"]


def test_memory_is_bounded():
    """Beyond the bound the oldest calls are lost, and counted; by number and by bytes."""
    backlog = CallBuffer(most_calls=3, most_bytes=1000)
    for step in range(5):
        backlog.add(LoggerCall.of("log_metrics", ({"loss": 1.0}, step), {}))
    assert [backlog[index].args[1] for index in range(3)] == [2, 3, 4]
    assert (backlog.lost.steps, backlog.lost.others) == ([0, 1], 0)
    backlog.add(LoggerCall.of("log_image", ("map", [torch.zeros(16, 16)]), {}))
    assert len(backlog) == 1
    assert backlog.lost.steps == [0, 1, 2, 3, 4]
    backlog.add(LoggerCall.of("log_image", ("map", [torch.zeros(16, 16)]), {}))
    assert backlog.lost.others == 1


def test_on_error_raise_ends_the_run(train):
    """Who wants it has an error of a logger end the run, as it is."""
    flaky = Flaky()
    flaky.on_error = "raise"
    with pytest.raises(ConnectionError, match="gone"):
        train(flaky)


def test_on_error_raise_in_the_background(train):
    """An error of a logger with a thread of its own is raised too, at the end at the latest."""
    other = Other()
    other.on_error = "raise"
    with pytest.raises(ConnectionError, match="gone"):
        train(other)


def test_callbacks_that_log_themselves_are_guarded(train):
    """A callback that calls the trainer's loggers itself is not ended by one that fails."""

    class Drawer(Callback):
        def on_train_epoch_end(self, trainer, module):
            for logger in trainer.loggers:
                logger.log_text("note", "epoch over", trainer.global_step)

    class Mute(InMemoryLogger):
        def log_text(self, key, text, step=None):
            raise OSError("no room")

    mute, whole = Mute(), InMemoryLogger()
    train(mute, whole, callbacks=[Drawer()])
    assert whole.texts["note"] == [(6, "epoch over"), (12, "epoch over")]
    assert len(mute.metrics) == 10


def test_outside_of_a_run_a_logger_is_as_it_was(train):
    """After a run an error is raised where it happens, and no method stays replaced."""
    flaky = Flaky(lambda number: number > 10)
    train(flaky)
    assert not set(guard_module.METHODS) & set(vars(flaky))
    with pytest.raises(ConnectionError):
        flaky.log_metrics({"loss": 1.0})


def test_finalize_and_save_that_fail(train, reports):
    """A logger that cannot be ended does not keep the others from being ended."""

    class Stuck(InMemoryLogger):
        def finalize(self, status):
            raise OSError("no room")

    stuck, whole = Stuck(), InMemoryLogger()
    train(stuck, whole)
    assert whole.status == "success"
    assert "Stuck failed in finalize" in reports.records[0].getMessage()


def test_a_slow_logger_holds_no_step(train):
    """A logger in the background that hangs lets the whole training pass; nothing is lost."""
    go_on, trained = threading.Event(), threading.Event()

    class Slow(InMemoryLogger):
        in_background = True

        def log_metrics(self, metrics, step=None):
            assert go_on.wait(60)
            super().log_metrics(metrics, step)

    class LetGo(Callback):
        def on_fit_end(self, trainer, module):
            assert slow.metrics == []
            trained.set()
            go_on.set()

    slow, whole = Slow(), InMemoryLogger()
    train(slow, whole, callbacks=[LetGo()])
    assert trained.is_set()
    assert slow.metrics == whole.metrics
    assert slow.status == "success"


def test_the_end_of_a_run_waits_for_a_bounded_time(reports):
    """A logger that never answers is left behind, and that is told."""
    never = threading.Event()

    class Dead(InMemoryLogger):
        def log_metrics(self, metrics, step=None):
            never.wait(60)

    dead = Dead()
    guard = guarded(dead, BackgroundGuard, patience=0.05)
    dead.log_metrics({"loss": 1.0}, 0)
    dead.finalize("success")
    guard.finish()
    guard.release()
    assert "did not write everything within 0.05 seconds" in reports.records[0].getMessage()
    never.set()


def test_the_background_keeps_the_order_and_tries_again(train):
    """A logger in the background gets all values in order, also after an outage."""
    is_back, has_failed = threading.Event(), threading.Event()

    def fails(number) -> bool:
        if number > 1 and not is_back.is_set():
            has_failed.set()
            return True
        return False

    class ComesBack(Callback):
        def on_train_end(self, trainer, module) -> None:
            # the thread makes its calls when it can: the outage lasts until one has failed
            assert has_failed.wait(30)
            is_back.set()

    other, whole = Other(fails), InMemoryLogger()
    train(other, whole, callbacks=[ComesBack()])
    assert sorted(other.metrics, key=str) == sorted(whole.metrics, key=str)


def test_no_logger_touches_the_random_numbers(train, tmp_path):
    """A training with loggers ends with the weights and random numbers of one without."""

    def end(*loggers):
        module = None
        trainer = train(*loggers, module=module)
        weights = torch.cat([p.detach().flatten() for p in trainer.lightning_module.parameters()])
        return weights, random.getstate(), np.random.get_state()[1].tolist(), torch.rand(4)

    from trainer_hooks.loggers import TensorBoardLogger

    bare = end()
    full = end(
        CSVLogger(tmp_path),
        TensorBoardLogger(tmp_path, log_graph=True),
        ConsoleLogger(),
        InMemoryLogger(),
    )
    assert torch.equal(bare[0], full[0])
    assert bare[1:3] == full[1:3]
    assert torch.equal(bare[3], full[3])


FULL_DISK = """
    import resource, sys
    from trainer_hooks.loggers import CSVLogger, TensorBoardLogger
    from trainer_hooks.loggers.guard import Guard
    logger = {"csv": CSVLogger, "tensorboard": TensorBoardLogger}[sys.argv[1]](sys.argv[2])
    if sys.argv[1] == "csv":
        logger = CSVLogger(sys.argv[2], flush_logs_every_n_steps=10)
    guard = Guard(logger)
    guard.install()
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for step in range(2000):
        if step == 300:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5_003, hard))
        if step == 900:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        logger.log_metrics({"loss": step / 3}, step)
    logger.finalize("success")
    guard.finish()
    print(guard.lost.steps)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "tensorboard"])
def test_a_full_disk_loses_no_row(tmp_path, kind, rows, scalars):
    """Rows of the time in which the disk had no room are written once there is some; none twice."""
    done = warm_python.run(
        [sys.executable, "-c", textwrap.dedent(FULL_DISK), kind, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "[]\n"
    assert "failed in log_metrics" in done.stderr
    folder = tmp_path / "trainer_logs/version_0"
    if kind == "csv":
        found = [(int(row["step"]), float(row["loss"])) for row in rows(folder)]
    else:
        found = [(step, value * 1.0) for step, value in scalars(folder)["loss"]]
    assert [step for step, _ in found] == list(range(2000))
    assert all(value == pytest.approx(step / 3) for step, value in found)


LONG_OUTAGE = """
    import csv, sys
    from pathlib import Path
    from trainer_hooks import Callback, Trainer
    from trainer_hooks.loggers import CSVLogger, TensorBoardLogger
    from trainer_hooks.testing import TinyModule

    kind, folder, is_freed = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "freed"
    filler = folder / "filler"

    class FillDisk(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if trainer.global_step == 50:
                with filler.open("wb", buffering=0) as file:
                    try:
                        while True:
                            file.write(bytes(4096))
                    except OSError:
                        pass
            if trainer.global_step == 2750 and is_freed:
                filler.unlink()

    logger = (
        CSVLogger(folder, flush_logs_every_n_steps=40)
        if kind == "csv" else TensorBoardLogger(folder)
    )
    Trainer(
        max_steps=3000, logger=logger, callbacks=[FillDisk()], log_every_n_steps=1,
        enable_checkpointing=False, enable_run_manifest=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0, plugins=False,
    ).fit(TinyModule(), 1000 * list(TinyModule().train_dataloader()))
    if kind == "csv":
        with open(f"{logger.log_dir}/metrics.csv") as file:
            print("step", *(row["step"] for row in csv.DictReader(file) if row["train_loss"]))
    else:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        events = EventAccumulator(logger.log_dir, size_guidance={"scalars": 0}).Reload()
        print("step", *(event.step for event in events.Scalars("train_loss")))
        # each failure leaves a file, and not each buffered row tries in vain at the end
        print("files:", len(list(Path(logger.log_dir).iterdir())), file=sys.stderr)
"""


def run_on_a_small_disk(disk: Path, kind: str, ending: str) -> subprocess.CompletedProcess[str]:
    """Run LONG_OUTAGE with a file system of one megabyte at `disk`, of that process alone."""
    disk.mkdir()
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount.append('mount -t tmpfs -o size=1m small "$1" && shift && exec "$@"')
    if subprocess.run([*mount, "sh", str(disk), "true"], check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    script = [sys.executable, "-c", textwrap.dedent(LONG_OUTAGE), kind, str(disk), ending]
    return subprocess.run(
        [*mount, "sh", str(disk), *script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["csv", "tensorboard"])
def test_a_disk_that_is_full_for_a_long_time_loses_no_row(tmp_path, kind):
    """No number of failures gives a row up if it is the disk that fails."""
    done = run_on_a_small_disk(tmp_path / "disk", kind, "freed")
    assert done.stdout.split() == ["step", *map(str, range(3000))]
    assert "all rows were written later" in done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["csv", "tensorboard"])
def test_a_disk_that_stays_full_is_told_in_rows(tmp_path, kind):
    """Each row is in the file or in the report."""
    done = run_on_a_small_disk(tmp_path / "disk", kind, "full")
    steps = set(map(int, done.stdout.split("step")[1].split()))
    told = re.search(r"still to be written: ([\d,]+) rows \(steps (\d+) to 2999\)", done.stderr)
    assert told is not None, done.stderr
    missing = [step for step in range(3000) if step not in steps]
    assert missing[0] == int(told[2])
    assert len(missing) <= int(told[1].replace(",", "")) <= len(missing) + 2
    files = re.search(r"^files: (\d+)$", done.stderr, re.MULTILINE)
    assert (int(files[1]) if files else 1) < 100
    assert "Lost" not in done.stderr


def test_two_loggers_of_one_class_have_folders_of_their_own(train, tmp_path, rows):
    """Two CSV loggers with one folder are given two versions, each with all rows."""
    first, second = CSVLogger(tmp_path), CSVLogger(tmp_path)
    train(first, second)
    assert (first.version, second.version) == (0, 1)
    assert rows(first.log_dir) == rows(second.log_dir)
    assert len(rows(first.log_dir)) == 10


def test_loggers_of_several_classes_share_a_folder(train, tmp_path, rows, scalars):
    """A CSV and a TensorBoard logger with one folder write to the same version."""
    from trainer_hooks.loggers import TensorBoardLogger

    table, board = CSVLogger(tmp_path), TensorBoardLogger(tmp_path)
    train(table, board)
    assert table.log_dir == board.log_dir
    assert len(rows(table.log_dir)) == 10
    assert len(scalars(board.log_dir)["epoch"]) == 10


def test_two_loggers_with_the_same_chosen_folder(train, tmp_path):
    """Two loggers that were told to write to one file, and a logger given twice, are refused."""
    with pytest.raises(OptionError, match="two CSVLoggers that write to"):
        train(CSVLogger(tmp_path, version=1), CSVLogger(tmp_path, version=1))
    logger = InMemoryLogger()
    with pytest.raises(OptionError, match="a logger stands there twice"):
        train(logger, logger)


def test_a_logger_of_the_users_own_needs_nothing_of_this(train):
    """A logger with log_metrics alone is guarded, saved in checkpoints and used again."""

    class Least(Logger):
        def __init__(self):
            self.seen = []

        def log_metrics(self, metrics, step=None):
            self.seen.append(step)

    least = Least()
    trainer = train(least)
    trainer.save_checkpoint(Path(trainer.default_root_dir, "a.ckpt"))
    assert len(least.seen) == 10
