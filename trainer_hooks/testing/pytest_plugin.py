"""The pytest plugin: the fixture `callback_contract` and a summary of the callbacks' costs.

pytest loads it wherever trainer_hooks is installed, so torch is imported only by tests that use
the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.testing.contract_report import ContractReport

_PROPERTY = "callback_cost"


class CallbackContract(Protocol):
    """The function that the fixture `callback_contract` provides: `check_callback` for pytest."""

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
        from trainer_hooks.testing.contract import examine_callback  # imports torch

        report = examine_callback(factory, **options)
        for result in report.results:
            if result.name == "costs" and result.note:
                # a property of the test report reaches the main process of pytest-xdist, too
                record_property(_PROPERTY, f"{result.subject}: {result.note}")
        if not report.is_passed:
            # the traceback would lead into the kit, and the report says all
            pytest.fail(str(report), pytrace=False)
        return report

    return check


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the costs of the checked callbacks."""
    costs = [
        str(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        # the report of a test's teardown has its properties once more; warnings have no `when`
        if getattr(report, "when", "") == "call"
        for name, value in getattr(report, "user_properties", ())
        if name == _PROPERTY
    ]
    if costs:
        terminalreporter.section("what callbacks cost")
        for line in costs:
            terminalreporter.line(line)
