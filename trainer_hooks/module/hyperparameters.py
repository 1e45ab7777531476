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

__all__ = ["KeptArguments", "kept_arguments"]


@dataclass(slots=True)
class KeptArguments:
    """What `save_hyperparameters` keeps.

    Attributes:
        given: the hyperparameters as they are.
        saved: what of them a checkpoint holds; None if none were saved.
        is_logged: whether loggers are given them.
        initial: how they were when they were saved; what is no plain data is the object itself.
    """

    given: checkpoint.HyperParameters = field(default_factory=checkpoint.HyperParameters)
    saved: Mapping[str, Any] | None = None
    is_logged: bool = False
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
    is_whole = checkpoint.is_whole(wanted)
    arguments = {} if is_whole else checkpoint.arguments_of_init(owner, frame)
    known = {} if before is None else before.given
    given = checkpoint.HyperParameters({**known, **checkpoint.selected(arguments, wanted, ignore)})
    saved = checkpoint.savable(given, type(owner), known)
    return KeptArguments(given, saved, is_logged, _snapshot(given))


def _snapshot(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy; layers and other objects in it stay the same objects."""
    return {
        name: copy.deepcopy(value) if checkpoint.find_foreign(value) is None else value
        for name, value in values.items()
    }
