"""Short forms of state keys, for the messages and tables that people read."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LONG = 50
"""Characters above which a key is shortened."""


def short_state_key(key: str) -> str:
    """Return a long state key without the options that are not set."""
    name, options = _parts(key)
    if len(key) <= _LONG or not options:
        return key
    unset = ("None", "0", "False", "''", "[]", "{}", "()")
    return _joined(name, {n: value for n, value in options.items() if value not in unset})


def short_state_keys(keys: Iterable[str]) -> dict[str, str]:
    """Return the short form of each key, different from those of all others.

    A long key becomes the class name alone, or with the first options by which it differs from the
    other keys of that class.
    """
    parts = {key: _parts(key) for key in keys}
    return {key: _distinct(key, parts) if len(key) > _LONG else key for key in parts}


def _distinct(key: str, parts: Mapping[str, tuple[str, Mapping[str, str]]]) -> str:
    name, options = parts[key]
    if not options:
        return key
    alike = [more for other, (kind, more) in parts.items() if kind == name and other != key]
    shown: dict[str, str] = {}
    for option, value in options.items():
        if any(more.get(option) != value for more in alike):
            shown[option] = value
            alike = [more for more in alike if more.get(option) == value]
    # one of the others has all of these options and more: nothing but the whole key tells
    return key if alike else _joined(name, shown)


@lru_cache(maxsize=256)  # each save asks for the keys of all callbacks
def _parts(key: str) -> tuple[str, Mapping[str, str]]:
    """Return the class name and the options of a key such as `"Counter{'unit': 'epochs'}"`.

    An option's value is its source text: some keys hold values that no literal stands for.
    """
    name, brace, rest = key.partition("{")
    if not brace:
        return key, {}
    text = brace + rest
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a key may be any text
        return key, {}
    if not isinstance(tree, ast.Dict):
        return key, {}
    options = {
        str(option.value): ast.get_source_segment(text, value) or ""
        for option, value in zip(tree.keys, tree.values, strict=True)
        if isinstance(option, ast.Constant)
    }
    return name, options


def _joined(name: str, options: Mapping[str, str]) -> str:
    listed = ", ".join(f"{option!r}: {value}" for option, value in options.items())
    return f"{name}{{{listed}}}" if listed else name
