from __future__ import annotations

import importlib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def generator(monkeypatch):
    """The module that makes pages."""
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("generate")
