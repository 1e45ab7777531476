"""`trainer-hooks plugins list`: load the plugins as a Trainer does, and list each."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks._text import Branch, show_table, show_tree
from trainer_hooks.cli.commands import print_json
from trainer_hooks.connector.plugin_validation import (
    PluginSelection,
    all_hooks,
    is_callback_or_foreign,
    with_adapters,
)
from trainer_hooks.errors import TrainerHooksWarning, error_summary, is_interruption
from trainer_hooks.hooks.discovery import installed_plugins, iter_plugin_records
from trainer_hooks.hooks.plugin import Plugin, PluginFilter
from trainer_hooks.hooks.spec import overridden

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trainer_hooks.callback import Callback
    from trainer_hooks.hooks.spec import HookSpec


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
    plugin_filter = PluginFilter.of(names)
    if plugin_filter.takes_none:
        # the environment switches all of them off: none is loaded
        unloaded = (
            plugin
            if plugin.status == "hidden"
            else replace(plugin, status="blocked", reason=plugin_filter.objection(plugin))
            for plugin in installed_plugins()
        )
        return PluginSurvey(tuple(map(SurveyedPlugin, unloaded)), all_hooks(()))
    with prints_diverted():
        loaded = tuple(_loaded(plugin_filter))
        hooks = all_hooks(finding.plugin for finding in loaded)
        selection = PluginSelection((), (), hooks, is_strict=False, errors="warn")
        return PluginSurvey(tuple(_admitted(finding, selection) for finding in loaded), hooks)


@contextlib.contextmanager
def prints_diverted() -> Iterator[None]:
    """Redirect the output of plugins, and of programs that they start, to standard error.

    Standard output holds the command's own output, which may be parsed.
    """
    # what waits in the buffer would otherwise go to standard error with the rest
    sys.stdout.flush()
    original = os.dup(1)
    # the descriptor as well as sys.stdout: programs and C code write to it
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(original, 1)
        os.close(original)


def _loaded(plugin_filter: PluginFilter) -> Iterator[SurveyedPlugin]:
    """Load the plugins one by one, and yield each with its warnings."""
    plugins = iter_plugin_records(plugin_filter, is_callback_or_foreign)
    while True:
        # each step of the iterator imports one plugin, so these warnings are its own
        with _recorded() as messages:
            plugin = next(plugins, None)
        if plugin is None:
            return
        yield SurveyedPlugin(with_adapters(plugin), _news(plugin, messages))


def _admitted(finding: SurveyedPlugin, selection: PluginSelection) -> SurveyedPlugin:
    with _recorded() as messages:
        _, plugin = selection.validate(finding.plugin)
    return SurveyedPlugin(plugin, (*finding.warnings, *_news(plugin, messages)))


@contextlib.contextmanager
def _recorded() -> Iterator[list[str]]:
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        # also those that the user's filters ignore, and each time that a line raises one
        warnings.simplefilter("always", TrainerHooksWarning)
        yield messages
    messages.extend(str(warning.message) for warning in caught)


def _news(plugin: Plugin, messages: Iterable[str]) -> tuple[str, ...]:
    """Return the warnings that say more than the plugin's record."""
    told = plugin.reason.rstrip(".")
    return tuple(message for message in messages if not told or told not in message)


def list_plugins(*, is_json: bool) -> int:
    """Print the installed plugins and return the exit code."""
    survey = survey_plugins()
    records = [_record(finding, survey.hooks) for finding in survey.findings]
    if is_json:
        print_json(records)
    elif records:
        _show(records)
    else:
        print("No plugin is installed. To begin one: trainer-hooks plugins new NAME")
    return 0


def _record(finding: SurveyedPlugin, hooks: Mapping[str, HookSpec]) -> dict[str, Any]:
    plugin = finding.plugin
    return {
        "distribution": plugin.distribution,
        "version": plugin.version,
        "entry_point": plugin.name,
        "group": plugin.group,
        "value": plugin.value,
        "status": plugin.status,
        "reason": plugin.reason,
        "seconds": round(plugin.seconds, 6),
        "callbacks": [
            {
                "class": type(callback).__qualname__,
                "state_key": _state_key(callback),
                "is_stateful": ours(callback).is_stateful,
                # `run_event` stands for all hooks
                "listens_to": ["run_event"]
                if ours(callback).routes_events
                else overridden(callback, hooks),
            }
            for callback in plugin.callbacks
        ],
        "adds_hooks": {name: spec.summary for name, spec in plugin.hooks.items()},
        "warnings": list(finding.warnings),
    }


def _state_key(callback: Callback) -> str:
    """Return a callback's state key, or in parentheses the error of computing it."""
    try:
        return callback.state_key
    except BaseException as error:
        # a plugin may raise anything, SystemExit too: only Ctrl-C and a signal end the list
        if is_interruption(error):
            raise
        return f"({error_summary(error)})"


def _show(records: list[dict[str, Any]]) -> None:
    header = ("distribution", "version", "entry point", "status", "ms", "supplies")
    rows = [
        (
            record["distribution"],
            record["version"],
            record["entry_point"],
            record["status"],
            f"{record['seconds'] * 1e3:.0f}" if record["seconds"] else "-",
            ", ".join(
                [*(callback["class"] for callback in record["callbacks"]), *record["adds_hooks"]]
            )
            or "-",
        )
        for record in records
    ]
    show_table(header, rows, right={4})
    print()
    show_tree(Branch("in detail", tuple(_branch(record) for record in records)))


def _branch(record: Mapping[str, Any]) -> Branch:
    """Return the branch of the printed tree that describes one plugin."""
    lines = [_line(f"{record['value']} (group {record['group']})")]
    lines.append(_line(_verdict(record["status"], record["reason"])))
    for callback in record["callbacks"]:
        state = "" if callback["is_stateful"] else ", no state"
        listens = ", ".join(callback["listens_to"]) or "nothing"
        about = f"callback {callback['class']}, state_key {callback['state_key']!r}{state}"
        lines.append(Branch(about, (_line(f"listens to {listens}"),)))
    lines += [_line(f"adds the hook {name}: {doc}") for name, doc in record["adds_hooks"].items()]
    lines += [_line(f"warning: {message}") for message in record["warnings"]]
    name = f"{record['distribution']} {record['version']}, {record['entry_point']}"
    return Branch(name, tuple(lines), is_faint=record["status"] in {"blocked", "hidden"})


def _verdict(status: str, reason: str) -> str:
    if status == "loaded" and reason:
        return f"loaded in part: {reason}"
    return f"{status}: {reason.removeprefix(f'{status} ')}" if reason else status


def _line(text: str) -> Branch:
    return Branch(" ".join(text.split()))  # a message of a plugin may have lines of its own
