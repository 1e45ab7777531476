"""The result of a contract check: defects, notes, the report, and the error that lists them."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.hooks.relay import error_summary_with_notes

if TYPE_CHECKING:
    from trainer_hooks.testing.harness import CallbackHarness


class ContractError(AssertionError):
    """Raised by `check_callback` for a callback with defects; its message lists all of them.

    Attributes:
        report: the results of all checks.
    """

    def __init__(self, report: ContractReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, slots=True)
class Defect:
    """One way in which a callback breaks the contract.

    Attributes:
        expected: the behaviour that the contract asks for.
        seen: the behaviour of the callback, with names and values.
        remedy: the advice to its author.
    """

    expected: str
    seen: str
    remedy: str

    def __str__(self) -> str:
        return f"expected: {self.expected}\nseen: {self.seen}\nwhat to do: {self.remedy}"


@dataclass(frozen=True, slots=True)
class CheckNote:
    """An observation of a check that is no defect, such as the callback's cost."""

    text: str


Findings = Iterator[Defect | CheckNote]
"""The defects and notes that a check yields."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the contract.

    Attributes:
        name: its name, as `skip` takes it.
        rule: the rule that it checks, in one sentence.
        run: yields the defects and notes of the callback in a harness.
        needs: names of the checks without which it would only report their defects again.
        hindrance: returns the reason why it cannot run on this machine, or an empty text.
    """

    name: str
    rule: str
    run: Callable[[CallbackHarness], Findings]
    needs: tuple[str, ...] = ()
    # `str()` is an empty text: nothing hinders the check
    hindrance: Callable[[], str] = str


def defect_from_error(error: Exception, during: str, remedy: str = "") -> Defect:
    """Describe a raised error as a defect, with the line that raised it.

    Args:
        error: the error that left the callback.
        during: when it was raised, such as `"in a fit"`.
        remedy: the advice to the author; a general one unless given.
    """
    frames = traceback.extract_tb(error.__traceback__)
    # the callback's line, and not one of the library that it called
    libraries = {Path(sys.modules[name].__path__[0]) for name in ("trainer_hooks", "torch")}
    stack = [frame for frame in frames if libraries.isdisjoint(Path(frame.filename).parents)]
    stack = stack or frames  # a callback of the library itself
    location = f", at {stack[-1].filename}:{stack[-1].lineno}" if stack else ""
    return Defect(
        expected=f"nothing is raised {during}",
        seen=f"{error_summary_with_notes(error)}{location}",
        remedy=remedy or "Mend that line, or make the hook bear what it was given.",
    )


@dataclass(frozen=True, slots=True)
class ContractResult:
    """The result of one check for one callback.

    Attributes:
        subject: the name of the callback's class.
        name: the check's name, as `skip` takes it.
        rule: the rule that it checks, in one sentence.
        defects: the defects that it reported.
        not_run: the reason why it was not run; empty if it was.
        note: its other observations; empty if there are none.
    """

    subject: str
    name: str
    rule: str
    defects: tuple[Defect, ...] = ()
    not_run: str = ""
    note: str = ""

    @property
    def is_passed(self) -> bool:
        """Whether the check was run and reported no defect."""
        return not self.defects and not self.not_run

    @property
    def outcome(self) -> str:
        """`"passed"`, `"failed"` or `"not run"`."""
        return "passed" if self.is_passed else "not run" if self.not_run else "failed"

    @property
    def details(self) -> str:
        """The defects, or else the reason why it was not run, or else the note."""
        return "\n".join(map(str, self.defects)) or self.not_run or self.note


@dataclass(frozen=True, slots=True)
class ContractReport:
    """The results of all checks; print it.

    Attributes:
        results: one for each check, in the order in which they ran; where the factory made several
            callbacks, one callback after another.
    """

    results: tuple[ContractResult, ...]

    @property
    def is_passed(self) -> bool:
        """Whether no check reported a defect."""
        return not self.failed

    @property
    def failed(self) -> tuple[ContractResult, ...]:
        """The results with defects."""
        return tuple(result for result in self.results if result.defects)

    def __str__(self) -> str:
        """List the failed checks with their defects, then each other check in a line."""
        subjects = dict.fromkeys(result.subject for result in self.results)
        return "\n\n".join(self._section(subject) for subject in subjects)

    def _section(self, subject: str) -> str:
        """Format the results of one callback."""
        results = [result for result in self.results if result.subject == subject]
        failed = [result for result in results if result.defects]
        verdict = f"breaks the contract in {len(failed)}" if failed else "keeps the contract in all"
        ran = sum(not result.not_run for result in results)
        lines = [f"callback {subject} {verdict} of {ran} checks."]
        for result in failed:
            lines += ["", f"{result.name}: {result.rule}."]
            for defect in result.defects:
                lines += [f"    {line}" for line in str(defect).splitlines()]
        lines += [""] if failed else []
        passed = [result for result in results if result.is_passed]
        lines += [f"passed: {', '.join(result.name for result in passed) or 'nothing'}"]
        lines += [
            f"not run: {result.name}: {result.not_run}" for result in results if result.not_run
        ]
        lines += [f"{result.name}: {result.note}" for result in results if result.note]
        return "\n".join(lines)
