"""Files of hyperparameters: YAML, and CSV of keys and values."""

from __future__ import annotations

import ast
import csv
from argparse import Namespace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.errors import ModuleError, TrainerHooksWarning
from trainer_hooks.module.hyperparameters import read_hparams

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = [
    "convert",
    "load_hparams_from_tags_csv",
    "load_hparams_from_yaml",
    "save_hparams_to_tags_csv",
    "save_hparams_to_yaml",
    "update_hparams",
]


def load_hparams_from_yaml(
    config_yaml: str | os.PathLike[str], use_omegaconf: bool = True
) -> dict[str, Any]:
    """Return the hyperparameters in a YAML file; an empty dict, with a warning, if there is none.

    Args:
        config_yaml: the file's path.
        use_omegaconf: whether they are returned as omegaconf's DictConfig where it is installed.

    Raises:
        ModuleError: the file is no YAML of plain values.
    """
    values = _read(config_yaml)
    if not (use_omegaconf and values):
        return values
    try:
        from omegaconf import OmegaConf
    except ImportError:
        return values
    # a mapping, as the other is, but no dict
    made: Any = OmegaConf.create(values)
    return made  # type: ignore[no-any-return]


def save_hparams_to_yaml(
    config_yaml: str | os.PathLike[str],
    hparams: Mapping[str, Any] | Namespace,
    use_omegaconf: bool = True,
) -> None:
    """Write hyperparameters to a YAML file; those that are no plain values are left out.

    Args:
        config_yaml: the file's path, in a folder that is there.
        hparams: the hyperparameters.
        use_omegaconf: whether omegaconf's containers are written as plain ones.

    Raises:
        ModuleError: the folder is not there, or `hparams` is no mapping.
    """
    import yaml  # type: ignore[import-untyped]

    saved = {}
    for name, value in _as_dict(hparams, config_yaml).items():
        plain = value.name if isinstance(value, Enum) else value
        if use_omegaconf and type(value).__module__.startswith("omegaconf."):
            from omegaconf import OmegaConf

            plain = OmegaConf.to_container(value, resolve=True)
        try:
            yaml.safe_dump(plain)
        except yaml.YAMLError:
            warn(
                f"hyperparameter {name!r}, a {type(value).__qualname__}, of "
                f"save_hparams_to_yaml({str(config_yaml)!r}): it is no plain value, and is left "
                "out. Save plain values.",
                TrainerHooksWarning,
            )
        else:
            saved[name] = plain
    Path(config_yaml).write_text(yaml.safe_dump(saved), encoding="utf-8")


def load_hparams_from_tags_csv(tags_csv: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the hyperparameters in a CSV file; an empty dict, with a warning, if there is none.

    Args:
        tags_csv: the file's path.
    """
    return _read(tags_csv)


def save_hparams_to_tags_csv(
    tags_csv: str | os.PathLike[str], hparams: Mapping[str, Any] | Namespace
) -> None:
    """Write hyperparameters to a CSV file of keys and values.

    Args:
        tags_csv: the file's path, in a folder that is there.
        hparams: the hyperparameters.

    Raises:
        ModuleError: the folder is not there, or `hparams` is no mapping.
    """
    values = _as_dict(hparams, tags_csv)
    # as text: csv would write None as an empty one
    rows = [(name, str(value)) for name, value in values.items()]
    with Path(tags_csv).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("key", "value"), *rows])


def update_hparams(hparams: dict[str, Any], updates: Mapping[str, Any]) -> None:
    """Update hyperparameters in place; of nested dicts only the given items change.

    Args:
        hparams: the hyperparameters.
        updates: the new values.
    """
    for name, value in updates.items():
        if isinstance(value, dict) and isinstance(hparams.get(name), dict):
            update_hparams(hparams[name], value)
        else:
            hparams[name] = value


def convert(val: str) -> Any:
    """Return the Python value that a text stands for, or the text."""
    try:
        return ast.literal_eval(val)
    except (ValueError, SyntaxError):
        return val


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    if not Path(path).exists():
        warn(f"{str(path)!r}: there is no such file. Give one that is there.", TrainerHooksWarning)
        return {}
    return read_hparams(path)


def _as_dict(
    hparams: Mapping[str, Any] | Namespace, path: str | os.PathLike[str]
) -> dict[str, Any]:
    folder = Path(path).parent
    if not folder.is_dir():
        raise ModuleError(f"{str(path)!r}: there is no folder {str(folder)!r}. Make it first.")
    if isinstance(hparams, Namespace):
        hparams = vars(hparams)
    try:
        return dict(hparams)
    except (TypeError, ValueError):
        raise ModuleError(
            f"hyperparameters of type {type(hparams).__qualname__} for {str(path)!r}: must be a "
            "mapping or a Namespace. Pass one."
        ) from None
