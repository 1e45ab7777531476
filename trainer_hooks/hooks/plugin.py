"""Plugin: the record of an installed plugin; PluginFilter: the plugins that a trainer loads."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainer_hooks.hooks.spec import HookSpec

GROUPS = ("trainer_hooks.callbacks_factory", "callbacks_factory")
"""Entry-point groups of callback factories that are loaded. The docs teach the first."""

LIGHTNING_GROUPS = (
    "lightning.pytorch.callbacks_factory",
    "pytorch_lightning.callbacks_factory",
)
"""Entry-point groups of Lightning plugins: listed, and loaded only when the user names them."""

HOOKS_GROUP = "trainer_hooks.hooks"
"""The entry-point group of classes that add hooks to the catalogue."""

BLOCK = "TRAINER_HOOKS_BLOCK_PLUGINS"
_ALLOW = "TRAINER_HOOKS_ALLOW_PLUGINS"
_DISABLE = "TRAINER_HOOKS_DISABLE_PLUGINS"


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point of one installed distribution, with the result of loading it.

    Attributes:
        distribution: the installed distribution's name.
        version: its version.
        name: the entry point's name.
        group: the entry point's group.
        value: the object reference of the entry point, as `package.module:factory`.
        status: `"found"`, `"loaded"`, `"replaced"` (all of it by the user's own), `"blocked"`,
            `"failed"`, or `"hidden"` (behind another installation of the distribution).
        reason: why the plugin is replaced, blocked, failed or hidden; of a loaded one, why some
            callback of it does not take part; else an empty string.
        callbacks: the callbacks that the factory returned.
        hooks: the hooks that the plugin adds, by name.
        seconds: how long importing and calling it took.
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

    def is_named_in(self, names: frozenset[str]) -> bool:
        """Return whether distribution, entry point or group is among normalized `names`."""
        return not names.isdisjoint(map(normal_name, (self.distribution, self.name, self.group)))


class PluginFilter(NamedTuple):
    """The plugins that a trainer loads: the user's choice, less those that the environment blocks.

    Attributes:
        wanted: True for all, False for none, or names of distributions, entry points or groups.
        blocked: normalized names that the environment blocks.
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
        # a string is iterable: its letters would be taken for names
        names = [plugins] if isinstance(plugins, str) else plugins
        wanted = names if isinstance(names, bool) else frozenset(map(normal_name, names))
        allowed = environ.get(_ALLOW)
        return cls(
            wanted,
            blocked=_names(environ.get(BLOCK, "")),
            allowed=None if allowed is None else _names(allowed),
            # TRAINER_HOOKS_DISABLE_PLUGINS=0 is meant to leave them on
            disabled=environ.get(_DISABLE, "").strip().lower() not in {"", "0", "false", "no"},
        )

    @property
    def takes_none(self) -> bool:
        """Whether no plugin can pass, so that nothing needs to be looked up."""
        return self.disabled or not self.wanted

    def objection(self, plugin: Plugin, siblings: Iterable[Plugin] = ()) -> str:
        """Return the reason why `plugin` must not be loaded, or an empty string.

        Args:
            plugin: the plugin.
            siblings: all plugins. The hooks of a distribution are loaded if a callback of it is.
        """
        # the environment first: an administrator's variables outrank what a script asks for
        if self.disabled:
            return f"the environment variable {_DISABLE} is set"
        if plugin.is_named_in(self.blocked):
            return f"blocked by the environment variable {BLOCK}"
        if self.allowed is not None and not plugin.is_named_in(self.allowed):
            return f"not among those in the environment variable {_ALLOW}"
        if self.wanted is False:
            return "Trainer(plugins=False)"
        if self.wanted is True:
            if plugin.group in LIGHTNING_GROUPS:
                return "a Lightning plugin: name it in Trainer(plugins=[...]) to load it"
            return ""
        # a distribution's callbacks may listen to its hooks, which are then needed as well
        beside = [p for p in siblings if p.distribution == plugin.distribution]
        is_wanted = plugin.group == HOOKS_GROUP and any(p.is_named_in(self.wanted) for p in beside)
        if is_wanted or plugin.is_named_in(self.wanted):
            return ""
        return "not named in Trainer(plugins=[...])"


def _names(text: str) -> frozenset[str]:
    return frozenset(normal_name(name) for name in text.split(",") if name.strip())


def normal_name(name: str) -> str:
    """Return a distribution's name in the one form that all its spellings normalize to."""
    # the rule by which package indexes compare names
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
