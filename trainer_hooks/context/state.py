"""RunState: what a trainer is doing, and the place on the x axis that this stands for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.clock import Progress

__all__ = ["RunState", "RunningStage", "TrainerFn", "TrainerStatus", "present_step"]


class TrainerFn(StrEnum):
    """What a trainer was asked to do."""

    FITTING = "fit"
    VALIDATING = "validate"
    TESTING = "test"
    PREDICTING = "predict"


class RunningStage(StrEnum):
    """What the batches that are being run are for."""

    TRAINING = "train"
    SANITY_CHECKING = "sanity_check"
    VALIDATING = "validate"
    TESTING = "test"
    PREDICTING = "predict"

    @property
    def evaluating(self) -> bool:
        """Whether they are evaluated."""
        return self in (self.VALIDATING, self.TESTING, self.SANITY_CHECKING)

    @property
    def dataloader_prefix(self) -> str | None:
        """What the loaders' methods and options begin with."""
        return "val" if self in (self.VALIDATING, self.SANITY_CHECKING) else self.value


class TrainerStatus(StrEnum):
    """How far a trainer's run is."""

    INITIALIZING = "initializing"
    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"

    @property
    def stopped(self) -> bool:
        """Whether the run is over."""
        return self in (self.FINISHED, self.INTERRUPTED)


@dataclass(slots=True)
class RunState:
    """What a trainer is doing. Each is a member of its enum, and equal to the text that it is.

    Attributes:
        fn: `"fit"`, `"validate"`, `"test"` or `"predict"`: the run under way, or else the last one;
            None before any.
        stage: `"train"`, `"sanity_check"`, `"validate"`, `"test"`, `"predict"`; None between runs.
        status: `"initializing"`, `"running"`, `"finished"` or `"interrupted"`.
    """

    fn: TrainerFn | None = None
    stage: RunningStage | None = None
    status: TrainerStatus = TrainerStatus.INITIALIZING

    @property
    def finished(self) -> bool:
        """Whether the last run went through, or was stopped in order."""
        return self.status is TrainerStatus.FINISHED

    @property
    def interrupted(self) -> bool:
        """Whether the last run ended with an exception."""
        return self.status is TrainerStatus.INTERRUPTED

    @property
    def stopped(self) -> bool:
        """Whether the last run is over, however it ended."""
        return self.status.stopped

    def enter(self, fn: str) -> None:
        """Begin the batches that a run is for."""
        self.stage = RunningStage.TRAINING if fn == "fit" else RunningStage(fn)


def present_step(fn: str | None, progress: Progress) -> int:
    """Return the place on the x axis of what is logged now, which is Lightning's.

    It is the last window that was done, and after a fit the number of them.
    """
    return max(0, progress.batches_stepped - 1) if fn == "fit" else progress.batches_stepped
