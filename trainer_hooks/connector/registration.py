"""The stages of registering callbacks: each a pure function."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError, TrainerHooksWarning, foreign_hint
from trainer_hooks.hooks import Band, Hooks, Member, doubts, faults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainer_hooks.connector.roster import Entry
    from trainer_hooks.hooks import HookSpec

__all__ = ["adopted", "check_hooks", "checked", "collect", "deduplicate", "gives_way", "members_of"]


def collect(callbacks: Callback | Iterable[Callback] | None) -> tuple[Callback, ...]:
    """Return `callbacks` as a tuple of instances, each one once.

    Raises:
        CallbackError: an element is a class, or no Callback.
    """
    if callbacks is None:
        return ()
    listed: tuple[Any, ...]
    if isinstance(callbacks, Callback | type) or not isinstance(callbacks, Iterable):
        listed = (callbacks,)
    else:
        listed = tuple(callbacks)
    unique: dict[int, Callback] = {}
    for position, item in enumerate(listed):
        callback = checked(item, f"callbacks[{position}]")
        if id(callback) in unique:
            warn(
                f"callbacks[{position}], {callback!r}, is listed twice: it is registered once.",
                TrainerHooksWarning,
            )
            continue
        unique[id(callback)] = callback
    return tuple(unique.values())


def adopted(item: Any, kind: type = Callback) -> Any:
    """Return the adapter of an object of another framework; anything else as it is.

    Args:
        item: the object.
        kind: what it is to be here.

    Raises:
        CallbackError: its adapter cannot be loaded, or does not take it.
    """
    # what has no ancestry but Python's own is of no framework
    if isinstance(item, kind | type) or type(item).__module__ == "builtins":
        return item
    from trainer_hooks.connector.adoption import adopt

    return adopt(item, kind)


def checked(item: object, where: str) -> Callback:
    """Return `item`, or its adapter, if it can be registered.

    Args:
        item: a callback, of another framework too.
        where: how a message speaks of it.

    Raises:
        CallbackError: it cannot.
    """
    if isinstance(item, type) and issubclass(item, Callback):
        raise CallbackError(
            f"{where} is the class {item.__qualname__}: callbacks are instances. "
            f"Write {item.__qualname__}(...) instead of {item.__qualname__}."
        )
    item = adopted(item)
    if not isinstance(item, Callback):
        raise CallbackError(
            f"{where} is {item!r} of type {type(item).__qualname__}{_whose(item)}: a callback must "
            "be an instance of trainer_hooks.Callback, or of a class that an installed adapter "
            "takes. Subclass it, wrap functions in trainer_hooks.callbacks.LambdaCallback, or "
            "register an adapter in the entry-point group 'trainer_hooks.adapters'."
            f"{foreign_hint(type(item), 'Callback')}"
        )
    band: object = item.band
    if not isinstance(band, Band):
        raise CallbackError(
            f"band {band!r} of {where}, a {type(item).__qualname__}: it must be a Band. "
            f"Write one of {', '.join(f'Band.{known.name}' for known in Band)}."
        )
    if item.on_error not in {"raise", "disable"}:
        raise CallbackError(
            f"on_error {item.on_error!r} of {where}, a {type(item).__qualname__}: it must be "
            "'raise' or 'disable'. Set it in the class or on the instance."
        )
    key: object = item.state_key
    if not isinstance(key, str):
        raise CallbackError(
            f"state_key {key!r} of {where}, a {type(item).__qualname__}: it must be a string that "
            "is the same in every run. Return self._generate_state_key(...)."
        )
    return item


def _whose(item: object) -> str:
    """Return which package a refused object is of, and that a class must be called."""
    kind = item if isinstance(item, type) else type(item)
    package = kind.__module__.partition(".")[0]
    if package == "builtins":
        return ""
    hint = f" (a class: write {kind.__qualname__}(...))" if kind is item else ""
    return f" of the package {package!r}{hint}"


def gives_way(known: Entry, to: Entry) -> bool:
    """Return whether `known` is a plugin's callback of the kind that the user now supplies."""
    return known.origin == "plugin" and known.identity == to.identity


def check_hooks(
    entries: Iterable[Entry], hooks: Mapping[str, HookSpec], *, is_strict: bool
) -> None:
    """Make sure that hooks can be called, and warn of misspelt ones.

    Args:
        entries: whose hooks.
        hooks: the hooks that there are.
        is_strict: whether a misspelt one is an error.

    Raises:
        CallbackError: a hook cannot be called, or `is_strict` and one is misspelt.
    """
    for entry in entries:
        doubtful = doubts(entry.callback, hooks, declared_by_bases(entry.callback))
        wrong = (*faults(entry.callback, hooks), *(doubtful if is_strict else ()))
        if wrong:
            raise CallbackError(f"{entry.label}: {' Also, '.join(wrong)}")
        for doubt in doubtful:
            warn(f"{entry.label}: {doubt}", TrainerHooksWarning)


def declared_by_bases(callback: Callback) -> set[str]:
    """Return the hooks of packages that a callback derives from, be they installed or not."""
    catalogues = (c for c in type(callback).__mro__ if issubclass(c, Hooks))
    return {name for c in catalogues if not issubclass(c, Callback) for name in vars(c)}


def deduplicate(stronger: Sequence[Entry], weaker: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return both, less those of `weaker` whose type and state_key a `stronger` one has."""
    taken = {entry.identity for entry in stronger}
    return (*(entry for entry in weaker if entry.identity not in taken), *stronger)


def members_of(
    entries: Iterable[Entry],
    module: Member | None,
    disable: Callable[[Entry, str, Exception], None],
    policy_of: Callable[[Entry], str],
) -> tuple[Member, ...]:
    """Return the relay's members: the callbacks in order, the module at its band.

    Args:
        entries: the callbacks, in order.
        module: the module's member, or None.
        disable: is told of an error of a callback whose policy is `"disable"`.
        policy_of: tells what a callback's error does.
    """
    members: list[Member] = []
    placed = module is None
    for entry in entries:
        if module is not None and not placed and entry.band > Band.MODULE:
            members.append(module)
            placed = True
        on_failure = partial(disable, entry) if policy_of(entry) == "disable" else None
        members.append(
            Member(
                entry.callback,
                entry.label,
                routes_events=entry.callback.routes_events,
                on_failure=on_failure,
                supplier=entry.supplier,
            )
        )
    if module is not None and not placed:
        members.append(module)
    return tuple(members)
