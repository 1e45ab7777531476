"""Programs that own their loop, and the same with Run: a language model, a GAN, a policy gradient.

The original of each is written in the manner of a public script. With `Run` it is killed ten times,
and ends with the weights of the original.
"""

from __future__ import annotations

import difflib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import warm_python
from samples import one_in

HERE = Path(__file__).parent / "own_loops"
ROOT = Path(__file__).parents[2]
PROGRAMS = ["gpt", "gan", "reinforce"]
MOST_CHANGED = 15
KILLS = 10


def changed_lines(program: str) -> list[str]:
    """Return the lines of the version with Run that the original does not have."""
    before, after = (
        (HERE / f"{program}{suffix}.py").read_text().splitlines() for suffix in ("", "_run")
    )
    lines = difflib.ndiff(before, after)
    return [line for line in lines if line.startswith("+ ") and line.removeprefix("+ ").strip()]


def environment() -> dict[str, str]:
    return {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
        "TRAINER_HOOKS_DISABLE_PLUGINS": "1",
    }  # fmt: skip


def run(program: str, folder: Path, *, dies_after: int = -1) -> list[str]:
    """Run a program, and kill it after so many iterations; return their lines."""
    command = [sys.executable, "-u", str(HERE / f"{program}.py"), "weights.pt"]
    lines = []
    with warm_python.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        for line in process.stdout:
            if line.startswith("iter "):
                lines.append(line.rstrip())
                if len(lines) == dies_after:
                    process.send_signal(signal.SIGKILL)
                    # and read on: the program may have printed more before the signal came
        _, errors = process.communicate(timeout=120)
    assert process.returncode == (-signal.SIGKILL if dies_after > 0 else 0), errors[-3000:]
    return lines


def flat(state: Any) -> list[torch.Tensor]:
    return [t for v in state.values() for t in (flat(v) if isinstance(v, dict) else [v])]


@pytest.mark.parametrize("program", PROGRAMS)
def test_few_lines_are_changed(program: str) -> None:
    """At most fifteen lines of the version with Run are not the original's."""
    assert 5 < len(changed_lines(program)) <= MOST_CHANGED, changed_lines(program)


@pytest.mark.slow
@pytest.mark.parametrize("program", one_in(3, PROGRAMS))
def test_killed_ten_times_it_ends_as_the_original(program: str, tmp_path: Path) -> None:
    """Each start goes on where a kill left it, and iterations and weights are the original's."""
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    plain.mkdir()
    killed.mkdir()
    expected = run(program, plain)
    seen: dict[str, str] = {}
    for number in range(KILLS + 1):
        # past the next checkpoint, which is saved every two or four iterations
        dies_after = 5 + number % 3 if number < KILLS else -1
        for line in run(f"{program}_run", killed, dies_after=dies_after):
            words = line.split()
            place = " ".join(words[: 3 if program == "gan" else 2])
            assert seen.setdefault(place, line) == line
    assert list(seen.values()) == expected
    weights = [flat(torch.load(folder / "weights.pt")) for folder in (plain, killed)]
    for one, other in zip(*weights, strict=True):
        assert torch.equal(one, other)
