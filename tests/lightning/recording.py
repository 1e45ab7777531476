"""Calls as they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from plain_values import plain

__all__ = ["shown"]


def shown(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return a call as it is compared, with what is passed by position or by keyword."""
    said = [_argument(arg) for arg in (*args, *kwargs.values())]
    return f"{name}({', '.join(one for one in said if one)})"


def _argument(value: Any) -> str:
    """Return an argument in short; trainers and modules are in every call and are left out."""
    if isinstance(value, torch.Tensor):
        return f"tensor{list(value.shape)}"
    if isinstance(value, torch.nn.Module) or type(value).__name__ == "Trainer":
        return ""
    if isinstance(value, Mapping):
        return "checkpoint" if "state_dict" in value else "{" + ", ".join(map(str, value)) + "}"
    if isinstance(value, BaseException) or not isinstance(
        value, bool | int | float | str | list | tuple | type(None)
    ):
        return type(value).__name__
    return str(plain(value))
