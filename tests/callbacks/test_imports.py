from __future__ import annotations

import subprocess
import sys

import pytest

import trainer_hooks.callbacks
from trainer_hooks import callbacks
from trainer_hooks.errors import MovedError


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


def test_a_name_that_has_moved_is_told_where_it_is_now() -> None:
    """Its import is refused with the present place; `hasattr` and a default find nothing."""
    place = "from trainer_hooks.compat.composer.callbacks import SystemMetricsMonitor"
    with pytest.raises(MovedError, match=place):
        from trainer_hooks.callbacks import SystemMetricsMonitor  # noqa: F401
    assert not hasattr(callbacks, "SystemMetricsMonitor")
    assert getattr(callbacks, "ModelEmaCallback", None) is None
    with pytest.raises(AttributeError, match=place):
        _ = callbacks.SystemMetricsMonitor
