"""Hyperparameters: the arguments a module was made with, kept so that it can be made again."""

from __future__ import annotations

import copy
import inspect
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.checkpoint.objects import annotations_of, plain_of, rebuilt
from trainer_hooks.checkpoint.plain import find_foreign
from trainer_hooks.errors import ModuleError, TrainerHooksWarning, nearest

if TYPE_CHECKING:
    from types import FrameType

__all__ = [
    "HyperParameters",
    "arguments_from",
    "arguments_of_init",
    "is_whole",
    "savable",
    "selected",
]


class HyperParameters(dict[str, Any]):
    """A dict whose items are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"no hyperparameter {name!r}: there are {', '.join(map(repr, self)) or 'none'}."
                f"{nearest(name, self)}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __deepcopy__(self, memo: dict[int, Any]) -> HyperParameters:
        return HyperParameters({key: copy.deepcopy(value, memo) for key, value in self.items()})


def arguments_of_init(owner: object, frame: FrameType | None) -> dict[str, Any]:
    """Return the arguments that `owner` is being made with, found in the `__init__` frames.

    A subclass's arguments come before those that it hands to its base class.
    """
    found: list[dict[str, Any]] = []
    while frame is not None and frame.f_code.co_name == "__init__":
        values = inspect.getargvalues(frame)
        if not values.args or values.locals.get(values.args[0]) is not owner:
            break
        arguments = {name: values.locals[name] for name in values.args[1:]}
        count = frame.f_code.co_argcount
        keyword_only = frame.f_code.co_varnames[count : count + frame.f_code.co_kwonlyargcount]
        arguments.update({name: values.locals[name] for name in keyword_only})
        if values.keywords is not None:
            arguments.update(values.locals[values.keywords])
        found.append(arguments)
        frame = frame.f_back
    if not found:
        raise ModuleError(
            f"save_hyperparameters() of {type(owner).__qualname__} was called outside __init__: "
            "call it in __init__, or pass the hyperparameters as a dict."
        )
    merged: dict[str, Any] = {}
    for arguments in found:
        merged.update(arguments)
    return {name: value for name, value in merged.items() if name != "__class__"}


def is_whole(wanted: tuple[Any, ...]) -> bool:
    """Return whether hyperparameters were given as a whole: a mapping, Namespace or dataclass."""
    if len(wanted) != 1 or isinstance(wanted[0], type):
        return False
    return isinstance(wanted[0], Mapping | Namespace) or is_dataclass(wanted[0])


def _items_of(whole: Any) -> dict[str, Any]:
    if isinstance(whole, Namespace):
        return dict(vars(whole))
    return {one.name: getattr(whole, one.name) for one in fields(whole)}


def selected(
    arguments: Mapping[str, Any], wanted: tuple[Any, ...], ignore: str | Iterable[str] | None
) -> HyperParameters:
    """Return the wanted ones of `arguments`, or the items of what was given instead.

    Raises:
        ModuleError: a name is no argument.
    """
    ignored = {ignore} if isinstance(ignore, str) else set(ignore or ())
    if is_whole(wanted):
        (whole,) = wanted
        chosen = dict(whole) if isinstance(whole, Mapping) else _items_of(whole)
    elif wanted:
        for name in wanted:
            if name not in arguments:
                raise ModuleError(
                    f"save_hyperparameters({name!r}): no such argument of __init__; there are "
                    f"{', '.join(map(repr, arguments)) or 'none'}.{nearest(str(name), arguments)}"
                )
        chosen = {name: arguments[name] for name in wanted}
    else:
        chosen = dict(arguments)
    return HyperParameters({k: v for k, v in chosen.items() if k not in ignored})


def savable(
    hparams: Mapping[str, Any], kind: type[Any], told: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return those that a checkpoint can hold, and warn of the others, but for those told of.

    Args:
        hparams: the hyperparameters.
        kind: the class that is made with them; its annotations say what an object is made of again.
        told: those of which it was said before.
    """
    annotations, kept = annotations_of(kind), {}
    for name, value in hparams.items():
        found, plain = find_foreign(value), value
        if found is not None:
            plain = plain_of(value)
            if find_foreign(plain) is None and _comes_back(value, plain, annotations.get(name)):
                found = None
        if found is None:
            kept[name] = copy.deepcopy(plain)
            continue
        if told is not None and told.get(name) is value:
            continue
        kinds = (Enum, Namespace)
        is_config = found[1] is value and (is_dataclass(value) or isinstance(value, kinds))
        advice = f"Annotate it in __init__ ({name}: {type(value).__name__}), pass" * is_config
        warn(
            f"hyperparameter {name!r} of {kind.__qualname__} is left out of checkpoints: it holds "
            f"{type(found[1]).__qualname__}, and a checkpoint holds only plain data and tensors. "
            f"{advice or 'Pass'} it to load_from_checkpoint(..., {name}=...) then, or leave it out "
            f"with save_hyperparameters(ignore=[{name!r}]).",
            TrainerHooksWarning,
        )
    return kept


def arguments_from(
    kind: type[Any], saved: Mapping[str, Any], replaced: Mapping[str, Any], path: str
) -> dict[str, Any]:
    """Return the arguments to make an object again with.

    Args:
        kind: its class.
        saved: the hyperparameters in a checkpoint.
        replaced: arguments that replace or complete them.
        path: the checkpoint, for messages.

    Raises:
        ModuleError: one is lacking that `__init__` needs, or one cannot be made again.
    """
    annotations, arguments = annotations_of(kind), {}
    for name, value in saved.items():
        if name not in replaced:
            try:
                arguments[name] = rebuilt(value, annotations.get(name))
            except (TypeError, ValueError) as error:
                raise ModuleError(
                    f"hyperparameter {name!r} in checkpoint {path!r} does not make a "
                    f"{annotations[name]}: {error}. Pass it: "
                    f"{kind.__qualname__}.load_from_checkpoint(..., {name}=...)."
                ) from error
    arguments.update(replaced)
    parameters = inspect.signature(kind.__init__).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        arguments = {name: value for name, value in arguments.items() if name in parameters}
    lacking = [
        name
        for name, parameter in list(parameters.items())[1:]
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and name not in arguments
    ]
    if lacking:
        given = ", ".join(f"{name}=..." for name in lacking)
        raise ModuleError(
            f"checkpoint {path!r} holds no hyperparameter {', '.join(map(repr, lacking))}, "
            f"which {kind.__qualname__}.__init__ needs: save_hyperparameters() was not called, or "
            f"left it out. Pass it: {kind.__qualname__}.load_from_checkpoint(..., {given})."
        )
    return arguments


def _comes_back(value: Any, plain: Any, annotation: Any) -> bool:
    """Return whether an object is made again from its plain data, as the annotation says."""
    try:
        return bool(rebuilt(plain, annotation) == value)
    except (TypeError, ValueError):
        return False
