"""Load the installed plugins as a Trainer does, and record the warnings of each."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainer_hooks.connector.plugin_validation import (
    PluginSelection,
    all_hooks,
    is_callback_or_foreign,
    with_adapters,
)
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.hooks.discovery import installed_plugins, iter_plugin_records
from trainer_hooks.hooks.plugin import Plugin, PluginFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trainer_hooks.hooks.spec import HookSpec

__all__ = ["PluginSurvey", "SurveyedPlugin", "prints_diverted", "survey_plugins"]


@dataclass(frozen=True, slots=True)
class SurveyedPlugin:
    """One plugin with the warnings that it raised while it was loaded.

    Attributes:
        plugin: its record, with its status.
        warnings: the messages, without the one that only repeats why it failed.
    """

    plugin: Plugin
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginSurvey:
    """The installed plugins and the hooks that they add.

    Attributes:
        findings: the installed plugins.
        hooks: every hook, those of plugins last.
    """

    findings: tuple[SurveyedPlugin, ...]
    hooks: Mapping[str, HookSpec]


def survey_plugins(names: bool | Iterable[str] = True) -> PluginSurvey:
    """Load plugins and validate their callbacks as a Trainer would.

    Args:
        names: as in `Trainer(plugins=...)`.
    """
    wanted = PluginFilter.of(names)
    if wanted.takes_none:
        return PluginSurvey(tuple(_switched_off(wanted)), all_hooks(()))
    with prints_diverted():
        loaded = tuple(_loaded(wanted))
        hooks = all_hooks(finding.plugin for finding in loaded)
        gate = PluginSelection((), (), hooks, is_strict=False, errors="warn")
        return PluginSurvey(tuple(_admitted(finding, gate) for finding in loaded), hooks)


@contextlib.contextmanager
def prints_diverted() -> Iterator[None]:
    """Redirect the output of plugins, and of programs that they start, to standard error.

    Standard output holds the command's own output, which may be parsed.
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


def _loaded(wanted: PluginFilter) -> Iterator[SurveyedPlugin]:
    """Load the plugins one by one, and yield each with its warnings."""
    plugins = iter_plugin_records(wanted, is_callback_or_foreign)
    while True:
        with _recorded() as messages:
            plugin = next(plugins, None)
        if plugin is None:
            return
        yield SurveyedPlugin(with_adapters(plugin), _news(plugin, messages))


def _admitted(finding: SurveyedPlugin, gate: PluginSelection) -> SurveyedPlugin:
    with _recorded() as messages:
        _, plugin = gate.validate(finding.plugin)
    return SurveyedPlugin(plugin, (*finding.warnings, *_news(plugin, messages)))


@contextlib.contextmanager
def _recorded() -> Iterator[list[str]]:
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrainerHooksWarning)
        yield messages
    messages.extend(str(warning.message) for warning in caught)


def _news(plugin: Plugin, messages: Iterable[str]) -> tuple[str, ...]:
    """Return the warnings that say more than the plugin's record."""
    told = plugin.reason.rstrip(".")
    return tuple(message for message in messages if not told or told not in message)


def _switched_off(wanted: PluginFilter) -> Iterator[SurveyedPlugin]:
    """Yield the plugins unloaded, where the environment switches all of them off."""
    for plugin in installed_plugins():
        if plugin.status == "hidden":
            yield SurveyedPlugin(plugin)
        else:
            yield SurveyedPlugin(replace(plugin, status="blocked", reason=wanted.objection(plugin)))
