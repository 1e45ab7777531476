"""The tables of Composer's names for their page, checked against `trainer_hooks.compat.composer`.

A name of Composer that is neither offered nor refused with advice is an error, and so is a name in
both. `composer_names.py` writes the file of the names.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docstrings import read_attributes
from trainer_hooks.compat.composer import (
    Callback,
    ComposerModel,
    DataSpec,
    Engine,
    Evaluator,
    Event,
    Logger,
    State,
    Time,
    Timestamp,
    TimeUnit,
    Trainer,
    not_offered,
)
from trainer_hooks.compat.composer.core.precision import Precision
from trainer_hooks.compat.composer.core.state import Device
from trainer_hooks.compat.composer.loggers import InMemoryLogger, LoggerDestination
from trainer_hooks.compat.composer.modules import MODULES
from trainer_hooks.compat.composer.options import TrainerOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["not_offered_rows", "offered_rows"]

_NAMES = Path(__file__).with_name("composer_names.json")


def offered_rows() -> list[str]:
    """Return the table of the offered names, a row for each part of Composer."""
    rows = ["| of | here |", "|---|---|"]
    for group, names in _names().items():
        replacements = _replacements_of(group)
        offered = _offered_names(group)
        unknown = [name for name in names if name not in offered and name not in replacements]
        if unknown:
            raise ValueError(f"{group}: {', '.join(unknown)}: not here; say what to do instead.")
        stale = [name for name in replacements if name in offered]
        if stale:
            raise ValueError(f"{group}: {', '.join(stale)}: here by now; it needs no reason.")
        shown = ", ".join(f"`{name}`" for name in names if name in offered)
        rows.append(f"| `{group}` | {shown} |")
    return rows


def not_offered_rows() -> list[str]:
    """Return the table of the names that are not offered, with their replacements."""
    rows = ["| of | not here | instead |", "|---|---|---|"]
    for group, names in _names().items():
        replacements = _replacements_of(group)
        by_advice: dict[str, list[str]] = {}
        for name in names:
            if name in replacements:
                by_advice.setdefault(replacements[name], []).append(f"`{name}`")
        rows += [f"| `{group}` | {', '.join(n)} | {advice} |" for advice, n in by_advice.items()]
    return rows


def _names() -> dict[str, list[str]]:
    names = json.loads(_NAMES.read_text(encoding="utf-8"))
    del names["version"], names["paths"]
    return dict(names)


def _replacements_of(group: str) -> Mapping[str, str]:
    options = {name: advice for name, (_, advice) in not_offered.OPTIONS.items() if advice}
    known: dict[str, Mapping[str, str]] = {
        "State": not_offered.STATE,
        "Engine": not_offered.ENGINE,
        "Trainer": not_offered.TRAINER,
        "Trainer(...)": options,
    }
    if group.startswith("composer"):
        return MODULES.refused(group.partition(".")[2])
    return known.get(group, {})


def _offered_names(group: str) -> set[str]:
    """Return the names that a part of Composer has here."""
    if group.startswith("composer"):
        module = importlib.import_module(f"trainer_hooks.compat.{group}")
        return set(module.__all__)
    if group.endswith("(...)"):
        return _arguments(group)
    state = State(None, "run", device=Device("cpu"), precision=Precision.FP32)
    logger = Logger(state)
    owners: dict[str, Any] = {
        "Callback": Callback(),
        "Event": Event.INIT,
        "State": state,
        "Engine": Engine(state, logger),
        "Time": Time(1, "ep"),
        "TimeUnit": TimeUnit,
        "Timestamp": Timestamp(),
        "Evaluator": Evaluator(label="eval", dataloader=[]),
        "DataSpec": DataSpec([]),
        "Logger": logger,
        "LoggerDestination": LoggerDestination(),
        "InMemoryLogger": InMemoryLogger(),
        "ComposerModel": ComposerModel,
        "Trainer": Trainer,
    }
    owner = owners[group]
    own = {name for name in dir(owner) if name[0] != "_"} | set(getattr(owner, "__slots__", ()))
    return own | (set(read_attributes(Trainer)) if owner is Trainer else set())


def _arguments(group: str) -> set[str]:
    import inspect

    if group == "Trainer(...)":
        refused = {name for name, (_, advice) in not_offered.OPTIONS.items() if advice}
        return {field.name for field in fields(TrainerOptions)} - refused
    method = getattr(Trainer, group.removeprefix("Trainer.").removesuffix("(...)"))
    return set(inspect.signature(method).parameters)
