"""The callbacks of a Trainer for which none are passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.accelerated.callbacks.built_in import (
    MoveModulesToDeviceCallback,
    PrintMetricsCallback,
    PrintProgressCallback,
)
from trainer_hooks.compat.accelerated.callbacks.console import ProgressBarCallback
from trainer_hooks.compat.accelerated.callbacks.stopping import TerminateOnNaNCallback

if TYPE_CHECKING:
    from trainer_hooks.callback import Callback

__all__ = ["get_default_callbacks"]


def get_default_callbacks(progress_bar: bool = True) -> tuple[type[Callback], ...]:
    """Return the classes of the default callbacks, with the progress bar or without it."""
    return (
        MoveModulesToDeviceCallback,
        TerminateOnNaNCallback,
        PrintProgressCallback,
        *((ProgressBarCallback,) if progress_bar else ()),
        PrintMetricsCallback,
    )
