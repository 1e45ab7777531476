"""Tables of options with which no callback is made: by callback, by option, and for several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping


def each_value(bad: Mapping[str, Mapping[str, list[Any]]]) -> list[tuple[str, str, Any]]:
    """Return the callback, the option and the value of each case of a table."""
    return [
        (name, option, value)
        for name, options in bad.items()
        for option, values in options.items()
        for value in values
    ]


def require_named(message: str, name: str, option: str, value: Any, rule: str = "") -> None:
    """Require a refusal to begin with the option, its value and the callback, and tell the rule."""
    beginning = f"{option} {value!r} of {name}: "
    assert message.startswith(beginning)
    assert rule in message.removeprefix(beginning)


def refusal_of(kind: type, options: Mapping[str, Any]) -> str:
    """Return the message of the OptionError that a class raises for its options."""
    with pytest.raises(OptionError) as caught:
        kind(**options)
    return str(caught.value)
