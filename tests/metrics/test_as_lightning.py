"""Logging means what it means in Lightning: what is visible at every moment."""

from __future__ import annotations

import importlib.util
import json
import warnings
from pathlib import Path

import pytest

from trainer_hooks import Module, Trainer

FOLDER = Path(__file__).parent
FACTS = json.loads((FOLDER / "moments.json").read_text(encoding="utf-8"))


def _script():
    spec = importlib.util.spec_from_file_location("moments", FOLDER / "moments.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("scenario", FACTS)
def test_what_is_visible_at_each_moment(scenario, MemoryLogger, tmp_path) -> None:
    """The three tables of metrics, and what loggers get, are Lightning 2.6's at every hook."""
    if scenario == "metrics":
        pytest.importorskip("torchmetrics")

    def make(**options):
        return Trainer(default_root_dir=tmp_path, **options)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The ``compute`` method")  # torchmetrics, in both
        found = _script().moments(scenario, Module, make, MemoryLogger())
    for ours, theirs in zip(found, FACTS[scenario], strict=True):
        assert ours == theirs
