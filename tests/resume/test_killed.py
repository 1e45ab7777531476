"""Whenever a training is killed, no finished save is lost."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import warm_python

from trainer_hooks.trainer.messages.failed_start import RECORD

LOOP = Path(__file__).with_name("kill_loop.py")


def killed(folder: Path, seed: int, kills: int) -> list[dict]:
    """Return what was found after each of so many kills."""
    done = warm_python.run(
        [sys.executable, str(LOOP), str(folder), str(seed), str(kills)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]  # not those of warm_up


def check(rounds: list[dict]) -> None:
    for number, found in enumerate(rounds):
        assert found["killed"], number
        assert found["found"] >= found["finished"], (number, found)
        whole = [name for name in found["files"] if name.endswith(".ckpt")]
        # the record of a start that was killed before its first batch may be there, too
        files = [name for name in found["files"] if RECORD not in name]
        left = [name for name in files if not name.endswith(".ckpt")]
        # the best, the last, and the one that the best was about to replace
        assert len(whole) <= 3, (number, found)
        claims = [name for name in left if ".claim." in name]
        assert len(left) - len(claims) <= 1, (number, found)
        assert len(claims) <= 2, (number, found)  # the names of the best and of the last
        assert all(name.startswith(".") and name.endswith(".part") for name in left), number
    numbers = [found["found"] for found in rounds]
    assert numbers == sorted(numbers), "a training went back behind what was saved"


@pytest.mark.exhaustive
def test_100_kills_lose_no_finished_save(tmp_path):
    """After each of 100 SIGKILLs, half of them in a save, "last" finds the last finished save.

    The next run resumes from it with `ckpt_path="auto"`, and tidies what the killed one left.
    """
    rounds = killed(tmp_path / "run", seed=4, kills=100)
    assert len(rounds) == 100
    check(rounds)
    assert sum(found["in_save"] for found in rounds) >= 50
    # a busy machine trains less
    assert rounds[-1]["found"] > 30, "too little was trained between the kills"
