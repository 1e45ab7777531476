from __future__ import annotations

import subprocess
import sys

import pytest

import trainer_hooks.callbacks


@pytest.mark.slow
def test_drawing_libraries_are_not_imported():
    """Importing the callbacks imports neither tqdm nor rich, beyond what torch imports."""
    code = (
        "import sys, torch; before = set(sys.modules); import trainer_hooks.callbacks; "
        "print(sorted({'tqdm', 'rich'} & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_are_exported():
    """The savers and controllers can be imported from trainer_hooks.callbacks, sorted."""
    names = trainer_hooks.callbacks.__all__
    assert names == sorted(names)
    assert {
        "Checkpoint",
        "EarlyStopping",
        "LearningRateMonitor",
        "ModelCheckpoint",
        "Timer",
    } <= set(names)
