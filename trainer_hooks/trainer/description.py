"""What `trainer.describe_hooks()` prints: the loop, and at each hook who listens."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainer_hooks._text import Branch
from trainer_hooks.callback import Callback
from trainer_hooks.errors import ModuleError, UsageError, nearest
from trainer_hooks.hooks import (
    ALIASES,
    ANY_MOMENT,
    FUNCTIONS,
    LOOP,
    Band,
    Block,
    branches_of,
    hooks_in,
    is_module_first,
    overrides,
)
from trainer_hooks.module import Module

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainer_hooks.connector import CallbackConnector, Entry
    from trainer_hooks.context import Trainer
    from trainer_hooks.hooks import HookSpec

__all__ = ["describe"]


def describe(
    trainer: Trainer,
    connector: CallbackConnector,
    module: Module | None = None,
    fn: str | None = None,
) -> Branch:
    """Return who takes part and the loop as a tree, each hook with its listeners in order.

    Args:
        trainer: whose hooks they are.
        connector: its callbacks, and the hooks that there are.
        module: the module to show with what it brings; that of the last run unless given.
        fn: the function to show; all of them, and what is around them, if None.

    Raises:
        UsageError: there is no such `fn`.
        ModuleError: `module` is no Module.
    """
    _check(module, fn)
    if module is None or module is trainer.module:
        module, entries = trainer.module, connector.entries
    else:
        with _attached(module, trainer):
            entries = connector.entries_with(module.configure_callbacks())
    parts = LOOP if fn is None else (FUNCTIONS[fn], ANY_MOMENT)
    custom = tuple(name for name in connector.hooks if name not in set(hooks_in(LOOP)))
    if custom:
        parts = (*parts, Block("events of installed packages", custom))
    listeners = _listeners(entries, module)
    lines = tuple(Branch(listener.title) for listener in listeners) or (Branch("nobody"),)
    hint = "" if module is not None else " (with model=..., its own hooks are shown too)"
    return Branch(
        f"hooks of this trainer{hint}",
        (
            Branch("who takes part, in order", lines),
            *branches_of(parts, partial(_line, connector.hooks, listeners)),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Listener:
    """Somebody who may override hooks, and how the tree speaks of it.

    Attributes:
        implementer: a callback, or the module.
        title: its line in the list of all.
        name: its line below a hook.
    """

    implementer: Callback | Module
    title: str
    name: str

    def way_to(self, hook: str, hooks: Mapping[str, HookSpec]) -> str | None:
        """Return how a hook comes here if not by its name, or None if it does not."""
        if isinstance(self.implementer, Module) and not hooks[hook].takes_module:
            return None  # it fires before there is a module
        if isinstance(self.implementer, Callback) and self.implementer.routes_events:
            return ", by run_event"
        if overrides(self.implementer, hook, hooks):
            return ""
        for old, new in ALIASES.items():
            if new == hook and overrides(self.implementer, old, hooks):
                return f", as {old}"
        return None


def _check(module: object, fn: object) -> None:
    if fn is not None and fn not in tuple(FUNCTIONS):
        raise UsageError(
            f"describe_hooks(fn={fn!r}): it must be None for all, or one of "
            f"{', '.join(map(repr, FUNCTIONS))}.{nearest(str(fn), FUNCTIONS)}"
        )
    if module is not None and not isinstance(module, Module):
        raise ModuleError(
            f"describe_hooks(model={module!r}) is of type {type(module).__qualname__}: it must be "
            "an instance of trainer_hooks.Module. Give the module that you would give to fit."
        )


@contextmanager
def _attached(module: Module, trainer: Trainer) -> Iterator[None]:
    """Let a module that never ran know its trainer for as long as this lasts."""
    try:
        module.trainer  # noqa: B018 - asked for its error
    except UsageError:
        module.attach(trainer, None)
        try:
            yield
        finally:
            module.attach(None, None)
    else:
        yield


def _listeners(entries: Sequence[Entry], module: Module | None) -> list[_Listener]:
    """Return the callbacks in the order of their turns, the module at its own."""
    shared = Counter(type(entry.callback).__name__ for entry in entries)
    listeners = []
    for entry in entries:
        kind, key = type(entry.callback), entry.callback.state_key
        full = (
            key if key.startswith(kind.__qualname__) else f"{kind.__qualname__} (state_key {key!r})"
        )
        name = full if shared[kind.__name__] > 1 else kind.__name__
        title = f"{full}, from {entry.supplier}, in band {entry.band.name}"
        listeners.append(_Listener(entry.callback, title, f"{name}, from {entry.supplier}"))
    if module is not None:
        title = f"module {type(module).__qualname__}, in band {Band.MODULE.name}"
        turn = sum(entry.band <= Band.MODULE for entry in entries)
        listeners.insert(turn, _Listener(module, title, f"module {type(module).__name__}"))
    return listeners


def _line(hooks: Mapping[str, HookSpec], listeners: Sequence[_Listener], hook: str) -> Branch:
    """Return the line of a hook, with one below it for each who listens."""
    below = []
    if is_module_first(hook):
        listeners = sorted(listeners, key=lambda each: not isinstance(each.implementer, Module))
    for listener in listeners:
        way = listener.way_to(hook, hooks)
        if way is not None:
            below.append(Branch(f"-> {listener.name}{way}"))
    supplier = hooks[hook].supplier
    text = f"{hook}, of {supplier}" if supplier else hook
    return Branch(text, tuple(below), is_faint=not below)
