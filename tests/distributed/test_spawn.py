"""Processes that are spawned for each run: what they train is what `ddp` trains."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.posix]


@pytest.fixture(scope="module")
def trained(ran, tmp_path_factory):
    """The observations of `spawned.py` by strategy, and its output with `ddp_spawn`."""
    folder, outputs = tmp_path_factory.mktemp("spawned"), {}
    for strategy in ("ddp", "ddp_spawn"):
        code, outputs[strategy], left = ran("spawned.py", str(folder), strategy)
        assert code == 0, outputs[strategy]
        assert left == [], outputs[strategy]
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in outputs}
    return found, outputs["ddp_spawn"]


def test_all_is_as_with_ddp(trained):
    """Weights, counters, states of callbacks and metrics, to the last bit."""
    found, output = trained
    ddp = found["ddp"]
    assert {name: found["ddp_spawn"][name] for name in ddp} == ddp
    assert ddp["whole counts"] == [4, 32, 32]
    assert "2 processes (gloo, CPU), spawned from this program because devices=2" in output


def test_a_later_fit_and_a_resume_are_exact(trained):
    """Two fits of two epochs, and a fit from a checkpoint of the first, are one of four."""
    found = trained[0]["ddp_spawn"]
    assert found["whole"] == found["halves"] == found["resumed"]


def test_an_error_of_a_process_is_the_callers(trained):
    """The program learns the rank, and its module is as it was; so where nothing can be sent."""
    found = trained[0]["ddp_spawn"]
    kind, text = found["fail"]
    assert (kind, "in rank 1 of 2" in text) == ("ValueError", True)
    kind, text = found["kill"]
    assert (kind, "rank 1 of 2 was killed by SIGKILL" in text) == ("UsageError", True)
    kind, text = found["local"]
    assert (kind, "Define its classes and functions in a module" in text) == ("UsageError", True)
    assert [found[f"{name} moved"] for name in ("fail", "kill", "local")] == [False] * 3


UNGUARDED = """
from nets import Net, loader, trainer

trainer(strategy="ddp_spawn").fit(Net(), loader())
"""


def test_a_program_without_a_guard_is_told_so(ran, tmp_path):
    """Each process would start processes of its own."""
    program = tmp_path / "unguarded.py"
    program.write_text(UNGUARDED)
    code, output, left = ran(str(program))
    assert code == 1
    assert left == []
    assert "put the calls of the main module below `if __name__ == '__main__':`" in output
