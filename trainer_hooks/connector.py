"""CallbackConnector: which callbacks, in what order, under which `state_key`.

It never sees the Trainer and knows nothing of torch. Every stage is a pure function; all are run
and checked before anything is committed, so a rejected callback is never half registered.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError, StateKeyError, TrainerHooksWarning
from trainer_hooks.hooks.discovery import Plugin, PluginFilter, discover, report
from trainer_hooks.hooks.order import Band, in_order
from trainer_hooks.hooks.relay import HookRelay, Member

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CallbackConnector", "Default", "Entry", "LoadReport"]


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


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a restore of callback states found.

    Attributes:
        restored: state_keys whose state was handed to a callback.
        missing: state_keys of stateful callbacks for which the checkpoint holds nothing.
        unexpected: state_keys in the checkpoint for which there is no callback.
        plugins: plugins that the checkpoint was saved with and that are gone or have another
            version now, in words.
    """

    restored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The differences in one sentence, or an empty string if there are none."""
        parts = []
        if self.missing:
            parts.append(f"no state for {', '.join(map(repr, self.missing))}")
        if self.unexpected:
            parts.append(f"state without a callback: {', '.join(map(repr, self.unexpected))}")
        parts.extend(self.plugins)
        return "; ".join(parts)


class CallbackConnector:
    """Collect, discover, de-duplicate, order and check callbacks; build the relay.

    Args:
        user_callbacks: one callback or an iterable of them; it is read once and never changed.
        defaults: callbacks that take part unless one of their kind was supplied.
        discover: which installed plugins to load: True, False, or their names.
        plugin_errors: `"warn"` to go on without a broken plugin, `"raise"` to stop.

    Raises:
        CallbackError: something that is no callback, or a callback listed twice.
        StateKeyError: two stateful callbacks have one `state_key`.
        PluginError: a plugin is broken and `plugin_errors` is `"raise"`.
    """

    def __init__(
        self,
        user_callbacks: Callback | Iterable[Callback] | None = None,
        *,
        defaults: Sequence[Default] = (),
        discover: bool | Iterable[str] = True,
        plugin_errors: str = "warn",
    ) -> None:
        user = [Entry(callback, "user") for callback in collect(user_callbacks)]
        self.plugins = discover_plugins(discover, plugin_errors)
        self._defaults = tuple(defaults)
        check_state_keys(user)
        self._base = deduplicate(user, admitted(self.plugins, user, plugin_errors))
        self._module: Member | None = None
        self.relay = HookRelay()
        self.entries: tuple[Entry, ...] = ()
        self._commit(self._base)

    @property
    def callbacks(self) -> tuple[Callback, ...]:
        """Every callback that takes part, in order."""
        return tuple(entry.callback for entry in self.entries)

    def attach(
        self, module: object, callbacks: Callback | Iterable[Callback] | None = None
    ) -> None:
        """Let a module's hooks take part, and the callbacks that it brings for one run.

        A callback of the module replaces one of the same type and state_key; what it replaced comes
        back with the next `attach`.
        """
        member = Member(module, f"module {type(module).__qualname__}", skip=2)
        brought = [Entry(callback, "module") for callback in collect(callbacks)]
        entries = deduplicate(brought, self._base)
        self._check(entries)
        self._module = member
        self._commit(entries)

    def add(self, callback: Callback) -> None:
        """Register one more callback; a hook that is firing is not disturbed."""
        [checked] = collect(callback)
        if any(entry.callback is checked for entry in self.entries):
            raise CallbackError(f"{Entry(checked, 'user').label} is registered already.")
        entry = Entry(checked, "user")
        live = tuple(e for e in self.entries if e.origin != "default")
        self._check((*live, entry))
        self._base = (*self._base, entry)
        self._commit((*live, entry))

    def remove(self, callback: Callback) -> None:
        """Take a callback out; a hook that is firing is not disturbed."""
        if all(entry.callback is not callback for entry in self.entries):
            raise CallbackError(f"{callback!r} is not registered, so it cannot be removed.")
        self._base = tuple(e for e in self._base if e.callback is not callback)
        self._defaults = tuple(d for d in self._defaults if d.callback is not callback)
        self._commit(
            tuple(e for e in self.entries if e.callback is not callback and e.origin != "default")
        )

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Return the state of every stateful callback by state_key, as the callback gave it."""
        states = {}
        for entry in self.entries:
            if entry.callback.is_stateful:
                try:
                    states[entry.callback.state_key] = entry.callback.state_dict()
                except Exception as error:
                    error.add_note(f"raised by state_dict() of {entry.label}")
                    raise
        return states

    def load_state_dict(self, states: Mapping[str, dict[str, Any]]) -> LoadReport:
        """Hand each saved state to the callback with its state_key; report what did not match."""
        restored, missing = [], []
        for entry in self.entries:
            if not entry.callback.is_stateful:
                continue
            key = entry.callback.state_key
            if key not in states:
                missing.append(key)
                continue
            try:
                entry.callback.load_state_dict(states[key])
            except Exception as error:
                error.add_note(f"raised by load_state_dict() of {entry.label}")
                raise
            restored.append(key)
        unexpected = sorted(set(states) - set(restored))
        return LoadReport(tuple(restored), tuple(missing), tuple(unexpected))

    def plugin_records(self) -> list[dict[str, Any]]:
        """Return plain data on the plugins whose callbacks take part, for the checkpoint."""
        records = []
        for entry in self.entries:
            if entry.plugin is not None:
                records.append(
                    {
                        "distribution": entry.plugin.distribution,
                        "version": entry.plugin.version,
                        "entry_point": entry.plugin.name,
                        "class": type(entry.callback).__qualname__,
                        "state_key": entry.callback.state_key,
                    }
                )
        return records

    def _with_defaults(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        needed = [
            Entry(default.callback, "default")
            for default in self._defaults
            if not any(isinstance(entry.callback, default.unless) for entry in entries)
        ]
        return in_order((*entries, *needed))

    def _check(self, entries: Sequence[Entry]) -> None:
        check_state_keys(self._with_defaults(entries))

    def _commit(self, entries: Sequence[Entry]) -> None:
        complete = self._with_defaults(entries)
        check_state_keys(complete)
        self.entries = complete
        self.relay.connect(members_of(complete, self._module))


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
        if isinstance(item, type) and issubclass(item, Callback):
            raise CallbackError(
                f"callbacks[{position}] is the class {item.__qualname__}: callbacks are instances. "
                f"Write {item.__qualname__}(...) instead of {item.__qualname__}."
            )
        if not isinstance(item, Callback):
            raise CallbackError(
                f"callbacks[{position}] is {item!r} of type {type(item).__qualname__}: a callback "
                "must be an instance of trainer_hooks.Callback. Subclass it, or wrap functions in "
                "trainer_hooks.callbacks.LambdaCallback."
            )
        if any(item is known for known in unique):
            warnings.warn(
                f"callbacks[{position}], {item!r}, is listed twice: it is registered once.",
                TrainerHooksWarning,
                stacklevel=2,
            )
            continue
        unique.append(item)
    return tuple(unique)


def discover_plugins(wanted: bool | Iterable[str], errors: str) -> tuple[Plugin, ...]:
    """Load the wanted plugins; see `trainer_hooks.hooks.discovery.discover`."""
    return discover(PluginFilter.of(wanted), lambda item: isinstance(item, Callback), errors)


def admitted(plugins: Iterable[Plugin], user: Sequence[Entry], errors: str) -> tuple[Entry, ...]:
    """Return an entry for each callback of the plugins, less those whose state_key is taken.

    A user's callback of the same type takes a plugin's place without a word; any other clash is the
    plugin's fault and is reported.
    """
    entries: list[Entry] = []
    for plugin in plugins:
        for callback in plugin.callbacks:
            entry = Entry(callback, "plugin", plugin)
            rivals = [known for known in user if known.identity != entry.identity]
            try:
                check_state_keys((*rivals, *entries, entry))
            except StateKeyError as error:
                report(plugin, f"clashes with another callback: {error}", errors, error)
            else:
                entries.append(entry)
    return tuple(entries)


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


def members_of(entries: Iterable[Entry], module: Member | None) -> tuple[Member, ...]:
    """Return the relay's members: the callbacks in order, the module at its band."""
    members: list[Member] = []
    placed = module is None
    for entry in entries:
        if module is not None and not placed and entry.band > Band.MODULE:
            members.append(module)
            placed = True
        routes = type(entry.callback).run_event is not Callback.run_event
        members.append(Member(entry.callback, entry.label, routes_events=routes))
    if module is not None and not placed:
        members.append(module)
    return tuple(members)
