"""The tree that `trainer.describe_hooks()` prints: the loop, and the implementers of each hook."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainer_hooks._names import ours
from trainer_hooks._text import Branch
from trainer_hooks.callback import Callback
from trainer_hooks.connector.state_keys import short_state_keys
from trainer_hooks.errors import ModuleError, UsageError, did_you_mean
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.loop_tree import (
    ANY_MOMENT,
    FUNCTIONS,
    LOOP,
    LoopBlock,
    hooks_in,
    tree_branches,
)
from trainer_hooks.hooks.spec import ALIASES, overrides
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainer_hooks.connector.connector import CallbackConnector
    from trainer_hooks.connector.registry import CallbackEntry
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.hooks.spec import HookSpec


def describe(
    trainer: Trainer,
    connector: CallbackConnector,
    module: Module | None = None,
    fn: str | None = None,
) -> Branch:
    """Return the participants and the loop as a tree, each hook with its implementers in order.

    Args:
        trainer: the trainer whose hooks are described.
        connector: its connector, with the callbacks and the known hooks.
        module: the module to show with its callbacks; by default that of the last run.
        fn: the function to show; None for all of them and what surrounds them.

    Raises:
        UsageError: `fn` is unknown.
        ModuleError: `module` is no Module.
    """
    _check(module, fn)
    if module is None or module is trainer.module:
        # after a run these include the callbacks that its module brought
        module, entries = trainer.module, connector.entries
    else:
        with _attached(module, trainer):
            entries = connector.entries_with(module.configure_callbacks())
    parts = LOOP if fn is None else (FUNCTIONS[fn], ANY_MOMENT)
    custom = tuple(name for name in connector.hooks if name not in set(hooks_in(LOOP)))
    if custom:
        parts = (*parts, LoopBlock("events of installed packages", custom))
    implementers = _implementers(entries, module)
    lines = tuple(Branch(implementer.title) for implementer in implementers) or (Branch("nobody"),)
    hint = "" if module is not None else " (with model=..., its own hooks are shown too)"
    return Branch(
        f"hooks of this trainer{hint}",
        (
            Branch("who takes part, in order", lines),
            *tree_branches(parts, partial(_line, connector.hooks, implementers)),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Implementer:
    """A callback or module that may override hooks, with its names in the tree.

    Attributes:
        implementer: the callback or the module.
        title: its line in the list of participants.
        name: its line below a hook.
    """

    implementer: Callback | Module
    title: str
    name: str

    def route_of(self, hook: str, hooks: Mapping[str, HookSpec]) -> str | None:
        """Return how a hook reaches the implementer: empty for by its name; None if it does not."""
        if isinstance(self.implementer, Module) and not hooks[hook].takes_module:
            return None  # it fires before there is a module
        if isinstance(self.implementer, Callback) and ours(self.implementer).routes_events:
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
            f"{', '.join(map(repr, FUNCTIONS))}.{did_you_mean(str(fn), FUNCTIONS)}"
        )
    if module is not None and not isinstance(module, Module):
        raise ModuleError(
            f"describe_hooks(model={module!r}) is of type {type(module).__qualname__}: it must be "
            "an instance of trainer_hooks.Module. Give the module that you would give to fit."
        )


@contextmanager
def _attached(module: Module, trainer: Trainer) -> Iterator[None]:
    """Attach a module that never ran to the trainer in the body of a `with` statement."""
    try:
        module.trainer  # noqa: B018 - asked for its error
    except UsageError:
        # `configure_callbacks` may read self.trainer
        ours(module).attach(trainer, None)
        try:
            yield
        finally:
            ours(module).attach(None, None)
    else:
        yield


def _implementers(entries: Sequence[CallbackEntry], module: Module | None) -> list[_Implementer]:
    """Return the callbacks in the order of their calls, with the module at its position."""
    shared = Counter(type(entry.callback).__name__ for entry in entries)
    short_keys = short_state_keys(entry.callback.state_key for entry in entries)
    implementers = []
    for entry in entries:
        kind, key = type(entry.callback), short_keys[entry.callback.state_key]
        full = (
            # the usual key, as "Counter{'unit': 'epochs'}", names the class already
            key if key.startswith(kind.__qualname__) else f"{kind.__qualname__} (state_key {key!r})"
        )
        name = full if shared[kind.__name__] > 1 else kind.__name__
        title = f"{full}, from {entry.supplier}, in band {entry.band.name}"
        implementers.append(_Implementer(entry.callback, title, f"{name}, from {entry.supplier}"))
    if module is not None:
        title = f"module {type(module).__qualname__}, in band {Band.MODULE.name}"
        # as in `relay_members`: after the callbacks in its own band
        turn = sum(entry.band <= Band.MODULE for entry in entries)
        implementers.insert(turn, _Implementer(module, title, f"module {type(module).__name__}"))
    return implementers


def _line(hooks: Mapping[str, HookSpec], implementers: Sequence[_Implementer], hook: str) -> Branch:
    """Return the branch of a hook, with one line below it for each implementer."""
    below = []
    if hooks[hook].traits.is_module_first:
        # stable: the callbacks keep their order
        implementers = sorted(
            implementers, key=lambda each: not isinstance(each.implementer, Module)
        )
    for implementer in implementers:
        route = implementer.route_of(hook, hooks)
        if route is not None:
            below.append(Branch(f"-> {implementer.name}{route}"))
    supplier = hooks[hook].supplier
    text = f"{hook}, of {supplier}" if supplier else hook
    return Branch(text, tuple(below), is_faint=not below)
