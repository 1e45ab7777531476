"""The stages of registering callbacks: each a pure function, and the records they pass on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError, StateKeyError, TrainerHooksWarning
from trainer_hooks.hooks.check import doubts
from trainer_hooks.hooks.discovery import Plugin, PluginFilter, discover, report
from trainer_hooks.hooks.order import Band
from trainer_hooks.hooks.relay import Member

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "Default",
    "Entry",
    "admitted",
    "check_state_keys",
    "checked",
    "collect",
    "deduplicate",
    "discover_plugins",
    "gives_way",
    "members_of",
    "voice_doubts",
]


@dataclass(frozen=True, slots=True)
class Default:
    """A callback that takes part unless somebody supplied one of the same kind.

    Attributes:
        callback: the default.
        unless: the type that makes it unneeded.
    """

    callback: Callback
    unless: type[Callback]


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered callback and who supplied it.

    Attributes:
        callback: the callback.
        origin: `"user"`, `"plugin"`, `"default"` or `"module"`.
        plugin: where `origin` is `"plugin"`, which one.
    """

    callback: Callback
    origin: str
    plugin: Plugin | None = None

    @property
    def band(self) -> Band:
        """The callback's band."""
        return self.callback.band

    @property
    def identity(self) -> tuple[type[Callback], str]:
        """What makes a callback take another's place: its type and its state_key."""
        return type(self.callback), self.callback.state_key

    @property
    def supplier(self) -> str:
        """Who supplied it, in words."""
        if self.plugin is not None:
            return f"plugin {self.plugin.distribution} {self.plugin.version}"
        return {"user": "Trainer(callbacks=...)", "module": "configure_callbacks"}.get(
            self.origin, self.origin
        )

    @property
    def label(self) -> str:
        """How messages name it."""
        kind = type(self.callback).__qualname__
        return f"callback {kind} (state_key {self.callback.state_key!r}, from {self.supplier})"


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
    unique: list[Callback] = []
    for position, item in enumerate(listed):
        callback = checked(item, f"callbacks[{position}]")
        if any(callback is known for known in unique):
            warn(
                f"callbacks[{position}], {callback!r}, is listed twice: it is registered once.",
                TrainerHooksWarning,
            )
            continue
        unique.append(callback)
    return tuple(unique)


def checked(item: object, where: str) -> Callback:
    """Return `item` if it can be registered; `where` is how a message speaks of it.

    Raises:
        CallbackError: it cannot.
    """
    if isinstance(item, type) and issubclass(item, Callback):
        raise CallbackError(
            f"{where} is the class {item.__qualname__}: callbacks are instances. "
            f"Write {item.__qualname__}(...) instead of {item.__qualname__}."
        )
    if not isinstance(item, Callback):
        raise CallbackError(
            f"{where} is {item!r} of type {type(item).__qualname__}: a callback must be an "
            "instance of trainer_hooks.Callback. Subclass it, or wrap functions in "
            "trainer_hooks.callbacks.LambdaCallback."
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


def discover_plugins(wanted: bool | str | Iterable[str], errors: str) -> tuple[Plugin, ...]:
    """Load the wanted plugins; see `trainer_hooks.hooks.discovery.discover`."""
    return discover(PluginFilter.of(wanted), lambda item: isinstance(item, Callback), errors)


def admitted(
    plugins: Iterable[Plugin], user: Sequence[Entry], defaults: Sequence[Default], errors: str
) -> tuple[Entry, ...]:
    """Return an entry for each callback of the plugins, less those that cannot take part.

    A user's callback of the same type takes a plugin's place without a word; a clash of state_keys
    with any other is the plugin's fault and is reported.
    """
    entries: list[Entry] = []
    for plugin in plugins:
        for callback in plugin.callbacks:
            if any(known.callback is callback for known in entries):
                continue
            entry = Entry(callback, "plugin", plugin)
            try:
                checked(callback, f"what {plugin.value} made")
                if any(known.identity == entry.identity for known in user):
                    continue
                standing = [
                    Entry(default.callback, "default")
                    for default in defaults
                    if not any(isinstance(e.callback, default.unless) for e in (*user, entry))
                ]
                check_state_keys((*user, *standing, *entries, entry))
            except StateKeyError as error:
                report(plugin, f"clashes with another callback: {error}", errors, error)
            except Exception as error:  # noqa: BLE001 - a property may fail in any way; reported
                fault = f"supplied what cannot be registered: {type(error).__name__}: {error}"
                report(plugin, fault, errors, error)
            else:
                entries.append(entry)
    return tuple(entries)


def gives_way(known: Entry, to: Entry) -> bool:
    """Return whether `known` is a plugin's callback of the kind that the user now supplies."""
    return known.origin == "plugin" and known.identity == to.identity


def voice_doubts(entries: Iterable[Entry]) -> None:
    """Warn of misspelt hooks and of hooks that cannot take their arguments."""
    for entry in entries:
        for doubt in doubts(entry.callback):
            warn(f"{entry.label}: {doubt}", TrainerHooksWarning)


def deduplicate(stronger: Sequence[Entry], weaker: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return both, less those of `weaker` whose type and state_key a `stronger` one has."""
    taken = {entry.identity for entry in stronger}
    return (*(entry for entry in weaker if entry.identity not in taken), *stronger)


def check_state_keys(entries: Iterable[Entry]) -> None:
    """Make sure that no two stateful callbacks write to one place.

    Raises:
        StateKeyError: two do; it names both and says what to write.
    """
    owners: dict[str, Entry] = {}
    for entry in entries:
        if not entry.callback.is_stateful:
            continue
        other = owners.setdefault(entry.callback.state_key, entry)
        if other is not entry:
            raise StateKeyError(
                f"state_key {entry.callback.state_key!r} belongs to two stateful callbacks, "
                f"{type(other.callback).__module__}.{type(other.callback).__qualname__} (from "
                f"{other.supplier}) and {type(entry.callback).__module__}."
                f"{type(entry.callback).__qualname__} (from {entry.supplier}): each needs its own, "
                "or one would overwrite the other in the checkpoint. Define `state_key` as a "
                "property that returns self._generate_state_key(name=...) with the arguments that "
                "tell the instances apart."
            )


def members_of(
    entries: Iterable[Entry],
    module: Member | None,
    disable: Callable[[Entry, str, Exception], None],
) -> tuple[Member, ...]:
    """Return the relay's members: the callbacks in order, the module at its band.

    `disable` is told of an error of a callback whose `on_error` is `"disable"`.
    """
    members: list[Member] = []
    placed = module is None
    for entry in entries:
        if module is not None and not placed and entry.band > Band.MODULE:
            members.append(module)
            placed = True
        routes = type(entry.callback).run_event is not Callback.run_event or "run_event" in vars(
            entry.callback
        )
        on_failure = partial(disable, entry) if entry.callback.on_error == "disable" else None
        members.append(
            Member(entry.callback, entry.label, routes_events=routes, on_failure=on_failure)
        )
    if module is not None and not placed:
        members.append(module)
    return tuple(members)
