"""adapt: which adapter a callback of Composer gets, and what it counts as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from trainer_hooks.adapters.composer.destinations import DestinationGuest
from trainer_hooks.adapters.composer.guest import ComposerGuest
from trainer_hooks.adapters.composer.special import ExportGuest, SaverGuest
from trainer_hooks.adapters.kinds import HostedBar
from trainer_hooks.callbacks import Checkpoint, EarlyStopping
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from trainer_hooks.callback import Callback

__all__ = ["adapt", "refuse_algorithm"]

_SAVER = "composer.callbacks.checkpoint_saver.CheckpointSaver"

_KINDS: dict[str, type[Callback]] = {
    _SAVER: Checkpoint,
    "composer.callbacks.early_stopper.EarlyStopper": EarlyStopping,
    "composer.loggers.progress_bar_logger.ProgressBarLogger": HostedBar,
}
"""What Composer's classes count as."""

_HOSTS: dict[str, type[ComposerGuest]] = {
    _SAVER: SaverGuest,
    "composer.loggers.logger_destination.LoggerDestination": DestinationGuest,
    "composer.callbacks.export_for_inference.ExportForInferenceCallback": ExportGuest,
}
"""The adapters of those that reach deeper into the state than others."""


def adapt(guest: Any) -> Callback:
    """Return the adapter of a callback of Composer."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(guest).__mro__}
    kinds = [kind for name, kind in _KINDS.items() if name in names]
    host = next((host for name, host in _HOSTS.items() if name in names), ComposerGuest)
    return host.hosting(guest, *kinds)


def refuse_algorithm(guest: Any) -> NoReturn:
    """Raise an error: an algorithm of Composer changes a training loop that is not here.

    Raises:
        CallbackError: always.
    """
    raise CallbackError(
        f"{type(guest).__module__}.{type(guest).__qualname__}: it is an algorithm of Composer, "
        "which changes the model, the batches or the loss of Composer's own training loop. Run it "
        "in Composer's Trainer, or apply what it does to the model before fit, as its function in "
        "composer.functional does."
    )
