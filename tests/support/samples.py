"""Parameters of which some are run always, and the others not by each command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def one_in(number: int, values: Iterable[Any], otherwise: str = "exhaustive") -> list[Any]:
    """Return all values as parameters; all but the first of each so many have a marker.

    A value may be a `pytest.param`; a tuple is the value of one parameter.
    """
    mark = getattr(pytest.mark, otherwise)
    return [
        value if index % number == 0 else _marked(value, mark) for index, value in enumerate(values)
    ]


def spread(cases: Iterable[Any], values: Sequence[Any]) -> list[Any]:
    """Return each case with each value as parameters; all but one pair of a case are exhaustive.

    The values take turns, so that every case and every value is in a pair without the marker.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            value,
            marks=[] if place == number % len(values) else [pytest.mark.exhaustive],
        )
        for number, case in enumerate(cases)
        for place, value in enumerate(values)
    ]


def _marked(value: Any, mark: pytest.MarkDecorator) -> Any:
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=[*value.marks, mark], id=value.id)
    return pytest.param(value, marks=mark)
