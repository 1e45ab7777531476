"""Take parts out of a checkpoint by the names of its keys."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["IgnoreKeys", "check_ignore_keys", "leave_out"]

IgnoreKeys = list[str] | tuple[str, ...] | Callable[[dict[str, Any]], object]
"""Patterns of keys such as `"state_dict/head.*"`, or a function that changes the checkpoint."""


def check_ignore_keys(value: object, where: str) -> IgnoreKeys | None:
    """Return `value` if it is None, a function, or patterns of keys.

    Raises:
        OptionError: it is something else.
    """
    if value is None or callable(value):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value):
        return value
    raise OptionError(
        f"ignore_keys {value!r} of {where}: it must be a list of patterns of keys, or a function "
        "that is given the checkpoint and changes it. Pass such as ['state_dict/head.*']."
    )


def leave_out(checkpoint: dict[str, Any], keys: IgnoreKeys) -> list[str]:
    """Take what `keys` name out of a checkpoint.

    The names of dicts inside dicts are joined by `/`: `"optimizer_states"` is a whole part,
    `"state_dict/head.weight"` a weight, and `*` and `?` stand for what they do in file names.

    Args:
        checkpoint: a dict of dicts, which is changed.
        keys: patterns, or a function that makes the change itself.

    Returns:
        The patterns that nothing matched.
    """
    if callable(keys):
        keys(checkpoint)
        return []
    used: set[str] = set()
    for owner, key, path in list(_paths(checkpoint)):
        matching = [pattern for pattern in keys if fnmatchcase(path, pattern)]
        if matching:
            used.update(matching)
            owner.pop(key, None)
    return [pattern for pattern in keys if pattern not in used]


def _paths(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[dict[str, Any], str, str]]:
    """Give each key with the dict that it is in and its path, a part before what it holds."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        yield tree, key, path
        if isinstance(value, dict):
            yield from _paths(value, f"{path}/")
