"""StateRegistry: the one list of the states that change in a run, and how each is restored."""

from __future__ import annotations

import copy
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks.checkpoint.parts import restoring_part
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

_MAX_COPIED = 1 << 20
"""Bytes of the largest tensor that a snapshot copies."""


@dataclass(frozen=True, slots=True)
class RegisteredState:
    """One state that changes in a run, and how it is saved, restored and rolled back.

    Attributes:
        name: unique name in the registry.
        state_dict: returns the state as plain data and tensors; None if there is none to save.
        load_state_dict: restores the state.
        path: key of the state in a checkpoint, as a tuple. None puts it under `trainer_hooks` by
            its name; an empty path spreads its items over the top level.
        only_from_snapshot: whether checkpoints hold it only while there is a snapshot of it, since
            another state holds its present values.
        is_restored_by_loop: whether the loop restores it, after the hooks that open a training;
            else it is restored before them.
        only_training_changes: whether only training steps change it. Any other state is in the
            snapshot that is made when a validation inside fit begins; a checkpoint that is saved in
            the validation holds the snapshot, since a resume runs the validation again.
        is_rolled_back: whether `rolled_back` restores it after work that must leave no trace: the
            sanity check, a trial run, a replay, a second validation.
        is_required: whether a checkpoint without it cannot be resumed from; else it stays as it is.
        snapshot: returns the part of its state that a snapshot holds; None for all of it.
        is_per_rank: whether each rank has its own. Such a state is in a checkpoint by its name.
        is_of_run: whether only a run has it. A checkpoint that is saved after a fit has the state
            of its end.
        is_request: whether it is a state of a run that ends with it: after a fit none is left.
    """

    name: str
    state_dict: Callable[[], Any]
    load_state_dict: Callable[[Any], object]
    path: tuple[str, ...] | None = None
    only_from_snapshot: bool = False
    is_restored_by_loop: bool = False
    only_training_changes: bool = False
    is_rolled_back: bool = True
    is_required: bool = False
    snapshot: Callable[[], dict[str, Any]] | None = None
    is_per_rank: bool = False
    is_of_run: bool = False
    is_request: bool = False

    def read(self, checkpoint: dict[str, Any]) -> Any:
        """Return the state as a checkpoint holds it; None if it holds none."""
        if self.path == ():
            # its items are spread over the top level, and it picks them out itself
            return checkpoint
        if self.path is None:
            return checkpoint.get("trainer_hooks", {}).get(self.name)
        return checkpoint.get(self.path[0])


class StateRegistry:
    """Every state that changes in a run, in the order in which they are restored.

    Args:
        states: the states.
    """

    def __init__(self, states: Iterable[RegisteredState] = ()) -> None:
        self._states = {state.name: state for state in states}

    def write(self, checkpoint: dict[str, Any], replacements: dict[str, Any]) -> None:
        """Add every state to a checkpoint.

        Args:
            checkpoint: the checkpoint to add to.
            replacements: states by name to save in place of the present ones: those of the snapshot
                that a running validation made, or those of `left_to_loop`.
        """
        for name, registered in self._states.items():
            # a state with a `snapshot` of its own has only a part in there, which is merged below
            if name in replacements and registered.snapshot is None:
                state = replacements[name]
            elif registered.only_from_snapshot and name not in replacements:
                continue
            else:
                state = registered.state_dict()
                if name in replacements:  # which holds a part of the state
                    state = {**state, **replacements[name]}
            if state is None:
                continue
            # compared with (): it is as falsy as None, which stands for another place
            if registered.path == ():
                checkpoint.update(state)
            elif registered.path is None:
                checkpoint["trainer_hooks"][name] = state
            else:
                checkpoint[registered.path[0]] = state

    def left_to_loop(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Return by name the states that the loop has yet to restore from a checkpoint.

        The counters are among them: the loop may have counted the epoch already, which the others
        do not know of.

        Args:
            checkpoint: the checkpoint that a run resumes from; empty once the loop has done so.
        """
        states = {
            registered.name: registered.read(checkpoint)
            for registered in self._states.values()
            if registered.is_restored_by_loop or registered.name == "progress"
        }
        return {name: state for name, state in states.items() if state is not None}

    def states_of_run(self) -> dict[str, Any]:
        """Return by name the states that only a run has, but its requests."""
        return {
            registered.name: registered.state_dict()
            for registered in self._states.values()
            if registered.is_of_run and not registered.is_request
        }

    def per_rank_names(self) -> list[str]:
        """Return the names of the states of which each rank has its own."""
        return [registered.name for registered in self._states.values() if registered.is_per_rank]

    def require(self, checkpoint: dict[str, Any], source: str) -> None:
        """Make sure that a checkpoint holds every state without which no run can be resumed.

        Args:
            checkpoint: the loaded checkpoint.
            source: its path, for messages.

        Raises:
            CheckpointError: one is missing.
        """
        for registered in self._states.values():
            if registered.is_required and registered.read(checkpoint) is None:
                raise CheckpointError(
                    f"checkpoint {source!r} cannot be resumed from: it holds no {registered.name}. "
                    "Resume from another one."
                )

    def load(
        self, checkpoint: dict[str, Any], source: str, *, by_loop: bool, but: Collection[str] = ()
    ) -> dict[str, Any]:
        """Restore the states that a checkpoint holds; return the reports of their owners by name.

        Args:
            checkpoint: the loaded checkpoint.
            source: its path, for messages.
            by_loop: True restores the states with `is_restored_by_loop`, False all others.
            but: names of states that are not restored.

        Raises:
            CheckpointError: a state is not one that its owner can load.
        """
        returned = {}
        for registered in self._states.values():
            if registered.is_restored_by_loop is not by_loop or registered.name in but:
                continue
            state = registered.read(checkpoint)
            if state is not None:
                with restoring_part(registered.name, source):
                    returned[registered.name] = registered.load_state_dict(state)
        return returned

    def load_some(self, checkpoint: dict[str, Any], names: Collection[str]) -> None:
        """Restore the named states, those of them that a checkpoint holds, as outside a run."""
        for registered in self._states.values():
            state = registered.read(checkpoint) if registered.name in names else None
            if state is not None:
                registered.load_state_dict(state)

    def snapshot(self) -> dict[str, Any]:
        """Return copies, by name, of the states that a validation inside fit may change."""
        return {
            registered.name: copied((registered.snapshot or registered.state_dict)())
            for registered in self._states.values()
            if not registered.only_training_changes
        }

    def backup(
        self,
        wanted: Callable[[RegisteredState], bool],
        copy_state: Callable[[Any], Any] | None = None,
    ) -> Callable[[], None]:
        """Copy the states for which `wanted` is true; return a function that restores them.

        Args:
            wanted: whether a state is copied.
            copy_state: returns a copy of a state; by default one that is valid during an
                evaluation.
        """
        copy_state = copy_state or copied
        # in the registry's order: random states come last, since loading others may draw
        before = [
            (registered, copy_state(registered.state_dict()))
            for registered in self._states.values()
            if wanted(registered)
        ]

        def restore() -> None:
            for registered, state in before:
                if state is not None:
                    registered.load_state_dict(state)

        return restore

    @contextmanager
    def rolled_back(self, *but: str) -> Iterator[None]:
        """Restore every state at the end of the `with` block, also after an error.

        Args:
            but: names of states that keep their changes.
        """
        restore = self.backup(
            lambda registered: (
                registered.is_rolled_back
                and not registered.only_training_changes
                and registered.name not in but
            )
        )
        try:
            yield
        finally:  # also after an error or Ctrl-C: the run may go on, or save on its way out
            restore()


def copied(state: Any) -> Any:
    """Return a copy of a state that is valid during an evaluation, with large tensors shared."""
    if isinstance(state, Tensor):
        # states of more than a megabyte, such as averaged weights, change with training steps and
        # not in an evaluation, and a copy of them would cost memory and time
        is_small = state.numel() * state.element_size() <= _MAX_COPIED
        return state.detach().clone() if is_small else state
    # exact types: a subclass may hold more than its items, and deepcopy knows how to copy it
    if type(state) is dict:
        return {key: copied(value) for key, value in state.items()}
    if type(state) in (list, tuple, set, deque):
        # a deque separately: `type(state)(items)` would lose its maxlen
        items = map(copied, state)
        return deque(items, state.maxlen) if type(state) is deque else type(state)(items)
    return copy.deepcopy(state)
