"""Hyperparameters: the arguments a module was made with, kept so that it can be made again."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.checkpoint.plain import find_foreign
from trainer_hooks.errors import ModuleError, TrainerHooksWarning, nearest

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["HyperParameters", "arguments_of_init", "savable", "selected"]


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


def selected(
    arguments: Mapping[str, Any], wanted: tuple[Any, ...], ignore: str | Iterable[str] | None
) -> HyperParameters:
    """Return the wanted ones of `arguments`, or the dict that was given instead.

    Raises:
        ModuleError: a name is no argument.
    """
    ignored = {ignore} if isinstance(ignore, str) else set(ignore or ())
    if len(wanted) == 1 and isinstance(wanted[0], Mapping):
        chosen = dict(wanted[0])
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
    hparams: Mapping[str, Any], owner: str, told: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return those that a checkpoint can hold, and warn of the others, but for those told of."""
    kept: dict[str, Any] = {}
    for name, value in hparams.items():
        found = find_foreign(value)
        if found is None:
            kept[name] = copy.deepcopy(value)
            continue
        if told is not None and told.get(name) is value:
            continue
        warn(
            f"hyperparameter {name!r} of {owner} is left out of checkpoints: it holds "
            f"{type(found[1]).__qualname__}, and a checkpoint holds only plain data and tensors. "
            f"Pass it to load_from_checkpoint(..., {name}=...) then, or leave it out with "
            f"save_hyperparameters(ignore=[{name!r}]).",
            TrainerHooksWarning,
        )
    return kept
