"""What the tests of callbacks share: a terminal, a clock, and a trainer that only counts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import termios
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pyte
import pytest

from trainer_hooks.progress import EpochStage, Progress


class Terminal:
    """A pseudo-terminal whose screen can be looked at."""

    def __init__(self, columns: int = 120, lines: int = 20) -> None:
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.file = os.fdopen(self._slave, "w", encoding="utf-8")
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = threading.Condition()
        self._asked = 0
        self.output = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # how a pty says that its other side was closed
                return
            with self._changed:
                self.output += data
                self._stream.feed(data)
                self._changed.notify_all()

    def sync(self) -> None:
        """Wait until everything that was written has been read: a window title comes back."""
        self._asked += 1
        title = f"asked {self._asked}"
        self.file.write(f"\x1b]2;{title}\x07")
        self.file.flush()
        with self._changed:
            assert self._changed.wait_for(lambda: self._screen.title == title, timeout=10)

    @property
    def screen(self) -> list[str]:
        """What a person sees now: the lines of the screen that are not empty."""
        return [line for line in self.lines if line]

    @property
    def lines(self) -> list[str]:
        """What a person sees now, empty lines included."""
        self.sync()
        with self._changed:
            return [line.rstrip() for line in self._screen.display]

    @property
    def buffer(self):
        """The characters of the screen with their colours, by line and column."""
        self.sync()
        return self._screen.buffer

    @property
    def cursor_line(self) -> int:
        """In which line of the screen the next text would stand, from 0 on."""
        self.sync()
        return self._screen.cursor.y

    @property
    def cursor_is_hidden(self) -> bool:
        self.sync()
        return self._screen.cursor.hidden

    def close(self) -> None:
        self.file.close()
        self._reader.join(timeout=10)
        os.close(self._master)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Let a test that has a terminal write to it; a fixture cannot: pytest captures anew after."""
    terminal = pyfuncitem.funcargs.get("terminal")
    if terminal is None:
        return (yield)
    with contextlib.redirect_stdout(terminal.file):
        return (yield)


@pytest.fixture
def terminal(monkeypatch):
    """Standard output as a terminal of 120 columns."""
    terminal = Terminal()
    # rich asks the environment first and the real standard streams second
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "20")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    yield terminal
    terminal.close()


@pytest.fixture
def clock(monkeypatch):
    """The clock of the progress bars, which goes on only when a test says so."""
    now = SimpleNamespace(seconds=1000.0)
    for module in ("bar_drawing", "rich_progress"):
        monkeypatch.setattr(f"trainer_hooks.callbacks.{module}.monotonic", lambda: now.seconds)
    return now


@dataclass
class CountingTrainer:
    """What a progress bar reads of a trainer, and nothing else."""

    num_training_batches: int | float = 4
    num_val_batches: list = field(default_factory=list)
    num_sanity_val_batches: list = field(default_factory=list)
    num_test_batches: list = field(default_factory=list)
    num_predict_batches: list = field(default_factory=list)
    max_epochs: int = 2
    is_global_zero: bool = True
    sanity_checking: bool = False
    logger: object = None
    progress: Progress = field(default_factory=Progress)
    metrics: dict = field(default_factory=lambda: {"loss": 0.5})
    metrics_read: int = 0

    @property
    def current_epoch(self) -> int:
        return self.progress.epochs_completed

    @property
    def progress_bar_metrics(self) -> dict:
        self.metrics_read += 1
        return dict(self.metrics)


class Run:
    """Fires the hooks of a run on one progress bar, in the order of the catalogue."""

    def __init__(self, bar, **options) -> None:
        self.bar = bar
        self.trainer = CountingTrainer(**options)
        self.args = (self.trainer, SimpleNamespace())
        self.at_batch = lambda count: None
        self.at_val_batch = lambda count: None

    def start(self, stage="fit"):
        self.bar.setup(*self.args, stage)

    def sanity_check(self):
        self.trainer.sanity_checking = True
        self.bar.on_sanity_check_start(*self.args)
        self.validate(self.trainer.num_sanity_val_batches)
        self.bar.on_sanity_check_end(*self.args)
        self.trainer.sanity_checking = False

    def validate(self, totals=None):
        self.bar.on_validation_start(*self.args)
        totals = self.trainer.num_val_batches if totals is None else totals
        self._evaluate(self.bar.on_validation_batch_end, totals)
        self.bar.on_validation_end(*self.args)

    def _evaluate(self, batch_end, totals):
        for loader, total in enumerate(totals):
            for index in range(total):
                batch_end(*self.args, None, None, index, *([loader] if len(totals) > 1 else []))
                self.at_val_batch(index + 1)

    def batches(self, until=None):
        progress = self.trainer.progress
        until = self.trainer.num_training_batches if until is None else until
        while progress.batches_in_epoch < until:
            progress.batches_in_epoch += 1
            progress.batches_completed += 1
            index = progress.batches_in_epoch - 1
            self.bar.on_train_batch_end(*self.args, {}, None, index)
            self.at_batch(index + 1)

    def epoch(self, batches=None):
        progress = self.trainer.progress
        if progress.stage is not EpochStage.BATCHES:
            progress.begin_epoch()
            self.bar.on_train_epoch_start(*self.args)
        self.batches(batches)
        self.bar.on_train_batches_end(*self.args)
        if self.trainer.num_val_batches:
            self.validate()
        self.bar.on_train_epoch_end(*self.args)
        progress.complete_epoch()

    def fit(self, batches=None):
        self.start()
        if self.trainer.num_sanity_val_batches:
            self.sanity_check()
        self.bar.on_train_start(*self.args)
        while self.trainer.current_epoch < self.trainer.max_epochs:
            self.epoch(batches)
        self.bar.on_train_end(*self.args)
        self.bar.teardown(*self.args, "fit")

    def evaluate(self, what, totals):
        setattr(self.trainer, f"num_{'val' if what == 'validation' else what}_batches", totals)
        self.start(what)
        getattr(self.bar, f"on_{what}_start")(*self.args)
        self._evaluate(getattr(self.bar, f"on_{what}_batch_end"), totals)
        getattr(self.bar, f"on_{what}_end")(*self.args)
        self.bar.teardown(*self.args, what)


@pytest.fixture
def run():
    """The class that fires the hooks of a run on one bar."""
    return Run
