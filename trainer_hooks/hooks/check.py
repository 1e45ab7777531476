"""What is wrong with an implementer of hooks, and can be told before anything runs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from trainer_hooks.errors import nearest
from trainer_hooks.hooks.spec import ALIASES, HOOKS, HookSpec, overrides

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

__all__ = ["doubts", "faults"]

_STATE = (
    HookSpec("state_dict", (), ""),
    HookSpec("load_state_dict", ("state_dict",), ""),
)
"""Methods of a callback that are no hooks, and fail as late as one if they cannot be called."""


_MOST = max(len(spec.arguments) for spec in HOOKS.values())
"""How many arguments a hook has at most."""

_REMOVED = {
    "training_epoch_end": "on_train_epoch_end(), and keep outputs in an attribute,",
    "validation_epoch_end": "on_validation_epoch_end(), and keep outputs in an attribute,",
    "test_epoch_end": "on_test_epoch_end(), and keep outputs in an attribute,",
    "predict_epoch_end": "on_predict_epoch_end(), and keep outputs in an attribute,",
    "training_step_end": "on_train_batch_end(outputs, batch, batch_idx)",
    "validation_step_end": "on_validation_batch_end(outputs, batch, batch_idx)",
    "test_step_end": "on_test_batch_end(outputs, batch, batch_idx)",
    "predict_step_end": "on_predict_batch_end(outputs, batch, batch_idx)",
    "training_end": "on_train_epoch_end()",
    "validation_end": "on_validation_epoch_end()",
    "test_end": "on_test_epoch_end()",
}
"""Methods of a module that Lightning 1.x and older called, and what to define now."""


_ELSEWHERE = {spec.composer: spec.name for spec in reversed(list(HOOKS.values())) if spec.composer}
"""Methods that Composer calls on its callbacks, and the hooks of the same moments."""

_COMMON_WORDS = {"close", "init", "post_close", "state_dict", "load_state_dict"}
"""Those of them that may well be a callback's own; they are known by their arguments' names."""


def doubts(
    implementer: object,
    hooks: Mapping[str, HookSpec] = HOOKS,
    known: Collection[str] = (),
    skip: int = 0,
) -> tuple[str, ...]:
    """Return what will hardly work as meant, one sentence each: misspelt names.

    A public method that starts with `on_` and is no hook is almost always a typo, and one that
    Composer calls, with a state and a logger, is meant to be called. A module has no use for the
    hooks that come before there is one.

    Args:
        implementer: a callback or a module.
        hooks: the hooks that there are.
        known: other names that its kind has a use for.
        skip: how many leading arguments its hooks are not given: 2 for a module.
    """
    names = {*dir(type(implementer)), *getattr(implementer, "__dict__", ())}
    found = [
        f"nothing calls the hook {spec.name!r} of a module, as it fires while the trainer is made, "
        "before there is a module. Put the hook into a callback, or its work into setup(stage)."
        for spec in hooks.values()
        if skip and not spec.takes_module and overrides(implementer, spec.name, hooks)
    ]
    for name in sorted((names & _ELSEWHERE.keys()).difference(hooks, known)):
        if _is_composers(name, _attribute(implementer, name)):
            found.append(
                f"the method {name!r} is Composer's, so nothing calls it. Derive the class from "
                "trainer_hooks.compat.composer.Callback, or define the hook "
                f"{_ELSEWHERE[name]!r} instead."
            )
    for name in sorted(names.difference(hooks, ALIASES, known)):
        if name.startswith("on_") and callable(_attribute(implementer, name)):
            found.append(
                f"the method {name!r} is no hook, so nothing calls it.{nearest(name, hooks)} If it "
                "is meant to be a method of its own, give it a name that does not start with 'on_'."
            )
    return tuple(found)


def faults(
    implementer: object, hooks: Mapping[str, HookSpec] = HOOKS, skip: int = 0
) -> tuple[str, ...]:
    """Return what cannot work, one sentence each.

    A hook that is no method, is `async` or a generator, or cannot take its arguments fails when it
    fires, hours into a run perhaps.

    Args:
        implementer: a callback or a module.
        hooks: the hooks that there are.
        skip: how many leading arguments its hooks are not given: 2 for a module.
    """
    return tuple(_faults(implementer, hooks, skip))


def _faults(implementer: object, hooks: Mapping[str, HookSpec], skip: int) -> Iterator[str]:
    if skip:
        for name, instead in _REMOVED.items():
            if callable(getattr(type(implementer), name, None)):
                yield (
                    f"the method {name!r} is of Lightning 1.x, and nothing calls it. Define "
                    f"{instead} instead."
                )
    translated = getattr(type(implementer), "translated_hooks", ())  # which have other arguments
    for name, spec in (*hooks.items(), *((old, hooks[new]) for old, new in ALIASES.items())):
        if skip and not spec.takes_module:
            continue  # nothing calls it
        if name not in translated and overrides(implementer, name, hooks):
            yield from _uncallable(implementer, name, "hook", spec, skip)
    if skip == 0:
        for spec in _STATE:
            if hasattr(implementer, spec.name):
                yield from _uncallable(implementer, spec.name, "method", spec, 0)
        yield from _unroutable(implementer)


def _unroutable(implementer: object) -> Iterator[str]:
    """Tell if a `run_event` that receives the hooks cannot take what each of them brings."""
    if not getattr(implementer, "routes_events", False):
        return
    method = _attribute(implementer, "run_event")
    spec = HookSpec("run_event", ("event", "trainer", "module"), "")
    found = tuple(_uncallable(implementer, "run_event", "method", spec, 0))
    yield from found
    if not found and not _takes(method, ("event", *(f"argument {n}" for n in range(_MOST)))):
        yield (
            "the method 'run_event' cannot take what an event brings: the trainer, the module and "
            f"the hook's other arguments, {_MOST} in all. Define run_event(self, event, *args), or "
            "derive the class from trainer_hooks.compat.composer.Callback for Composer's "
            "run_event(self, event, state, logger)."
        )


def _uncallable(
    implementer: object, name: str, kind: str, spec: HookSpec, skip: int
) -> Iterator[str]:
    method = _attribute(implementer, name)
    arguments = spec.arguments[skip:]
    expected = f"{name}({', '.join(('self', *arguments))})"
    if not callable(method):
        yield (
            f"the {kind} {name!r} is no method but {method!r}, so it cannot be called. Define "
            f"{expected}, or leave it out."
        )
    elif inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        yield (
            f"the {kind} {name!r} is `async`, so it would never run: hooks are called, not "
            f"awaited. Define it with a plain `def`."
        )
    elif inspect.isgeneratorfunction(method):
        yield (
            f"the {kind} {name!r} has a `yield`, so it would never run: hooks are called, not "
            f"iterated. Define it without."
        )
    elif not _takes(method, arguments):
        yield (
            f"the {kind} {name!r} cannot take what it is called with, positionally. Define "
            f"{expected}."
        )


def _is_composers(name: str, method: object) -> bool:
    """Return whether a method takes a state and a logger, as those that Composer calls do."""
    if not callable(method):
        return False
    if name in _COMMON_WORDS:
        try:
            return tuple(inspect.signature(method).parameters) == ("state", "logger")
        except (TypeError, ValueError):
            return False
    return _takes(method, ("state", "logger"))


def _attribute(implementer: object, name: str) -> object:
    """Return an attribute as it is called, or what is in its place if it cannot be read."""
    try:
        return getattr(implementer, name)
    except Exception as error:  # noqa: BLE001 - a property may fail in any way; it is told as found
        return error


def _takes(method: object, arguments: tuple[str, ...]) -> bool:
    """Return whether `method` takes `arguments`; it may leave out `dataloader_idx`."""
    try:
        signature = inspect.signature(method)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # some callables written in C have none to look at
        return True
    needed = [name for name in arguments if name != "dataloader_idx"]
    for given in (arguments, needed):
        try:
            signature.bind(*given)
        except TypeError:
            continue
        return True
    return False
