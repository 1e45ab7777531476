"""Hyperparameters: the arguments that a module or data module was made with."""

from __future__ import annotations

import ast
import copy
import csv
import inspect
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint.hparams import HyperParameters
from trainer_hooks.errors import ModuleError, error_summary

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from types import FrameType

__all__ = ["SavedHyperparameters", "collect_hyperparameters", "init_arguments_from", "read_hparams"]


@dataclass(slots=True)
class SavedHyperparameters:
    """The hyperparameters that `save_hyperparameters` keeps.

    Attributes:
        current: the hyperparameters at present.
        saved: those that a checkpoint holds; None if none were saved.
        is_logged: whether loggers get them.
        name: the argument of `__init__` that held all of them, or None.
        initial: their values when they were saved; an object that is no plain data is not copied.
    """

    current: HyperParameters = field(default_factory=HyperParameters)
    saved: Mapping[str, Any] | None = None
    is_logged: bool = False
    name: str | None = None
    initial: Mapping[str, Any] = field(default_factory=dict)

    def copied(self) -> HyperParameters:
        """Return a copy of the values when they were saved."""
        from trainer_hooks.checkpoint.hparams import HyperParameters

        return HyperParameters(_snapshot(self.initial))


def collect_hyperparameters(
    owner: object,
    before: SavedHyperparameters | None,
    wanted: tuple[Any, ...],
    ignore: str | Iterable[str] | None,
    frame: FrameType | None,
    is_logged: bool,
) -> SavedHyperparameters:
    """Collect the arguments that `owner.save_hyperparameters` keeps, beside those kept before.

    Args:
        owner: the module or data module.
        before: the hyperparameters kept so far, or None.
        wanted: names of arguments; or one mapping, Namespace or dataclass; empty for all arguments.
        ignore: names to leave out.
        frame: the frame of `__init__`; None for that of the caller's caller.
        is_logged: whether loggers get them.

    Raises:
        ModuleError: a name is no argument, or this is called outside `__init__`.
    """
    from trainer_hooks.checkpoint.hparams import (
        HyperParameters,
        arguments_of_init,
        is_hparams_object,
        savable_hparams,
        select_hparams,
    )

    if frame is None:
        current = inspect.currentframe()
        caller = current.f_back if current is not None else None
        frame = caller.f_back if caller is not None else None
    if frame is not None and frame.f_code.co_name == "__post_init__":
        frame = frame.f_back  # a dataclass calls it from its __init__
    is_single_object, is_init = is_hparams_object(wanted), _is_init(owner, frame)
    arguments = {} if is_single_object and not is_init else arguments_of_init(owner, frame)
    ignored = {ignore} if isinstance(ignore, str) else set(ignore or ())
    known = {} if before is None else before.current
    # `ignore` also removes arguments that a base class's __init__ has kept
    kept = {name: value for name, value in known.items() if name not in ignored}
    hparams = HyperParameters({**kept, **select_hparams(arguments, wanted, ignore)})
    name = None if before is None else before.name
    if is_single_object:
        name = next((name for name, value in arguments.items() if value is wanted[0]), None)
    saved = savable_hparams(hparams, type(owner), known)
    return SavedHyperparameters(hparams, saved, is_logged, name, _snapshot(hparams))


def _snapshot(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of plain values; layers and other objects stay the same objects."""
    from trainer_hooks.checkpoint.encoding import find_unsavable

    return {
        name: copy.deepcopy(value) if find_unsavable(value) is None else value
        for name, value in values.items()
    }


def init_arguments_from(
    kind: type[Any],
    saved: Mapping[str, Any],
    name: str | None,
    replaced: Mapping[str, Any],
    path: str,
) -> dict[str, Any]:
    """Return the arguments with which a module or data module is made again.

    Args:
        kind: its class.
        saved: the hyperparameters in a checkpoint.
        name: the argument that held all of them, or None.
        replaced: arguments that replace or complete them.
        path: the checkpoint, for messages.

    Raises:
        ModuleError: an argument that `__init__` needs is missing, or one cannot be made again.
    """
    from trainer_hooks.checkpoint.hparams import HyperParameters, init_arguments_from

    parameter = inspect.signature(kind.__init__).parameters.get(str(name))
    if parameter is not None and parameter.kind is not parameter.VAR_KEYWORD:
        items = {key: value for key, value in replaced.items() if key in saved and key != name}
        whole = HyperParameters({**saved, **items})
        saved = {str(name): whole}
        replaced = {key: value for key, value in replaced.items() if key not in items}
    return init_arguments_from(kind, saved, replaced, path)


def _is_init(owner: object, frame: FrameType | None) -> bool:
    """Return whether a frame is an `__init__` of `owner`."""
    if frame is None or frame.f_code.co_name != "__init__":
        return False
    names = frame.f_code.co_varnames
    return bool(names) and frame.f_locals.get(names[0]) is owner


def read_hparams(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the hyperparameters in a YAML file, or in a CSV file of keys and values.

    Raises:
        ModuleError: the file has another suffix, cannot be read, or would need code to be run.
    """
    file = Path(path)
    readers = {".yaml": _yaml, ".yml": _yaml, ".csv": _csv}
    if file.suffix.lower() not in readers:
        raise ModuleError(
            f"load_from_checkpoint(hparams_file={str(path)!r}): must end in .yaml, .yml or .csv."
        )
    try:
        hparams = readers[file.suffix.lower()](file)
    except (OSError, ValueError) as error:
        raise ModuleError(
            f"load_from_checkpoint(hparams_file={str(path)!r}) cannot be read "
            f"({error_summary(error)}): it must hold plain values by name. Pass the others as "
            "arguments."
        ) from error
    return hparams


def _yaml(file: Path) -> dict[str, Any]:
    try:
        yaml: Any = import_module(
            "yaml"
        )  # its types are in a package of their own, so mypy must not see it
    except ImportError as error:
        raise ModuleError(
            f"load_from_checkpoint(hparams_file={str(file)!r}) needs PyYAML. Install it: "
            "pip install pyyaml."
        ) from error
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if not isinstance(content, dict | None):
        raise ValueError(f"it holds {type(content).__name__}")  # noqa: TRY004 - told as the others
    return {str(name): value for name, value in (content or {}).items()}


def _csv(file: Path) -> dict[str, Any]:
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    if rows and not {"key", "value"} <= set(rows[0]):
        raise ValueError("its columns must be key and value")
    return {row["key"]: _literal(row["value"]) for row in rows}


def _literal(text: str) -> Any:
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text
