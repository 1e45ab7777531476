"""What a checkpoint may hold: values that come back without running anybody's code."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import torch

from trainer_hooks.errors import CheckpointStateError

__all__ = ["find_foreign", "require_plain"]

_LEAVES = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, bytearray,
        torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device,
    }
)  # fmt: skip
_SEQUENCES = frozenset({list, tuple, set})
_MAPPINGS = frozenset({dict, OrderedDict, Counter})


def find_foreign(value: Any, path: str = "") -> tuple[str, Any] | None:
    """Return the path and value of the first thing that `weights_only` loading would refuse."""
    kind = type(value)
    if kind in _LEAVES:
        return None
    if kind in _MAPPINGS:
        for key, item in value.items():
            found = find_foreign(key, f"{path} (a key)") or find_foreign(item, f"{path}[{key!r}]")
            if found is not None:
                return found
        return None
    if kind in _SEQUENCES:
        for position, item in enumerate(value):
            found = find_foreign(item, f"{path}[{position}]")
            if found is not None:
                return found
        return None
    return path, value


def require_plain(value: Any, owner: str) -> None:
    """Make sure that `value` can be loaded back safely.

    Raises:
        CheckpointStateError: it cannot; the message names the owner and the place in the value.
    """
    found = find_foreign(value)
    if found is not None:
        path, item = found
        raise CheckpointStateError(
            f"the state of {owner} holds {item!r} of type {type(item).__module__}."
            f"{type(item).__qualname__} at state{path}: a checkpoint holds only plain data "
            "(numbers, strings, bytes, lists, tuples, dicts, sets) and tensors, so that opening "
            "one runs no code. Save plain data and rebuild the object in load_state_dict."
        )
