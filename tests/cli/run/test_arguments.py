"""The Tab key in a real bash, as argcomplete's own function is called by it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LINES = {
    "trainer-hooks pl": {"plot", "plugins"},
    "trainer-hooks checkpoint sh": {"show"},
    "trainer-hooks fit --trainer.max_ep": {"--trainer.max_epochs"},
    "trainer-hooks fit --config ru": {"run.yaml"},
    "trainer-hooks test --trainer.callbacks+=EarlySt": {"EarlyStopping"},
    "own.py fit --model.wi": {"--model.width"},
}
SCRIPT = """
eval "$(register-python-argcomplete trainer-hooks own.py)"
trainer-hooks() { python -m trainer_hooks "$@"; }
own.py() { python own.py "$@"; }
while read -r line; do
    COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9 COMPREPLY=()
    read -ra COMP_WORDS <<< "$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _python_argcomplete "${COMP_WORDS[0]}"
    echo "${COMPREPLY[@]}"
done
"""
OWN = """# PYTHON_ARGCOMPLETE_OK
from configured import Points, Trained
from trainer_hooks import TrainerCLI

TrainerCLI(Trained, Points)
"""


@pytest.mark.exhaustive
def test_the_tab_key_completes(tmp_path, classes) -> None:
    """Commands, options, files, values and names of classes are completed; nothing runs."""
    pytest.importorskip("argcomplete")
    (tmp_path / "run.yaml").touch()
    (tmp_path / "own.py").write_text(OWN)
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environ = {"PATH": os.pathsep.join(paths), "PYTHONPATH": f"{ROOT}{os.pathsep}{classes}"}
    done = subprocess.run(
        ["bash", "-c", SCRIPT], cwd=tmp_path, env={**os.environ, **environ},
        input="".join(f"{line}\n" for line in LINES),
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    told = [set(line.split()) for line in done.stdout.splitlines()]
    assert dict(zip(LINES, told, strict=True)) == LINES, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.py", "run.yaml"]


ZSH = """autoload -U compinit; compinit -u
trainer-hooks() { python -m trainer_hooks "$@"; }
eval "$(register-python-argcomplete trainer-hooks)"
PS1='rea''dy> '
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_the_tab_key_completes_in_zsh(tmp_path) -> None:
    """So it does in an interactive zsh, on a terminal."""
    pty = pytest.importorskip("pty")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        os.environ.update({"PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT)})
        os.environ.update({"HOME": str(tmp_path), "TERM": "xterm"})  # it writes what it found
        os.environ.pop("ZDOTDIR", None)
        os.execvp("zsh", ["zsh", "-f", "-i"])
    shown, deadline = b"", time.monotonic() + 100
    line = b"trainer-hooks test --trainer.callbacks+=EarlySt\t"
    for typed, awaited in ((ZSH.encode(), b"ready> "), (line, b"EarlyStopping")):
        os.write(terminal, typed)
        while awaited not in shown and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                shown += os.read(terminal, 65536)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert b"EarlyStopping" in shown, shown.decode(errors="replace")
