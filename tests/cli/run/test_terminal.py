"""The commands on a real terminal: narrow and wide, and Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pytest
from launchers import heed_ctrl_c

pty = pytest.importorskip("pty")
ROOT = Path(__file__).parents[3]
CONFIG = """
model: configured.Trained
trainer:
  accelerator: cpu
  max_epochs: -1
  num_sanity_val_steps: 0
  plugins: false
  callbacks: [endless.Tells]
data: endless.Endless
"""
ENDLESS = """
import itertools, sys
import torch
from trainer_hooks import Callback, DataModule
from trainer_hooks.cli.main import main


class Endless(DataModule):
    def train_dataloader(self):
        return [[torch.ones(2, 4), torch.ones(2, 1)]] * 4

    def val_dataloader(self):
        return () if self.trainer.state.fn == "fit" else self.test_dataloader()

    def test_dataloader(self):
        return itertools.cycle(self.train_dataloader())

    predict_dataloader = test_dataloader


class Tells(Callback):
    def tell(self, batch_idx):
        if batch_idx == 9:
            print("batch 9", flush=True)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.tell(trainer.progress.batches_completed)

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        self.tell(batch_idx)

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end


if __name__ == "__main__":
    for command in ("fit", "validate", "test", "predict"):
        code = main([command, "--config", "run.yaml"])
        print("==", command, code, flush=True)
    sys.exit(code)
"""


COMMANDS = [
    "", "fit CLASS AdamW", "fit CLASS RunManifest", "fit CLASS CSVLogger", "fit", "validate",
    "test", "predict", "new", "port", "plugins", "plugins list", "plugins check",
    "plugins new", "checkpoint", "checkpoint show", "checkpoint diff", "checkpoint verify",
    "checkpoint export", "checkpoint prune", "report", "plot", "hooks", "demo",
]  # fmt: skip
NAMES = re.compile(r"ARG:|ENV:|usage:|\[?-|\[?[A-Z_]+\b")
"""How a line begins that holds little but the name of an option, which is not broken."""
HELPS = f"""
import fcntl, struct, termios
from trainer_hooks.cli.main import main

for columns in (40, 200):
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    for command in {COMMANDS!r}:
        print("==", columns, command, flush=True)
        try:
            main([*command.replace(" CLASS", "").split(), "--help", *command.split("CLASS ")[1:]])
        except SystemExit as exit_:
            assert not exit_.code, command
"""


def on_terminal(folder: Path, words: list[str], columns: int, until: bytes = b"") -> tuple:
    """Run Python on a terminal; press Ctrl-C each time that a text has shown up.

    Returns the exit code and what was shown.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        heed_ctrl_c()
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.environ.pop("COLUMNS", None)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(folder)])
        # not `execv`: readline, which pytest imports, sets COLUMNS past `os.environ`
        os.execve(sys.executable, [sys.executable, *words], os.environ)
    shown, pressed, deadline = b"", 0, time.monotonic() + 100
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                chunk = os.read(terminal, 65536)
            except OSError:  # Linux says so where the other end is closed
                break
            if not chunk:
                break
            shown += chunk
            if until and shown.count(until) > pressed:
                os.write(terminal, b"\x03")
                pressed += 1
        else:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode(errors="replace")


@pytest.mark.exhaustive
def test_the_help_keeps_to_the_terminal(tmp_path) -> None:
    """`--help` of every command fits a narrow terminal and a wide one, but for long names."""
    (tmp_path / "helps.py").write_text(HELPS)
    code, shown = on_terminal(tmp_path, ["helps.py"], 80)
    assert code == 0, shown
    wide, columns, command, seen = [], 0, "", set()
    for line in shown.replace("\r", "").splitlines():
        if found := re.fullmatch(r"== (\d+) (.*)", line):
            columns, command = int(found[1]), found[2]
            seen.add((columns, command))
        elif len(line) > columns and not NAMES.match(line.strip()):
            wide.append((columns, command, line))
    assert wide == []
    assert len(seen) == 2 * len(COMMANDS)
    assert shown.count("--trainer.max_epochs") >= 8
    assert "Traceback" not in shown
    assert "\x1b" not in shown


@pytest.mark.slow
def test_what_is_piped_has_no_colours(ask, config) -> None:
    """Without a terminal there are no escapes in what a training and the others print."""
    file = config("model: configured.Trained\ndata: configured.Points")
    answers = [
        ask("fit", "--config", file, "--trainer.enable_progress_bar=true"),
        ask("test", "--config", file),
        ask("report", "trainer_logs/version_0", "-o", "page.html"),
        ask("checkpoint", "show", str(next(Path("trainer_logs").rglob("*.ckpt")))),
        ask("fit", "--config", file, "--trainer.max_epoch=3"),
    ]
    assert [answer.code for answer in answers] == [0, 0, 0, 0, 2]
    assert not any("\x1b" in answer.out + answer.err for answer in answers)


@pytest.mark.slow
def test_ctrl_c_ends_each_command_in_order(tmp_path, classes) -> None:
    """Ctrl-C ends a command with 130, in a line and without a traceback; a fit saves before."""
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "configured.py").write_text((classes / "configured.py").read_text())
    (tmp_path / "endless.py").write_text(ENDLESS)
    code, shown = on_terminal(tmp_path, ["endless.py"], 80, until=b"batch 9")
    assert code == 130, shown
    ends = re.findall(r"== (\w+) (\d+)", shown)
    assert ends == [(name, "130") for name in ("fit", "validate", "test", "predict")], shown
    assert "Traceback" not in shown
    assert shown.count("interrupted") >= len(ends)
    assert len(list(tmp_path.rglob("*.ckpt"))) == 1
