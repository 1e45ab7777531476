"""Every documented name of Lightning is there, or says what to use instead."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_hooks.compat.refusing import NotOfferedError

PACKAGE = "trainer_hooks.compat.lightning"
NAMES = json.loads(
    (Path(__file__).parents[3] / "docs/lightning_names.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", NAMES["modules"], ids=lambda name: name or "top")
def test_a_module_of_lightning_has_its_names(module):
    """Each can be imported from where Lightning has it, or names what to use instead."""
    found = importlib.import_module(f"{PACKAGE}.{module}".rstrip("."))
    for name in NAMES["modules"][module]:
        told = ""
        try:
            assert getattr(found, name) is not None
        except NotOfferedError as error:
            told = str(error)
        assert not told or f"{name} is not in trainer_hooks: " in told


def test_what_is_not_offered_says_so_where_it_is_imported():
    """The line that imports it names it as Lightning does, and the other way."""
    line = "from trainer_hooks.compat.lightning.strategies import DeepSpeedStrategy"
    with pytest.raises(
        ImportError, match=r"^lightning.pytorch.strategies.DeepSpeedStrategy is not"
    ):
        exec(line)
    with pytest.raises(ImportError, match="pass Trainer\\(precision='64-true'\\)"):
        from trainer_hooks.compat.lightning.plugins.precision import DoublePrecision  # noqa: F401
    with pytest.raises(AttributeError, match="has no attribute 'Trainr'"):
        importlib.import_module(PACKAGE).Trainr  # noqa: B018


def test_only_what_is_used_is_loaded():
    """Importing the package loads no torch, and importing trainer_hooks none of it."""
    program = f"""
import sys
from trainer_hooks import Trainer
assert not any(name.startswith("{PACKAGE}") for name in sys.modules)
import {PACKAGE} as pl
print(sorted(name for name in sys.modules if name.startswith("{PACKAGE}")))
"""
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == f"['{PACKAGE}']"
