"""Plugin: one entry point of an installed package; and which of them a run wants."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainer_hooks.hooks.spec import HookSpec

__all__ = [
    "BLOCK",
    "GROUPS",
    "HOOKS_GROUP",
    "LIGHTNING_GROUPS",
    "Plugin",
    "PluginFilter",
    "normal_name",
]

GROUPS = ("trainer_hooks.callbacks_factory", "callbacks_factory")
"""Entry-point groups that are loaded. The first is what the docs teach."""

LIGHTNING_GROUPS = (
    "lightning.pytorch.callbacks_factory",
    "pytorch_lightning.callbacks_factory",
)
"""Groups of installed Lightning plugins: listed, and loaded when asked for by name."""

HOOKS_GROUP = "trainer_hooks.hooks"
"""The group of classes that add hooks to the catalogue."""

BLOCK = "TRAINER_HOOKS_BLOCK_PLUGINS"
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
        status: `"found"`, `"loaded"`, `"replaced"` (all of it by the user's own), `"blocked"`,
            `"failed"`, or `"hidden"` (behind another installation of the distribution).
        reason: why it is replaced, blocked, failed or hidden; of a loaded one, why a callback of
            it does not take part; else an empty string.
        callbacks: what the factory returned.
        hooks: the hooks that it adds, by name.
        seconds: how long it took to import and call.
    """

    distribution: str
    version: str
    name: str
    group: str
    value: str
    status: str = "found"
    reason: str = ""
    callbacks: tuple[Any, ...] = ()
    hooks: Mapping[str, HookSpec] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """Distribution, version and entry point in a few words, for messages."""
        return f"{self.distribution} {self.version} (entry point {self.name!r} = {self.value})"

    def is_called(self, names: frozenset[str]) -> bool:
        """Return whether the distribution or the entry point is among normalized `names`."""
        return not names.isdisjoint({normal_name(self.distribution), normal_name(self.name)})


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
        wanted = names if isinstance(names, bool) else frozenset(map(normal_name, names))
        allowed = environ.get(_ALLOW)
        return cls(
            wanted,
            blocked=_names(environ.get(BLOCK, "")),
            allowed=None if allowed is None else _names(allowed),
            disabled=environ.get(_DISABLE, "").strip().lower() not in {"", "0", "false", "no"},
        )

    @property
    def takes_none(self) -> bool:
        """Whether no plugin can pass, so that nothing needs to be looked up."""
        return self.disabled or not self.wanted

    def objection(self, plugin: Plugin, siblings: Iterable[Plugin] = ()) -> str:
        """Return why `plugin` is not to be loaded, or an empty string.

        Args:
            plugin: the plugin.
            siblings: all plugins. Hooks are wanted where a callback of their distribution is.
        """
        if self.disabled:
            return f"the environment variable {_DISABLE} is set"
        if plugin.is_called(self.blocked):
            return f"blocked by the environment variable {BLOCK}"
        if self.allowed is not None and not plugin.is_called(self.allowed):
            return f"not among those in the environment variable {_ALLOW}"
        if self.wanted is False:
            return "Trainer(plugins=False)"
        if self.wanted is True:
            if plugin.group in LIGHTNING_GROUPS:
                return "a Lightning plugin: name it in Trainer(plugins=[...]) to load it"
            return ""
        beside = [p for p in siblings if p.distribution == plugin.distribution]
        is_wanted = plugin.group == HOOKS_GROUP and any(p.is_called(self.wanted) for p in beside)
        if is_wanted or plugin.is_called(self.wanted):
            return ""
        return "not named in Trainer(plugins=[...])"


def _names(text: str) -> frozenset[str]:
    return frozenset(normal_name(name) for name in text.split(",") if name.strip())


def normal_name(name: str) -> str:
    """Return the form in which two spellings of a distribution's name are the same."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
