"""`trainer-hooks plugins check`: does what installed plugins supply keep the contract?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.commands import USAGE_ERROR, failed
from trainer_hooks.cli.plugins.survey import prints_diverted, survey
from trainer_hooks.errors import OptionError, described, nearest
from trainer_hooks.hooks import (
    HOOKS_GROUP,
    Plugin,
    imported,
    installed,
    is_request,
    normal_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from trainer_hooks.cli.plugins.survey import Finding
    from trainer_hooks.testing import ContractReport

    _Examine = Callable[[Any, Mapping[str, Any]], ContractReport]

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


def check_plugins(
    names: Sequence[str],
    *,
    may_differ: Sequence[str] = (),
    skip: Sequence[str] = (),
    everywhere: bool = False,
    is_json: bool = False,
) -> int:
    """Check plugins, print what was found, and return the exit code.

    Args:
        names: their names, or none for all.
        may_differ: an option of the test kit.
        skip: another.
        everywhere: another.
        is_json: whether to print JSON.
    """

    def examine(factory: Any, options: Mapping[str, Any]) -> ContractReport:
        from trainer_hooks.testing import examine_callback  # imports torch

        return examine_callback(
            factory,
            trainer_options=options,
            may_differ=may_differ,
            skip=skip,
            everywhere=everywhere,
        )

    fault = _fault_of_names(names)
    if fault:
        return failed("plugins check", fault)
    found: list[_Checked] = []
    try:
        for checked in _check_each(names, examine):
            found.append(checked)
            if not is_json:
                _show(checked)
    except OptionError as error:  # of the test kit's: `skip`
        return failed("plugins check", str(error))
    if is_json:
        print(json.dumps([_record(checked) for checked in found], indent=2))
    else:
        print(_summary(found))
    return _exit_code(found, is_named=bool(names))


def _exit_code(found: Iterable[_Checked], *, is_named: bool) -> int:
    if any(checked.outcome == "failed" for checked in found):
        return _DEFECT
    # who asks for one by name has not got it checked where the environment switches it off
    is_skipped = is_named and any(checked.plugin.status == "blocked" for checked in found)
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


def _check_each(names: Sequence[str], examine: _Examine) -> Iterator[_Checked]:
    asked = frozenset(map(normal_name, names))
    adding = {plugin.name for plugin in installed() if plugin.group == HOOKS_GROUP}
    findings = survey(asked | adding if asked else True).findings
    # the hooks that packages add are there as in a run, and none of their callbacks
    added = [f.plugin.name for f in findings if f.plugin.hooks and f.plugin.status == "loaded"]
    options = {"plugins": added} if added else {}
    for finding in findings:
        if not asked or finding.plugin.is_called(asked):
            with prints_diverted():
                checked = _check(finding, options, examine)
            yield checked


def _check(finding: Finding, options: Mapping[str, Any], examine: _Examine) -> _Checked:
    plugin = finding.plugin
    if plugin.status in {"blocked", "hidden"}:
        return _Checked(plugin, "not checked", f"{plugin.status}: {plugin.reason}")
    if plugin.status == "failed":
        return _Checked(plugin, "failed", plugin.reason)
    if plugin.group == HOOKS_GROUP:
        return _Checked(plugin, "passed", f"it adds {', '.join(plugin.hooks) or 'no hook'}")
    if not plugin.callbacks:
        return _Checked(plugin, "not checked", "its factory made no callback, but an empty list")
    try:
        report = examine(imported(plugin), options)
    except OptionError:
        raise  # the user's fault, not the plugin's
    except BaseException as error:
        if is_request(error):
            raise
        return _Checked(plugin, "failed", f"it ended the examination with {described(error)}")
    is_passed = report.is_passed and not plugin.reason  # a reason: one of several is left out
    return _Checked(plugin, "passed" if is_passed else "failed", plugin.reason, report)


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
