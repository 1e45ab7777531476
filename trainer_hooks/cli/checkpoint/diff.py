"""`trainer-hooks checkpoint diff A B`: tell whether two checkpoints are equal, part by part."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._text import Branch, count_with_noun, show_table, show_tree
from trainer_hooks.checkpoint.difference import PARTS, DifferenceType, below, differences, parts_in
from trainer_hooks.checkpoint.inspection import inspect_file
from trainer_hooks.cli.commands import print_json
from trainer_hooks.cli.values import JsonWriter, short_text
from trainer_hooks.connector.state_keys import short_state_keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainer_hooks.checkpoint.difference import Difference, Tolerance

__all__ = ["DIFFERENT", "EQUAL", "diff"]

EQUAL, DIFFERENT = 0, 1
"""Exit codes, as of the program `diff`."""

_KINDS = {
    DifferenceType.SHAPE: "of another shape",
    DifferenceType.DTYPE: "of another dtype",
    DifferenceType.TENSOR: "in values",
}
_SHOWN = 20
"""Differences of one part that are listed."""

_WIDTH = 100
"""Characters of a value that only one of the files has."""


def diff(
    first: Path, second: Path, tolerance: Tolerance, *, ignores_paths: bool, is_json: bool
) -> int:
    """Print a verdict on each part of two files, and their differences; return the exit code.

    Args:
        first: the file A.
        second: the file B.
        tolerance: the distance up to which numbers count as equal.
        ignores_paths: whether to leave out paths and the names of event files.
        is_json: whether to print JSON.

    Raises:
        UnusableFileError: a file cannot be read as a checkpoint.
    """
    one, other = (inspect_file(path).with_tensors().as_saved() for path in (first, second))
    differing = [
        difference
        for difference in differences(one, other, tolerance)
        if not (ignores_paths and difference.is_place)
    ]
    parts = [part for part in PARTS if part in parts_in(one) | parts_in(other)]
    if is_json:
        writer = JsonWriter()
        told = {
            "a": str(first),
            "b": str(second),
            "is_equal": not differing,
            "verdict": _verdict(differing),
            "parts": {part: _verdict(_of_part(part, differing)) for part in parts},
            "differences": [_as_json(difference, writer) for difference in differing],
        }
        print_json(told)
        return DIFFERENT if differing else EQUAL
    show_tree(Branch(f"A: {first}"))
    show_tree(Branch(f"B: {second}"))
    show_table(
        ["part", "verdict"],
        [[part, _in_words(_of_part(part, differing))] for part in parts],
        whole={0, 1},
    )
    print()
    if differing:
        keys = short_state_keys(dict.fromkeys([*one.callbacks, *other.callbacks]))
        _show(differing, keys, weights=len({*one.weights, *other.weights}))
        print()
    match _verdict(differing):
        case "equal":
            print("equal" + (" but for paths and event files" if ignores_paths else ""))
        case "paths":
            print("equal but for paths and event files, which --ignore paths leaves out")
        case _:
            # a part that differs in nothing but paths is not named
            parts = [p for p in PARTS if _verdict(_of_part(p, differing)) == "different"]
            print(f"different: {', '.join(parts)}")
    return DIFFERENT if differing else EQUAL


def _of_part(part: str, differing: list[Difference]) -> list[Difference]:
    return [difference for difference in differing if difference.part == part]


def _verdict(differing: list[Difference]) -> str:
    """Return `equal`, `paths` for nothing but paths and event files, or `different`."""
    if not differing:
        return "equal"
    return "paths" if all(difference.is_place for difference in differing) else "different"


def _in_words(differing: list[Difference]) -> str:
    verdict = _verdict(differing)
    if verdict == "paths":
        return f"equal but for {count_with_noun(len(differing), 'path')}"
    return verdict if verdict == "equal" else count_with_noun(len(differing), "difference")


def _show(differing: list[Difference], keys: dict[str, str], weights: int) -> None:
    """Print the differences, one part of the checkpoint after the other.

    Args:
        differing: the differences.
        keys: the short form of each callback's state key.
        weights: the number of distinct weights in both files.
    """
    for part in PARTS:
        # paths last: at most so many lines are shown
        listed = sorted(_of_part(part, differing), key=lambda difference: difference.is_place)
        if not listed:
            continue
        lines = [
            Branch(f"{_short_path(difference.path, keys)}: {''.join(_told(difference))}")
            for difference in listed[:_SHOWN]
        ]
        if len(listed) > _SHOWN:
            more = f"and {len(listed) - _SHOWN} more (--json lists all)"
            lines.append(Branch(more, is_faint=True))
        title = f"{part}: {count_with_noun(len(listed), 'difference')}"
        if part == "weights":
            kinds = Counter(_KINDS.get(item.how, str(item.how)) for item in listed)
            how = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            title = f"weights: {len(listed)} of {count_with_noun(weights, 'tensor')} differ ({how})"
        show_tree(Branch(title, tuple(lines)))


def _short_path(path: str, keys: dict[str, str]) -> str:
    """Return a path with the short form of the state key in it."""
    for key, short in keys.items():
        if short != key and path.startswith(below("callbacks", key)):
            return below("callbacks", short) + path.removeprefix(below("callbacks", key))
    return path


def _told(difference: Difference) -> Iterator[str]:
    match difference.how:
        case DifferenceType.ONLY_A | DifferenceType.ONLY_B:
            value = difference.a if difference.how is DifferenceType.ONLY_A else difference.b
            yield f"{difference.how} ({textwrap.shorten(short_text(value), _WIDTH)})"
        case DifferenceType.TENSOR:
            yield f"{difference.differing:,} of "
            yield f"{count_with_noun(difference.elements, 'element')} differ"
            yield f", by up to {difference.max_abs:.3g}"
            if difference.elements == 1:
                yield f" ({short_text(difference.a)} -> {short_text(difference.b)})"
        case DifferenceType.TYPE:
            yield f"{_typed(difference.a)} -> {_typed(difference.b)}"
        case DifferenceType.SHAPE | DifferenceType.DTYPE:
            yield f"{difference.how} {difference.a} -> {difference.b}"
        case _:
            yield f"{_exact(difference.a)} -> {_exact(difference.b)}"


def _exact(value: Any) -> str:
    """Return a number with all its digits, so that two different numbers never look the same."""
    return repr(value) if isinstance(value, float) else short_text(value)


def _typed(value: Any) -> str:
    return f"{short_text(value)} ({type(value).__name__})"


def _as_json(difference: Difference, writer: JsonWriter) -> dict[str, Any]:
    told: dict[str, Any] = {
        "part": difference.part,
        "path": difference.path,
        "how": str(difference.how),
        "is_place": difference.is_place,
    }
    if difference.how is DifferenceType.TENSOR:
        told["max_abs"] = writer.write(difference.max_abs)
        told["differing"] = difference.differing
        told["elements"] = difference.elements
        return told
    for name, value in (("a", difference.a), ("b", difference.b)):
        # of a tensor that only one file has, type and shape say enough
        is_brief = isinstance(value, Tensor)
        told[name] = short_text(value) if is_brief else writer.write(value)
    return told
