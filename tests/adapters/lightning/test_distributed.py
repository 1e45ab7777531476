"""Callbacks of Lightning do in two processes of ours the same as in two of Lightning's."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from launchers import free_port

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("distributed.py")
TEXT = SCRIPT.read_text(encoding="utf-8")
NAMES = [
    line.partition("(")[0].removeprefix("def ")
    for line in TEXT.splitlines()
    if line.startswith("def case_")
]
DIFFERENT = {
    "case_early_stopping_by_one", "case_an_order_of_batches", "case_unfrozen_later",
    "case_a_search_of_a_learning_rate",
}  # fmt: skip
"""Cases whose outcome is a difference of the docs' page."""

BUILT_IN = TEXT.partition("\nBUILT_IN = (")[2].partition(")")[0].split('"')[1::2]

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.exhaustive,
]


@pytest.fixture(scope="module")
def results(once) -> list[dict]:
    """What each process saw there and here."""
    return once("lightning-together", run_in_two)


def run_in_two(folder: Path) -> list[dict]:
    """Run the script in two processes, and see to it that none is left."""
    common = {
        # a seed that a test before has left there is none of the cases'
        **{name: value for name, value in os.environ.items() if name != "PL_GLOBAL_SEED"},
        "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1",
        "TRAINER_HOOKS_DISABLE_PLUGINS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "tests" / "support", ROOT))),
    }  # fmt: skip
    targets = [folder / f"seen.json.rank{rank}" for rank in range(2)]
    started = [
        warm_python.Popen(
            [sys.executable, SCRIPT, target],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            imports=("pytorch_lightning",),
        )
        for rank, target in enumerate(targets)
    ]  # fmt: skip
    try:
        for one in started:
            output, _ = one.communicate(timeout=240)
            assert one.returncode == 0, output
    finally:
        for one in started:
            one.kill()
            one.wait()
    return [json.loads(target.read_text(encoding="utf-8")) for target in targets]


@pytest.mark.parametrize("name", sorted({*NAMES} - DIFFERENT))
def test_processes_do_what_they_do_at_home(results, name: str) -> None:
    """What callbacks ask and do, log, write and stop is the same in both, in each rank."""
    for rank in range(2):
        there, here = results[rank][name]["there"], results[rank][name]["here"]
        assert "raised" not in there, there
        assert here == there


def test_what_is_not_synced_is_decided_by_rank_zero(results) -> None:
    """Where ranks log different values, rank 0's hold in all: the other one's stops nothing."""
    for rank in range(2):
        epochs, *_ = results[rank]["case_early_stopping_by_one"]["here"]["found"]
        assert epochs == 6


def found(results, name: str, side: str) -> list:
    """Return the outcome of a case in each rank."""
    assert "raised" not in results[0][name][side], results[0][name][side]
    return [of_rank[name][side]["found"] for of_rank in results]


def test_training_loaders_keep_their_order(results) -> None:
    """Here each rank has its share in the loader's order; there they are shuffled."""
    here, there = (found(results, "case_an_order_of_batches", side) for side in ("here", "there"))
    assert here == [list(range(0, 16, 2)), list(range(1, 16, 2))]
    assert sorted(there[0] + there[1]) == list(range(16))
    assert any(share != sorted(share) for share in there)


def test_weights_that_are_unfrozen_later_are_those_of_all_ranks(results) -> None:
    """Here they are equal in all ranks; there each rank trains its own."""
    (before, first), (_, second) = found(results, "case_unfrozen_later", "here")
    assert first == second != before
    (before, first), (_, second) = found(results, "case_unfrozen_later", "there")
    assert len({*map(tuple, (before, first, second))}) == 3


def test_a_search_of_a_learning_rate_takes_one_process(results) -> None:
    """Here it is refused in several, with the rule."""
    here, there = (
        found(results, "case_a_search_of_a_learning_rate", side) for side in ("here", "there")
    )
    assert here[0] == here[1]
    assert "process" in here[0]
    assert there == [4, 4]


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("resumed", ["", " resumed"])
def test_built_in_callbacks_do_what_they_do_at_home(results, name: str, resumed: str) -> None:
    """Calls, state, values, files and weights are the same in each rank, also resumed."""
    for rank in range(2):
        there, here = results[rank][name + resumed]["there"], results[rank][name + resumed]["here"]
        assert "raised" not in there, there
        if name == "StochasticWeightAveraging-norm":  # its step without gradients counts there
            there, here = ({**one, "calls": None, "files": None} for one in (there, here))
        assert here == there
