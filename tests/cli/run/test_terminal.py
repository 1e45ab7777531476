"""The commands on a real terminal: narrow and wide, and Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")
ROOT = Path(__file__).parents[3]
CONFIG = """
model: configured.Trained
data: configured.Points
trainer: {accelerator: cpu, max_epochs: -1, log_every_n_steps: 1, plugins: false}
"""


def on_terminal(folder: Path, words: list[str], columns: int, until: bytes = b"") -> tuple:
    """Run a command on a terminal; press Ctrl-C where a text has shown up.

    Returns the exit code and what was shown.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.environ.pop("COLUMNS", None)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(folder)])
        os.execv(sys.executable, [sys.executable, "-m", "trainer_hooks", *words])
    shown, is_pressed, deadline = b"", False, time.monotonic() + 100
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
            if until and not is_pressed and until in shown:
                os.write(terminal, b"\x03")
                is_pressed = True
        else:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode(errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [50, 120])
def test_the_help_keeps_to_the_terminal(tmp_path, columns: int) -> None:
    """`--help` fits a narrow terminal and a wide one; the name of an option alone may not."""
    code, shown = on_terminal(tmp_path, ["fit", "--help"], columns)
    assert code == 0
    names = ("usage:", "ARG:", "ENV:")
    text = [line for line in shown.splitlines() if not line.strip().startswith(names)]
    assert [line for line in text if len(line) > columns and " " in line.strip()] == []
    assert "--trainer.max_epochs" in shown


@pytest.mark.slow
def test_ctrl_c_ends_a_training_in_order(tmp_path, classes) -> None:
    """Ctrl-C in an epoch ends with 130, without a traceback, and says how to go on."""
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "configured.py").write_text((classes / "configured.py").read_text())
    code, shown = on_terminal(tmp_path, ["fit", "--config", "run.yaml"], 80, until=b"Epoch 20")
    assert code == 130
    assert "was interrupted (Ctrl-C)" in shown
    assert "Traceback" not in shown
    assert list(tmp_path.rglob("*.ckpt"))
