"""What a plugin supplies: callbacks from its factory, or the hooks that its class adds."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.spec import ALIASES, HOOKS, HookSpec, specs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.hooks.plugin import Plugin

__all__ = ["added_hooks", "made_callbacks"]

_SHOWN = 200
"""Characters of a value that a message shows."""


def made_callbacks(
    factory: Any, plugin: Plugin, is_callback: Callable[[object], bool]
) -> tuple[Any, ...]:
    """Return the callbacks that a factory makes.

    Raises:
        TypeError: it is no factory, needs arguments, or made something else.
        BaseException: what the factory raises.
    """
    if not callable(factory):
        raise TypeError(
            f"{plugin.value} is a {type(factory).__name__}, not a callable factory: name a "
            "function that returns a callback or a list of callbacks"
        )
    _require_no_arguments(factory, plugin)
    made = factory()
    if is_callback(made):
        return (made,)
    if isinstance(made, Coroutine):
        made.close()  # or Python would warn that nobody awaited it
    if not isinstance(made, Sequence) or isinstance(made, str | bytes):
        raise TypeError(
            f"the factory returned {_shown(made)}{_hint(made)}: it must return a callback or a "
            "list of callbacks"
        )
    for item in made:
        if not is_callback(item):
            raise TypeError(
                f"the factory's list holds {_shown(item)}{_hint(item)}, which is no callback"
            )
    return tuple(made)


def _require_no_arguments(factory: Callable[..., Any], plugin: Plugin) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some callables written in C have none to look at
        return
    try:
        signature.bind()
    except TypeError as error:
        raise TypeError(
            f"{plugin.value} is called without arguments, and that does not work for "
            f"{getattr(factory, '__qualname__', factory)}{signature}: {error}. Give its arguments "
            "defaults, or name a function that makes the callback"
        ) from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _hint(made: object) -> str:
    if made is None:
        return " (is a `return` missing?)"
    if isinstance(made, type):
        return " (a class: return an instance)"
    if isinstance(made, Iterator):
        return " (it can be read only once: return a list)"
    if isinstance(made, Coroutine):
        return " (define the factory with a plain `def`: it is called, not awaited)"
    return ""


def added_hooks(
    catalogue: Any, plugin: Plugin, added: Mapping[str, HookSpec]
) -> dict[str, HookSpec]:
    """Return the hooks that a class adds.

    Args:
        catalogue: what the entry point refers to.
        plugin: whose it is.
        added: the hooks that other plugins have added already.

    Raises:
        TypeError: it is no subclass of Hooks, or a hook of it cannot be one.
    """
    if not (isinstance(catalogue, type) and issubclass(catalogue, Hooks)) or catalogue is Hooks:
        raise TypeError(
            f"{plugin.value} is {_shown(catalogue)}: it must be a subclass of trainer_hooks.Hooks, "
            "with an empty method for each hook that it adds"
        )
    specs = specs_of(catalogue, f"{plugin.distribution} {plugin.version}")
    for spec in specs.values():
        fault = _fault_of_hook(spec, added)
        if fault:
            raise TypeError(f"the hook {spec.name!r} {fault}")
    return specs


def _fault_of_hook(spec: HookSpec, added: Mapping[str, HookSpec]) -> str:
    if spec.name in HOOKS or spec.name in ALIASES:
        return "is one of trainer_hooks itself: give it another name"
    if spec.name in added:
        return f"is one of {added[spec.name].supplier} already: give it another name"
    if not spec.name.startswith("on_"):
        return "has a name that does not start with 'on_': rename it, or begin it with '_'"
    if spec.arguments[:2] != ("trainer", "module"):
        return "does not begin with the arguments (self, trainer, module, ...): add them"
    if not spec.summary:
        return "has no docstring: say in one sentence when it is called"
    assert spec.declared is not None
    kinds = {p.kind for p in inspect.signature(spec.declared).parameters.values()}
    if not kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        return "has arguments that cannot be given positionally: hooks are called so"
    return ""
