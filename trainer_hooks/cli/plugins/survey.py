"""Load the installed plugins as a Trainer does, and keep what each of them says meanwhile."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainer_hooks.connector import Admission, adopting, all_hooks, can_take_part
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.hooks import Plugin, PluginFilter, installed, load_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trainer_hooks.hooks import HookSpec

__all__ = ["Finding", "Survey", "prints_diverted", "survey"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One plugin, and what was warned of while it was loaded.

    Attributes:
        plugin: its record, with what became of it.
        warnings: the messages, less the one that only repeats why it failed.
    """

    plugin: Plugin
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found.

    Attributes:
        findings: the installed plugins.
        hooks: every hook that there is, those of plugins last.
    """

    findings: tuple[Finding, ...]
    hooks: Mapping[str, HookSpec]


def survey(names: bool | Iterable[str] = True) -> Survey:
    """Load plugins, and let those of their callbacks in that a Trainer would.

    Args:
        names: as in `Trainer(plugins=...)`.
    """
    wanted = PluginFilter.of(names)
    if wanted.takes_none:
        return Survey(tuple(_switched_off(wanted)), all_hooks(()))
    with prints_diverted():
        loaded = tuple(_loaded(wanted))
        hooks = all_hooks(finding.plugin for finding in loaded)
        gate = Admission((), (), hooks, is_strict=False, errors="warn")
        return Survey(tuple(_admitted(finding, gate) for finding in loaded), hooks)


@contextlib.contextmanager
def prints_diverted() -> Iterator[None]:
    """Send what plugins, and the programs that they start, print to standard error.

    Standard output belongs to what the command has to say: somebody may parse it.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _loaded(wanted: PluginFilter) -> Iterator[Finding]:
    """Yield the plugins one by one, each with what was warned of meanwhile."""
    plugins = load_each(wanted, can_take_part)
    while True:
        with _recorded() as messages:
            plugin = next(plugins, None)
        if plugin is None:
            return
        yield Finding(adopting(plugin), _news(plugin, messages))


def _admitted(finding: Finding, gate: Admission) -> Finding:
    with _recorded() as messages:
        _, plugin = gate.admit(finding.plugin)
    return Finding(plugin, (*finding.warnings, *_news(plugin, messages)))


@contextlib.contextmanager
def _recorded() -> Iterator[list[str]]:
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrainerHooksWarning)
        yield messages
    messages.extend(str(warning.message) for warning in caught)


def _news(plugin: Plugin, messages: Iterable[str]) -> tuple[str, ...]:
    """Return the messages that say more than the plugin's record does."""
    told = plugin.reason.rstrip(".")
    return tuple(message for message in messages if not told or told not in message)


def _switched_off(wanted: PluginFilter) -> Iterator[Finding]:
    """Yield the plugins where the environment switches all of them off, so that none is loaded."""
    for plugin in installed():
        if plugin.status == "hidden":
            yield Finding(plugin)
        else:
            yield Finding(replace(plugin, status="blocked", reason=wanted.objection(plugin)))
