"""What a check yields: defects, and notes; and how a raised error becomes a defect."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from trainer_hooks.hooks import describe_error
from trainer_hooks.testing.report import Defect

__all__ = ["Findings", "Note", "raised"]


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth telling that is no defect."""

    text: str


Findings = Iterator[Defect | Note]


def raised(error: Exception, during: str, remedy: str = "") -> Defect:
    """Return the defect that `error` left `during` something, with the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return Defect(
        expected=f"nothing is raised {during}",
        seen=f"{describe_error(error)}{where}",
        remedy=remedy or "Mend that line, or make the hook bear what it was given.",
    )
