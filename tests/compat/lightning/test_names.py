"""Every documented name of Lightning is there, or says what to use instead."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_hooks.compat.lightning.modules import VIRTUAL_MODULES, exports_of
from trainer_hooks.compat.not_offered import NotOfferedError

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
    """Importing the package loads its table alone, and importing trainer_hooks none of it."""
    program = f"""
import sys
from trainer_hooks import Trainer
assert not any(name.startswith("{PACKAGE}") for name in sys.modules)
import {PACKAGE} as pl
files = {{name for name, module in sys.modules.items() if getattr(module, "__file__", None)}}
print(sorted(name for name in files if name.startswith("{PACKAGE}")))
"""
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == f"['{PACKAGE}', '{PACKAGE}.modules']"


@pytest.mark.parametrize("module", VIRTUAL_MODULES)
def test_a_module_without_a_file_is_imported_as_any_other(module):
    """Its parent has it as an attribute, its names are listed and loaded, and others are errors."""
    name = f"{PACKAGE}.{module}"
    exec(f"import {name}", scope := {})
    found = importlib.import_module(name)
    assert eval(name, scope) is found
    assert importlib.util.find_spec(name) is found.__spec__
    assert dir(found) == found.__all__ == sorted(exports_of(module))
    exec(f"from {name} import *", names := {})
    assert {n for n in names if n != "__builtins__"} == set(found.__all__)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        found.nothing  # noqa: B018


def test_an_alias_is_the_object_that_it_names():
    """`Lightning's=ours` in the table gives our object under Lightning's name."""
    from trainer_hooks.compat.lightning.core.optimizer import LightningOptimizer
    from trainer_hooks.module.optimization import ManualOptimizer

    assert LightningOptimizer is ManualOptimizer
