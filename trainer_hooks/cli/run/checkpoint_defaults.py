"""Default arguments of module and data module from the checkpoint that a config names."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks.callbacks.reporting.run_facts import HIDDEN
from trainer_hooks.checkpoint import lightning
from trainer_hooks.checkpoint.inspection import UnusableFileError, as_mapping, inspect_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.cli.run.parser import TrainerParser

__all__ = ["set_defaults_from_checkpoint"]

_SAVED = {"model": "hyper_parameters", "data": lightning.DATA_HPARAMS}
_CLASS_PATH = "_class_path"
"""Where Lightning keeps the class of a module among its hyperparameters."""


def set_defaults_from_checkpoint(
    parser: TrainerParser, path: str, given: Callable[[str], str]
) -> None:
    """Use the arguments that a checkpoint was trained with as defaults of module and data module.

    The file is opened without running code and does not choose classes: the config does. Arguments
    come from the config in the file and from the hyperparameters; those that are not plain values,
    or that the class does not take, are left out.

    Args:
        parser: the parser whose defaults are set.
        path: the checkpoint; a missing or unusable file sets no defaults.
        given: returns the class name that was chosen for a group, empty if none was.
    """
    if not path or not Path(path).exists():
        return
    try:
        saved = inspect_file(path).data
    except (OSError, UnusableFileError):
        return  # the Trainer tells what is wrong with it
    for group, key in _SAVED.items():
        config = as_mapping(as_mapping(saved.get("config")).get(group))
        values = {**as_mapping(saved.get(key)), **as_mapping(config.get("init_args", config))}
        class_path = values.pop(_CLASS_PATH, None) or config.get("class_path")
        values = {name: value for name, value in values.items() if _is_plain(value)}
        if parser.is_open(group):
            defaults = _of_class(parser.class_of(group, given(group)), class_path, values)
            defaults = {group: defaults} if defaults else {}
        else:
            defaults = {f"{group}.{name}": value for name, value in values.items()}
            defaults = {k: v for k, v in defaults.items() if k in parser.argument_keys}
        if defaults:
            parser.set_defaults(defaults)
            log.info("arguments of %s that are not given come from %s", group, path)


def _of_class(kind: type | None, saved: object, values: dict[str, Any]) -> dict[str, Any]:
    """Return class path and arguments for the chosen class; empty if another class was saved."""
    if kind is None or (saved and str(saved).rpartition(".")[2] != kind.__name__):
        return {}
    taken = inspect.signature(kind).parameters
    init_args = {name: value for name, value in values.items() if name in taken}
    return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": init_args}


def _is_plain(value: Any) -> bool:
    """Return whether a value can stand in a config and holds no hidden secret."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(one) for name, one in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return HIDDEN not in value
    return value is None or isinstance(value, bool | int | float)
