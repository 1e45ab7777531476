"""What NaNGuard can be told."""

from __future__ import annotations

import torch

from trainer_hooks.errors import OptionError

__all__ = ["CHECKS", "check_device"]

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
