"""PluginSelection: decides which callbacks of installed plugins take part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainer_hooks.callback import Callback
from trainer_hooks.connector.registry import (
    CallbackEntry,
    CallbackRegistry,
    adapt_if_foreign,
    check_hooks,
    validate_callback,
)
from trainer_hooks.errors import CallbackError, StateKeyError, error_summary, is_interruption
from trainer_hooks.hooks.discovery import load_plugins, report_plugin_error
from trainer_hooks.hooks.plugin import PluginFilter
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainer_hooks.connector.registry import DefaultCallback
    from trainer_hooks.hooks.plugin import Plugin
    from trainer_hooks.hooks.spec import HookSpec


def load_adapted_plugins(wanted: bool | str | Iterable[str], errors: str) -> tuple[Plugin, ...]:
    """Load the wanted plugins and adapt their foreign callbacks.

    `hooks.discovery.iter_plugin_records` does the loading.

    Args:
        wanted: the plugins to load: True for all, False for none, or their names.
        errors: `"warn"` to go on without a broken plugin, `"raise"` to stop.
    """
    plugins = load_plugins(PluginFilter.of(wanted), is_callback_or_foreign, errors)
    return tuple(with_adapters(plugin) for plugin in plugins)


def is_callback_or_foreign(item: object) -> bool:
    """Return whether an object is a callback, or a foreign callback that an adapter takes."""
    return isinstance(adapt_if_foreign(item), Callback)


def with_adapters(plugin: Plugin) -> Plugin:
    """Return a plugin's record with its foreign callbacks replaced by their adapters."""
    return replace(plugin, callbacks=tuple(adapt_if_foreign(item) for item in plugin.callbacks))


def all_hooks(plugins: Iterable[Plugin]) -> Mapping[str, HookSpec]:
    """Return the hooks of trainer_hooks, then those that plugins add, by name."""
    added = {name: spec for plugin in plugins for name, spec in plugin.hooks.items()}
    return {**HOOKS, **added} if added else HOOKS


class PluginSelection:
    """Select the plugins' callbacks that take part, each beside the user's and those before it.

    Args:
        user: the user's callbacks; one replaces a plugin's of the same type and state_key.
        defaults: the default callbacks; a plugin's callback of the same type replaces one.
        hooks: all known hooks by name.
        is_strict: whether a misspelt hook is an error.
        errors: `"warn"` to go on without a broken callback, `"raise"` to stop.
    """

    def __init__(
        self,
        user: Sequence[CallbackEntry],
        defaults: Sequence[DefaultCallback],
        hooks: Mapping[str, HookSpec],
        *,
        is_strict: bool,
        errors: str,
    ) -> None:
        self._users = {entry.identity for entry in user}
        self._defaults = [d for d in defaults if not any(d.is_replaced_by_entry(e) for e in user)]
        self._hooks = hooks
        self._is_strict = is_strict
        self._errors = errors
        # with the defaults, so that a plugin cannot take the state_key of one that stays
        self._roster = CallbackRegistry(
            [*user, *(CallbackEntry(d.callback, "default") for d in self._defaults)]
        )

    def validate(self, plugin: Plugin) -> tuple[list[CallbackEntry], Plugin]:
        """Return an entry for each callback of a plugin that takes part, and the plugin's record.

        The entries are kept: the callbacks of later plugins are compared with them.

        Raises:
            PluginError: a callback is broken and `errors` is `"raise"`.
        """
        entries: list[CallbackEntry] = []
        objections: list[tuple[str, str]] = []
        for callback in plugin.callbacks:
            entry = CallbackEntry(callback, "plugin", plugin)
            try:
                is_replaced = self._is_replaced(entry)
                # an instance that two entry points return takes part once
                if not is_replaced and callback not in self._roster:
                    self._add(entry)
                    entries.append(entry)
            # also sys.exit() in a property of its class: a plugin must not end the program
            except BaseException as error:
                if is_interruption(error):
                    raise
                objections.append(("failed", self._report(plugin, error)))
            else:
                if is_replaced:
                    kind = type(callback).__qualname__
                    objections.append(("replaced", f"by the user's own {kind}"))
        if objections and not entries:
            # min: "failed", which is more important to know, sorts before "replaced"
            status, reason = min(objections)
            plugin = replace(plugin, status=status, reason=reason)
        elif objections and min(objections)[0] == "failed":  # some callbacks; the others take part
            plugin = replace(plugin, reason=min(objections)[1])
        return entries, plugin

    def _is_replaced(self, entry: CallbackEntry) -> bool:
        """Return whether a callback of the user replaces that of `entry`.

        Raises:
            CallbackError: the callback of `entry` cannot be registered.
        """
        validate_callback(
            entry.callback, f"what {entry.plugin.value if entry.plugin else entry.origin} made"
        )
        return entry.identity in self._users

    def _add(self, entry: CallbackEntry) -> None:
        check_hooks([entry], self._hooks, is_strict=self._is_strict)
        unneeded = [d for d in self._defaults if d.is_replaced_by_entry(entry)]
        # before `add`: the callback may have the state_key of the default that it replaces
        for default in unneeded:
            self._roster.discard(default.callback)
        self._roster.add(entry)

    def _report(self, plugin: Plugin, error: BaseException) -> str:
        errors = self._errors
        if isinstance(error, StateKeyError):
            fault = f"clashes with another callback: {error}"
        else:
            fault = f"supplied what cannot be registered: {error_summary(error)}"
            if self._is_strict and isinstance(error, CallbackError):
                errors = "raise"  # its hooks are wrong, and Trainer(strict_hooks=True) forbids that
        report_plugin_error(plugin, fault, errors, error)
        return fault
