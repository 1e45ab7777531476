"""What NaNGuard can be told, and how it ends a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer_hooks.errors import OptionError, StopTraining

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = ["ACTIONS", "CHECKS", "check_device", "stop"]

ACTIONS = ("raise", "stop", "skip", "rollback")
"""What NaNGuard can do."""

CHECKS = ("loss", "gradients", "parameters")
"""What NaNGuard can look at."""


def check_device(device: object, where: str) -> torch.device | None:
    """Return the device of that name, or None.

    Raises:
        OptionError: there is none.
    """
    if device is None or isinstance(device, torch.device):
        return device
    try:
        return torch.device(device)  # type: ignore[call-overload, no-any-return]
    except (RuntimeError, TypeError) as error:
        raise OptionError(
            f"snapshot_device {device!r} of {where}: it must be the name of a device. Pass one "
            "such as 'cpu'."
        ) from error


def stop(trainer: Trainer, found: list[str], epoch: int) -> None:
    """End a run in order because of what was found.

    Raises:
        StopTraining: always.
    """
    what = "training loss" if found[0] == "loss" else found[0]
    verb = "is NaN or infinite" if what.endswith("loss") else "hold NaN or infinity"
    reason = f"the {what} {verb} (epoch {epoch})"
    trainer.stop(reason)
    raise StopTraining(reason)
