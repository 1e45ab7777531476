"""The arguments that a module or data module was made with, as it keeps them."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks import checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import FrameType

__all__ = ["KeptArguments", "arguments_from", "kept_arguments"]


@dataclass(slots=True)
class KeptArguments:
    """What `save_hyperparameters` keeps.

    Attributes:
        given: the hyperparameters as they are.
        saved: what of them a checkpoint holds; None if none were saved.
        is_logged: whether loggers are given them.
        name: the argument of `__init__` that was all of them, or None.
        initial: how they were when they were saved; what is no plain data is the object itself.
    """

    given: checkpoint.HyperParameters = field(default_factory=checkpoint.HyperParameters)
    saved: Mapping[str, Any] | None = None
    is_logged: bool = False
    name: str | None = None
    initial: Mapping[str, Any] = field(default_factory=dict)

    def copied(self) -> checkpoint.HyperParameters:
        """Return a copy of how they were when they were saved."""
        return checkpoint.HyperParameters(_snapshot(self.initial))


def kept_arguments(
    owner: object,
    before: KeptArguments | None,
    wanted: tuple[Any, ...],
    ignore: str | Iterable[str] | None,
    frame: FrameType | None,
    is_logged: bool,
) -> KeptArguments:
    """Return what `owner.save_hyperparameters` keeps, with what it kept before.

    Args:
        owner: the module or data module.
        before: what it kept before, or None.
        wanted: names of arguments; or one mapping, Namespace or dataclass; all unless given.
        ignore: names to leave out.
        frame: the frame of `__init__`; of the caller's caller where None.
        is_logged: whether loggers are given them.

    Raises:
        ModuleError: a name is no argument, or this is called outside `__init__`.
    """
    if frame is None:
        current = inspect.currentframe()
        caller = current.f_back if current is not None else None
        frame = caller.f_back if caller is not None else None
    if frame is not None and frame.f_code.co_name == "__post_init__":
        frame = frame.f_back  # of a dataclass
    is_whole, is_init = checkpoint.is_whole(wanted), _is_init(owner, frame)
    arguments = {} if is_whole and not is_init else checkpoint.arguments_of_init(owner, frame)
    ignored = {ignore} if isinstance(ignore, str) else set(ignore or ())
    known = {} if before is None else before.given
    # what a base class kept before is ignored, too
    kept = {name: value for name, value in known.items() if name not in ignored}
    given = checkpoint.HyperParameters({**kept, **checkpoint.selected(arguments, wanted, ignore)})
    name = None if before is None else before.name
    if is_whole:
        name = next((name for name, value in arguments.items() if value is wanted[0]), None)
    saved = checkpoint.savable(given, type(owner), known)
    return KeptArguments(given, saved, is_logged, name, _snapshot(given))


def _snapshot(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy; layers and other objects in it stay the same objects."""
    return {
        name: copy.deepcopy(value) if checkpoint.find_foreign(value) is None else value
        for name, value in values.items()
    }


def arguments_from(
    kind: type[Any],
    saved: Mapping[str, Any],
    name: str | None,
    replaced: Mapping[str, Any],
    path: str,
) -> dict[str, Any]:
    """Return the arguments to make a module or data module again with.

    Args:
        kind: its class.
        saved: the hyperparameters in a checkpoint.
        name: the argument that was all of them, or None.
        replaced: arguments that replace or complete them.
        path: the checkpoint, for messages.

    Raises:
        ModuleError: one is lacking that `__init__` needs, or one cannot be made again.
    """
    parameter = inspect.signature(kind.__init__).parameters.get(str(name))
    if parameter is not None and parameter.kind is not parameter.VAR_KEYWORD:
        items = {key: value for key, value in replaced.items() if key in saved and key != name}
        whole = checkpoint.HyperParameters({**saved, **items})
        saved = {str(name): whole}
        replaced = {key: value for key, value in replaced.items() if key not in items}
    return checkpoint.arguments_from(kind, saved, replaced, path)


def _is_init(owner: object, frame: FrameType | None) -> bool:
    """Return whether a frame is an `__init__` of `owner`."""
    if frame is None or frame.f_code.co_name != "__init__":
        return False
    names = frame.f_code.co_varnames
    return bool(names) and frame.f_locals.get(names[0]) is owner
