"""The former place of `trainer_hooks.clock.schedules`; each name from here is a warning."""

from __future__ import annotations

from typing import Any

from trainer_hooks._log import warn
from trainer_hooks.clock import schedules
from trainer_hooks.errors import TrainerHooksWarning

_RENAMED = {
    "Cue": "DueTracker",
    "Filter": "DueCondition",
    "word_or_when": "parse_word_or_when",
}
_NAMES = [*_RENAMED, "When", "after", "every", "once", "parse_when"]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _RENAMED.get(name, name)
    warn(
        f"{__name__}.{name} has moved. Write `from {schedules.__name__} import {new}`.",
        TrainerHooksWarning,
    )
    return getattr(schedules, new)


def __dir__() -> list[str]:
    return _NAMES
