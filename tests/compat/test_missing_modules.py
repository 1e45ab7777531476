"""Each module of the other frameworks is offered by the import lines, or refused with advice."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from trainer_hooks.compat.not_offered import NotOfferedImportError

pytestmark = pytest.mark.slow
PACKAGES = {
    "composer": "composer",
    "lightning_fabric": "lightning.fabric",
    "pytorch_accelerated": "accelerated",
    "pytorch_lightning": "lightning",
}
"""The compatibility package of each package."""

# a version is an attribute, which a module of that name would hide
NO_MODULE = {
    "pytorch_accelerated._version",
    "pytorch_lightning.__version__",
    "lightning_fabric.__version__",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_is_offered_or_refused_with_advice(package: str) -> None:
    """None ends in Python's own error, which names nothing to take."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"needs {package}")
    root = Path(spec.submodule_search_locations[0])
    bare, refused, before = [], [], {*sys.modules}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        path = ".".join(part for part in parts if part != "__init__")
        if not path or "__main__" in parts:
            continue
        try:
            importlib.import_module(f"trainer_hooks.compat.{PACKAGES[package]}.{path}")
        except NotOfferedImportError as error:
            refused.append(str(error))
        except ModuleNotFoundError:
            bare.append(f"{package}.{path}")
    assert {*bare} <= NO_MODULE
    assert all("is not in trainer_hooks: " in message for message in refused)
    assert package not in {*sys.modules} - before  # the framework itself is not imported
