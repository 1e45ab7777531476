"""The states of handlers that a function of the user attaches, which the adapter does not see."""

from __future__ import annotations

from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.callback_adapter import ancestor_names
from trainer_hooks.adapters.ignite.engines import name_of
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EMA = "ignite.handlers.ema_handler.EMAHandler"
"""A handler with averaged weights and no `state_dict`."""

_DEEPEST = 3
"""Levels of attributes that are looked at: MONAI's saver, for one, holds Ignite's in one."""

_SAVED_ELSEWHERE = frozenset(
    {
        "torch.nn.modules.module.Module", "torch.optim.optimizer.Optimizer",
        "torch.utils.data.dataloader.DataLoader", "ignite.engine.engine.Engine",
    }
)  # fmt: skip
"""Classes whose state the run saves, or makes."""

_SCHEDULER = "torch.optim.lr_scheduler.LRScheduler"


class AttachedHandlers:
    """The objects with a state among the handlers of engines, by name in the order of attaching.

    Args:
        added: what was added to the engines: handlers with their arguments.
    """

    def __init__(self, added: Iterable[Any]) -> None:
        self._by_name: dict[str, Any] = {}
        seen: set[int] = set()
        for handler in added:
            for owner in _owners(handler, 0, seen):
                name = type(owner).__qualname__
                number = sum(other.partition(" ")[0] == name for other in self._by_name)
                self._by_name[f"{name} {number + 1}" if number else name] = owner

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each by its name."""
        return {name: state_of(owner) for name, owner in self._by_name.items()}

    def load_state_dict(self, state: dict[str, Any], function: Any) -> None:
        """Restore the state of each.

        Args:
            state: the states by name.
            function: the user's function, for messages.

        Raises:
            CheckpointError: the function attaches other handlers than it did in the saved run.
        """
        if set(state) != set(self._by_name):
            raise CheckpointError(
                f"the checkpoint holds the states of {', '.join(sorted(state)) or 'no handler'} "
                f"for {name_of(function)} of Ignite, which attaches "
                f"{', '.join(sorted(self._by_name)) or 'none with a state'} now: a resume needs "
                "the same handlers. Attach those, or start anew."
            )
        for name, owner in self._by_name.items():
            load_state(owner, state[name])


def state_of(handler: Any) -> dict[str, Any]:
    """Return a handler's state; of an EMAHandler, which has none, the averaged weights.

    An EMAHandler with `handle_buffers="copy"` does not copy: its buffers are the model's own memory
    from the first update on. The state names these buffers, so that a resume shares them again.
    """
    if EMA in ancestor_names(handler):
        buffers = dict(handler.model.named_buffers())
        shared = [
            name
            for name, buffer in handler.ema_model.named_buffers()
            if name in buffers and buffer.data_ptr() == buffers[name].data_ptr() != 0
        ]
        return {"ema_model": handler.ema_model.state_dict(), "shared_buffers": shared}
    return _without_methods(handler.state_dict())


def load_state(handler: Any, state: Any) -> None:
    """Restore a handler's state, or the averaged weights."""
    if EMA in ancestor_names(handler):
        handler.ema_model.load_state_dict(state["ema_model"])
        averaged = dict(handler.ema_model.named_buffers())
        buffers = dict(handler.model.named_buffers())
        # a checkpoint of before this key has none
        for name in state.get("shared_buffers", ()):
            averaged[name].data = buffers[name].data
    else:
        handler.load_state_dict(state)


def _owners(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    """Yield the objects with a state that a handler is, is bound to, or holds."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _owners(item, depth, seen)
    elif isinstance(value, dict):
        yield from _owners(list(value.values()), depth, seen)
    elif isinstance(value, MethodType):
        yield from _owners(value.__self__, depth, seen)
    elif isinstance(value, partial):
        yield from _owners([value.func, value.args, value.keywords], depth, seen)
    elif isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        yield from _owners(cells, depth + 1, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type) and id(value) not in seen:
        seen.add(id(value))
        names = ancestor_names(value)
        if not _SAVED_ELSEWHERE.isdisjoint(names):
            return
        if _has_state(value, names, depth):
            yield value
        elif depth < _DEEPEST:
            yield from _owners(list(vars(value).values()), depth + 1, seen)


def _has_state(value: Any, names: tuple[str, ...], depth: int) -> bool:
    if EMA in names:
        return True
    # what a class of Ignite's inherits without overriding it only raises
    method = getattr(type(value), "state_dict", None)
    if method is None or getattr(method, "__qualname__", "") == "Serializable.state_dict":
        return False
    is_known = _SCHEDULER in names or any(name.startswith("ignite.") for name in names)
    return hasattr(type(value), "load_state_dict") and (is_known or depth == 0)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - the access tells
    except ValueError:
        return False
    return True


def _without_methods(state: Any) -> dict[str, Any]:
    """Return a state without bound methods, which the state of a torch scheduler holds."""
    return {
        name: _without_methods(value) if isinstance(value, dict) else value
        for name, value in state.items()
        if not isinstance(value, MethodType)
    }
