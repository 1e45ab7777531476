"""Folds and seeds of one process: each goes on with its own files when they are started again."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import fold_runs
import pytest
import torch
import warm_python
from fold_runs import Folds
from new_processes import forget_trainings
from samples import one_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:fit has nothing to do")


def start(folder: Path, kill: str = "", **options) -> list[dict]:
    """Run the script in a process of its own, killed or not; return the folds that it has done."""
    folder.mkdir(exist_ok=True)
    done = warm_python.run(
        [sys.executable, fold_runs.__file__, json.dumps({"folder": str(folder), **options})],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            **({"KILL": kill} if kill else {}),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if kill else 0), done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    one_in(
        4,
        [
            {"seeds": "each", "data": "opaque"},
            {"seeds": "same", "data": "subset", "place": "no logger"},
            {"seeds": "same", "data": "opaque", "every": 3},
            {"seeds": "each", "data": "module", "place": "same dirpath", "every": 3},
        ],
    ),
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_a_fold_is_killed_and_all_are_started_again(tmp_path, options) -> None:
    """Those before are done, the one that was killed goes on bit for bit, those after are new."""
    uncut = start(tmp_path / "uncut", folds=5, **options)
    assert [one["trained"] for one in uncut] == [12] * 5
    assert [one["from"] for one in uncut] == [None] * 5
    assert len({tuple(one["weights"]) for one in uncut}) == 5
    cut = start(tmp_path / "cut", kill="2:8", folds=5, **options)
    assert [one["fold"] for one in cut] == [0, 1]
    again = start(tmp_path / "cut", folds=5, **options)
    assert [one["weights"] for one in again] == [one["weights"] for one in uncut]
    assert [one["trained"] for one in again] == [0, 0, 6, 12, 12]
    assert [one["from"] is None for one in again] == [False, False, False, True, True]


class Killed(BaseException):
    """Ends a script where a kill would."""


def raise_killed() -> None:
    raise Killed


class Processes:
    """Begin one process after the other, each with other random numbers."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        forget_trainings()
        self.count += 1
        # greater than any seed that a user gives: torch draws such ones for itself
        torch.manual_seed(2**40 + self.count)


def check_drawn(folder: Path, seed: int) -> Folds:
    """Kill a drawn script at drawn places until it goes through, and compare with an uncut one."""
    chance = random.Random(seed)
    cut = Folds.draw(chance, folder / "cut")
    cut.begin_process = Processes()
    uncut = Folds(**{**vars(cut), "folder": folder / "uncut", "skips": False, "done": {}})
    assert [one.trained for one in uncut.run()] == [uncut.steps] * uncut.folds, uncut
    place = sorted(
        (chance.randrange(cut.folds), chance.randint(1, uncut.steps))
        for _ in range(chance.randint(1, 3))
    )
    trained = dict.fromkeys(range(cut.folds), 0)
    for fold, step in place:
        with suppress(Killed):
            cut.run(fold, step, raise_killed)
    for follower in cut.run():
        trained[follower.fold] = follower.trained
    # the fold that was killed last goes on from its newest checkpoint; those before it are done
    last, at = place[-1]
    every = cut.every or uncut.steps // fold_runs.EPOCHS
    saved = (at - 1) // every * every
    # of a fold that is done what came after its last save is trained once more
    rest = 0 if cut.skips else uncut.steps % every
    expected = {fold: rest if fold < last else uncut.steps for fold in trained}
    assert trained == {**expected, last: uncut.steps - saved}, (cut, place)
    if cut.seeds in ("each", "same"):
        assert cut.done == uncut.done, (cut, place)
    return cut


@pytest.mark.parametrize("number", range(3))
def test_no_drawn_fold_takes_the_checkpoint_of_another(tmp_path, draw_seed, number) -> None:
    """Whatever tells folds apart, and wherever they are killed, each goes on with its own files."""
    check_drawn(tmp_path, 1000 * draw_seed + number)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(100))
def test_no_fold_of_many_takes_the_checkpoint_of_another(tmp_path, number) -> None:
    """The same for a hundred scripts."""
    check_drawn(tmp_path, number)
