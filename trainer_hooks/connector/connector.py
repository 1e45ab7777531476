"""CallbackConnector: which callbacks, in what order, under which `state_key`.

It never sees the Trainer and knows nothing of torch. What is registered is checked before anything
is committed, so a rejected callback is never half registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks import hooks
from trainer_hooks._log import warn
from trainer_hooks.callback import Callback
from trainer_hooks.connector.failures import Failures
from trainer_hooks.connector.registration import (
    adopted,
    check_hooks,
    checked,
    collect,
    deduplicate,
    gives_way,
    members_of,
)
from trainer_hooks.connector.reports import CallbackReport, LoadReport
from trainer_hooks.connector.roster import Default, Entry, Roster
from trainer_hooks.connector.state_versions import (
    current_version,
    under_present_keys,
    upgraded_state,
)
from trainer_hooks.errors import (
    CallbackError,
    ModuleError,
    TrainerHooksWarning,
    UsageError,
    nearest,
)
from trainer_hooks.hooks import HOOKS, HookRelay, Member, PluginFilter, doubts, faults, in_order

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from trainer_hooks.hooks import HookSpec, Plugin

__all__ = ["CallbackConnector"]

_RESERVED = frozenset(name for name in dir(Callback))
"""Names that an event cannot have, because they are something else of every callback."""


class CallbackConnector:
    """Collect, discover, de-duplicate, order and check callbacks; build the relay.

    Args:
        user_callbacks: one callback or an iterable of them; it is read once and never changed.
        defaults: callbacks that take part unless one of their kind was supplied.
        discover: which installed plugins to load: True, False, or their names.
        plugin_errors: `"warn"` to go on without a broken plugin, `"raise"` to stop.
        strict_hooks: whether a misspelt hook is an error, and not only warned of.
        callback_errors: what an error of a callback does, `"raise"` or `"disable"`, by its
            state_key or its class's name; it goes before the callback's own `on_error`.

    Attributes:
        plugins: every installed plugin, and what became of it.
        hooks: every hook that there is, those of plugins last.
        relay: calls a hook on all of them.

    Raises:
        CallbackError: something that is no callback, or has a hook that cannot be called.
        StateKeyError: two stateful callbacks have one `state_key`.
        PluginError: a plugin is broken and `plugin_errors` is `"raise"`.
    """

    def __init__(
        self,
        user_callbacks: Callback | Iterable[Callback] | None = None,
        *,
        defaults: Sequence[Default] = (),
        discover: bool | str | Iterable[str] = True,
        plugin_errors: str = "warn",
        strict_hooks: bool = False,
        callback_errors: Mapping[str, str] | None = None,
    ) -> None:
        user = [Entry(callback, "user") for callback in collect(user_callbacks)]
        self.hooks: Mapping[str, HookSpec] = HOOKS
        self.plugins: tuple[Plugin, ...] = ()
        self._is_strict = strict_hooks
        self._failures = Failures(dict(callback_errors or {}))
        self._defaults = tuple(defaults)
        self._supplied: list[Entry] = []
        Roster(user)
        if PluginFilter.of(discover).takes_none:
            check_hooks(user, self.hooks, is_strict=strict_hooks)
        else:
            self._discover(discover, plugin_errors, user)
        self._base = Roster([*self._supplied, *user])
        self._live = self._with_defaults(self._base)
        self._leader: Member | None = None
        self._module: Member | None = None
        self._entries: tuple[Entry, ...] | None = None
        self.relay = HookRelay(hooks=self.hooks)
        self.relay.connect(self._members())

    def __getstate__(self) -> dict[str, Any]:
        """Leave out of copies and pickles what each process has."""
        return {**self.__dict__, "hooks": None if self.hooks is HOOKS else dict(self.hooks)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take up a copy."""
        self.__dict__.update(state)
        self.hooks = HOOKS if state["hooks"] is None else state["hooks"]

    def _discover(
        self, wanted: bool | str | Iterable[str], errors: str, user: Sequence[Entry]
    ) -> None:
        """Let the callbacks of installed packages take part, with the hooks that they add."""
        from trainer_hooks.connector.admission import Admission, all_hooks, discover_plugins

        found = discover_plugins(wanted, errors)
        self.hooks = all_hooks(found)
        gate = Admission(user, self._defaults, self.hooks, is_strict=self._is_strict, errors=errors)
        check_hooks(user, self.hooks, is_strict=self._is_strict)
        admitted = [gate.admit(plugin) for plugin in found]
        self.plugins = tuple(plugin for _, plugin in admitted)
        self._supplied = [entry for entries, _ in admitted for entry in entries]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every callback that takes part, in order, with who supplied it."""
        if self._entries is None:
            self._entries = _sorted(self._live)
        return self._entries

    @property
    def callbacks(self) -> tuple[Callback, ...]:
        """Every callback that takes part, in order."""
        return tuple(entry.callback for entry in self.entries)

    def lead(self, implementer: object, label: str) -> None:
        """Let an implementer of hooks have its turn before all callbacks, in every run."""
        self._leader = Member(implementer, label, supplier="the trainer itself")
        self._change()

    def attach(
        self, module: object, callbacks: Callback | Iterable[Callback] | None = None
    ) -> None:
        """Let a module's hooks take part, and the callbacks that it brings for one run.

        A callback of the module replaces one of the same type and state_key; what it replaced comes
        back with the next `attach`.

        Raises:
            CallbackError: something that is no callback, or has a hook that cannot be called.
            StateKeyError: two stateful callbacks have one `state_key`.
        """
        label = f"module {type(module).__qualname__}"
        member = Member(module, label, skip=2, supplier="the module itself")
        brought = [Entry(callback, "module") for callback in collect(callbacks)]
        live = self._with_defaults(deduplicate(brought, tuple(self._base)))
        check_hooks(brought, self.hooks, is_strict=self._is_strict)
        self._module = member
        self._live = live
        self._entries = None
        self.relay.connect(self._members())

    def check_run(self, module: object, known_methods: Collection[str] = ()) -> None:
        """Look for mistakes in a module's hooks and in what was said of callbacks by name.

        Args:
            module: the module.
            known_methods: names that begin with `on_`, are no hooks, and of use to a module.

        Raises:
            ModuleError: a hook of the module cannot be called, or is misspelt where that is one.
        """
        name = f"module {type(module).__qualname__}"
        doubtful = doubts(module, self.hooks, known_methods, skip=2)
        wrong = (*faults(module, self.hooks, skip=2), *(doubtful if self._is_strict else ()))
        if wrong:
            raise ModuleError(f"{name}: {' Also, '.join(wrong)}")
        for doubt in doubtful:
            warn(f"{name}: {doubt}", TrainerHooksWarning)
        for unknown in self._failures.unmatched(self.entries):
            known = [known for entry in self.entries for known in entry.names]
            warn(
                f"Trainer(callback_errors=...) speaks of {unknown!r}: no callback has that "
                f"state_key or class name.{nearest(unknown, known)}",
                TrainerHooksWarning,
            )

    def relay_beside(self, callbacks: Callback | Iterable[Callback] | None = None) -> HookRelay:
        """Return a relay of the module's own hooks and of callbacks that take no part else.

        An error of one of them is raised, whatever its policy.

        Raises:
            CallbackError: one is no callback.
        """
        entries = _sorted(Entry(callback, "user") for callback in collect(callbacks))
        members = members_of(entries, self._module, self._disable, lambda _: "raise")
        return HookRelay(members, self.hooks)

    def entries_with(
        self, brought: Callback | Iterable[Callback] | None = None
    ) -> tuple[Entry, ...]:
        """Return who takes part in a run of a module that brings these callbacks, in order."""
        of_module = [Entry(callback, "module") for callback in collect(brought)]
        return _sorted(self._with_defaults(deduplicate(of_module, tuple(self._base))))

    def add(self, callback: Callback) -> None:
        """Register one more callback; a hook that is firing is not disturbed.

        It takes the place of a plugin's callback of the same type and state_key, and of a default
        of its kind.

        Raises:
            CallbackError: it is no callback, registered already, or has a hook that cannot be
                called.
            StateKeyError: another stateful callback has its state_key.
        """
        callback = checked(callback, "callback")
        entry = Entry(callback, "user")
        if callback in self._live:
            raise CallbackError(
                f"{entry.label} is registered already: an instance takes part once. Remove it "
                "first, or add another instance."
            )
        displaced = self._displaced_by(entry)
        self._live.check(entry, instead_of=displaced)
        self._base.check(entry, instead_of=displaced)
        check_hooks([entry], self.hooks, is_strict=self._is_strict)
        for known in displaced:
            self._live.discard(known.callback)
            self._base.discard(known.callback)
        self._live.add(entry)
        self._base.add(entry)
        self._change()

    def remove(self, callback: Callback) -> None:
        """Take a callback out; a hook that is firing is not disturbed.

        No default steps into its place: it was taken out on purpose.

        Raises:
            CallbackError: it is not registered.
        """
        callback = adopted(callback)
        if callback not in self._live:
            raise CallbackError(
                f"{callback!r} is not registered, so it cannot be removed. Registered: "
                f"{', '.join(entry.label for entry in self.entries) or 'none'}."
            )
        if callback in self._base:
            self._defaults = tuple(d for d in self._defaults if not isinstance(callback, d.unless))
        self._base.discard(callback)
        self._live.discard(callback)
        self._defaults = tuple(d for d in self._defaults if d.callback is not callback)
        self._change()

    def call_event(
        self,
        event: str,
        leading: tuple[Any, ...],
        arguments: Mapping[str, Any],
        positional: tuple[Any, ...] = (),
    ) -> None:
        """Fire an event that is none of trainer_hooks' own.

        Args:
            event: a hook that a plugin adds, or the name of a method that callbacks may have.
            leading: the trainer and the module.
            arguments: what listeners are given; by name, unless it is a hook.
            positional: what listeners are given before it, by place; nothing where it is a hook.

        Raises:
            UsageError: the event is one of trainer_hooks' hooks, is misspelt, or the arguments are
                not those of the hook.
        """
        hooks.check_event(event, self.hooks, _RESERVED)
        if event in self.hooks and positional:
            raise UsageError(
                f"call_event({event!r}, ...) with {len(positional)} arguments by place: those of a "
                "hook are given by name. Write their names."
            )
        if event in self.hooks:
            self.relay.fire(event, *leading, *hooks.positional(self.hooks[event], arguments))
        elif not self.relay.fire_event(event, leading, arguments, positional):
            known = hooks.look_up(event, self.hooks)
            if known:
                warn(
                    f"event {event!r} of call_event: no callback has such a method, so nothing was "
                    f"called. It is {known[0].owner}'s name of the hook {known[0].spec.name!r}, "
                    "which the trainer fires itself. Leave it out, or give an event of your own "
                    "another name.",
                    TrainerHooksWarning,
                )

    def held_back(self, callback: Callback, method: str) -> AbstractContextManager[None]:
        """Treat an error of a callback's `method`, which is no hook, like one of a hook."""
        entry = next(known for known in self.entries if known.callback is callback)
        return self._failures.held_back(entry, method, self._disable)

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Return the state of every stateful callback by state_key, as the callback gave it.

        One that was disabled keeps the state that it had then.
        """
        states = {}
        for entry in self.entries:
            if entry.callback.is_stateful:
                with self._failures.held_back(entry, "state_dict", self._disable):
                    states[entry.callback.state_key] = entry.callback.state_dict()
        return {**self._failures.states(), **states}

    def state_versions(self) -> dict[str, int]:
        """Return the `state_version` of every state that `state_dict` returns."""
        stateful = [entry for entry in self.entries if entry.callback.is_stateful]
        versions = {entry.callback.state_key: current_version(entry) for entry in stateful}
        return {**self._failures.state_versions(), **versions}

    def upgrade_states(
        self, states: Mapping[str, dict[str, Any]], versions: Mapping[str, int]
    ) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
        """Return saved states as the callbacks know them now, and which were upgraded, in words.

        Raises:
            CheckpointError: one was saved by a newer version of its callback, or cannot be
                upgraded.
        """
        states, versions = under_present_keys(self.entries, states, versions)
        found, upgraded = dict(states), []
        for entry in self.entries:
            key = entry.callback.state_key
            if not entry.callback.is_stateful or key not in states:
                continue
            saved, now = versions.get(key, 1), current_version(entry)
            if saved == now:
                continue
            self._failures.note_loaded(entry, states[key], saved)
            with self._failures.held_back(entry, "upgrade_state_dict", self._disable):
                found[key] = upgraded_state(entry, states[key], saved)
                upgraded.append(f"{key} from state_version {saved} to {now}")
        return found, tuple(upgraded)

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
            restored.append(key)
            self._failures.note_loaded(entry, states[key], current_version(entry))
            with self._failures.held_back(entry, "load_state_dict", self._disable):
                entry.callback.load_state_dict(states[key])
        unexpected = sorted(set(states) - set(restored))
        return LoadReport(tuple(restored), tuple(missing), tuple(unexpected))

    def callback_report(self) -> tuple[CallbackReport, ...]:
        """Return how each callback fares: those that take part, in order, then the disabled."""
        return self._failures.reports(self.entries)

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

    def _with_defaults(self, entries: Iterable[Entry]) -> Roster:
        live = Roster(entries)
        for default in self._defaults:
            if not any(default.is_unneeded_beside(entry) for entry in live):
                live.add(Entry(default.callback, "default"))
        return live

    def _displaced_by(self, entry: Entry) -> list[Entry]:
        """Return the plugins' callbacks and the defaults that step back for a new one."""
        defaults = [Entry(d.callback, "default") for d in self._defaults]
        unneeded = [d.is_unneeded_beside(entry) for d in self._defaults]
        return [
            *(known for known in self._supplied if gives_way(known, entry)),
            *(known for known, is_unneeded in zip(defaults, unneeded, strict=True) if is_unneeded),
        ]

    def _members(self) -> tuple[Member, ...]:
        leader = () if self._leader is None else (self._leader,)
        others = members_of(self.entries, self._module, self._disable, self._failures.policy_of)
        return (*leader, *others)

    def _change(self) -> None:
        """Let the next firing of a hook, and not one that is under way, see who takes part."""
        self._entries = None
        self.relay.connect_later(self._members)

    def _disable(self, entry: Entry, hook: str, error: Exception) -> None:
        if entry.callback not in self._live:
            return  # taken out already, in this very firing
        report = self._failures.note_disabled(entry, hook, error)
        self.remove(entry.callback)
        warn(
            f"{entry.label} failed in hook {hook!r} and takes no further part, as its error policy "
            f"'disable' says; {report.state}.\n{report.traceback}",
            TrainerHooksWarning,
        )


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries in the order of their turns; inside a band the defaults come last."""
    return in_order(sorted(entries, key=lambda entry: entry.origin == "default"))
