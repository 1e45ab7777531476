"""The one list of what moves in a run: each part says once how it is saved and put back."""

from __future__ import annotations

import copy
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._log import warn
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = ["LEAVE", "REFUSE", "MovingParts", "Part", "copied"]

LEAVE = "leave"
"""What a file without a part means: it stays as it is in the new run."""

REFUSE = "refuse"
"""What a file without a part means: nothing can be resumed from it."""

_SMALL = 1 << 20
"""Bytes up to which a tensor is copied when it is put aside."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that changes in a run, and how it is saved, restored and undone.

    Attributes:
        name: what it is called.
        state_dict: returns its state as plain data and tensors; None where there is none to save.
        load_state_dict: takes it back.
        path: where it stands in a checkpoint; without one under `trainer_hooks`, by its name. An
            empty path spreads the items of its state over the top level.
        in_checkpoint: whether it is part of a checkpoint.
        is_only_aside: whether it is part of one only where it was put aside, since a file holds its
            present state otherwise.
        is_place: whether the loop takes it up as it enters its place in the epoch, after the hooks
            that open a training; else it is there before them.
        by_training_alone: whether only training steps move it. What else moves is put aside when a
            validation inside fit begins: a checkpoint that is saved in one holds it as it was then,
            since the validation is run again.
        is_put_back: whether it is then, too, as before after what leaves no trace: the sanity
            check, a trial run, a replay, a second validation.
        missing: what a file without it means: `LEAVE`, `REFUSE`, or what to warn of.
        put_aside: returns what of its state is put aside, where that is not all of it.
        is_of_process: whether each of several processes has one of its own. Such a part stands in
            a checkpoint by its name.
    """

    name: str
    state_dict: Callable[[], Any]
    load_state_dict: Callable[[Any], None]
    path: tuple[str, ...] | None = None
    in_checkpoint: bool = True
    is_only_aside: bool = False
    is_place: bool = False
    by_training_alone: bool = False
    is_put_back: bool = True
    missing: str = LEAVE
    put_aside: Callable[[], dict[str, Any]] | None = None
    is_of_process: bool = False

    def write(self, checkpoint: dict[str, Any], aside: dict[str, Any]) -> None:
        """Add the state to a checkpoint: the one put aside, if there is one."""
        if self.is_only_aside and self.name not in aside:
            return
        if self.name in aside and self.put_aside is None:
            state = aside[self.name]
        else:
            state = self.state_dict()
            if self.name in aside:
                state = {**state, **aside[self.name]}
        if state is None:
            return
        if self.path == ():
            checkpoint.update(state)
        elif self.path is None:
            checkpoint["trainer_hooks"][self.name] = state
        else:
            checkpoint[self.path[0]] = state

    def read(self, checkpoint: dict[str, Any]) -> Any:
        """Return the state that a checkpoint holds; None where it holds none."""
        if self.path == ():
            return checkpoint
        if self.path is None:
            return checkpoint.get("trainer_hooks", {}).get(self.name)
        return checkpoint.get(self.path[0])


class MovingParts:
    """Everything that moves in a run, in the order in which it is put back."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}

    def register(self, part: Part) -> None:
        """Add a part, which is then saved, restored, put aside and put back as it says.

        Raises:
            UsageError: there is one of that name.
        """
        if part.name in self._parts:
            raise UsageError(
                f"part {part.name!r}: there is one of that name in this run already. Give it "
                "another one."
            )
        self._parts[part.name] = part

    def write(self, checkpoint: dict[str, Any], aside: dict[str, Any]) -> None:
        """Add every part to a checkpoint.

        Args:
            checkpoint: what is to be saved.
            aside: what the validation under way put aside.
        """
        for part in self._parts.values():
            if part.in_checkpoint:
                part.write(checkpoint, aside)

    def names_of_process(self) -> list[str]:
        """Return the names of those of which each of several processes has one of its own."""
        return [part.name for part in self._saved() if part.is_of_process]

    def require(self, checkpoint: dict[str, Any], source: str) -> None:
        """Make sure that a checkpoint holds what no run can be resumed without.

        Raises:
            CheckpointError: it does not.
        """
        for part in self._saved():
            if part.missing == REFUSE and part.read(checkpoint) is None:
                raise CheckpointError(
                    f"checkpoint {source!r} cannot be resumed from: it holds no {part.name}. "
                    "Resume from another one."
                )

    def load(self, checkpoint: dict[str, Any], *, places: bool) -> None:
        """Put back what a checkpoint holds.

        Args:
            checkpoint: what was saved.
            places: whether those parts are meant that the loop takes up, or the others.
        """
        for part in self._saved():
            if part.is_place is not places:
                continue
            state = part.read(checkpoint)
            if state is not None:
                part.load_state_dict(state)
            elif part.missing not in (LEAVE, REFUSE):
                warn(part.missing, TrainerHooksWarning)

    def load_some(self, checkpoint: dict[str, Any], names: Collection[str]) -> None:
        """Put back what is held of those that are named, as outside of a run."""
        for part in self._saved():
            state = part.read(checkpoint) if part.name in names else None
            if state is not None:
                part.load_state_dict(state)

    def put_aside(self) -> dict[str, Any]:
        """Return, by name, the states that a validation inside fit may change, as they are now."""
        return {
            part.name: copied((part.put_aside or part.state_dict)())
            for part in self._parts.values()
            if not part.by_training_alone
        }

    @contextmanager
    def put_back(self, *but: str) -> Iterator[None]:
        """Put everything back afterwards, also after an error, so that no trace is left.

        Args:
            but: names of parts that stay as they are by then.
        """
        before = [
            (part, copied(part.state_dict()))
            for part in self._parts.values()
            if part.is_put_back and not part.by_training_alone and part.name not in but
        ]
        try:
            yield
        finally:
            for part, state in before:
                part.load_state_dict(state)

    def _saved(self) -> list[Part]:
        return [part for part in self._parts.values() if part.in_checkpoint]


def copied(state: Any) -> Any:
    """Return a copy of a state for a short while.

    Tensors of more than a megabyte are not copied: what holds that much, as averaged weights,
    changes with training steps, and not in an evaluation.
    """
    if isinstance(state, Tensor):
        is_small = state.numel() * state.element_size() <= _SMALL
        return state.detach().clone() if is_small else state
    if type(state) is dict:
        return {key: copied(value) for key, value in state.items()}
    if type(state) in (list, tuple, set, deque):
        items = map(copied, state)
        return deque(items, state.maxlen) if type(state) is deque else type(state)(items)
    return copy.deepcopy(state)
