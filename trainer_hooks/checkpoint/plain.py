"""What a checkpoint may hold: values that come back without running anybody's code."""

from __future__ import annotations

from reprlib import Repr
from typing import Any

from trainer_hooks.checkpoint.encoding import Encoder, ForeignValueError
from trainer_hooks.errors import CheckpointStateError

__all__ = ["encode_state", "find_foreign", "require_plain"]

_SHORT = Repr()
_SHORT.maxother = _SHORT.maxstring = 80


def find_foreign(value: Any) -> tuple[str, Any] | None:
    """Return the path and value of the first thing that a checkpoint cannot hold."""
    try:
        Encoder(value).encode(value)
    except ForeignValueError as found:
        return found.path, found.value
    return None


def require_plain(value: Any, owner: str) -> None:
    """Make sure that `value` can be saved and loaded back safely.

    Raises:
        CheckpointStateError: it cannot; the message names the owner and the place in the value.
    """
    encode_state(value, owner, Encoder(value))


def encode_state(value: Any, owner: str, encoder: Encoder) -> Any:
    """Return `value` as data that torch opens without running code.

    Raises:
        CheckpointStateError: it holds what only code could rebuild; the message names the owner and
            the place in the value.
    """
    try:
        return encoder.encode(value)
    except ForeignValueError as found:
        item = found.value
        named = f"{type(item).__module__}.{type(item).__qualname__}"
        rule = f" {found.rule[0].upper()}{found.rule[1:]}." if found.rule else ""
        raise CheckpointStateError(
            f"the state of {owner} holds {_SHORT.repr(item)} of type {named} at state{found.path}: "
            "a checkpoint holds only plain data (numbers, texts, bytes, dates, paths, containers of"
            " those), arrays and tensors, and no subclasses of them, so that opening one runs no "
            f"code.{rule} Save plain data and rebuild the object in load_state_dict. Parts of the "
            "state of another framework's callback can be named: "
            "trainer_hooks.adapters.keep_opaque(callback, key)."
        ) from found
