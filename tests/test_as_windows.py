"""The package where the names and the rules of Windows hold; see `tests/support/as_windows.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STAND_IN = ROOT / "tests" / "support" / "as_windows.py"

ROOMS = ("checkpoint", "trainer", "loops", "callbacks", "loggers", "connector", "hooks", "data")
"""Folders of tests whose fast cases are run in the stand-in."""

PARTS = 8
"""Into so many parts the files are dealt out; each run draws one, whose start is paid once."""


def part(number: int) -> list[str]:
    """Return the files of a part."""
    files = sorted(str(f) for room in ROOMS for f in (ROOT / "tests" / room).rglob("test_*.py"))
    return files[number::PARTS]


def run(*words: str, **how: str) -> subprocess.CompletedProcess[str]:
    """Run a program, with the stand-in within reach."""
    environ = {**os.environ, "PYTHONPATH": str(STAND_IN.parent), **how}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environ, check=False
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(PARTS))
def test_fast_tests_pass(number, tmp_path) -> None:
    """But for those that use themselves what Windows lacks."""
    options = ["-q", "--no-rerun", "-m", "not slow", "--show-capture=no", "--basetemp"]
    ended = run(str(STAND_IN), *options, str(tmp_path / "base"), *part(number))
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]


RULES = """
import as_windows
as_windows.begin()
import json, os, subprocess, sys
from pathlib import Path
from trainer_hooks import _system
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import OptionError

_system._TRIES, _system._FIRST_WAIT = 3, 0.001
found = {"faults": [bool(_system.name_fault(n)) for n in ("a:b", "con.ckpt", "x.", "d/a-1.ckpt")]}
try:
    ModelCheckpoint(filename="{epoch}:{step}")
except OptionError as error:
    found["template"] = str(error)

Path("a").write_text("new"), Path("b").write_text("old")
with open("b"):
    try:
        _system.move(Path("a"), Path("b"))
    except PermissionError as error:
        found["open"] = error.strerror
_system.move(Path("a"), Path("b"))
found["moved"] = Path("b").read_text()

holds = "import fcntl, os, sys; fcntl.flock(os.open('b', os.O_RDWR), 2); print('held', flush=True)"
holder = subprocess.Popen(
    [sys.executable, "-c", holds + "; sys.stdin.read()"], stdin=-1, stdout=-1, text=True
)
holder.stdout.readline()
descriptor = os.open("b", os.O_RDWR)
for name in ("held", "free"):
    try:
        _system.lock_file(descriptor)
        found[name] = "locked"
    except BlockingIOError:
        found[name] = "refused"
    found[f"{name}, runs"] = _system.is_running(holder.pid)
    holder.communicate()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_its_rules_are_kept(tmp_path) -> None:
    """Locks, moves over an open file, names that Windows forbids, and processes that run."""
    ended = subprocess.run(
        [sys.executable, "-c", RULES], cwd=tmp_path, check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{STAND_IN.parent}"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["faults"] == [True, True, True, False]
    assert "filename '{epoch}:{step}' of ModelCheckpoint: Windows allows no :" in found["template"]
    assert "another program has it open" in found["open"]
    assert found["moved"] == "new"
    assert (found["held"], found["free"]) == ("refused", "locked")
    assert (found["held, runs"], found["free, runs"]) == (True, False)


TRAINS = """
import as_windows
as_windows.begin()
import os, sys
import torch
from trainer_hooks import Callback, Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.loggers import CSVLogger
from trainer_hooks.testing import TinyModule

class Dies(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == int(sys.argv[1]):
            os.kill(os.getpid(), 9)

torch.manual_seed(3)
module = TinyModule()
trainer = Trainer(
    max_epochs=3, accelerator="cpu", plugins=False, logger=CSVLogger("."),
    callbacks=[ModelCheckpoint(".", every_n_train_steps=1, save_last=True), Dies()],
    enable_progress_bar=False,
)
trainer.fit(module, ckpt_path="auto")
torch.save(module.state_dict(), "end.pt")
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_there(tmp_path) -> None:
    """It saves, is killed, finds its file, and ends as the run that nobody killed."""
    import torch

    script = tmp_path / "train.py"
    script.write_text(TRAINS, encoding="utf-8")
    ends = []
    for folder, kills in (("uncut", [0]), ("cut", [3, 0])):
        (tmp_path / folder).mkdir()
        for step in kills:
            ended = subprocess.run(
                [sys.executable, str(script), str(step)], cwd=tmp_path / folder, check=False,
                capture_output=True, text=True,
                env={**os.environ, "PYTHONPATH": f"{STAND_IN.parent}"},
            )  # fmt: skip
            assert ended.returncode == (-9 if step else 0), ended.stderr
        ends.append(torch.load(tmp_path / folder / "end.pt"))
        assert not list((tmp_path / folder).glob(".*")), "nothing is left over"
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
