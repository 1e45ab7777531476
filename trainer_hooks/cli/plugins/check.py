"""`trainer-hooks plugins check`: run the callback contract on the callbacks of plugins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks._text import printable, printable_lines
from trainer_hooks.cli.commands import USAGE_ERROR, print_failure, print_json
from trainer_hooks.cli.plugins.survey import prints_diverted, survey_plugins
from trainer_hooks.errors import OptionError, did_you_mean, error_summary, is_interruption
from trainer_hooks.hooks.discovery import installed_plugins, load_entry_point
from trainer_hooks.hooks.plugin import HOOKS_GROUP, Plugin, normal_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trainer_hooks.cli.plugins.survey import SurveyedPlugin
    from trainer_hooks.testing import ContractReport

    _Examine = Callable[[Any], ContractReport]

_DEFECT = 1


@dataclass(frozen=True, slots=True)
class _CheckedPlugin:
    """The result of checking one plugin.

    Attributes:
        plugin: the plugin's record.
        outcome: `"passed"`, `"failed"` or `"not checked"`.
        details: the defect of the plugin itself, or the reason why it was not checked.
        report: the test kit's report on its callbacks.
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
    """Check plugins, print the results, and return the exit code.

    Args:
        names: the plugins' names, or none for all.
        may_differ: passed to the test kit.
        skip: passed to the test kit.
        everywhere: passed to the test kit.
        is_json: whether to print JSON.
    """

    def examine(factory: Any) -> ContractReport:
        from trainer_hooks.testing import examine_callback  # imports torch

        return examine_callback(
            factory,
            may_differ=may_differ,
            skip=skip,
            everywhere=everywhere,
        )

    fault = _fault_of_names(names)
    if fault:
        return print_failure("plugins check", fault)
    results: list[_CheckedPlugin] = []
    try:
        for checked in _check_each(names, examine):
            results.append(checked)
            if not is_json:
                _show(checked)
    except OptionError as error:  # of the test kit's: `skip`
        return print_failure("plugins check", str(error))
    if is_json:
        print_json([_record(checked) for checked in results])
    else:
        print(_summary(results))
    if any(checked.outcome == "failed" for checked in results):
        return _DEFECT
    # who asks for one by name has not got it checked where the environment switches it off
    is_skipped = names and any(checked.plugin.status == "blocked" for checked in results)
    return USAGE_ERROR if is_skipped else 0


def _fault_of_names(names: Iterable[str]) -> str:
    installed = {
        normal_name(name)
        for plugin in installed_plugins()
        for name in (plugin.distribution, plugin.name)
    }
    for name in names:
        if normal_name(name) not in installed:
            return (
                f"plugin {name!r} is not installed: it must be the name of a distribution or of an "
                f"entry point.{did_you_mean(normal_name(name), installed)} "
                f"Installed: {', '.join(sorted(installed)) or 'none'}."
            )
    return ""


def _check_each(names: Sequence[str], examine: _Examine) -> Iterator[_CheckedPlugin]:
    asked = frozenset(map(normal_name, names))
    # those that add hooks are loaded as well: others may override the hooks that they add
    adding = {plugin.name for plugin in installed_plugins() if plugin.group == HOOKS_GROUP}
    for finding in survey_plugins(asked | adding if asked else True).findings:
        if not asked or finding.plugin.is_named_in(asked):
            # not around the `yield`: there the caller prints its results
            with prints_diverted():
                checked = _check(finding, examine)
            yield checked


def _check(finding: SurveyedPlugin, examine: _Examine) -> _CheckedPlugin:
    plugin = finding.plugin
    if plugin.status in {"blocked", "hidden"}:
        return _CheckedPlugin(plugin, "not checked", f"{plugin.status}: {plugin.reason}")
    if plugin.status == "failed":
        return _CheckedPlugin(plugin, "failed", plugin.reason)
    if plugin.group == HOOKS_GROUP:
        return _CheckedPlugin(plugin, "passed", f"it adds {', '.join(plugin.hooks) or 'no hook'}")
    if not plugin.callbacks:
        return _CheckedPlugin(
            plugin, "not checked", "its factory made no callback, but an empty list"
        )
    try:
        report = examine(load_entry_point(plugin))
    except OptionError:
        raise  # the user's fault, not the plugin's
    except BaseException as error:
        if is_interruption(error):
            raise
        return _CheckedPlugin(
            plugin, "failed", f"it ended the examination with {error_summary(error)}"
        )
    is_passed = report.is_passed and not plugin.reason  # a reason: one of several is left out
    return _CheckedPlugin(plugin, "passed" if is_passed else "failed", plugin.reason, report)


def _show(checked: _CheckedPlugin) -> None:
    print(f"plugin {printable(checked.plugin.label)}: {checked.outcome}")
    for text in (checked.details, str(checked.report or "")):
        if text:
            lines = printable_lines(text).split("\n")
            print(*(f"  {line}".rstrip() for line in lines), sep="\n")
    # an examination takes seconds, and a pipe would hold its results back until the last one
    print(flush=True)


def _summary(results: Sequence[_CheckedPlugin]) -> str:
    if not results:
        return "No plugin is installed, so there is nothing to check."
    outcomes = [checked.outcome for checked in results]
    return ", ".join(f"{outcomes.count(word)} {word}" for word in dict.fromkeys(outcomes))


def _record(checked: _CheckedPlugin) -> dict[str, Any]:
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
