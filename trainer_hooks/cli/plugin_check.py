"""`trainer-hooks plugins check`: does what installed plugins supply keep the contract?"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.commands import USAGE_ERROR
from trainer_hooks.cli.plugin_survey import prints_diverted, survey
from trainer_hooks.errors import nearest
from trainer_hooks.hooks.discovery import described, imported, is_request
from trainer_hooks.hooks.installation import installed
from trainer_hooks.hooks.plugin import HOOKS_GROUP, Plugin, normal_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trainer_hooks.cli.plugin_survey import Finding
    from trainer_hooks.testing import ContractReport

__all__ = ["check_plugins"]

_DEFECT = 1


@dataclass(frozen=True, slots=True)
class _Checked:
    """What was found of one plugin.

    Attributes:
        plugin: its record.
        outcome: `"passed"`, `"failed"` or `"not checked"`.
        details: what is wrong with it as a plugin, or why it was not checked.
        report: what the test kit found of its callbacks.
    """

    plugin: Plugin
    outcome: str
    details: str = ""
    report: ContractReport | None = None


def check_plugins(names: Sequence[str], *, is_json: bool) -> int:
    """Check the plugins with those names, or all; print what was found; return the exit code."""
    fault = _fault_of_names(names)
    if fault:
        print(f"trainer-hooks plugins check: error: {fault}", file=sys.stderr)
        return USAGE_ERROR
    found: list[_Checked] = []
    for checked in _check_each(names):
        found.append(checked)
        if not is_json:
            _show(checked)
    if is_json:
        print(json.dumps([_record(checked) for checked in found], indent=2))
    else:
        print(_summary(found))
    if any(checked.outcome == "failed" for checked in found):
        return _DEFECT
    # who asks for one by name has not got it checked where the environment switches it off
    is_skipped = names and any(checked.plugin.status == "blocked" for checked in found)
    return USAGE_ERROR if is_skipped else 0


def _fault_of_names(names: Iterable[str]) -> str:
    known = {name: plugin for plugin in installed() for name in _names_of(plugin)}
    for name in names:
        if normal_name(name) not in known:
            return (
                f"plugin {name!r} is not installed: it must be the name of a distribution or of an "
                f"entry point.{nearest(normal_name(name), known)} "
                f"Installed: {', '.join(sorted(known)) or 'none'}."
            )
    return ""


def _names_of(plugin: Plugin) -> tuple[str, str]:
    return normal_name(plugin.distribution), normal_name(plugin.name)


def _check_each(names: Sequence[str]) -> Iterator[_Checked]:
    asked = frozenset(map(normal_name, names))
    for finding in survey(asked or True).findings:
        if not asked or finding.plugin.is_called(asked):
            with prints_diverted():
                checked = _check(finding)
            yield checked


def _check(finding: Finding) -> _Checked:
    plugin = finding.plugin
    if plugin.status in {"blocked", "hidden"}:
        return _Checked(plugin, "not checked", f"{plugin.status}: {plugin.reason}")
    if plugin.status == "failed" or plugin.reason:
        return _Checked(plugin, "failed", plugin.reason)
    if plugin.group == HOOKS_GROUP:
        return _Checked(plugin, "passed", f"it adds {', '.join(plugin.hooks) or 'no hook'}")
    if not plugin.callbacks:
        return _Checked(plugin, "not checked", "its factory made no callback, but an empty list")
    from trainer_hooks.testing import examine_callback

    try:
        report = examine_callback(imported(plugin))
    except BaseException as error:
        if is_request(error):
            raise
        return _Checked(plugin, "failed", f"it ended the examination with {described(error)}")
    return _Checked(plugin, "passed" if report.is_passed else "failed", report=report)


def _show(checked: _Checked) -> None:
    print(f"plugin {checked.plugin.label}: {checked.outcome}")
    for text in (checked.details, str(checked.report or "")):
        if text:
            print(*(f"  {line}".rstrip() for line in text.splitlines()), sep="\n")
    print(flush=True)


def _summary(found: Sequence[_Checked]) -> str:
    if not found:
        return "No plugin is installed, so there is nothing to check."
    outcomes = [checked.outcome for checked in found]
    return ", ".join(f"{outcomes.count(word)} {word}" for word in dict.fromkeys(outcomes))


def _record(checked: _Checked) -> dict[str, Any]:
    plugin = checked.plugin
    results = checked.report.results if checked.report else ()
    return {
        "distribution": plugin.distribution,
        "version": plugin.version,
        "entry_point": plugin.name,
        "group": plugin.group,
        "outcome": checked.outcome,
        "details": checked.details,
        "results": [
            {
                "callback": result.subject,
                "name": result.name,
                "rule": result.rule,
                "outcome": result.outcome,
                "details": result.details,
            }
            for result in results
        ],
    }
