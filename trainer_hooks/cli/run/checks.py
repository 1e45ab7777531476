"""What is made sure of in a config that the parser takes for granted."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint import is_remote
from trainer_hooks.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsonargparse import Namespace

    from trainer_hooks.cli.run.parser import TrainerParser

__all__ = ["check_classes", "check_environment", "check_values", "parsed"]

_CKPT_WORDS = ("auto", "best", "last")
"""What `ckpt_path` may be beside the path of a checkpoint."""


def check_environment(prefix: str, parser: TrainerParser) -> None:
    """Make sure that each variable of a command holds an argument; the parser passes over others.

    Args:
        prefix: what their names begin with; with that of no command nothing is looked at.
        parser: whose arguments they are.

    Raises:
        UsageError: one does not.
    """
    keys = {key.lower(): key for key in parser.argument_keys if not key.endswith("help")}
    for name in sorted(os.environ):
        key = name.removeprefix(prefix.upper()).replace("__", ".").lower()
        if not prefix.endswith("__") or not name.startswith(prefix.upper()) or key in keys:
            continue
        group = key.partition(".")[0]
        advice = nearest(key, keys.values())
        if parser.is_open(group):
            advice = f" Give class_path and init_args to {prefix.upper()}{group.upper()}."
        raise UsageError(f"{name} of the environment: there is no argument {key}.{advice}")


def parsed(parse: Callable[[Any], Namespace], given: Any) -> Namespace:
    """Return what is given, parsed.

    Raises:
        UsageError: a module that is imported for it ends the process.
    """
    try:
        return parse(given)
    except SystemExit as error:
        if not error.code:  # the parser's own, after it has shown something
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"{place.filename}, line {place.lineno} ends the process as the module is imported. "
            "Let it do so where it is run alone."
        ) from error


def check_classes(config: Any, key: str = "") -> None:
    """Make sure that each class path leads to a class, and to no function: none is called.

    Args:
        config: the config, parsed, or what stands under a key of it.
        key: that key.

    Raises:
        UsageError: one does not.
    """
    if isinstance(config, list):
        for item in config:
            check_classes(item, key)
    if not isinstance(config, dict):
        return
    path = config.get("class_path")
    home, _, name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    if inspect.isroutine(getattr(sys.modules.get(home), name, None)):
        raise UsageError(
            f"{key}: {path} cannot be made: it is a function. Give a class, or call the function "
            "in a script of your own, with TrainerCLI."
        )
    for below, value in config.items():
        part = "" if below in ("init_args", "dict_kwargs") else f".{below}"
        check_classes(value, f"{key}{part}".removeprefix("."))


def check_values(config: Namespace) -> None:
    """Make sure that the Trainer's options are some, and that the checkpoint is there.

    Raises:
        UsageError: they are not, or it is not.
    """
    options, path = config.get("trainer"), config.get("ckpt_path")
    if options is not None and not hasattr(options, "as_dict"):
        raise UsageError(f"trainer: {options!r} is no mapping of options. Write one.")
    is_there = path is None or path in _CKPT_WORDS or (bool(path) and Path(path).exists())
    if is_there or is_remote(path):
        return
    raise UsageError(
        f"ckpt_path: {path!r} is not there. Give a checkpoint, or one of {', '.join(_CKPT_WORDS)}."
    )
