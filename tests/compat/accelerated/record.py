"""Run the programs in pytorch-accelerated, and write down what they come to: `python record.py`.

    pip install -c constraints.txt pytorch-accelerated

What it writes, recorded.json, is what the tests compare with where that is not installed.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from accelerated_programs import PROGRAMS

FILE = Path(__file__).with_name("recorded.json")


def namespace(package: str) -> SimpleNamespace:
    """Return what the programs import, of a package."""
    names: dict[str, Any] = {}
    for module in ("callbacks", "finetuning", "trainer"):
        names |= vars(importlib.import_module(f"{package}.{module}"))
    names |= {
        name: getattr(callbacks_of(package), name) for name in callbacks_of(package).__dir__()
    }
    return SimpleNamespace(**names)


def callbacks_of(package: str) -> Any:
    """Return the module of a package's callbacks."""
    return importlib.import_module(f"{package}.callbacks")


def results(package: str, name: str, folder: Path) -> Any:
    """Return what a program comes to in a package, as it stands in a JSON file."""
    return json.loads(json.dumps(PROGRAMS[name](namespace(package), folder)))


def main() -> None:
    """Write the file."""
    found = {}
    for name in sys.argv[1:] or PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = results("pytorch_accelerated", name, Path(folder))
    version = importlib.import_module("pytorch_accelerated").__version__
    FILE.write_text(json.dumps({"version": version, "programs": found}) + "\n")


if __name__ == "__main__":
    main()
