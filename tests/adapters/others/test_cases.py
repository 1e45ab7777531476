"""Callbacks of pytorch-accelerated and transformers do in our Trainer what they do in their own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CASES = Path(__file__).with_name("cases.py")
NAMES = [
    "accelerated ConvertSyncBatchNormCallback",
    "accelerated EarlyStoppingCallback",
    "accelerated LogMetricsCallback",
    "accelerated MoveModulesToDeviceCallback",
    "accelerated PrintProgressCallback",
    "accelerated ProgressBarCallback",
    "accelerated Recording",
    "accelerated SaveBestModelCallback",
    "accelerated TerminateOnNaNCallback",
    "transformers DefaultFlowCallback",
    "transformers EndingEpochs",
    "transformers PrinterCallback",
    "transformers ProgressCallback",
    "transformers Recording",
    "transformers Stopping",
]

pytestmark = [
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("pytorch_accelerated", "transformers"))),
        reason="needs pytorch-accelerated and transformers",
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict:
    """What the callbacks did there and here."""
    target = tmp_path_factory.mktemp("others") / "results.json"
    done = subprocess.run(
        [sys.executable, CASES, target],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(target.read_text(encoding="utf-8"))


def test_each_case_is_compared(results) -> None:
    """No case of the script is left out below."""
    assert sorted(results) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_does_what_it_does_at_home(results, name: str) -> None:
    """Events in order with their counters, what is kept, files and weights are the same."""
    here, there = results[name]["here"], results[name]["there"]
    assert "raised" not in there
    assert here == there
