"""Links between arguments, as a config file writes them."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING

from trainer_hooks.errors import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jsonargparse import Namespace

    from trainer_hooks.cli.run.parser import TrainerParser

__all__ = ["check_sources", "check_targets", "link"]


def link(parser: TrainerParser, source: str, target: str) -> None:
    """Let one argument take the value of another, or of an attribute of what was made.

    A source that is an argument is taken as it was parsed; any other is an attribute of the data
    module, the module or another object that is made from the config. Where a class is given by its
    class path, `data.init_args.name` is its argument, and `data.name` the attribute.

    Args:
        parser: whose arguments they are.
        source: where the value comes from, with dots.
        target: the argument that takes it.

    Raises:
        OptionError: they cannot be linked.
    """
    written, keys = f"{target}: {source}", parser.argument_keys
    is_argument = _is_argument(parser, source)
    group, _, name = target.partition(".")
    if name and group in keys and not name.startswith("init_args."):
        target = f"{group}.init_args.{name}"  # it is given by its class path
    try:
        parser.link_arguments(source, target, apply_on="parse" if is_argument else "instantiate")
    except ValueError as error:
        raise OptionError(
            f"links: {written}: {' '.join(str(error).split()).rstrip('.')}. Write a target and a "
            "source, as model.num_classes: data.num_classes."
        ) from error


def check_targets(config: Namespace, targets: Iterable[str]) -> None:
    """Make sure that the classes that were given take what is linked to them.

    Raises:
        OptionError: one does not; the parser passes over it.
    """
    for target in targets:
        group, _, name = target.partition(".")
        given = config.get(group)
        path = given.get("class_path") if hasattr(given, "get") else None
        if not path:
            continue
        home, _, class_name = str(path).rpartition(".")
        taken = inspect.signature(getattr(importlib.import_module(home), class_name)).parameters
        last = name.removeprefix("init_args.").partition(".")[0]
        if last not in taken and not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
            raise OptionError(
                f"links: {target}: {path} takes no {last!r}.{nearest(last, taken)} "
                f"Known: {', '.join(taken)}."
            )


def check_sources(parser: TrainerParser, made: Namespace, links: Mapping[str, str]) -> None:
    """Make sure that what was made has the attributes that others are linked to.

    Raises:
        OptionError: it does not; the parser passes over it.
    """
    for target, source in links.items():
        group, _, name = source.partition(".")
        owner = made.get(group)
        first = name.partition(".")[0]
        if _is_argument(parser, source) or not first or hasattr(owner, first):
            continue
        known = [each for each in dir(owner) if not each.startswith("_")]
        raise OptionError(
            f"links: {target}: {source}: {type(owner).__qualname__} has no attribute {first!r}."
            f"{nearest(first, known)} Set it in the constructor."
        )


def _is_argument(parser: TrainerParser, source: str) -> bool:
    return source in parser.argument_keys or ".init_args." in source
