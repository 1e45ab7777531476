"""Programs for LightningCLI come to the same with Lightning's own and with the one from here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import warm_python

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(__file__).with_name("programs.py")
DIFFERENT = {
    # what is given counts, here; there the checkpoint goes before it
    "given_before_checkpoint": (0.1, 0.75),
    # the data module's arguments are taken from the checkpoint as well
    "data_of_checkpoint": (4, 2),
}
"""What Lightning comes to, and what this package does; docs/coming-from-lightning.md says so."""


@pytest.fixture(scope="module")
def sides(tmp_path_factory) -> list[dict[str, Any]]:
    """What all programs come to, with Lightning and without, each in a process of its own."""
    if find_spec("pytorch_lightning") is None:
        pytest.skip("Lightning is not installed")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TRAINER_HOOKS_DISABLE_PLUGINS": "1"}
    started = [
        warm_python.Popen(
            [sys.executable, str(PROGRAMS), side],
            env=environ, cwd=tmp_path_factory.mktemp(side),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for side in ("lightning", "ours")
    ]  # fmt: skip
    told = [process.communicate(timeout=200) for process in started]
    for process, (_, err) in zip(started, told, strict=True):
        assert process.returncode == 0, err
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


@pytest.mark.exhaustive
def test_the_programs_come_to_the_same(sides: list[dict[str, Any]]) -> None:
    """Configs, weights, calls and what is written are equal, but for what is declared."""
    theirs, ours = sides
    assert len(theirs) == 32
    assert {n: (theirs[n], ours[n]) for n in theirs if theirs[n] != ours[n]} == DIFFERENT
