"""The package where the names and the rules of Windows hold; see `tests/support/as_windows.py`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import drawn_cases
import pytest

ROOT = Path(__file__).parents[1]
STAND_IN = ROOT / "tests" / "support" / "as_windows.py"

ROOMS = (
    "checkpoint", "trainer/run", "trainer/identity", "trainer/restoring", "callbacks/saving",
    "callbacks/reporting", "loggers", "data", "cli", "plugins", "runtime",
)  # fmt: skip
"""Folders of tests whose fast cases are run in the stand-in: those about files and processes."""

PARTS = 8
"""Into so many parts the files are dealt out; each run draws one, whose start is paid once."""


def part(number: int, request: pytest.FixtureRequest) -> list[str]:
    """Return the files of a part: all of them where all cases run, and else the seed draws half.

    Sixteen consecutive seeds draw each file once.
    """
    files = sorted(str(f) for room in ROOMS for f in (ROOT / "tests" / room).rglob("test_*.py"))
    files = files[number::PARTS]
    if drawn_cases.runs_all_of(request.path, request.config):
        return files
    return files[request.config.option.draw_seed // drawn_cases.ONE_IN % 2 :: 2]


def run(*words: str, **how: str) -> subprocess.CompletedProcess[str]:
    """Run a program, with the stand-in within reach."""
    environ = {**os.environ, "PYTHONPATH": str(STAND_IN.parent), **how}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environ, check=False
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(PARTS))
def test_fast_tests_pass(number, tmp_path, request) -> None:
    """But for those that use themselves what Windows lacks."""
    options = ["-q", "--no-rerun", "-m", "not slow", "--show-capture=no", "--basetemp"]
    ended = run(str(STAND_IN), *options, str(tmp_path / "base"), *part(number, request))
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]


RULES = """
import as_windows
as_windows.begin()
import json, os, subprocess, sys
from pathlib import Path
from trainer_hooks import _system
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.callbacks.reporting.notify import check_command
from trainer_hooks.checkpoint.paths import absolute_path, is_remote
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import CSVLogger
from trainer_hooks.runtime.strategy import resolve_strategy

_system._TRIES, _system._FIRST_WAIT = 3, 0.001
found = {"faults": [bool(_system.name_fault(n)) for n in ("a:b", "con.ckpt", "x.", "d/a-1.ckpt")]}
try:
    ModelCheckpoint(filename="{epoch}:{step}")
except OptionError as error:
    found["template"] = str(error)

for name, make in {
    "logger": lambda: CSVLogger(".", name="a:b"),
    "fork": lambda: resolve_strategy("ddp_notebook", 2, 1, {}),
}.items():
    try:
        make()
    except OptionError as error:
        found[name] = str(error)
found["drive"] = [is_remote("C:\\\\x.ckpt"), _system.path_fault("C:\\\\runs\\\\x.ckpt")]
found["address"] = _system.without_file_scheme("file:///C:/runs")
found["end"] = _system.path_end("C:\\\\runs\\\\a\\\\b.ckpt", 2)
found["line"] = _system.shell_line(["trainer-hooks", "report", "my runs"])
found["words"] = check_command('C:\\\\tools\\\\tell.exe "all done"')
found["long"] = _system.length_fault("x" * 300)

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
    assert "name 'a:b' of CSVLogger: Windows allows no :" in found["logger"]
    assert "would have to fork, which Windows cannot" in found["fork"]
    assert found["drive"] == [False, ""]
    assert (found["address"], found["end"]) == ("C:/runs", "a/b.ckpt")
    assert found["line"] == 'trainer-hooks report "my runs"'
    assert found["words"] == ["C:\\tools\\tell.exe", "all done"]
    assert "LongPathsEnabled" in found["long"]
    assert "another program has it open" in found["open"]
    assert found["moved"] == "new"
    assert (found["held"], found["free"]) == ("refused", "locked")
    assert (found["held, runs"], found["free, runs"]) == (True, False)


TRAINS = """
import as_windows
as_windows.begin()
import os, sys
import torch
from torch.utils.data import DataLoader, Dataset
from trainer_hooks import Callback, Trainer
from trainer_hooks._system import IS_WINDOWS
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.loggers import CSVLogger
from trainer_hooks.testing import TinyModule

ranks, workers, is_persistent, dies_at, dies_in = map(int, sys.argv[1:])

class Samples(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        assert IS_WINDOWS
        return torch.full((2,), float(index)) + torch.randn(2)

class Dies(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if (trainer.global_step, trainer.global_rank) == (dies_at, dies_in):
            os.kill(os.getpid(), 9)

if __name__ == "__main__":
    torch.manual_seed(3)
    module = TinyModule()
    trainer = Trainer(
        max_epochs=2, accelerator="cpu", devices=ranks, plugins=False, logger=CSVLogger("."),
        callbacks=[ModelCheckpoint(".", every_n_train_steps=1, save_last=True), Dies()],
        enable_progress_bar=False,
    )
    loader = DataLoader(
        Samples(), batch_size=4, num_workers=workers, persistent_workers=bool(is_persistent)
    )
    trainer.fit(module, loader, ckpt_path="auto")
    assert IS_WINDOWS and trainer.world_size == ranks
    torch.save(module.state_dict(), f"end{trainer.global_rank}.pt")
"""

STARTS = """
import as_windows
as_windows.begin()
import json, os, runpy, sys
import torch._dynamo
from trainer_hooks import Trainer, callbacks, loggers, testing

script, starts = sys.argv[1], json.loads(sys.argv[2])
for folder, words, dies_at in starts:
    process = os.fork()
    if process == 0:
        os.chdir(folder)
        sys.argv[:] = [script, *words]
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    status = os.waitpid(process, 0)[1]
    # a rank that was killed ends the others with a code of its own
    assert (status != 0) == bool(dies_at), (folder, words, status)
"""
"""Starts the script several times, in a process forked from one that has imported all."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("ranks", "workers", "is_persistent", "kills"),
    [
        (1, 0, 0, [(2, 0), (3, 0)]),
        pytest.param(1, 2, 0, [(3, 0)], marks=pytest.mark.exhaustive),
        pytest.param(1, 2, 1, [(5, 0)], marks=pytest.mark.exhaustive),
        pytest.param(2, 0, 0, [(1, 1), (3, 0)], marks=pytest.mark.exhaustive),
        pytest.param(2, 1, 0, [(2, 0), (3, 1)], marks=pytest.mark.exhaustive),
    ],
    ids=["one", "workers", "persistent workers", "ranks", "ranks with workers"],
)
def test_a_killed_run_goes_on_there(ranks, workers, is_persistent, kills, tmp_path) -> None:
    """It saves, is killed, finds its file, and ends as the run that nobody killed.

    Ranks and workers are stand-ins as well: none is forked.
    """
    import torch

    script = tmp_path / "train.py"
    script.write_text(TRAINS, encoding="utf-8")
    for folder in ("uncut", "cut"):
        (tmp_path / folder).mkdir()
    starts = [("uncut", 0, 0), *(("cut", *kill) for kill in kills), ("cut", 0, 0)]
    words = [
        (str(tmp_path / folder), [str(n) for n in (ranks, workers, is_persistent, *dies)], dies[0])
        for folder, *dies in starts
    ]
    ended = subprocess.run(
        [sys.executable, "-c", STARTS, str(script), json.dumps(words)], check=False,
        capture_output=True, encoding="cp1252", errors="replace",
        env={**os.environ, "PYTHONPATH": f"{STAND_IN.parent}"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    ends = []
    for folder in (tmp_path / "uncut", tmp_path / "cut"):
        ends.append([torch.load(folder / f"end{rank}.pt") for rank in range(ranks)])
        assert not list(folder.glob(".*")), "nothing is left over"
    for uncut, cut in zip(*ends, strict=True):
        assert all(torch.equal(value, cut[name]) for name, value in uncut.items())


PRINTS = """
import as_windows
as_windows.begin()
import sys
from trainer_hooks import Trainer
from trainer_hooks.callbacks import (
    ModelCheckpoint, RichModelSummary, RichProgressBar, TQDMProgressBar,
)
from trainer_hooks.loggers import CSVLogger
from trainer_hooks.testing import TinyModule

if __name__ == "__main__":
    assert sys.stdout.encoding == "cp1252"
    for bar in (RichProgressBar(), TQDMProgressBar()):
        Trainer(
            max_epochs=2, accelerator="cpu", plugins=False, logger=CSVLogger("runs"),
            callbacks=[bar, RichModelSummary(), ModelCheckpoint(filename="a")],
        ).fit(TinyModule())
"""


@pytest.mark.exhaustive
def test_a_console_of_its_encoding_shows_all(tmp_path) -> None:
    """Bars, tables, plots and pages of commands print characters that it has, and no escapes."""
    import pty

    (tmp_path / "train.py").write_text(PRINTS, encoding="utf-8")
    environ = {
        **os.environ, "PYTHONPATH": f"{STAND_IN.parent / 'stand_in'}:{STAND_IN.parent}",
        "TRAINER_HOOKS_STAND_IN": "as_windows", "PYTHONIOENCODING": "cp1252", "TERM": "xterm",
    }  # fmt: skip
    run_folder = "runs/trainer_logs/version_0"
    command = ["-m", "trainer_hooks"]
    for words in (
        ["train.py"], [*command, "plot", run_folder, "val_loss"], [*command, "report", run_folder],
        [*command, "hooks"], [*command, "plugins", "list"], [*command, "doctor"],
        [*command, "checkpoint", "show", f"{run_folder}/checkpoints/a.ckpt"],
    ):  # fmt: skip
        terminal, end = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, *words], cwd=tmp_path, env=environ, stdin=end, stdout=end, stderr=end
        )
        os.close(end)
        shown = b""
        with contextlib.suppress(OSError):  # the program has ended
            while data := os.read(terminal, 65536):
                shown += data
        os.close(terminal)
        text = shown.decode("cp1252")
        assert process.wait() == 0, text
        assert "\\u2" not in text, text
        assert "??" not in text, text


@pytest.mark.exhaustive
def test_a_sweep_with_several_trials_at_once(tmp_path) -> None:
    """Its trials are processes that are started, not forked, and its folder is locked."""
    name = "tests/cli/sweep/test_sweep.py::test_a_grid_trains_each_combination"
    name += "_and_shows_the_best_first"
    ended = run(str(STAND_IN), "-q", "--no-rerun", "--basetemp", str(tmp_path / "base"), name)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
    assert "1 passed" in ended.stdout
