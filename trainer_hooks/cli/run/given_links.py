"""Links as they are given: in the environment, in config files, in words of a command line."""

from __future__ import annotations

import json
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.cli.run.sources import Sources

__all__ = ["links_in", "words_with"]

yaml: Any = import_module("yaml")  # which tells no types without a package of its own

_WORD = "--links"


def links_in(sources: Sources, below: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the source of each target, those of later places over those of earlier ones.

    Args:
        sources: the environment, the config files and the words.
        below: what a dict gives that takes the place of the words.

    Raises:
        OptionError: a place holds something else.
    """
    variable = os.environ.get(sources.variable("links"))
    found: dict[Any, Any] = {} if variable is None else _mapping(variable)
    found.update(sources.values_of("links"))
    found.update(below.get("links") or {})
    for key, value in _in_words(sources.words)[1]:
        found.update(_mapping(value) if key is None else {key: value})
    return found


def words_with(words: Sequence[str], links: Mapping[str, str]) -> list[str]:
    """Return the words with all links in the last of them, which goes over all before it."""
    rest, _ = _in_words(words)
    return [*rest, f"{_WORD}={json.dumps(dict(links))}"] if links else rest


def _in_words(words: Sequence[str]) -> tuple[list[str], list[tuple[str | None, str]]]:
    """Return the words that are of no link; and of the others target and value.

    The target is None where the value holds several links.
    """
    rest: list[str] = []
    found: list[tuple[str | None, str]] = []
    left = list(words)
    while left:
        word = left.pop(0)
        option, equals, value = word.partition("=")
        if option != _WORD and not option.startswith(f"{_WORD}."):
            rest.append(word)
            continue
        if not equals and left and not left[0].startswith("--"):
            value = left.pop(0)
        found.append((None if option == _WORD else option.removeprefix(f"{_WORD}."), value))
    return rest, found


def _mapping(text: str) -> dict[Any, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = text
    if not isinstance(found, dict):
        raise OptionError(
            f"links: {found!r} is no mapping. Write targets and sources, as "
            "{model.num_classes: data.num_classes}."
        )
    return found
