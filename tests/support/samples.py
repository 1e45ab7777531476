"""Parameters of which some are run always, and the others not by each command."""

from __future__ import annotations

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


def _marked(value: Any, mark: pytest.MarkDecorator) -> Any:
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=[*value.marks, mark], id=value.id)
    return pytest.param(value, marks=mark)
