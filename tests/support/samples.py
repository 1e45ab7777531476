"""Parameters of which some are run always, and the others by `--exhaustive`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def one_in(number: int, values: Iterable[Any]) -> list[Any]:
    """Return all values as parameters, and all but the first of each so many marked exhaustive.

    A value may be a `pytest.param`; a tuple is the value of one parameter.
    """
    return [value if index % number == 0 else _marked(value) for index, value in enumerate(values)]


def _marked(value: Any) -> Any:
    if isinstance(value, type(pytest.param())):
        marks = [*value.marks, pytest.mark.exhaustive]
        return pytest.param(*value.values, marks=marks, id=value.id)
    return pytest.param(value, marks=pytest.mark.exhaustive)
