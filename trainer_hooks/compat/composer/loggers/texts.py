"""Values as texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

__all__ = ["format_log_data_value"]


def format_log_data_value(data: Any) -> str:
    """Return a value as a line of a log shows it."""
    if isinstance(data, str):
        return f'"{data}"'
    if isinstance(data, float):
        return f"{data:.4f}"
    if isinstance(data, torch.Tensor):
        one = data.numel() == 1
        return format_log_data_value(data.item()) if one else f"Tensor of shape {data.shape}"
    if isinstance(data, Mapping):
        shown = (f'"{name}": {format_log_data_value(value)}, ' for name, value in data.items())
        return "{ " + "".join(shown) + "}"
    if isinstance(data, Iterable):
        return f"[{', '.join(map(format_log_data_value, data))}]"
    return str(data)
