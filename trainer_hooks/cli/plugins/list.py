"""`trainer-hooks plugins list`: print the installed plugins and their status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainer_hooks._text import Branch, show_table, show_tree
from trainer_hooks.cli.plugins.survey import PluginSurvey, survey_plugins
from trainer_hooks.errors import error_summary
from trainer_hooks.hooks.discovery import is_interruption
from trainer_hooks.hooks.spec import ALIASES, overrides

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainer_hooks.callback import Callback
    from trainer_hooks.cli.plugins.survey import SurveyedPlugin
    from trainer_hooks.hooks.spec import HookSpec

__all__ = ["list_plugins"]


def list_plugins(*, is_json: bool) -> int:
    """Print the installed plugins and return the exit code."""
    records = _records(survey_plugins())
    if is_json:
        print(json.dumps(records, indent=2))
    elif records:
        _show(records)
    else:
        print("No plugin is installed. To begin one: trainer-hooks plugins new NAME")
    return 0


def _records(survey: PluginSurvey) -> list[dict[str, Any]]:
    """Return plain data about each plugin."""
    return [_record(finding, survey.hooks) for finding in survey.findings]


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
                "is_stateful": callback.is_stateful,
                "listens_to": _listened(callback, hooks),
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
        if is_interruption(error):
            raise
        return f"({error_summary(error)})"


def _listened(callback: Callback, hooks: Mapping[str, HookSpec]) -> list[str]:
    """Return the hooks that a callback overrides; `run_event` stands for all of them."""
    if callback.routes_events:
        return ["run_event"]
    return [name for name in (*hooks, *ALIASES) if overrides(callback, name, hooks)]


def _show(records: list[dict[str, Any]]) -> None:
    header = ("distribution", "version", "entry point", "status", "ms", "supplies")
    rows = [
        (
            record["distribution"],
            record["version"],
            record["entry_point"],
            record["status"],
            f"{record['seconds'] * 1e3:.0f}" if record["seconds"] else "-",
            ", ".join(_supplied(record)) or "-",
        )
        for record in records
    ]
    show_table(header, rows, right={4})
    print()
    show_tree(Branch("in detail", tuple(_branch(record) for record in records)))


def _supplied(record: Mapping[str, Any]) -> Iterable[str]:
    return [*(callback["class"] for callback in record["callbacks"]), *record["adds_hooks"]]


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
