"""Find the callbacks that installed packages supply through entry points.

A plugin registers a factory, a callable without arguments that returns a callback or a list of
them. Each is loaded on its own: one that is broken stops no other and is named with what to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log, warn
from trainer_hooks.errors import PluginError, TrainerHooksWarning, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from importlib_metadata import EntryPoint

__all__ = [
    "GROUPS",
    "LIGHTNING_GROUPS",
    "Plugin",
    "PluginFilter",
    "discover",
    "installed",
    "report",
]

GROUPS = ("trainer_hooks.callbacks_factory", "callbacks_factory")
"""Entry-point groups that are loaded. The first is what the docs teach."""

LIGHTNING_GROUPS = (
    "lightning.pytorch.callbacks_factory",
    "pytorch_lightning.callbacks_factory",
)
"""Groups of installed Lightning plugins: listed, and loaded when asked for by name."""

_BLOCK = "TRAINER_HOOKS_BLOCK_PLUGINS"
_ALLOW = "TRAINER_HOOKS_ALLOW_PLUGINS"
_DISABLE = "TRAINER_HOOKS_DISABLE_PLUGINS"


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point of one installed distribution, and what became of it.

    Attributes:
        distribution: the installed distribution's name.
        version: its version.
        name: the entry point's name.
        group: the entry point's group.
        value: what the entry point refers to, as `package.module:factory`.
        status: `"found"`, `"loaded"`, `"blocked"` or `"failed"`.
        reason: why it was blocked or failed, else an empty string.
        callbacks: what the factory returned.
    """

    distribution: str
    version: str
    name: str
    group: str
    value: str
    status: str = "found"
    reason: str = ""
    callbacks: tuple[Any, ...] = ()

    @property
    def label(self) -> str:
        """Distribution, version and entry point in a few words, for messages."""
        return f"{self.distribution} {self.version} (entry point {self.name!r} = {self.value})"

    def is_called(self, names: frozenset[str]) -> bool:
        """Return whether the distribution or the entry point is among normalized `names`."""
        return not names.isdisjoint({_normal(self.distribution), _normal(self.name)})


@dataclass(frozen=True, slots=True)
class PluginFilter:
    """Which plugins a run wants: what the user chose, less what the environment takes away.

    Attributes:
        wanted: True for all, False for none, or the names of distributions or entry points.
        blocked: names that the environment blocks.
        allowed: if not None, the only names that the environment lets through.
        disabled: whether the environment switches all plugins off.
    """

    wanted: bool | frozenset[str]
    blocked: frozenset[str] = frozenset()
    allowed: frozenset[str] | None = None
    disabled: bool = False

    @classmethod
    def of(
        cls, plugins: bool | str | Iterable[str], environ: Mapping[str, str] = os.environ
    ) -> PluginFilter:
        """Combine a `Trainer(plugins=...)` value with the environment; a string is one name."""
        names = [plugins] if isinstance(plugins, str) else plugins
        wanted = names if isinstance(names, bool) else frozenset(map(_normal, names))
        allowed = environ.get(_ALLOW)
        return cls(
            wanted,
            blocked=_names(environ.get(_BLOCK, "")),
            allowed=None if allowed is None else _names(allowed),
            disabled=environ.get(_DISABLE, "").strip().lower() not in {"", "0", "false", "no"},
        )

    @property
    def takes_none(self) -> bool:
        """Whether no plugin can pass, so that nothing needs to be looked up."""
        return self.disabled or not self.wanted

    def objection(self, plugin: Plugin) -> str:
        """Return why `plugin` is not to be loaded, or an empty string."""
        if self.disabled:
            return f"the environment variable {_DISABLE} is set"
        if plugin.is_called(self.blocked):
            return f"blocked by the environment variable {_BLOCK}"
        if self.allowed is not None and not plugin.is_called(self.allowed):
            return f"not among those in the environment variable {_ALLOW}"
        if self.wanted is False:
            return "Trainer(plugins=False)"
        if self.wanted is True:
            if plugin.group in LIGHTNING_GROUPS:
                return "a Lightning plugin: name it in Trainer(plugins=[...]) to load it"
            return ""
        return "" if plugin.is_called(self.wanted) else "not named in Trainer(plugins=[...])"


def installed() -> tuple[Plugin, ...]:
    """Return every registered plugin, sorted by distribution and name; nothing is imported.

    A factory that one distribution registers in several groups is listed once, under the first.
    """
    from importlib_metadata import entry_points

    found: dict[tuple[str, str], Plugin] = {}
    for group in (*GROUPS, *LIGHTNING_GROUPS):
        for entry in entry_points(group=group):
            distribution, version = _source(entry)
            plugin = Plugin(distribution, version, entry.name, group, entry.value)
            found.setdefault((_normal(distribution), entry.value), plugin)
    return tuple(sorted(found.values(), key=lambda p: (_normal(p.distribution), p.name, p.value)))


def _source(entry: EntryPoint) -> tuple[str, str]:
    """Return the name and version of the distribution that registered `entry`.

    An uninstall that was cut short leaves entry points without metadata: then the package that the
    entry point refers to lends its name.
    """
    package = entry.value.partition(":")[0].partition(".")[0].strip()
    if entry.dist is None:
        return package, "?"
    try:
        return entry.dist.name or package, entry.dist.version or "?"
    except (FileNotFoundError, KeyError):
        return package, "?"


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
    records = []
    available = installed()
    _require_named(wanted, available)
    for plugin in available:
        objection = wanted.objection(plugin)
        if objection:
            records.append(replace(plugin, status="blocked", reason=objection))
            continue
        try:
            callbacks = _call_factory(plugin, is_callback)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it may fail in any way: reported
            reason = f"{type(error).__name__}: {error}"
            report(plugin, f"could not be loaded: {reason}", errors, error)
            records.append(replace(plugin, status="failed", reason=reason))
        else:
            records.append(replace(plugin, status="loaded", callbacks=callbacks))
    return tuple(records)


def _call_factory(plugin: Plugin, is_callback: Callable[[object], bool]) -> tuple[Any, ...]:
    from importlib_metadata import EntryPoint

    factory = EntryPoint(plugin.name, plugin.value, plugin.group).load()
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
        f"{_BLOCK}={plugin.distribution} in the environment, or Trainer(plugins=False)."
    )
    if errors == "raise":
        raise PluginError(message) from cause
    log.debug("%s", message, exc_info=cause)
    warn(message, TrainerHooksWarning)


def _require_named(wanted: PluginFilter, available: Sequence[Plugin]) -> None:
    if isinstance(wanted.wanted, bool):
        return
    known = {_normal(name) for p in available for name in (p.distribution, p.name)}
    for name in sorted(wanted.wanted - known):
        raise PluginError(
            f"plugin {name!r} in Trainer(plugins=[...]) is not installed: it must be the name of a "
            f"distribution or of an entry point in one of the groups {', '.join(GROUPS)}."
            f"{nearest(name, known)} Installed: {', '.join(sorted(known)) or 'none'}."
        )


def _names(text: str) -> frozenset[str]:
    return frozenset(_normal(name) for name in text.split(",") if name.strip())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
