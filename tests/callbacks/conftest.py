"""A terminal, and a fake trainer that walks through a fit in the documented order."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import termios
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pyte
import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import TensorDataset

from trainer_hooks import Trainer
from trainer_hooks.callbacks import Checkpoint
from trainer_hooks.clock.progress import Progress
from trainer_hooks.testing import TinyModule


class FakeTrainer:
    """The part of the Trainer that the savers and controllers read, written out."""

    def __init__(self, root, *callbacks, batches=4, val_batches=1, **options):
        self.callbacks = callbacks
        self.progress = Progress()
        self.state = SimpleNamespace(fn="fit", stage="train")
        self.callback_metrics = {}
        self.val_check_interval = options.pop("val_check_interval", 1.0)
        self.check_val_every_n_epoch = options.pop("check_val_every_n_epoch", 1)
        self.steps_per_batch = options.pop("steps_per_batch", 1)
        self.log_every_n_steps = options.pop("log_every_n_steps", 2)
        self.fast_dev_run = options.pop("fast_dev_run", 0)
        self.min_epochs = options.pop("min_epochs", 0)
        self.min_steps = options.pop("min_steps", 0)
        self.log_dir = options.pop("log_dir", None)
        self.logger = options.pop("logger", None)
        self.optimizers = options.pop("optimizers", [])
        self.lr_scheduler_configs = options.pop("lr_scheduler_configs", [])
        assert not options, f"unknown: {options}"
        self.loggers = [self.logger] if self.logger else []
        self.default_root_dir = str(root)
        self.batches = batches
        self.num_val_batches = [val_batches] if val_batches else []
        self.sanity_checking = False
        self.is_last_batch = False
        self.should_stop = False
        self.stop_reason = ""
        self.stop_calls = []
        self.ckpt_path = self.named_ckpt_path = None
        self.custom_io = None
        self.is_global_zero = True
        self.world_size = 1
        self.saved = []
        self.logged = []
        self.fail_on_save = None
        self.on_train_batch = lambda trainer: None
        self.on_validation = lambda trainer: None

    @property
    def current_epoch(self):
        return self.progress.epochs_completed

    @property
    def global_step(self):
        return self.progress.steps_completed

    def fire(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, None, *args)

    def stop(self, reason):
        self.should_stop, self.stop_reason = True, reason
        self.stop_calls.append(reason)

    def log(self, **metrics):
        self.callback_metrics.update({k: torch.tensor(float(v)) for k, v in metrics.items()})

    def log_metrics(self, metrics, step=None):
        self.logged.append((self.progress.batches_stepped if step is None else step, metrics))

    def save_checkpoint(self, filepath, weights_only=False):
        if self.fail_on_save is not None:
            raise self.fail_on_save
        path = Path(filepath)
        path.parent.mkdir(parents=True, exist_ok=True)
        states = [callback.state_dict() for callback in self.callbacks]
        fresh = path.with_name(path.name + ".part")
        torch.save({"callbacks": states, "progress": self.progress.state_dict()}, fresh)
        fresh.replace(path)
        self.saved.append(path.name)
        self.fire("on_checkpoint_saved", str(path))

    def resume(self, path):
        self.ckpt_path = self.named_ckpt_path = str(path)
        self.fire("setup", "fit")
        checkpoint = torch.load(path, weights_only=True)
        self.progress.load_state_dict(checkpoint["progress"])
        for callback, state in zip(self.callbacks, checkpoint["callbacks"], strict=True):
            callback.load_state_dict(state)

    def validate(self, sanity=False):
        self.sanity_checking = sanity
        self.fire("on_validation_start")
        self.on_validation(self)
        if not sanity:
            self.progress.validated_at = self.progress.batches_completed
        self.fire("on_validation_end")
        self.sanity_checking = False

    def start(self):
        if self.ckpt_path is None:
            self.fire("setup", "fit")
        self.fire("on_fit_start")
        self.fire("on_train_start")

    def run_batch(self, index):
        self.is_last_batch = index == self.batches - 1
        self.fire("on_train_batch_start", None, index)
        self.progress.batches_completed += 1
        self.progress.batches_in_epoch += 1
        self.progress.steps_completed += self.steps_per_batch
        self.progress.batches_stepped += 1
        self.on_train_batch(self)
        self.fire("on_train_batch_end", {}, None, index)
        interval = self.val_check_interval
        if not (isinstance(interval, float) and interval == 1.0):
            every = interval if isinstance(interval, int) else int(self.batches * interval)
            if (index + 1) % every == 0 and self.num_val_batches:
                self.validate()
        self.fire("on_batch_checkpoint")

    def run_epoch(self):
        self.progress.begin_epoch()
        self.fire("on_train_epoch_start")
        for index in range(self.batches):
            self.run_batch(index)
            if self.should_stop and self.current_epoch >= self.min_epochs:
                break
        self.fire("on_train_batches_end")
        is_due = (self.current_epoch + 1) % self.check_val_every_n_epoch == 0
        by_epoch = isinstance(self.val_check_interval, float) and self.val_check_interval == 1.0
        if by_epoch and self.num_val_batches and is_due:
            self.validate()
        self.fire("on_train_epoch_end")
        self.fire("on_epoch_checkpoint")
        self.progress.complete_epoch()

    def fit(self, epochs):
        self.start()
        while self.current_epoch < epochs:
            if self.should_stop and self.current_epoch >= self.min_epochs:
                break
            self.run_epoch()
        self.fire("on_train_end")
        self.fire("teardown", "fit")


@pytest.fixture
def fake(tmp_path):
    """Return a function that makes a fake trainer in the test's folder."""

    def make(*callbacks, **options):
        return FakeTrainer(tmp_path, *callbacks, **options)

    return make


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture(scope="module")
def digits():
    """Images of digits as rows of numbers from 0 to 1, and the digits."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return TensorDataset(
        torch.tensor(found.data, dtype=torch.float32) / 16, torch.tensor(found.target)
    )


@pytest.fixture
def scores():
    """Return a function that makes a validation log one score after the other."""

    def make(*values, name="val_loss"):
        left = list(values)

        def on_validation(trainer):
            if not trainer.sanity_checking:
                trainer.log(**{name: left.pop(0)})

        return on_validation

    return make


class HostCopies(TorchDispatchMode):
    """Counts the operations that copy single values from the device to the host."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.__name__.partition(".")[0] == "_local_scalar_dense"
        return func(*args, **(kwargs or {}))


@pytest.fixture
def host_copies():
    """Return what counts copies to the host while it is entered."""
    return HostCopies()


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
            assert self._changed.wait_for(lambda: self._screen.title == title, timeout=120)

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
        self._reader.join(timeout=120)
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
def quiet():
    """Options of a trainer on the CPU that prints, logs and saves nothing of its own accord."""
    return {**QUIET_OPTIONS, "num_sanity_val_steps": 0}


@pytest.fixture
def trained(quiet):
    """Train a tiny module for three epochs with a callback; return the trainer."""

    def train(callback, module=None, **options):
        saves = {"enable_checkpointing": isinstance(callback, Checkpoint)}
        trainer = Trainer(callbacks=[callback], **{"max_epochs": 3, **quiet, **saves, **options})
        trainer.fit(module or TinyModule())
        return trainer

    return train


@pytest.fixture
def Scripted():
    """A module that logs a given validation loss in each epoch."""

    class Scripted(TinyModule):
        losses = (3.0, 1.0, 2.0, 2.0, 2.0)

        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.losses[self.trainer.current_epoch])
            return self(batch)

    return Scripted
