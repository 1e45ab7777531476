"""Checkpoint values as text and as JSON.

A checkpoint file is untrusted input: its values are escaped for a terminal and limited in size.
"""

from __future__ import annotations

import math
from collections import deque
from reprlib import Repr
from typing import Any

from torch import Tensor

from trainer_hooks._text import printable
from trainer_hooks.checkpoint.inspection import dtype_name, tensor_bytes

__all__ = ["JsonWriter", "printable", "short_text", "size_text"]

_LONGEST_TENSOR = 1000
"""Elements of a tensor that are written out as JSON."""

_MOST_VALUES = 1_000_000
"""Values that are written as JSON; a small file can hold the same list a billion times."""

_WIDTH = 240
"""Characters of a value in a few words."""


class _Short(Repr):
    """A `repr` that is cut short; a tensor shows its type, or the value of a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 72
        self.maxlevel = 4

    # reprlib finds these methods by the name of the type
    def repr_float(self, number: float, level: int) -> str:  # noqa: ARG002
        return f"{number:.6g}"

    def repr_Tensor(self, tensor: Tensor, level: int) -> str:  # noqa: ARG002, N802
        if tensor.numel() == 1 and not tensor.is_sparse:
            return f"tensor({tensor.item():.6g})" if tensor.is_floating_point() else repr(tensor)
        return f"{dtype_name(tensor)} tensor of shape {tuple(tensor.shape)}"

    repr_Parameter = repr_Tensor  # noqa: N815


_SHORT = _Short()


def short_text(value: Any) -> str:
    """Return a short text for a value."""
    text = printable(_SHORT.repr(value))
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def size_text(size: int) -> str:
    """Return a number of bytes in a readable unit, such as `12.3 MB`."""
    from rich.filesize import decimal

    return decimal(size)


class JsonWriter:
    """Converts values to plain JSON types.

    Tensors become dicts of dtype, shape and, up to 1000 elements, values. Bytes become a dict with
    hexadecimal digits, NaN and infinities strings, NumPy arrays of up to 1000 elements lists. Any
    other object becomes its text.
    """

    # not `json.dumps(default=...)`, which is asked neither about NaN nor about keys

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def write(self, value: Any) -> Any:
        """Return `value` as plain JSON types.

        Raises:
            ValueError: there are too many values.
        """
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it holds more than {_MOST_VALUES:,} values")
        if isinstance(value, Tensor):
            return self._tensor(value)
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            # JSON has no NaN and no infinity, though json writes them unless it is told not to
            return value if math.isfinite(value) else str(value)
        if isinstance(value, bytes | bytearray):
            return {"bytes": value.hex()}
        if isinstance(value, dict):
            return {str(key): self.write(item) for key, item in value.items()}
        if isinstance(value, set | frozenset):
            # by their texts: elements of several types cannot be compared with each other
            return [self.write(item) for item in sorted(value, key=repr)]
        if isinstance(value, list | tuple | deque):
            return [self.write(item) for item in value]
        # by its name: NumPy need not be installed
        if type(value).__module__ == "numpy" and value.size <= _LONGEST_TENSOR:
            return self.write(value.tolist())
        return str(value)

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        told: dict[str, Any] = {"dtype": dtype_name(tensor), "shape": list(tensor.shape)}
        if tensor.numel() > _LONGEST_TENSOR:
            return {**told, "bytes": tensor_bytes(tensor)}
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        # sparse tensors have no tolist; a dense one is returned as it is
        whole = tensor.detach().to_dense()
        if whole.is_complex():
            # JSON has no complex numbers
            return {**told, "values": str(whole.tolist())}
        return {**told, "values": self.write(whole.tolist())}
