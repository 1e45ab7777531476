"""Whole programs under a pseudo-terminal, whose screen is read as a person would."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pyte
import pytest
import warm_python

from trainer_hooks.callbacks import RichProgressBar, TQDMProgressBar

pytestmark = pytest.mark.slow  # each test starts a program that imports torch

HEAD = """
import fcntl, logging, os, sys, termios, warnings
if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches this process
import torch
from torch.utils.data import DataLoader
from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import *

log = logging.getLogger("users.own")
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
logging.getLogger("trainer_hooks").setLevel(logging.WARNING)  # how a fit ended has its own test

class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        at_batch(self, batch_idx)
        self.log("loss", float(batch_idx), prog_bar=True)
        return self.layer(batch).pow(2).mean()
    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        at_validation(self, batch_idx)
        self.log("val", 1.0, prog_bar=True)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

def at_batch(module, batch_idx):
    pass

at_validation = at_batch

def fit(*callbacks, batches=10, loaders=1, epochs=1, **options):
    trainer = Trainer(
        max_epochs=epochs, callbacks=callbacks, logger=False, plugins=False, accelerator="cpu",
        enable_model_summary=False, enable_checkpointing=False, **options)
    val = [DataLoader(torch.ones(2, 4), batch_size=1) for _ in range(loaders)]
    trainer.fit(Line(), DataLoader(torch.ones(batches, 4), batch_size=1), val)
    return trainer

def wait(word):
    print(f"{word}?", flush=True)
    sys.__stdout__.write(f"\x1b]2;{word}\x07")  # the title of the window: all before it is drawn
    sys.__stdout__.flush()
    assert sys.stdin.readline().strip() == word
"""
BARS = [TQDMProgressBar, RichProgressBar]


class Program:
    """A program of its own whose standard streams are one terminal."""

    def __init__(self, code, folder, columns=100, lines=60, start=warm_python.Popen):
        self._master, slave = pty.openpty()
        self._slave = slave
        mode = termios.tcgetattr(slave)
        mode[3] &= ~termios.ECHO  # what is typed is not shown: it is no part of what is tested
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        self.resize(columns, lines)
        self.screen_ = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen_)
        file = folder / "program.py"
        file.write_text(HEAD + code)
        environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}}
        self.process = start(
            [sys.executable, str(file)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )

    def resize(self, columns, lines=60):
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize_screen(self, columns, lines=60):
        self.resize(columns, lines)
        self.screen_.resize(lines, columns)

    def _read(self, timeout):
        if select.select([self._master], [], [], timeout)[0]:
            self._stream.feed(os.read(self._master, 65536))
            return True
        return False

    def until(self, is_there):
        """Read until `is_there()`; return the screen."""
        deadline = time.monotonic() + 240  # only a program that hangs takes so long
        while not is_there():
            assert self._read(0.5) or self.process.poll() is None, "\n".join(self.lines)
            assert time.monotonic() < deadline, "\n".join(self.lines)
        return self.lines

    def until_asked(self, word):
        """Read until the program waits for `word`; return the screen."""
        return self.until(lambda: self.screen_.title == word)

    def send(self, text):
        os.write(self._master, text.encode())

    def end(self):
        """Wait for the end of the program; return the screen."""
        while self.process.poll() is None:
            self._read(0.2)
        while self._read(0.05):
            pass
        return self.lines

    @property
    def lines(self):
        return [line.rstrip() for line in self.screen_.display if line.strip()]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)


@pytest.fixture
def program(tmp_path):
    """A function that starts a program under a terminal."""
    started = []

    def start(code, **options):
        started.append(Program(code, tmp_path, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(params=BARS)
def bar(request):
    """The name of each bar."""
    return request.param.__name__


SAYS = """
at_print = {1: lambda m: print("from print", 1), 2: lambda m: m.trainer.print("from trainer"),
    3: lambda m: log.info("from logging"), 4: lambda m: warnings.warn("from warnings"),
    5: lambda m: print("to stderr", file=sys.stderr),
    6: lambda m: logging.getLogger("trainer_hooks").warning("from the package"),
    7: lambda m: print("a\\nb", end="\\nc\\n"), 8: lambda m: print("\\033[31mred\\033[0m")}

def at_batch(module, batch_idx):
    at_print.get(batch_idx, lambda m: None)(module)

fit(BAR(), epochs=1)
print("the end")
assert type(sys.stdout).__name__ == type(sys.stderr).__name__ == "TextIOWrapper"
assert logging.getLogger().handlers[0].stream is sys.stderr
"""


def test_nothing_that_is_said_tears_the_bar(program, bar):
    """print, logging, warnings and what goes to stderr stand above the bar, each line whole."""
    running = program(SAYS.replace("BAR", bar), columns=200)
    lines = running.end()
    text = "\n".join(lines)
    for said in (
        "from print 1",
        "from trainer",
        "INFO from logging",
        "to stderr",
        "a",
        "b",
        "c",
        "red",
    ):
        assert said in lines, text
    assert re.search(r"^.*UserWarning: from warnings$", text, re.M), text
    assert re.search(r"^.*from the package$", text, re.M), text
    bars = [line for line in lines if "it/s" in line or "10/10" in line]
    assert len(bars) == 1, text
    assert "10/10" in bars[0]
    assert lines.index(bars[0]) == len(lines) - 2
    assert lines[-1] == "the end"
    assert running.process.returncode == 0


@pytest.mark.parametrize("where", ["at_batch", "at_validation"])
def test_ctrl_c(program, bar, where):
    """After Ctrl-C in training or validation the bar is closed whole and the cursor is there."""
    code = f"""
def {where}(module, batch_idx):
    if batch_idx == 1 and not module.trainer.sanity_checking:
        wait("go")
try:
    fit({bar}())
finally:
    print("the end")
"""
    running = program(code)
    running.until_asked("go")
    running.send("\x03")
    running.send("go\n")
    lines = running.end()
    assert not running.screen_.cursor.hidden
    assert "the end" in lines
    # the signal's own words are written past all streams and bars: a copy may stand above them
    found = [line for line in lines if line.startswith("Epoch 0/0")]
    assert len(found) <= 2, "\n".join(lines)
    assert re.search(r"\b(2|10)/10\b", found[-1]), "\n".join(lines)
    assert lines[lines.index(found[-1]) + 1] == "the end", "\n".join(lines)


def test_error_in_a_step(program, bar):
    """A traceback stands below the bar, whole, and the cursor is there."""
    running = program(
        f"""
def at_batch(module, batch_idx):
    if batch_idx == 4:
        raise ValueError("no")
fit({bar}())
"""
    )
    lines = running.end()
    assert not running.screen_.cursor.hidden
    [epoch] = [n for n, line in enumerate(lines) if line.startswith("Epoch 0/0")]
    assert "4/10" in lines[epoch]
    assert lines[epoch + 1].startswith("Traceback")
    assert sum(line.startswith("Epoch") for line in lines) == 1


def test_how_a_fit_ended_stands_below_the_bar(program, bar):
    """The lines at the end come when the bar is drawn for the last time, and leave it whole."""
    code = f"""
logging.getLogger("trainer_hooks").setLevel(logging.INFO)
fit({bar}())
print("the end")
"""
    lines = program(code).end()
    [epoch] = [n for n, line in enumerate(lines) if line.startswith("Epoch 0/0")]
    assert "10/10" in lines[epoch]
    assert lines[epoch + 1 :] == [
        "INFO fit ended at epoch 1, step 10: max_epochs=1 epochs are done",
        "the end",
    ]


RESIZED = """
def at_batch(module, batch_idx):
    if batch_idx in (3, 6):
        wait(f"go{batch_idx}")

class Often(BAR):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self._train_pace._due = 0.0
        super().on_train_batch_end(trainer, module, outputs, batch, batch_idx)

fit(Often())
print("the end")
"""


def test_terminal_that_is_resized(program, bar):
    """The bar fits the width that the terminal has now: narrower, then wider than at the start."""
    running = program(RESIZED.replace("BAR", bar), columns=80)
    running.until_asked("go3")
    running.resize_screen(50)
    running.send("go3\n")
    running.until_asked("go6")
    running.resize_screen(110)
    running.send("go6\n")
    lines = running.end()
    last = [line for line in lines if "10/10" in line]
    assert len(last) == 1, lines
    assert "it/s" in last[0]
    assert "val=1" in last[0]
    assert lines[-1] == "the end"


def test_very_narrow_terminal(program, bar):
    """On a terminal of 24 columns no drawing is left over, and what counts is seen."""
    running = program(f"fit({bar}(), epochs=3)\nprint('the end')", columns=24)
    lines = running.end()
    assert sum("Epoch" in line for line in lines) <= 1, lines
    assert lines[-1] == "the end"
    assert len(lines) <= 12


@pytest.mark.parametrize(("columns", "most"), [(40, 8), (60, 5), (80, 4), (200, 2)])
def test_many_metrics_on_a_narrow_terminal(program, columns, most):
    """Rich's bar keeps its line, and metrics that have no room in it stand whole below."""
    lines = program(
        """
def at_batch(module, batch_idx):
    for number in range(6):
        module.log(f"metric_number_{number}", 0.5, prog_bar=True)
fit(RichProgressBar())
print("the end")
""",
        columns=columns,
    ).end()
    assert len(lines) - 1 <= most, lines
    [bar] = [line for line in lines if line.startswith("Epoch 0/0")]
    assert "10/10" in bar
    assert sum(line.count("metric_number_") for line in lines) == 6, lines


def test_nested_bar_of_the_user(program):
    """A tqdm bar that the user draws inside a step has a line of its own, below."""
    running = program(
        """
from tqdm import tqdm
def at_batch(module, batch_idx):
    if batch_idx == 4:
        for item in tqdm(range(5), desc="mine", leave=False, mininterval=0):
            if item == 3:
                wait("go")
fit(TQDMProgressBar())
print("the end")
"""
    )
    lines = running.until_asked("go")
    assert any(line.startswith("mine:") for line in lines), lines
    assert sum(line.startswith("Epoch") for line in lines) == 1, lines
    running.send("go\n")
    lines = running.end()
    assert sum(line.startswith("Epoch") for line in lines) == 1, lines
    assert lines[-1] == "the end"


def test_question_of_input_is_seen(program, bar):
    """What input() or a debugger asks is on the screen before it is answered."""
    running = program(
        f"""
def at_batch(module, batch_idx):
    if batch_idx == 2:
        assert input("Go on? ") == "yes"
fit({bar}())
"""
    )
    running.until(lambda: "Go on?" in "".join(running.lines))
    running.send("yes\n")
    running.end()
    assert running.process.returncode == 0


def test_log_of_a_program(tmp_path, bar):
    """Without a terminal a program writes one line an epoch, and no control characters."""
    file = tmp_path / "program.py"
    file.write_text(HEAD + f"fit({bar}(), epochs=3)")
    done = warm_python.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert [line.split(" [")[0] for line in done.stdout.splitlines()] == [
        f"Epoch {epoch}/2: 10/10" for epoch in range(3)
    ]
    assert not set(done.stdout) & {"\r", "\x1b"}


def test_signal_that_ends_the_program(program, bar):
    """A SIGTERM leaves whole bars and a cursor, as Ctrl-C does."""
    running = program(
        f"""
def at_batch(module, batch_idx):
    if batch_idx == 2:
        wait("go")
fit({bar}())
"""
    )
    running.until_asked("go")
    os.kill(running.process.pid, signal.SIGTERM)
    running.send("go\n")
    running.end()
    assert not running.screen_.cursor.hidden


@pytest.mark.exhaustive
def test_rich_draws_no_random_numbers(program):
    """The bar and the summary of rich, which draws when it is imported, leave the run's numbers."""
    running = program(
        """
import random
random.seed(1)
expected = random.getstate()
trainer = Trainer(max_epochs=1, callbacks=[RichProgressBar()], logger=False, plugins=False,
    accelerator="cpu", enable_checkpointing=False)
assert "rich.style" not in sys.modules
trainer.fit(Line(), DataLoader(torch.ones(4, 4), batch_size=1))
assert "rich.style" in sys.modules
assert random.getstate() == expected
print("the same")
""",
        start=subprocess.Popen,  # the others have imported rich already
    )
    lines = running.end()
    assert lines[-1] == "the same", lines
