"""Plain data of what is compared."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["plain", "shown"]


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it; of what it cannot hold, the class's name."""
    if isinstance(value, torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(item) for item in value]
        return sorted(items) if isinstance(value, set | frozenset) else items
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return value.name
    return value.__name__ if isinstance(value, type) else type(value).__name__


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
