"""What NaNGuard can be told, and how it ends a run, in all processes alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch

from trainer_hooks.errors import NonFiniteError, OptionError, StopTraining

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = ["ACTIONS", "CHECKS", "check_device", "found_by_any", "give_up", "stop"]

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


def stop(trainer: Trainer, found: list[str], epoch: int) -> NoReturn:
    """End a run in order because of what was found.

    Raises:
        StopTraining: always.
    """
    what = "training loss" if found[0] == "loss" else found[0]
    verb = "is NaN or infinite" if what.endswith("loss") else "hold NaN or infinity"
    reason = f"the {what} {verb} (epoch {epoch})"
    trainer.stop(reason)
    raise StopTraining(reason)


def give_up(what: str, in_a_row: int = 0, patience: int = 0) -> NoReturn:
    """Raise because of what is broken, or was found too often in a row.

    Raises:
        NonFiniteError: always.
    """
    if in_a_row:
        raise NonFiniteError(
            f"NaN or infinity in {what}: found {in_a_row} times in a row, and patience={patience} "
            "of NaNGuard is used up. Lower the learning rate, clip the gradients, or look at the "
            "data of these steps."
        )
    raise NonFiniteError(
        f"NaN or infinity in {what}: a training cannot go on from there. Lower the learning rate, "
        "clip the gradients, look at the data of these steps, or use NaNGuard('rollback')."
    )


def found_by_any(trainer: Trainer, found: list[str], names: tuple[str, ...] = CHECKS) -> list[str]:
    """Return what of `names` any process has found, so that all do the same."""
    if trainer.world_size == 1:
        return found
    told = torch.tensor([float(what in found) for what in names])
    by_any = trainer.strategy.reduce(told, reduce_op="max").tolist()
    return [what for what, is_found in zip(names, by_any, strict=True) if is_found]
