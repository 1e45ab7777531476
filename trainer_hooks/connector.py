"""CallbackConnector: which callbacks, in what order, under which `state_key`.

It never sees the Trainer and knows nothing of torch. Every stage is a pure function of
`registration.py`; all are run and checked before anything is committed, so a rejected callback is
never half registered.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.errors import CallbackError, TrainerHooksWarning
from trainer_hooks.hooks.order import in_order
from trainer_hooks.hooks.relay import HookRelay, Member
from trainer_hooks.registration import (
    Default,
    Entry,
    admitted,
    check_state_keys,
    checked,
    collect,
    deduplicate,
    discover_plugins,
    gives_way,
    members_of,
    voice_doubts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainer_hooks.callback import Callback

__all__ = ["CallbackConnector", "Default", "Entry", "LoadReport"]


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
        discover: bool | str | Iterable[str] = True,
        plugin_errors: str = "warn",
    ) -> None:
        user = [Entry(callback, "user") for callback in collect(user_callbacks)]
        self.plugins = discover_plugins(discover, plugin_errors)
        self._defaults = tuple(defaults)
        check_state_keys(user)
        supplied = admitted(self.plugins, user, self._defaults, plugin_errors)
        self._base = (*supplied, *user)
        entries = self._with_defaults(self._base)
        check_state_keys(entries)
        voice_doubts(self._base)
        self._module: Member | None = None
        self.relay = HookRelay()
        self.entries: tuple[Entry, ...] = ()
        self._commit(entries)

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
        entries = self.entries_with(callbacks)
        voice_doubts(entry for entry in entries if entry.origin == "module")
        self._module = member
        self._commit(entries)

    def entries_with(
        self, brought: Callback | Iterable[Callback] | None = None
    ) -> tuple[Entry, ...]:
        """Return who takes part in a run of a module that brings these callbacks, in order."""
        of_module = [Entry(callback, "module") for callback in collect(brought)]
        entries = self._with_defaults(deduplicate(of_module, self._base))
        check_state_keys(entries)
        return entries

    def add(self, callback: Callback) -> None:
        """Register one more callback; a hook that is firing is not disturbed.

        It takes the place of a plugin's callback of the same type and state_key, and of a default
        of its kind.

        Raises:
            CallbackError: it is no callback, or registered already.
            StateKeyError: another stateful callback has its state_key.
        """
        entry = Entry(checked(callback, "callback"), "user")
        if any(known.callback is callback for known in self.entries):
            raise CallbackError(
                f"{entry.label} is registered already: an instance takes part once. Remove it "
                "first, or add another instance."
            )
        live = tuple(
            known
            for known in self.entries
            if known.origin != "default" and not gives_way(known, entry)
        )
        entries = self._with_defaults((*live, entry))
        check_state_keys(entries)
        voice_doubts([entry])
        self._base = (*(known for known in self._base if not gives_way(known, entry)), entry)
        self._commit(entries)

    def remove(self, callback: Callback) -> None:
        """Take a callback out; a hook that is firing is not disturbed.

        No default steps into its place: it was taken out on purpose.

        Raises:
            CallbackError: it is not registered.
        """
        if all(entry.callback is not callback for entry in self.entries):
            raise CallbackError(
                f"{callback!r} is not registered, so it cannot be removed. Registered: "
                f"{', '.join(entry.label for entry in self.entries) or 'none'}."
            )
        if any(entry.callback is callback for entry in self._base):
            self._defaults = tuple(d for d in self._defaults if not isinstance(callback, d.unless))
        self._base = tuple(e for e in self._base if e.callback is not callback)
        self._defaults = tuple(d for d in self._defaults if d.callback is not callback)
        self._commit(tuple(e for e in self.entries if e.callback is not callback))

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

    def _commit(self, entries: tuple[Entry, ...]) -> None:
        self.relay.connect(members_of(entries, self._module, self._disable))
        self.entries = entries

    def _disable(self, entry: Entry, hook: str, error: Exception) -> None:
        if all(known.callback is not entry.callback for known in self.entries):
            return  # taken out already, in this very firing
        self.remove(entry.callback)
        details = "".join(traceback.format_exception(error))
        warn(
            f"{entry.label} failed in hook {hook!r} and takes no further part, as its on_error "
            f"'disable' says:\n{details}",
            TrainerHooksWarning,
        )
