"""What may stand somewhere in a config, in words."""

from __future__ import annotations

import importlib
import inspect
import re
import traceback
from typing import TYPE_CHECKING, get_type_hints

from trainer_hooks.errors import nearest
from trainer_hooks.hooks import is_request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.cli.run.parser import TrainerParser

__all__ = ["arguments_in", "arguments_of", "classes", "listed", "misfit", "unimportable"]

_MOST = 12
"""Names that a line lists."""


def listed(names: Iterable[str]) -> str:
    """Return the first names in a sentence, and how many there are."""
    found = sorted(names)
    shown = ", ".join(found[:_MOST])
    rest = f" and {len(found) - _MOST} more: --help lists them" if len(found) > _MOST else ""
    return f"Known: {shown}{rest}." if found else ""


def classes(parser: TrainerParser | None, key: str, name: str) -> str:
    """Return which classes may stand under a key, and which one a name may mean."""
    known = [] if parser is None else parser.class_names(key)
    if len(known) < 2:  # the base alone
        return "Give the class path of one."
    return f"{nearest(name, known) if name else ''} {listed(known)}"


def arguments_of(class_path: str) -> list[str]:
    """Return what a class takes."""
    home, _, name = class_path.rpartition(".")
    kind = getattr(importlib.import_module(home), name)
    return [n for n in inspect.signature(kind).parameters if n not in ("self", "args", "kwargs")]


def arguments_in(class_path: str, name: str) -> list[str]:
    """Return what an argument of a class takes that is a dataclass."""
    home, _, last = class_path.rpartition(".")
    try:
        hints = get_type_hints(getattr(importlib.import_module(home), last).__init__)
        return list(inspect.signature(hints[name]).parameters)
    except (KeyError, NameError, TypeError, ValueError):
        return []


def misfit(value: str, base: str) -> str:
    """Return the class path in a value that does not lead to a class of that base."""
    paths = re.findall(r"class_path'?[:=] ?'([^']+)'", value)
    for path in paths:
        home, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(home), name, None) if home else None
        if base not in {one.__name__ for one in getattr(kind, "__mro__", ())}:
            return str(path)
    return value


def unimportable(value: str) -> tuple[str, str] | None:
    """Return the class path in a value whose module raises as it is imported, and what it raises.

    The parser does not tell of it: to it, the value is then of no type that it knows.
    """
    for path in re.findall(r"(?<![\w./])[.A-Za-z_][\w.]*\.\w+", value):
        try:
            importlib.import_module(path.rpartition(".")[0])
        except BaseException as error:
            if is_request(error):
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f", in {place.filename}, line {place.lineno}"
            is_told = isinstance(error, SyntaxError) or "importlib" in place.filename
            return path, f"{type(error).__name__}: {error}{'' if is_told else where}"
    return None
