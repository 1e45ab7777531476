"""What `Trainer(barebones=True)` switches off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["switched_off"]

_OFF: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_run_manifest": False,
    "num_sanity_val_steps": 0,
    "log_every_n_steps": 0,
}
"""Options that are at these values then, unless they are given, when they must be."""

_REFUSED = ("fast_dev_run", "detect_anomaly", "profiler", "profile_hooks", "hook_budget")
"""Options that must not ask for anything."""


def switched_off(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the options that a bare run has off.

    Args:
        given: all options as they were given.

    Raises:
        OptionError: an option was given that asks for what is off.
    """
    asked = [name for name, off in _OFF.items() if given[name] not in (None, off)]
    asked += [name for name in _REFUSED if given[name] not in (None, False, 0)]
    if asked:
        shown = ", ".join(f"{name}={given[name]!r}" for name in asked)
        raise OptionError(
            f"Trainer(barebones=True, {shown}): barebones switches that off, to show what the "
            "loops cost without it. Leave one of them out."
        )
    return {**_OFF, "plugins": False}
