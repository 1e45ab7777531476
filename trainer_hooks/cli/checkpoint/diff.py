"""`trainer-hooks checkpoint diff A B`: list the differences of two checkpoint files."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._text import Branch, show_tree
from trainer_hooks.checkpoint.difference import DifferenceType, differences
from trainer_hooks.checkpoint.inspection import inspect_file
from trainer_hooks.cli.commands import print_json
from trainer_hooks.cli.values import JsonWriter, count_with_noun, printable, short_text

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


def diff(first: Path, second: Path, tolerance: Tolerance, *, is_json: bool) -> int:
    """Print the differences of two files and return the exit code.

    Raises:
        UnusableFileError: a file cannot be read as a checkpoint.
    """
    one, other = (inspect_file(path).with_tensors().as_saved() for path in (first, second))
    differing = list(differences(one, other, tolerance))
    if is_json:
        writer = JsonWriter()
        told = {
            "a": str(first),
            "b": str(second),
            "is_equal": not differing,
            "differences": [_as_json(difference, writer) for difference in differing],
        }
        print_json(told)
    elif not differing:
        print(f"equal: {printable(first)} and {printable(second)} hold the same")
    else:
        show_tree(Branch(f"A: {first}"))
        show_tree(Branch(f"B: {second}"))
        _show(differing, weights=len({*one.weights, *other.weights}))
    return DIFFERENT if differing else EQUAL


def _show(differing: list[Difference], weights: int) -> None:
    """Print the differences, one section of the checkpoint after the other.

    Args:
        differing: the differences.
        weights: the number of distinct weights in both files.
    """
    for part in dict.fromkeys(difference.part for difference in differing):
        listed = [difference for difference in differing if difference.part == part]
        lines = [
            Branch(f"{difference.path}: {''.join(_told(difference))}")
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
