"""RunState: what a trainer is doing, and the place on the x axis that this stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.clock import Progress

__all__ = ["RunState", "present_step"]


@dataclass(slots=True)
class RunState:
    """What a trainer is doing.

    Attributes:
        fn: `"fit"`, `"validate"`, `"test"`, `"predict"`, or None between runs.
        stage: `"train"`, `"sanity_check"`, `"validate"`, `"test"`, `"predict"`, or None.
        status: `"initializing"`, `"running"`, `"finished"` or `"interrupted"`.
    """

    fn: str | None = None
    stage: str | None = None
    status: str = "initializing"


def present_step(fn: str | None, progress: Progress) -> int:
    """Return the place on the x axis of what is logged now, which is Lightning's.

    It is the last window that was done, and after a fit the number of them.
    """
    return max(0, progress.batches_stepped - 1) if fn == "fit" else progress.batches_stepped
