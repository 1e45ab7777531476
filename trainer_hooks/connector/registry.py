"""CallbackRegistry: the callbacks that take part, with who supplied them; and the stages before it.

The functions below the classes are the stages of registration: collect, adapt, validate, check the
hooks, de-duplicate, and make the relay's members. `collect_callbacks` calls `validate_callback`,
which calls `adapt_if_foreign`. None changes the connector, so that a callback that one of them
rejects leaves nothing half registered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from trainer_hooks._annotations import signature_of
from trainer_hooks._log import warn
from trainer_hooks._names import is_of_package, ours
from trainer_hooks.callback import OWN_NAMES, Callback, defines_state_method
from trainer_hooks.connector.state_keys import short_state_key
from trainer_hooks.errors import (
    CallbackError,
    StateKeyError,
    TrainerHooksAdvice,
    TrainerHooksWarning,
    foreign_hint,
)
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.check import hook_errors, hook_warnings, instance_clash
from trainer_hooks.hooks.relay import RelayMember
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trainer_hooks.hooks.plugin import Plugin
    from trainer_hooks.hooks.spec import HookSpec


class DefaultCallback(NamedTuple):
    """A callback that takes part unless the user or a plugin supplied one of the same type.

    Attributes:
        callback: the default.
        unless: the type that replaces it.
    """

    callback: Callback
    unless: type[Callback]

    def is_replaced_by_entry(self, entry: CallbackEntry) -> bool:
        """Return whether `entry` is of the type that replaces this default."""
        return isinstance(entry.callback, self.unless)


@dataclass(frozen=True, slots=True)
class CallbackEntry:
    """A registered callback and who supplied it.

    Attributes:
        callback: the callback.
        origin: the kind of supplier: `"user"`, `"plugin"`, `"default"` or `"module"`; `supplier`
            says it in words.
        plugin: the plugin, if `origin` is `"plugin"`.
    """

    callback: Callback
    origin: str
    plugin: Plugin | None = None

    @property
    def band(self) -> Band:
        """The callback's band."""
        band: Band = ours(self.callback).band
        return band

    @property
    def is_stateful(self) -> bool:
        """Whether the callback has a state to save or load."""
        return bool(ours(self.callback).is_stateful)

    @property
    def identity(self) -> tuple[type[Callback], str]:
        """Type and state_key: a callback replaces another one that has both in common with it."""
        return type(self.callback), self.callback.state_key

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the callback in an option: its state_key, or its class's name."""
        kind = type(self.callback)
        return self.callback.state_key, kind.__qualname__, kind.__name__

    @property
    def state_version(self) -> int:
        """The version of the state that the callback saves now.

        Raises:
            CallbackError: its `state_version` is no int from 1 on.
        """
        version: object = ours(self.callback).state_version
        # not isinstance: True is an int, too
        if type(version) is not int or version < 1:
            raise CallbackError(
                f"state_version {version!r} of {self.label}: it must be an int from 1 on. Count it "
                "up by one whenever what state_dict() returns changes its form."
            )
        return version

    @property
    def supplier(self) -> str:
        """Who supplied the callback, in words."""
        if self.plugin is not None:
            return f"plugin {self.plugin.distribution} {self.plugin.version}"
        return {"user": "Trainer(callbacks=...)", "module": "configure_callbacks"}.get(
            self.origin, self.origin
        )

    @property
    def label(self) -> str:
        """The callback's description in messages: class, state_key and supplier."""
        kind = type(self.callback).__qualname__
        key = short_state_key(self.callback.state_key)
        return f"callback {kind} (state_key {key!r}, from {self.supplier})"


class CallbackRegistry:
    """The callbacks that take part, in the order of registration, each under its own `state_key`.

    Looking up, adding and removing take constant time.

    Args:
        entries: the first entries.

    Raises:
        StateKeyError: two stateful callbacks have one `state_key`.
    """

    def __init__(self, entries: Iterable[CallbackEntry] = ()) -> None:
        # the state_key is kept beside the entry: a callback may change it after it was registered
        self._entries: dict[int, tuple[CallbackEntry, str]] = {}
        self._key_owners: dict[str, CallbackEntry] = {}
        for entry in entries:
            self.add(entry)

    def __iter__(self) -> Iterator[CallbackEntry]:
        return (entry for entry, _ in self._entries.values())

    def __contains__(self, callback: object) -> bool:
        # by identity: a callback may define `__eq__`, and need not be hashable
        return id(callback) in self._entries

    def check(self, entry: CallbackEntry, instead_of: Iterable[Callback] = ()) -> None:
        """Make sure that no other stateful callback has the `state_key` of `entry`.

        Args:
            entry: the entry that is to be added.
            instead_of: callbacks that are to be removed for it.

        Raises:
            StateKeyError: another has it; the error names both and says what to write.
        """
        if not entry.is_stateful:
            return
        other = self._key_owners.get(entry.callback.state_key)
        if other is None or any(other.callback is replaced for replaced in instead_of):
            return
        if type(other.callback) is type(entry.callback) and is_of_package(type(other.callback)):
            name = type(entry.callback).__name__
            raise StateKeyError(
                f"two {name} with the same arguments (from {other.supplier} and "
                f"{entry.supplier}): their state_key is {entry.callback.state_key!r}, so that one "
                f"would overwrite the other in the checkpoint. {_argument_advice(entry.callback)}"
            )
        raise StateKeyError(
            f"state_key {entry.callback.state_key!r} belongs to two stateful callbacks, "
            f"{type(other.callback).__module__}.{type(other.callback).__qualname__} (from "
            f"{other.supplier}) and {type(entry.callback).__module__}."
            f"{type(entry.callback).__qualname__} (from {entry.supplier}): each needs its own, "
            f"or one would overwrite the other in the checkpoint. {_advice(entry.callback)}"
        )

    def add(self, entry: CallbackEntry) -> None:
        """Add an entry.

        Raises:
            StateKeyError: another stateful callback has its `state_key`.
        """
        self.check(entry)
        key = entry.callback.state_key
        self._entries[id(entry.callback)] = entry, key
        if entry.is_stateful:
            self._key_owners[key] = entry

    def discard(self, callback: object) -> None:
        """Remove a callback, if it is registered."""
        entry, key = self._entries.pop(id(callback), (None, ""))
        # a stateless callback owns no key, and another one may have the same
        if entry is not None and self._key_owners.get(key) is entry:
            del self._key_owners[key]


def _advice(callback: Callback) -> str:
    """Return a sentence on how to give a callback its own state key."""
    if advice := getattr(callback, "state_key_advice", ""):  # of an adapter, which makes the key
        return str(advice)
    if "name" in signature_of(type(callback)).parameters:
        return f"Give one of them a name of its own: {type(callback).__qualname__}(..., name=...)."
    return (
        "Define `state_key` as a property that returns self._generate_state_key(name=...) with the "
        "arguments that tell the instances apart."
    )


def _argument_advice(callback: Callback) -> str:
    """Return a sentence on how two callbacks of this package get different keys."""
    names = re.findall(r"'(\w+)':", callback.state_key)
    if "name" in signature_of(type(callback)).parameters:
        return f"Leave one of them out, or name it: {type(callback).__name__}(..., name=...)."
    if not names:
        return "Leave one of them out."
    return f"Leave one of them out, or give it another {' or '.join(names)}."


# --- the stages of registration ---


def collect_callbacks(callbacks: Callback | Iterable[Callback] | None) -> tuple[Callback, ...]:
    """Return `callbacks` as a tuple of instances, each one once.

    Raises:
        CallbackError: an element is a class, or no Callback.
    """
    if callbacks is None:
        return ()
    listed: tuple[Any, ...]
    # a callback, or a class such as an Enum, may be iterable itself and is still one item
    if isinstance(callbacks, Callback | type | str) or not isinstance(callbacks, Iterable):
        listed = (callbacks,)
    else:
        listed = tuple(callbacks)
    unique: dict[int, Callback] = {}
    for position, item in enumerate(listed):
        callback = validate_callback(item, f"callbacks[{position}]")
        if id(callback) in unique:
            warn(
                f"callbacks[{position}], {callback!r}, is listed twice: it is registered once.",
                TrainerHooksWarning,
            )
            continue
        unique[id(callback)] = callback
    return tuple(unique.values())


def adapt_if_foreign(item: Any, wanted: type = Callback) -> Any:
    """Return the adapter of an object of another framework; any other object as it is.

    Args:
        item: the object.
        wanted: the class of which the adapter must be an instance.

    Raises:
        CallbackError: its adapter cannot be loaded, or does not take the object.
    """
    # no framework has a class in `builtins`: for a list or None, nothing is loaded to find out
    if isinstance(item, wanted | type) or type(item).__module__ == "builtins":
        return item
    from trainer_hooks.connector.adapter_lookup import adapt

    return adapt(item, wanted)


def validate_callback(item: object, where: str) -> Callback:
    """Return a callback, or the adapter of a foreign one, that can be registered.

    Args:
        item: the callback.
        where: where it was passed, for messages.

    Raises:
        CallbackError: it cannot be registered.
    """
    if isinstance(item, type) and issubclass(item, Callback):
        raise CallbackError(
            f"{where} is the class {item.__qualname__}: callbacks are instances. "
            f"Write {item.__qualname__}(...) instead of {item.__qualname__}."
        )
    if isinstance(item, str):
        raise CallbackError(
            f"{where} is the text {item!r}: it must be an instance of trainer_hooks.Callback. "
            "Import the class and pass one. Only a config of `trainer-hooks fit` has texts there."
        )
    item = adapt_if_foreign(item)
    if not isinstance(item, Callback):
        raise CallbackError(
            f"{where} is {item!r} of type {type(item).__qualname__}{package_note(item)}: a "
            "callback must be an instance of trainer_hooks.Callback, or of a class that an "
            "installed adapter takes. Subclass it, wrap functions in "
            "trainer_hooks.callbacks.LambdaCallback, or register an adapter in the entry-point "
            f"group 'trainer_hooks.adapters'.{foreign_hint(type(item), 'Callback')}"
        )
    # the user's class may define these as properties: what they return is checked here, once
    attributes = ours(item)
    band: object = attributes.band
    if not isinstance(band, Band):
        raise CallbackError(
            f"band {band!r} of {where}, a {type(item).__qualname__}: it must be a Band. "
            f"Write one of {', '.join(f'Band.{member.name}' for member in Band)}."
        )
    if attributes.on_error not in {"raise", "disable"}:
        raise CallbackError(
            f"on_error {attributes.on_error!r} of {where}, a {type(item).__qualname__}: it must be "
            "'raise' or 'disable'. Set it in the class or on the instance."
        )
    if attributes.runs_on not in {"all", "rank_zero"}:
        raise CallbackError(
            f"runs_on {attributes.runs_on!r} of {where}, a {type(item).__qualname__}: it must be "
            "'all' or 'rank_zero'. Set it in the class or on the instance."
        )
    # hooks are checked with the others'
    if clash := instance_clash(item, OWN_NAMES.difference(HOOKS)):
        raise CallbackError(f"{where}: {clash}")
    try:
        key: object = item.state_key
    except AttributeError as error:
        # the attribute is missing from the callback itself, and its class has a base with one
        if error.obj is not item or "__init__" not in vars(type(item)):
            raise
        raise CallbackError(
            f"{where}, a {type(item).__qualname__}, has no attribute {error.name!r}, of which its "
            f"state_key is made: its __init__ must set it. Call super().__init__(...) there first."
        ) from error
    if not isinstance(key, str):
        raise CallbackError(
            f"state_key {key!r} of {where}, a {type(item).__qualname__}: it must be a string that "
            "is the same in every run. Return self._generate_state_key(...)."
        )
    return item


def package_note(item: object) -> str:
    """Return the package of a refused object for a message, and that a class must be called."""
    kind = item if isinstance(item, type) else type(item)
    package = kind.__module__.partition(".")[0]
    if package == "builtins":
        return ""
    hint = f" (a class: write {kind.__qualname__}(...))" if kind is item else ""
    return f" of the package {package!r}{hint}"


def check_hooks(
    entries: Iterable[CallbackEntry], hooks: Mapping[str, HookSpec], *, is_strict: bool
) -> None:
    """Make sure that the callbacks' hooks can be called, and warn of misspelt ones.

    Args:
        entries: the callbacks.
        hooks: all known hooks by name.
        is_strict: whether a misspelt hook is an error.

    Raises:
        CallbackError: a hook cannot be called, or `is_strict` and one is misspelt.
    """
    for entry in entries:
        warnings = hook_warnings(entry.callback, hooks, hooks_declared_by_bases(entry.callback))
        errors = (*hook_errors(entry.callback, hooks), *(warnings if is_strict else ()))
        if errors:
            raise CallbackError(f"{entry.label}: {' Also, '.join(errors)}")
        for warning in warnings:
            warn(f"{entry.label}: {warning}", TrainerHooksWarning)
        for advice in _half_of_state(entry.callback):
            warn(f"{entry.label}: {advice}", TrainerHooksAdvice)


def _half_of_state(callback: Callback) -> Iterator[str]:
    """Yield advice if a callback defines one of `state_dict` and `load_state_dict` alone."""
    given, missing = "state_dict", "load_state_dict"
    defined = {name for name in (given, missing) if defines_state_method(callback, name)}
    if defined == {given}:
        yield (
            f"it has a {given} and no {missing}, so a resume saves its state and restores nothing "
            f"of it. Define {missing}(self, state_dict), too."
        )
    elif defined == {missing}:
        yield (
            f"it has a {missing} and no {given}, so it has nothing to restore. Define "
            f"{given}(self), too."
        )


def hooks_declared_by_bases(callback: Callback) -> set[str]:
    """Return the hooks of the `Hooks` subclasses that a callback's class derives from.

    They count as known even if the package that registers them as a plugin is not installed.
    """
    catalogues = (c for c in type(callback).__mro__ if issubclass(c, Hooks))
    return {name for c in catalogues if not issubclass(c, Callback) for name in vars(c)}


def replaced_types(brought: Iterable[CallbackEntry]) -> set[type]:
    """Return the types of which a module's callbacks replace all others, as in Lightning.

    These are their own and the base classes, without `Callback` itself: all others derive from it.
    """
    return {base for entry in brought for base in type(entry.callback).__mro__} - {Callback}


def relay_members(
    entries: Iterable[CallbackEntry],
    module: RelayMember | None,
    on_failure_of: Callable[[CallbackEntry], Callable[[str, BaseException], None] | None],
) -> tuple[RelayMember, ...]:
    """Return the relay's members: the callbacks in order, the module at its band.

    Args:
        entries: the callbacks, in order.
        module: the module's member, or None.
        on_failure_of: returns the `on_failure` of a callback.
    """
    members: list[RelayMember] = []
    is_placed = module is None
    for entry in entries:
        # the module has its turn after the callbacks in its own band
        if module is not None and not is_placed and entry.band > Band.MODULE:
            members.append(module)
            is_placed = True
        members.append(
            RelayMember(
                entry.callback,
                entry.label,
                routes_events=ours(entry.callback).routes_events,
                on_failure=on_failure_of(entry),
                supplier=entry.supplier,
            )
        )
    if module is not None and not is_placed:
        members.append(module)
    return tuple(members)
