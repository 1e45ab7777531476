"""Trainings of two to five ranks that are cut several times in a row, at random."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import warm_python

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("random_chains.py")


def test_chains_of_cuts_end_as_the_run_that_nobody_cut(draw_seed):
    """More: python tests/distributed/random_chains.py --seeds 0:300."""
    seeds = f"{draw_seed}:{draw_seed + 1}"
    done = warm_python.run(
        [sys.executable, SCRIPT, "--seeds", seeds, "--no-shrink"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
