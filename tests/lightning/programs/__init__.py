"""Small programs that run on Lightning and on trainer_hooks, one file for each section.

A program is a function of one argument, the names of a framework (`side.Side`), whose docstring
says what it is about. It returns what is compared. What differs on purpose is declared with
`differs`, which names the row of docs/differences-from-lightning.md that tells of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Difference", "all_programs", "differences_of", "differs", "error"]


@dataclass(frozen=True, slots=True)
class Difference:
    """What a program finds to be different, and why.

    Attributes:
        row: the first column of the row in docs/differences-from-lightning.md.
        lightning: what Lightning gives.
        here: what is given here.
    """

    row: str
    lightning: Any
    here: Any


def differs(row: str, **values: tuple[Any, Any]) -> Callable[[Callable], Callable]:
    """Declare for each value that differs what Lightning gives and what is given here."""

    def mark(program: Callable) -> Callable:
        known = {name: Difference(row, *pair) for name, pair in values.items()}
        program.differences = {**differences_of(program), **known}
        return program

    return mark


def error(name: str) -> dict[str, list[str]]:
    """Return what `Side.error` gives for an error of this class, to declare it."""
    return {"kinds": [name]}


def differences_of(program: Callable) -> dict[str, Difference]:
    """Return the declared differences of a program, by the name of the value."""
    return getattr(program, "differences", {})


def all_programs() -> dict[str, Callable]:
    """Return every program, as `section.name`."""
    found = {}
    for section in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{section}")
        for name, value in vars(module).items():
            if name[0] != "_" and getattr(value, "__module__", "") == module.__name__:
                found[f"{section}.{name}"] = value
    return found
