"""Parameters of which some are run always, and the others not by each command."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def one_in(number: int, values: Iterable[Any], otherwise: str = "exhaustive") -> list[Any]:
    """Return all values as parameters; all but the first of each so many have a marker.

    A value may be a `pytest.param`; a tuple is the value of one parameter.
    """
    mark = getattr(pytest.mark, otherwise)
    return [
        value if index % number == 0 else _marked(value, mark) for index, value in enumerate(values)
    ]


def pairwise(values: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return all combinations as parameters of several arguments, most of them marked exhaustive.

    In those that are run always, any two choices come together that come together in one at all.
    """
    left = list(values)
    pairs = {value: set(combinations(enumerate(value), 2)) for value in left}
    open_ = set().union(*pairs.values())
    chosen = set()
    while open_:
        best = max(left, key=lambda value: len(pairs[value] & open_))
        chosen.add(best)
        open_ -= pairs[best]
    return [
        pytest.param(*value, marks=() if value in chosen else pytest.mark.exhaustive)
        for value in left
    ]


def _marked(value: Any, mark: pytest.MarkDecorator) -> Any:
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=[*value.marks, mark], id=value.id)
    return pytest.param(value, marks=mark)
