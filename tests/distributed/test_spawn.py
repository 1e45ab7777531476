"""Processes that are spawned for each run: what they train is what `ddp` trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import warm_python

pytestmark = [pytest.mark.exhaustive, pytest.mark.posix]


@pytest.fixture(scope="session")
def run_parts(ran):
    """A function that runs parts of `spawned.py`, and returns its observations and its output."""

    def run(folder: Path, *names: str) -> tuple[dict, str]:
        code, output, left = ran("spawned.py", str(folder), *names, start=warm_python.run)
        assert (code, left) == (0, []), output
        return json.loads((folder / f"{names[0]}.json").read_text()), output

    return run


@pytest.fixture(scope="session")
def trained(once, run_parts) -> list:
    """The observations of two programs, of `ddp` and `ddp_spawn`, the second's output, the folder.

    Each fit in spawned processes takes five seconds of imports: one program makes few of them.
    """

    def train(folder: Path) -> list:
        found, _ = run_parts(folder, "whole")
        spawned, output = run_parts(folder, "halves", "fail", "local")
        return [found | spawned, output, str(folder)]

    return once("spawned", train)


def test_two_fits_are_one_of_ddp(trained):
    """Weights, counters, states of callbacks and metrics, to the last bit."""
    found, output, _ = trained
    assert found["halves"] == found["whole"]
    assert found["whole"]["counts"] == [4, 32, 32]
    assert "2 processes (gloo, CPU), spawned from this program because devices=2" in output


def test_a_resume_and_a_validation_are_exact(trained, run_parts):
    """A fit from a checkpoint of spawned processes, and what `validate` returns."""
    found, _, folder = trained
    resumed = run_parts(Path(folder), "resumed")[0]["resumed"]
    assert resumed.pop("validated") == found["whole"]["loss"]
    assert resumed == found["whole"]


def test_an_error_of_a_process_is_the_callers(trained):
    """The program learns the rank, and its module is as it was; so where nothing can be sent."""
    found, *_ = trained
    kind, text, has_moved = found["fail"]
    assert (kind, "in rank 1 of 2" in text, has_moved) == ("ValueError", True, False)
    kind, text, has_moved = found["local"]
    assert (kind, has_moved) == ("UsageError", False)
    assert "Define its classes and functions in a module" in text


def test_a_process_that_is_killed_is_named(run_parts, tmp_path):
    """The module is as it was."""
    kind, text, has_moved = run_parts(tmp_path, "kill")[0]["kill"]
    assert (kind, has_moved) == ("UsageError", False)
    assert "rank 1 of 2 was killed by SIGKILL" in text


UNGUARDED = """
from nets import Net, loader, trainer

trainer(strategy="ddp_spawn").fit(Net(), loader())
"""


def test_a_program_without_a_guard_is_told_so(ran, tmp_path):
    """Each process would start processes of its own."""
    program = tmp_path / "unguarded.py"
    program.write_text(UNGUARDED)
    code, output, left = ran(str(program), start=warm_python.run)
    assert code == 1
    assert left == []
    assert "put the calls of the main module below `if __name__ == '__main__':`" in output
