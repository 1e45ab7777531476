"""Doubts about an implementer of hooks that can be voiced before anything runs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from trainer_hooks.errors import nearest
from trainer_hooks.hooks.spec import ALIASES, HOOKS, HookSpec, overrides

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["doubts"]


def doubts(implementer: object) -> tuple[str, ...]:
    """Return what will hardly work as meant, one sentence each: misspelt names, signatures.

    A public method that starts with `on_` and is no hook is almost always a typo. A hook that
    cannot take its arguments fails when it fires, hours into a run perhaps; one that is `async` is
    never awaited.
    """
    return (*_misspelt(implementer), *_uncallable(implementer))


def _misspelt(implementer: object) -> Iterator[str]:
    for name in sorted({*dir(type(implementer)), *getattr(implementer, "__dict__", ())}):
        if not name.startswith("on_") or name in HOOKS or name in ALIASES:
            continue
        if callable(getattr(type(implementer), name, None) or vars(implementer).get(name)):
            yield (
                f"the method {name!r} is no hook, so nothing calls it.{nearest(name, HOOKS)} If it "
                "is meant to be a method of its own, give it a name that does not start with 'on_'."
            )


def _uncallable(implementer: object) -> Iterator[str]:
    for name, spec in (*HOOKS.items(), *((old, HOOKS[new]) for old, new in ALIASES.items())):
        if not overrides(implementer, name):
            continue
        method = getattr(implementer, name)
        if inspect.iscoroutinefunction(method):
            yield f"the hook {name!r} is `async`, so it never runs: hooks are called, not awaited."
        elif not _takes(method, spec):
            yield (
                f"the hook {name!r} cannot take what it is called with, positionally: "
                f"{name}(self, {', '.join(spec.arguments)})."
            )


def _takes(method: Callable[..., object], spec: HookSpec) -> bool:
    """Return whether `method` can be called as `spec`; it may leave out `dataloader_idx`."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # some callables written in C have none to look at
        return True
    needed = [name for name in spec.arguments if name != "dataloader_idx"]
    for arguments in (spec.arguments, needed):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return True
    return False
