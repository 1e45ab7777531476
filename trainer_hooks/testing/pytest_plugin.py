"""The pytest plugin: the fixture `callback_contract`, and the costs at the end of the run.

pytest loads it wherever trainer_hooks is installed, so it imports torch only in tests that ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.testing.report import ContractReport

__all__ = ["CallbackContract", "callback_contract", "pytest_terminal_summary"]

_PROPERTY = "callback_cost"


class CallbackContract(Protocol):
    """What the fixture `callback_contract` is: `check_callback`, made to fail a test readably."""

    def __call__(self, factory: Any, **options: Any) -> ContractReport:
        """Fail the test if the callback has defects; return the report otherwise."""


@pytest.fixture
def callback_contract(record_property: Callable[[str, object], None]) -> CallbackContract:
    """Check that a callback keeps the contract of callbacks; the test fails with its defects.

    The fixture is a function with the arguments of `trainer_hooks.testing.check_callback`.

    Example::

        def test_the_contract(callback_contract):
            callback_contract(lambda: MyCallback("val_loss"))
    """

    def check(factory: Any, **options: Any) -> ContractReport:
        from trainer_hooks.testing.contract import examine_callback

        report = examine_callback(factory, **options)
        for result in report.results:
            if result.name == "costs" and result.note:
                record_property(_PROPERTY, f"{result.subject}: {result.note}")
        if not report.is_passed:
            pytest.fail(str(report), pytrace=False)
        return report

    return check


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the callbacks cost that were checked."""
    costs = [
        str(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in _properties(report)
        if name == _PROPERTY
    ]
    if costs:
        terminalreporter.section("what callbacks cost")
        for line in costs:
            terminalreporter.line(line)


def _properties(report: object) -> Sequence[tuple[str, object]]:
    found: Sequence[tuple[str, object]] = getattr(report, "user_properties", ())
    return found
