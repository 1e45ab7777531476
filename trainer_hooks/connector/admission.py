"""Admission: the callbacks of installed packages that take part in a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainer_hooks import hooks
from trainer_hooks.callback import Callback
from trainer_hooks.connector.registration import adopted, check_hooks, checked
from trainer_hooks.connector.roster import Entry, Roster
from trainer_hooks.errors import CallbackError, StateKeyError, described
from trainer_hooks.hooks import HOOKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainer_hooks.connector.roster import Default
    from trainer_hooks.hooks import HookSpec, Plugin

__all__ = ["Admission", "adopting", "all_hooks", "can_take_part", "discover_plugins"]


def discover_plugins(wanted: bool | str | Iterable[str], errors: str) -> tuple[Plugin, ...]:
    """Load the wanted plugins; see `trainer_hooks.hooks.discovery.discover`."""
    found = hooks.discover(hooks.PluginFilter.of(wanted), can_take_part, errors)
    return tuple(adopting(plugin) for plugin in found)


def can_take_part(item: object) -> bool:
    """Return whether what a plugin made is a callback, or one of another framework."""
    return isinstance(adopted(item), Callback)


def adopting(plugin: Plugin) -> Plugin:
    """Return the record of a plugin with the adapters of foreign callbacks in their places."""
    return replace(plugin, callbacks=tuple(adopted(item) for item in plugin.callbacks))


def all_hooks(plugins: Iterable[Plugin]) -> Mapping[str, HookSpec]:
    """Return the hooks of trainer_hooks and then those that plugins add."""
    added = {name: spec for plugin in plugins for name, spec in plugin.hooks.items()}
    return {**HOOKS, **added} if added else HOOKS


class Admission:
    """The gate: a plugin's callback takes part if it can be registered beside the others.

    Args:
        user: the user's callbacks; one of the same type and state_key takes a plugin's place.
        defaults: callbacks that step back for one of their kind.
        known: the hooks that there are.
        is_strict: whether a misspelt hook is an error.
        errors: `"warn"` to go on without a broken callback, `"raise"` to stop.
    """

    def __init__(
        self,
        user: Sequence[Entry],
        defaults: Sequence[Default],
        known: Mapping[str, HookSpec],
        *,
        is_strict: bool,
        errors: str,
    ) -> None:
        self._users = {entry.identity for entry in user}
        self._defaults = [d for d in defaults if not any(d.is_unneeded_beside(e) for e in user)]
        self._hooks = known
        self._is_strict = is_strict
        self._errors = errors
        self._roster = Roster([*user, *(Entry(d.callback, "default") for d in self._defaults)])

    def admit(self, plugin: Plugin) -> tuple[list[Entry], Plugin]:
        """Return an entry for each callback of a plugin that takes part, and its record.

        Raises:
            PluginError: a callback is broken and `errors` is `"raise"`.
        """
        entries: list[Entry] = []
        objections: list[tuple[str, str]] = []
        for callback in plugin.callbacks:
            entry = Entry(callback, "plugin", plugin)
            try:
                is_replaced = self._is_replaced(entry)
                if not is_replaced and callback not in self._roster:
                    self._add(entry)
                    entries.append(entry)
            except BaseException as error:
                if hooks.is_request(error):
                    raise
                objections.append(("failed", self._report(plugin, error)))
            else:
                if is_replaced:
                    kind = type(callback).__qualname__
                    objections.append(("replaced", f"by the user's own {kind}"))
        if objections and not entries:
            status, reason = min(objections)  # "failed" says more than "replaced"
            plugin = replace(plugin, status=status, reason=reason)
        elif objections and min(objections)[0] == "failed":  # a part of it; the rest takes part
            plugin = replace(plugin, reason=min(objections)[1])
        return entries, plugin

    def _is_replaced(self, entry: Entry) -> bool:
        checked(entry.callback, f"what {entry.plugin.value if entry.plugin else entry.origin} made")
        return entry.identity in self._users

    def _add(self, entry: Entry) -> None:
        check_hooks([entry], self._hooks, is_strict=self._is_strict)
        unneeded = [d for d in self._defaults if d.is_unneeded_beside(entry)]
        for default in unneeded:
            self._roster.discard(default.callback)
        self._roster.add(entry)

    def _report(self, plugin: Plugin, error: BaseException) -> str:
        errors = self._errors
        if isinstance(error, StateKeyError):
            fault = f"clashes with another callback: {error}"
        else:
            fault = f"supplied what cannot be registered: {described(error)}"
            if self._is_strict and isinstance(error, CallbackError):
                errors = "raise"  # about its hooks, and those are to be right
        hooks.report(plugin, fault, errors, error)
        return fault
