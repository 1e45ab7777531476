"""What a rank asks of the others in a world of a thousand, on torch's fake process group."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import warm_python

_WORKER = Path(__file__).parents[2] / "benchmarks" / "_ranks_worker.py"
_OF_ALL = 2000
"""Bytes that a rank may keep of each other one outside of the steps: names and counters."""
_OF_A_SAVE = 2500
"""Bytes that a rank may give for a checkpoint of ten logged names, digests included."""


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> dict[tuple[int, int], dict[str, dict[str, int]]]:
    """What the last rank of two, and the first and the last of 1,024, ask of the others."""
    folder, found = tmp_path_factory.mktemp("ranks"), {}
    for rank, world in ((1, 2), (0, 1024), (1023, 1024)):
        path = folder / f"{rank}.json"
        command = [sys.executable, str(_WORKER), str(rank), str(world), str(path)]
        warm_python.run(command, check=True, capture_output=True, cwd=folder)
        found[rank, world] = json.loads(path.read_text())
    return found


@pytest.mark.slow
def test_a_step_asks_for_the_gradients_and_nothing_else(asked) -> None:
    """A step is one reduction of the gradients, of as many bytes in any world.

    And it asks nothing of the store, which one process serves.
    """
    steps = [found["step"] for found in asked.values()]
    assert all(step == steps[0] for step in steps)
    assert set(steps[0]) == {"gradients", "gives", "gets"}


@pytest.mark.slow
def test_what_grows_is_small(asked) -> None:
    """As many collectives are made in any world, and of each other rank little is kept."""
    two, many = asked[1, 2], asked[1023, 1024]
    assert two.keys() == many.keys()
    for phase, found in two.items():
        grown = many[phase]
        for kind in ("gradients", "tensors", "objects", "requests"):
            assert grown.get(kind) == found.get(kind), phase
        # a save has the seeds of the rank, and a larger number takes a byte or two more
        assert abs(grown["gives"] - found["gives"]) <= (16 if phase == "save" else 0), phase
        assert grown["gets"] - found["gets"] <= _OF_ALL * (1024 - 2), phase


@pytest.mark.slow
def test_a_save_keeps_little_of_each_rank(asked) -> None:
    """Of each rank a file holds values and seeds; the state of a drawn generator comes on top."""
    for rank, world in ((1, 2), (1023, 1024)):
        assert asked[rank, world]["save"]["gives"] <= _OF_A_SAVE
