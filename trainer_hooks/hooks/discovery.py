"""Load the callbacks and hooks that installed packages supply through entry points.

A plugin registers a factory, a callable without arguments that returns a callback or a list of
them, or a subclass of `Hooks` that adds hooks. Each is loaded on its own: one that is broken stops
no other and is named with what to do.
"""

from __future__ import annotations

import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log, warn
from trainer_hooks.errors import (
    PluginError,
    TerminationSignal,
    TrainerHooksWarning,
    described,
    nearest,
)
from trainer_hooks.hooks.installation import installed
from trainer_hooks.hooks.plugin import BLOCK, GROUPS, HOOKS_GROUP, Plugin, PluginFilter, normal_name
from trainer_hooks.hooks.supply import added_hooks, made_callbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trainer_hooks.hooks.spec import HookSpec

__all__ = [
    "discover",
    "imported",
    "installed_hooks",
    "is_request",
    "load_each",
    "report",
]

_SLOW = 1.0
"""Seconds from which on loading a plugin is worth a warning: every `Trainer(...)` waits for it."""


def discover(
    wanted: PluginFilter,
    is_callback: Callable[[object], bool],
    errors: str = "warn",
) -> tuple[Plugin, ...]:
    """Load the wanted plugins and return a record of every installed one; see `load_each`."""
    return tuple(load_each(wanted, is_callback, errors))


def load_each(
    wanted: PluginFilter,
    is_callback: Callable[[object], bool],
    errors: str = "warn",
) -> Iterator[Plugin]:
    """Load the wanted plugins one by one and yield a record of every installed one.

    Args:
        wanted: which of them to load. Where it takes none, nothing is looked up.
        is_callback: tells whether what a factory returned can be registered.
        errors: `"warn"` to go on without a broken plugin, `"raise"` to stop.

    Raises:
        PluginError: a plugin is broken and `errors` is `"raise"`, or a wanted one is not installed.
    """
    if wanted.takes_none:
        return
    available = installed()
    _require_named(wanted, available)
    added: dict[str, HookSpec] = {}
    for plugin in available:
        objection = wanted.objection(plugin, available)
        if plugin.status == "hidden":
            yield plugin
        elif objection:
            yield replace(plugin, status="blocked", reason=objection)
        else:
            loaded = _load(plugin, is_callback, added, errors)
            added.update(loaded.hooks)
            yield loaded


def installed_hooks() -> dict[str, HookSpec]:
    """Return the hooks that installed packages add, less those that the environment blocks."""
    available = tuple(p for p in installed() if p.group == HOOKS_GROUP and p.status == "found")
    wanted = PluginFilter.of(True)
    added: dict[str, HookSpec] = {}
    for plugin in available:
        if not wanted.objection(plugin):
            added.update(_load(plugin, lambda item: False, added, "warn").hooks)  # noqa: ARG005
    return added


def _load(
    plugin: Plugin,
    is_callback: Callable[[object], bool],
    added: dict[str, HookSpec],
    errors: str,
) -> Plugin:
    """Import and call one plugin; return what became of it."""
    started = time.perf_counter()
    try:
        supplied = imported(plugin)
        if plugin.group == HOOKS_GROUP:
            loaded = replace(plugin, hooks=added_hooks(supplied, plugin, added))
        else:
            loaded = replace(plugin, callbacks=made_callbacks(supplied, plugin, is_callback))
    except BaseException as error:
        if is_request(error):
            raise
        reason = described(error) + _place_of(error)
        report(plugin, f"could not be loaded: {reason}", errors, error)
        seconds = time.perf_counter() - started
        return replace(plugin, status="failed", reason=reason, seconds=seconds)
    seconds = time.perf_counter() - started
    if seconds > _SLOW:
        warn(
            f"plugin {plugin.label} took {seconds:.1f} s to load, and Trainer(...) waits for it. "
            f"Its author can import what is heavy inside the hooks that need it; to do without it, "
            f"set TRAINER_HOOKS_BLOCK_PLUGINS={plugin.distribution} in the environment.",
            TrainerHooksWarning,
        )
    return replace(loaded, status="loaded", seconds=seconds)


def _place_of(error: BaseException) -> str:
    """Return the file and line at which a plugin's code failed; empty where none of it ran."""
    own = str(Path(__file__).parents[1])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((own, "<")) and "importlib" not in frame.filename:
            return f" ({frame.filename}, line {frame.lineno})"
    return ""


def imported(plugin: Plugin) -> Any:
    """Import what a plugin's entry point refers to and return it; raise what that raises."""
    from importlib_metadata import EntryPoint

    return EntryPoint(plugin.name, plugin.value, plugin.group).load()


def is_request(error: BaseException) -> bool:
    """Return whether an error is none of a plugin's: Ctrl-C, and the signal to end.

    All else that comes out of a plugin is its fault, `sys.exit` and errors of its own that derive
    from `BaseException` included.
    """
    return isinstance(error, KeyboardInterrupt | TerminationSignal)


def report(plugin: Plugin, fault: str, errors: str, cause: BaseException | None = None) -> None:
    """Warn of a plugin's fault and of how to switch the plugin off.

    Raises:
        PluginError: `errors` is `"raise"`.
    """
    message = (
        f"plugin {plugin.label}, group {plugin.group!r}, {fault.rstrip('.')}. "
        f"Mend or uninstall {plugin.distribution}, or switch it off: "
        f"TRAINER_HOOKS_BLOCK_PLUGINS={plugin.distribution} in the environment, or "
        "Trainer(plugins=False)."
    )
    if errors == "raise":
        raise PluginError(message) from cause
    log.debug("%s", message, exc_info=cause)
    warn(message, TrainerHooksWarning)


def _require_named(wanted: PluginFilter, available: Sequence[Plugin]) -> None:
    chosen = frozenset() if isinstance(wanted.wanted, bool) else wanted.wanted
    if not chosen and not wanted.blocked:
        return
    known = {normal_name(name) for p in available for name in (p.distribution, p.name)}
    for names, place in ((chosen, "Trainer(plugins=[...])"), (wanted.blocked, BLOCK)):
        for name in sorted(names - known):
            raise PluginError(
                f"plugin {name!r} in {place} is not installed: it must be the name of a "
                f"distribution or of an entry point in one of the groups {', '.join(GROUPS)}."
                f"{nearest(name, known)} Installed: {', '.join(sorted(known)) or 'none'}."
            )
