"""What an examination found: defects, results, the report, and the error that lists it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ContractError", "ContractReport", "ContractResult", "Defect"]


class ContractError(AssertionError):
    """Raised by `check_callback` for a callback with defects; its message lists all of them.

    Attributes:
        report: what was found.
    """

    def __init__(self, report: ContractReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, slots=True)
class Defect:
    """One way in which a callback breaks the contract.

    Attributes:
        expected: what should have been.
        seen: what was, with names and values.
        remedy: what to do about it.
    """

    expected: str
    seen: str
    remedy: str

    def __str__(self) -> str:
        return f"expected: {self.expected}\nseen: {self.seen}\nwhat to do: {self.remedy}"


@dataclass(frozen=True, slots=True)
class ContractResult:
    """What one check found of one callback.

    Attributes:
        subject: the callback's class.
        name: the check's name, as `skip` takes it.
        rule: what the check makes sure of, in one sentence.
        defects: what is wrong.
        not_run: why the check was not run; empty if it was.
        note: what else it found out.
    """

    subject: str
    name: str
    rule: str
    defects: tuple[Defect, ...] = ()
    not_run: str = ""
    note: str = ""

    @property
    def is_passed(self) -> bool:
        """Whether the check was run and found nothing wrong."""
        return not self.defects and not self.not_run

    @property
    def outcome(self) -> str:
        """`"passed"`, `"failed"` or `"not run"`."""
        return "passed" if self.is_passed else "not run" if self.not_run else "failed"

    @property
    def details(self) -> str:
        """The defects, or why it was not run, or what else it found out."""
        return "\n".join(map(str, self.defects)) or self.not_run or self.note


@dataclass(frozen=True, slots=True)
class ContractReport:
    """What all checks found; print it.

    Attributes:
        results: one for each check, in the order in which they ran; where the factory made several
            callbacks, one after another.
    """

    results: tuple[ContractResult, ...]

    @property
    def is_passed(self) -> bool:
        """Whether no check found a defect."""
        return not self.failed

    @property
    def failed(self) -> tuple[ContractResult, ...]:
        """The results with defects."""
        return tuple(result for result in self.results if result.defects)

    def __str__(self) -> str:
        """Return the failed checks with their defects, then the others in a line each."""
        return "\n\n".join(self._of(subject) for subject in self._subjects())

    def _subjects(self) -> list[str]:
        return list(dict.fromkeys(result.subject for result in self.results))

    def _of(self, subject: str) -> str:
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
