"""CallbackConnector: the callbacks that take part, their order and their state keys.

It never sees the Trainer and knows nothing of torch. All checks come before anything is changed, so
that a rejected callback is never half registered.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log, warn
from trainer_hooks.callback import Callback
from trainer_hooks.connector.callback_state import (
    LoadReport,
    rename_former_keys,
    upgrade_state,
)
from trainer_hooks.connector.error_policy import ErrorPolicies
from trainer_hooks.connector.registry import (
    CallbackEntry,
    CallbackRegistry,
    adapt_if_foreign,
    check_hooks,
    collect_callbacks,
    relay_members,
    replaced_types,
    validate_callback,
)
from trainer_hooks.connector.state_types import check_state
from trainer_hooks.errors import (
    CallbackError,
    ModuleError,
    TrainerHooksWarning,
    UsageError,
    did_you_mean,
    error_summary,
)
from trainer_hooks.hooks.check import hook_errors, hook_warnings
from trainer_hooks.hooks.plugin import PluginFilter
from trainer_hooks.hooks.relay import HookRelay, RelayMember, current_hook_and_label
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from trainer_hooks.connector.error_policy import CallbackReport
    from trainer_hooks.connector.registry import DefaultCallback
    from trainer_hooks.hooks.plugin import Plugin
    from trainer_hooks.hooks.spec import HookSpec

_RESERVED = frozenset(dir(Callback))
"""Names that an event cannot have: every callback has an attribute of that name."""


class CallbackConnector:
    """Collect, discover, de-duplicate, order and check callbacks; build the relay.

    Args:
        user_callbacks: one callback or an iterable of them; it is read once and never changed.
        defaults: callbacks that take part unless one of the same type was supplied.
        discover: the installed plugins to load: True for all, False for none, or their names.
        plugin_errors: `"warn"` to go on without a broken plugin, `"raise"` to stop.
        strict_hooks: whether a misspelt hook is an error and not only a warning.
        callback_errors: error policies, `"raise"` or `"disable"`, by state_key or class name; they
            override a callback's own `on_error`.

    Attributes:
        plugins: a record of every installed plugin.
        hooks: all known hooks by name, those of plugins last.
        relay: calls a hook on all callbacks and the module.

    Raises:
        CallbackError: an object is no callback, or has a hook that cannot be called.
        StateKeyError: two stateful callbacks have one `state_key`.
        PluginError: a plugin is broken and `plugin_errors` is `"raise"`.
    """

    def __init__(
        self,
        user_callbacks: Callback | Iterable[Callback] | None = None,
        *,
        defaults: Sequence[DefaultCallback] = (),
        discover: bool | str | Iterable[str] = True,
        plugin_errors: str = "warn",
        strict_hooks: bool = False,
        callback_errors: Mapping[str, str] | None = None,
    ) -> None:
        user = [CallbackEntry(callback, "user") for callback in collect_callbacks(user_callbacks)]
        self.hooks: Mapping[str, HookSpec] = HOOKS
        self.plugins: tuple[Plugin, ...] = ()
        self._is_strict = strict_hooks
        self._error_policies = ErrorPolicies(dict(callback_errors or {}), self._disable)
        self._defaults = tuple(defaults)
        self._from_plugins: list[CallbackEntry] = []
        CallbackRegistry(user)  # raises on equal state keys before any plugin is imported
        if PluginFilter.of(discover).takes_none:
            check_hooks(user, self.hooks, is_strict=strict_hooks)
        else:
            self._discover(discover, plugin_errors, user)
        # `_base` outlives a run; `_live` also has the callbacks that the module of a run brings
        self._base = CallbackRegistry([*self._from_plugins, *user])
        self._live = self._with_defaults(self._base)
        self._leader: RelayMember | None = None
        self._module: RelayMember | None = None
        self.relay = HookRelay(self._members(), self.hooks)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the catalogue out of copies and pickles: each process has its own."""
        return {**self.__dict__, "hooks": None if self.hooks is HOOKS else dict(self.hooks)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Put this process's catalogue into a copy."""
        self.__dict__.update(state)
        self.hooks = HOOKS if state["hooks"] is None else state["hooks"]

    def _discover(
        self, wanted: bool | str | Iterable[str], errors: str, user: Sequence[CallbackEntry]
    ) -> None:
        """Load plugins; register their callbacks and the hooks that they add."""
        # lazily: a trainer without plugins loads neither the discovery nor importlib_metadata
        from trainer_hooks.connector.plugin_validation import (
            PluginSelection,
            all_hooks,
            load_adapted_plugins,
        )

        plugins = load_adapted_plugins(wanted, errors)
        self.hooks = all_hooks(plugins)
        selection = PluginSelection(
            user, self._defaults, self.hooks, is_strict=self._is_strict, errors=errors
        )
        # only now: a user's callback may define hooks that a plugin adds
        check_hooks(user, self.hooks, is_strict=self._is_strict)
        validated = [selection.validate(plugin) for plugin in plugins]
        self.plugins = tuple(plugin for _, plugin in validated)
        self._from_plugins = [entry for entries, _ in validated for entry in entries]

    # cached until the callbacks change, see `_change`
    @cached_property
    def entries(self) -> tuple[CallbackEntry, ...]:
        """Every callback that takes part, in order, with who supplied it."""
        return _sorted(self._live)

    @cached_property
    def callbacks(self) -> tuple[Callback, ...]:
        """Every callback that takes part, in order."""
        return tuple(entry.callback for entry in self.entries)

    def label_of(self, state_key: str) -> str:
        """Return the description of the callback with a state key, for messages."""
        labels = {entry.callback.state_key: entry.label for entry in self.entries}
        return labels.get(state_key, f"callback {state_key!r}")

    def current_state_key(self) -> str:
        """Return the state key of the callback whose hook is being called; empty if none is."""
        _, label = current_hook_and_label()
        keys = (entry.callback.state_key for entry in self.entries if entry.label == label)
        return next(keys, "")

    def lead(self, implementer: object, label: str) -> None:
        """Add an object that has its turn before all callbacks, such as a `compat` Trainer."""
        self._leader = RelayMember(implementer, label, supplier="the trainer itself")
        self._change()

    def set_module(
        self, module: object, callbacks: Callback | Iterable[Callback] | None = None
    ) -> None:
        """Add a module's hooks, and the callbacks of its `configure_callbacks`, for one run.

        A callback of the module replaces those of its type and of its base classes until the next
        `set_module`.

        Raises:
            CallbackError: an object is no callback, or has a hook that cannot be called.
            StateKeyError: two stateful callbacks have one `state_key`.
        """
        label = f"module {type(module).__qualname__}"
        member = RelayMember(module, label, skip=2, supplier="the module itself")
        brought = [CallbackEntry(callback, "module") for callback in collect_callbacks(callbacks)]
        # from `_base`, without the callbacks that the module of the last run brought
        live = self._with_module_callbacks(brought)
        check_hooks(brought, self.hooks, is_strict=self._is_strict)
        # not before the checks: a rejected callback leaves the connector as it was
        self._module = member
        self._live = live
        self._forget_entries()
        self.relay.connect(self._members())
        # without those that the module itself returns
        replaced = [entry.label for entry in self._base if entry.callback not in live]
        if replaced:
            log.info("configure_callbacks of %s replaces %s", label, ", ".join(replaced))

    def renew_module(self) -> None:
        """Let the relay call the hooks that the module has now, with those assigned since."""
        self.relay.connect(self._members())

    def check_run(self, module: object, known_methods: Collection[str] = ()) -> None:
        """Check a module's hooks, and that every name in `callback_errors` is a callback's.

        Args:
            module: the module.
            known_methods: names of module methods that begin with `on_` and are no hooks.

        Raises:
            ModuleError: a hook of the module cannot be called, or is misspelt and hooks are strict.
        """
        name = f"module {type(module).__qualname__}"
        warnings = hook_warnings(module, self.hooks, known_methods, skip=2)
        errors = (*hook_errors(module, self.hooks, skip=2), *(warnings if self._is_strict else ()))
        if errors:
            raise ModuleError(f"{name}: {' Also, '.join(errors)}")
        for warning in warnings:
            warn(f"{name}: {warning}", TrainerHooksWarning)
        # in a run, not in `__init__`: the name may be that of a callback that the module brings
        # and one that the module replaces has a name, too
        for unknown in self._error_policies.unmatched((*self._base, *self.entries)):
            names = [key for entry in self.entries for key in entry.names]
            warn(
                f"Trainer(callback_errors=...) speaks of {unknown!r}: no callback has that "
                f"state_key or class name.{did_you_mean(unknown, names)}",
                TrainerHooksWarning,
            )

    def separate_relay(self, callbacks: Callback | Iterable[Callback] | None = None) -> HookRelay:
        """Return a relay of the module's hooks and of callbacks that are not registered here.

        Their errors are raised, whatever their error policy is.

        Raises:
            CallbackError: an object is no callback.
        """
        entries = _sorted(
            CallbackEntry(callback, "user") for callback in collect_callbacks(callbacks)
        )
        members = relay_members(entries, self._module, lambda _: None)
        return HookRelay(members, self.hooks)

    def entries_with(
        self, brought: Callback | Iterable[Callback] | None = None
    ) -> tuple[CallbackEntry, ...]:
        """Return the entries of a run whose module brings these callbacks, in order."""
        of_module = [CallbackEntry(callback, "module") for callback in collect_callbacks(brought)]
        return _sorted(self._with_module_callbacks(of_module))

    def add(self, callback: Callback) -> None:
        """Register one more callback, which takes part from the next firing of a hook on.

        It replaces a plugin's callback of the same type and state_key, and a default of its type.

        Raises:
            CallbackError: it is no callback, is registered already, or has a hook that cannot be
                called.
            StateKeyError: another stateful callback has its state_key.
        """
        callback = validate_callback(callback, "callback")
        entry = CallbackEntry(callback, "user")
        if callback in self._live:
            raise CallbackError(
                f"{entry.label} is registered already: an instance takes part once. Remove it "
                "first, or add another instance."
            )
        displaced = self._displaced_by(entry)
        # every check before the first change: a rejected callback leaves the others as they are
        self._live.check(entry, instead_of=displaced)
        self._base.check(entry, instead_of=displaced)
        check_hooks([entry], self.hooks, is_strict=self._is_strict)
        for replaced in displaced:
            self._live.discard(replaced)
            self._base.discard(replaced)
        self._live.add(entry)
        self._base.add(entry)
        self._change()

    def remove(self, callback: Callback) -> None:
        """Remove a callback, which takes no part from the next firing of a hook on.

        No default replaces it: the user removed it on purpose.

        Raises:
            CallbackError: it is not registered.
        """
        callback = adapt_if_foreign(callback)
        if callback not in self._live:
            raise CallbackError(
                f"{callback!r} is not registered, so it cannot be removed. Registered: "
                f"{', '.join(entry.label for entry in self.entries) or 'none'}."
            )
        # else a default, that one or another of its type, would take its place in the next run
        is_in_base = callback in self._base
        self._defaults = tuple(
            default
            for default in self._defaults
            if default.callback is not callback
            and not (is_in_base and isinstance(callback, default.unless))
        )
        self._base.discard(callback)
        self._live.discard(callback)
        self._change()

    def call_event(
        self,
        event: str,
        leading: tuple[Any, ...],
        arguments: Mapping[str, Any],
        positional: tuple[Any, ...] = (),
    ) -> None:
        """Fire an event of the user's or of a plugin, not of trainer_hooks itself.

        Args:
            event: a hook that a plugin adds, or the name of a method that callbacks may have.
            leading: the trainer and the module.
            arguments: the listeners' arguments by name.
            positional: the listeners' positional arguments; none for a hook.

        Raises:
            UsageError: the event is one of trainer_hooks' hooks, is misspelt, or the arguments are
                not those of the hook.
        """
        from trainer_hooks.hooks.event import (
            check_event,
            hook_named_as_event,
            positional_arguments,
        )

        check_event(event, self.hooks, _RESERVED)
        if event in self.hooks and positional:
            raise UsageError(
                f"call_event({event!r}, ...) with {len(positional)} arguments by place: those of a "
                "hook are given by name. Write their names."
            )
        if event in self.hooks:
            values = positional_arguments(self.hooks[event], arguments)
            self.relay.fire(event, *leading, *values)
        elif not self.relay.fire_event(event, leading, arguments, positional):
            hook = hook_named_as_event(event)
            if hook is not None:
                warn(
                    f"event {event!r} of call_event: no callback has such a method, so nothing was "
                    f"called. It is Composer's name of the hook {hook!r}, "
                    "which the trainer fires itself. Leave it out, or give an event of your own "
                    "another name.",
                    TrainerHooksWarning,
                )

    def handling_errors(self, callback: Callback, method: str) -> AbstractContextManager[None]:
        """Apply a callback's error policy to a call of its `method`, which is no hook."""
        entry = next(entry for entry in self.entries if entry.callback is callback)
        return self._error_policies.handling_errors(entry, method)

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Return the state of every stateful callback by state_key, as the callback returned it.

        A disabled callback has the last state that it had.
        """
        states = {}
        # the tuple stays as it is if a callback fails here and is removed
        for entry in self.entries:
            if entry.is_stateful:
                with self._error_policies.handling_errors(entry, "state_dict"):
                    states[entry.callback.state_key] = entry.callback.state_dict()
        # the active callback's state wins over that of a disabled one with its key
        return {**self._error_policies.states, **states}

    def check_states(self, require_savable: Callable[[Any, str], object]) -> None:
        """Check before the first batch that each callback's state can be saved, as far as it goes.

        Args:
            require_savable: raises if a state, given with its callback's description, cannot be
                saved.
        """
        for entry in self.entries:
            if not entry.is_stateful:
                continue
            with self._error_policies.handling_errors(entry, "state_dict"):
                try:
                    state: object = entry.callback.state_dict()
                except Exception as error:  # noqa: BLE001 - it may need a batch before it works
                    log.debug("%s: no state yet: %s", entry.label, error_summary(error))
                else:
                    if state is None:
                        warn(
                            f"state_dict() of {entry.label} returned None: nothing of its state "
                            "goes into a checkpoint. Return the state, a dict.",
                            TrainerHooksWarning,
                        )
                    require_savable(state, entry.label)

    def state_versions(self) -> dict[str, int]:
        """Return the `state_version` of every state that `state_dict` returns."""
        versions = {
            entry.callback.state_key: entry.state_version
            for entry in self.entries
            if entry.is_stateful
        }
        return {**self._error_policies.state_versions, **versions}

    def require_fitting_states(
        self, states: Mapping[str, dict[str, Any]], versions: Mapping[str, int]
    ) -> None:
        """Check saved states whose callback declares their types, before any hook reads them.

        States of other versions, and those under former keys, are checked when they are loaded.

        Args:
            states: the saved states by state_key.
            versions: the state_version of each, by state_key.

        Raises:
            TypeError: an item of a state is missing, or of another type.
        """
        for entry in self.entries:
            key = entry.callback.state_key
            if not entry.is_stateful or key not in states:
                continue
            is_present_version = versions.get(key, 1) == entry.state_version
            # one that an error disables is disabled when it loads the state
            if is_present_version and self._error_policies.policy_of(entry) != "disable":
                check_state(entry.callback, states[key])

    def upgrade_states(
        self, states: Mapping[str, dict[str, Any]], versions: Mapping[str, int]
    ) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
        """Return saved states in the form of the present callbacks, and the upgrades in words.

        Raises:
            CheckpointError: a state was saved by a newer version of its callback, or cannot be
                upgraded.
        """
        states, versions = rename_former_keys(self.entries, states, versions)
        upgraded_states, upgrades = dict(states), []
        for entry in self.entries:
            key = entry.callback.state_key
            if not entry.is_stateful or key not in states:
                continue
            # a checkpoint from before there were versions holds none
            saved, current = versions.get(key, 1), entry.state_version
            if saved == current:
                continue
            self._error_policies.note_loaded(entry, states[key], saved)
            with self._error_policies.handling_errors(entry, "upgrade_state_dict"):
                upgraded_states[key] = upgrade_state(entry, states[key], saved)
                upgrades.append(f"{key} from state_version {saved} to {current}")
        return upgraded_states, tuple(upgrades)

    def load_state_dict(self, states: Mapping[str, dict[str, Any]]) -> LoadReport:
        """Load each saved state into the callback with its state_key; report the mismatches."""
        restored, missing = [], []
        for entry in self.entries:
            if not entry.is_stateful:
                continue
            key = entry.callback.state_key
            if key not in states:
                missing.append(key)
                continue
            # also if its load fails: the state has its callback, so it is not unexpected
            restored.append(key)
            # before the load: if that fails, this state goes into the next checkpoint
            self._error_policies.note_loaded(entry, states[key], entry.state_version)
            with self._error_policies.handling_errors(entry, "load_state_dict"):
                entry.callback.load_state_dict(states[key])
        unexpected = sorted(set(states) - set(restored))
        return LoadReport(tuple(restored), tuple(missing), tuple(unexpected))

    def callback_report(self) -> tuple[CallbackReport, ...]:
        """Return the status of each callback: the active ones in order, then the disabled."""
        return self._error_policies.reports(self.entries)

    def plugin_records(self) -> list[dict[str, Any]]:
        """Return the plugins whose callbacks take part, as plain data for the checkpoint."""
        return [
            {
                "distribution": entry.plugin.distribution,
                "version": entry.plugin.version,
                "entry_point": entry.plugin.name,
                "class": type(entry.callback).__qualname__,
                "state_key": entry.callback.state_key,
            }
            for entry in self.entries
            if entry.plugin is not None
        ]

    def _with_module_callbacks(self, brought: Sequence[CallbackEntry]) -> CallbackRegistry:
        """Return the callbacks of a run whose module brings these."""
        types = replaced_types(brought)
        remaining = (entry for entry in self._base if type(entry.callback) not in types)
        return self._with_defaults([*remaining, *brought])

    def _with_defaults(self, entries: Iterable[CallbackEntry]) -> CallbackRegistry:
        live = CallbackRegistry(entries)
        for default in self._defaults:
            if not any(default.is_replaced_by_entry(entry) for entry in live):
                live.add(CallbackEntry(default.callback, "default"))
        return live

    def _displaced_by(self, entry: CallbackEntry) -> list[Callback]:
        """Return the plugins' callbacks and the defaults that a new entry replaces."""
        return [
            *(
                plugin.callback
                for plugin in self._from_plugins
                if plugin.identity == entry.identity
            ),
            *(
                default.callback
                for default in self._defaults
                if default.is_replaced_by_entry(entry)
            ),
        ]

    def _members(self) -> tuple[RelayMember, ...]:
        leader = () if self._leader is None else (self._leader,)
        return (*leader, *relay_members(self.entries, self._module, self._on_failure_of))

    def _on_failure_of(self, entry: CallbackEntry) -> Callable[[str, BaseException], None] | None:
        disables = self._error_policies.policy_of(entry) == "disable"
        return partial(self._disable, entry) if disables else None

    def _change(self) -> None:
        """Let the relay take the changed callbacks at its next firing, not in the current one."""
        self._forget_entries()
        self.relay.connect_later(self._members)

    def _forget_entries(self) -> None:
        # cached_property keeps its value there; `del self.entries` would fail if it was never read
        self.__dict__.pop("entries", None)
        self.__dict__.pop("callbacks", None)

    def _disable(self, entry: CallbackEntry, hook: str, error: BaseException) -> None:
        self.relay.end_forked_copy(error)  # a `sys.exit` in a child that the hook forked
        if entry.callback not in self._live:
            return  # removed already, by another error in the same firing
        report = self._error_policies.note_disabled(entry, hook, error)
        self.remove(entry.callback)
        warn(
            f"{entry.label} failed in hook {hook!r} and takes no further part, as its error policy "
            f"'disable' says; {report.state}.\n{report.traceback}",
            TrainerHooksWarning,
        )


def _sorted(entries: Iterable[CallbackEntry]) -> tuple[CallbackEntry, ...]:
    """Return entries by band; inside a band the defaults come last."""
    return tuple(sorted(entries, key=lambda entry: (entry.band, entry.origin == "default")))
