"""Find the callbacks and hooks that installed packages supply through entry points.

A plugin registers a factory, a callable without arguments that returns a callback or a list of
them, or a subclass of `Hooks` that adds hooks. Each is loaded on its own: one that is broken stops
no other and is named with what to do.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log, warn
from trainer_hooks.errors import PluginError, TrainerHooksWarning, nearest
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.plugin import (
    GROUPS,
    HOOKS_GROUP,
    LIGHTNING_GROUPS,
    Plugin,
    PluginFilter,
    normal_name,
)
from trainer_hooks.hooks.spec import ALIASES, HOOKS, HookSpec, specs_of

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["discover", "installed", "installed_hooks", "report"]

_SLOW = 1.0
"""Seconds from which on loading a plugin is worth a warning: every `Trainer(...)` waits for it."""

_READ = (*GROUPS, *LIGHTNING_GROUPS, HOOKS_GROUP)


def installed() -> tuple[Plugin, ...]:
    """Return every registered plugin, sorted by distribution and name; nothing is imported.

    A factory that one distribution registers in several groups is listed once, under the first. Of
    a distribution that is installed twice, what comes later on `sys.path` is listed as hidden.
    """
    from importlib_metadata import distributions

    found: dict[tuple[str, str], Plugin] = {}
    hidden: list[Plugin] = []
    owners: dict[str, str] = {}
    for distribution in distributions():
        # most have nothing to do with us; reading this one file of theirs is all that is done then
        text = distribution.read_text("entry_points.txt") or ""
        if not any(group in text for group in _READ):
            continue
        place = str(distribution.locate_file(""))
        for plugin in _registered(distribution):
            owner = owners.setdefault(normal_name(plugin.distribution), place)
            if owner == place:
                found.setdefault((normal_name(plugin.distribution), plugin.value), plugin)
                continue
            reason = f"{plugin.distribution} in {owner} comes before the one in {place}"
            hidden.append(replace(plugin, status="hidden", reason=reason))
    by_name = sorted(found.values(), key=lambda p: (normal_name(p.distribution), p.name, p.value))
    return (*by_name, *hidden)


def _registered(distribution: Any) -> Iterator[Plugin]:
    """Yield the plugins of one distribution, group by group.

    An uninstall that was cut short leaves entry points without metadata: then the package that the
    entry point refers to lends its name.
    """
    entries = distribution.entry_points
    try:
        name, version = distribution.name, distribution.version
    except (FileNotFoundError, KeyError):
        name, version = None, None
    for group in _READ:
        for entry in entries.select(group=group):
            package = entry.value.partition(":")[0].partition(".")[0].strip()
            yield Plugin(name or package, version or "?", entry.name, group, entry.value)


def discover(
    wanted: PluginFilter,
    is_callback: Callable[[object], bool],
    errors: str = "warn",
) -> tuple[Plugin, ...]:
    """Load the wanted plugins and return a record of every installed one.

    Args:
        wanted: which of them to load. Where it takes none, nothing is looked up.
        is_callback: tells whether what a factory returned can be registered.
        errors: `"warn"` to go on without a broken plugin, `"raise"` to stop.

    Raises:
        PluginError: a plugin is broken and `errors` is `"raise"`, or a wanted one is not installed.
    """
    if wanted.takes_none:
        return ()
    records: list[Plugin] = []
    available = installed()
    _require_named(wanted, available)
    added: dict[str, HookSpec] = {}
    for plugin in available:
        objection = wanted.objection(plugin, available)
        if plugin.status == "hidden":
            records.append(plugin)
        elif objection:
            records.append(replace(plugin, status="blocked", reason=objection))
        else:
            records.append(_load(plugin, is_callback, added, errors))
            added.update(records[-1].hooks)
    return tuple(records)


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
        supplied = _imported(plugin)
        if plugin.group == HOOKS_GROUP:
            loaded = replace(plugin, hooks=_added_hooks(supplied, plugin, added))
        else:
            loaded = replace(plugin, callbacks=_made(supplied, plugin, is_callback))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it may fail in any way: reported
        reason = f"{type(error).__name__}: {error}"
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


def _imported(plugin: Plugin) -> Any:
    from importlib_metadata import EntryPoint

    return EntryPoint(plugin.name, plugin.value, plugin.group).load()


def _made(factory: Any, plugin: Plugin, is_callback: Callable[[object], bool]) -> tuple[Any, ...]:
    """Return the callbacks that a factory makes."""
    if not callable(factory):
        raise TypeError(f"{plugin.value} is a {type(factory).__name__}, not a callable factory")
    made = factory()
    if is_callback(made):
        return (made,)
    if not isinstance(made, Sequence) or isinstance(made, str | bytes):
        raise TypeError(
            f"the factory returned {made!r}{_hint(made)}: it must return a callback or a list of "
            "callbacks"
        )
    for item in made:
        if not is_callback(item):
            raise TypeError(f"the factory's list holds {item!r}{_hint(item)}, which is no callback")
    return tuple(made)


def _added_hooks(catalogue: Any, plugin: Plugin, added: dict[str, HookSpec]) -> dict[str, HookSpec]:
    """Return the hooks that a class adds to those that there are already."""
    if not (isinstance(catalogue, type) and issubclass(catalogue, Hooks)) or catalogue is Hooks:
        raise TypeError(
            f"{plugin.value} is {catalogue!r}: it must be a subclass of trainer_hooks.Hooks, with "
            "an empty method for each hook that it adds"
        )
    specs = specs_of(catalogue, f"{plugin.distribution} {plugin.version}")
    for spec in specs.values():
        fault = _fault_of_hook(spec, added)
        if fault:
            raise TypeError(f"the hook {spec.name!r} {fault}")
    return specs


def _fault_of_hook(spec: HookSpec, added: dict[str, HookSpec]) -> str:
    if spec.name in HOOKS or spec.name in ALIASES:
        return "is one of trainer_hooks itself: give it another name"
    if spec.name in added:
        return f"is one of {added[spec.name].supplier} already: give it another name"
    if not spec.name.startswith("on_"):
        return "has a name that does not start with 'on_': rename it, or begin it with '_'"
    if spec.arguments[:2] != ("trainer", "module"):
        return "does not begin with the arguments (self, trainer, module, ...): add them"
    if not spec.summary:
        return "has no docstring: say in one sentence when it is called"
    assert spec.declared is not None
    kinds = {p.kind for p in inspect.signature(spec.declared).parameters.values()}
    if not kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        return "has arguments that cannot be given positionally: hooks are called so"
    return ""


def _hint(made: object) -> str:
    if made is None:
        return " (is a `return` missing?)"
    if isinstance(made, type):
        return " (a class: return an instance)"
    if isinstance(made, Iterator):
        return " (it can be read only once: return a list)"
    return ""


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
    if isinstance(wanted.wanted, bool):
        return
    known = {normal_name(name) for p in available for name in (p.distribution, p.name)}
    for name in sorted(wanted.wanted - known):
        raise PluginError(
            f"plugin {name!r} in Trainer(plugins=[...]) is not installed: it must be the name of a "
            f"distribution or of an entry point in one of the groups {', '.join(GROUPS)}."
            f"{nearest(name, known)} Installed: {', '.join(sorted(known)) or 'none'}."
        )
