"""What can be read from the declared loop: where a hook stands, and the lines that show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks._text import Branch
from trainer_hooks.hooks.tree import LOOP, Block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Place", "branches_of", "hooks_in", "places_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the loop at which a hook fires.

    Attributes:
        path: the lines that it stands in, the outermost first.
        above: the hook above it in the same part of the loop, or an empty string.
        below: the hook below it, likewise.
    """

    path: tuple[str, ...]
    above: str
    below: str


def places_of(hook: str) -> tuple[Place, ...]:
    """Return every place at which `hook` fires; none for one that is not in the loop."""
    places = []
    for part in LOOP:
        lines = list(_lines(part, ()))
        names = ["", *(name for name, _ in lines), ""]
        for index, (name, path) in enumerate(lines):
            if name == hook:
                places.append(Place(path, names[index], names[index + 2]))
    return tuple(places)


def hooks_in(steps: Sequence[str | Block]) -> Iterator[str]:
    """Give the name of each hook below `steps`, as often as it stands there, in order."""
    for step in steps:
        if isinstance(step, Block):
            yield from hooks_in(step.steps)
        else:
            yield step


def branches_of(
    parts: Sequence[str | Block], leaf: Callable[[str], Branch] = Branch
) -> tuple[Branch, ...]:
    """Return `parts` as lines of a tree to show.

    Args:
        parts: hooks and blocks, as `LOOP` or some of it.
        leaf: what makes the line of a hook. A block all of whose hooks are faint is faint too.
    """
    told: set[Block] = set()

    def branch(step: str | Block) -> Branch:
        if isinstance(step, str):
            return leaf(step)
        if step in told:
            return Branch(f"{step.text} (as above)", is_faint=is_faint[step])
        below = tuple(map(branch, step.steps))
        is_faint[step] = all(line.is_faint for line in below)
        if step.is_told_once:
            told.add(step)
        return Branch(step.text, below, is_faint[step])

    is_faint: dict[Block, bool] = {}
    return tuple(map(branch, parts))


def _lines(block: Block, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    here = (*path, block.text)
    for step in block.steps:
        if isinstance(step, Block):
            yield from _lines(step, here)
        else:
            yield step, here
