"""The classes that a config gives in options of the Trainer."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jsonargparse import Namespace

__all__ = ["check_required", "imported", "named"]


def imported(path: str) -> Any:
    """Return the class of a class path."""
    home, _, name = path.rpartition(".")
    return getattr(importlib.import_module(home), name)


def named(target: str, options: Namespace, option: str, name: str) -> Namespace:
    """Return what is given in an option of the Trainer by the name of its class, or its place.

    Raises:
        OptionError: there is none, or there are several of that class.
    """
    items = _items(options, option)
    names = [str(one.get("class_path")).rpartition(".")[2] for one in items]
    places = [i for i, known in enumerate(names) if name in (known, str(i))]
    if len(places) == 1:
        return items[places[0]]
    if places:
        raise OptionError(
            f"links: {target}: {option} has {len(places)} of {name}. Name one by its place, from "
            f"0: trainer.{option}.{places[0]}."
        )
    raise OptionError(
        f"links: {target}: {option} has no {name!r}.{nearest(name, names)} "
        f"Known: {', '.join(names) or 'none is given'}."
    )


def check_required(options: Namespace, targets: Sequence[str]) -> None:
    """Make sure that none but the targets of links lacks what links supply to those.

    The parser, which is told of a link, then asks for the argument nowhere.

    Args:
        options: those of the Trainer.
        targets: arguments of what stands in them, as `trainer.callbacks.EarlyStopping.monitor`.

    Raises:
        OptionError: a class lacks it.
    """
    parts = [target.split(".")[1:] for target in targets]
    linked = [(named("", options, option, at), name) for option, at, name in parts]
    for option, _, name in parts:
        for place, item in enumerate(_items(options, option)):
            path, given = item["class_path"], item.get("init_args") or {}
            taken = inspect.signature(imported(path)).parameters.get(name)
            is_required = taken is not None and taken.default is taken.empty
            is_linked = any(one is item and of == name for one, of in linked)
            if is_required and given.get(name) is None and not is_linked:
                raise OptionError(
                    f"trainer.{option}: {path} needs {name}. Give it in init_args, or link to "
                    f"trainer.{option}.{place}.{name}."
                )


def _items(options: Namespace, option: str) -> list[Namespace]:
    given = options.get(option)
    return [one for one in (given if isinstance(given, list) else [given]) if hasattr(one, "get")]
