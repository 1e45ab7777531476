"""RunState: the method, stage and status of a trainer's run, and the x axis of logged values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.clock.progress import Progress


class TrainerFn(StrEnum):
    """The trainer's method that runs: fit, validate, test or predict."""

    FITTING = "fit"
    VALIDATING = "validate"
    TESTING = "test"
    PREDICTING = "predict"


class RunningStage(StrEnum):
    """The loop that runs: training, sanity check, validation, test or prediction."""

    TRAINING = "train"
    SANITY_CHECKING = "sanity_check"
    VALIDATING = "validate"
    TESTING = "test"
    PREDICTING = "predict"

    @property
    def evaluating(self) -> bool:
        """Whether it is validation, test or the sanity check."""
        return self in (self.VALIDATING, self.TESTING, self.SANITY_CHECKING)

    @property
    def dataloader_prefix(self) -> str | None:
        """The prefix of the loaders' methods and options in this stage, as in `val_dataloader`."""
        return "val" if self in (self.VALIDATING, self.SANITY_CHECKING) else self.value


class TrainerStatus(StrEnum):
    """The status of a trainer's run."""

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
    """The method, stage and status of a trainer's run. The enum members equal their texts.

    Attributes:
        fn: `"fit"`, `"validate"`, `"test"` or `"predict"`: the present run, or else the last one;
            None before the first.
        stage: `"train"`, `"sanity_check"`, `"validate"`, `"test"`, `"predict"`; None between runs.
            In the hooks of the set-up and the end, `"train"` for a fit, else that of the method.
        status: `"initializing"`, `"running"`, `"finished"` or `"interrupted"`.
        has_nothing_to_do: whether the run is a fit that began with nothing to train.
        stop_reason: the reason of the last request to stop, on whichever rank; empty without one.
    """

    fn: TrainerFn | None = None
    stage: RunningStage | None = None
    status: TrainerStatus = TrainerStatus.INITIALIZING
    has_nothing_to_do: bool = False
    stop_reason: str = ""

    @property
    def finished(self) -> bool:
        """Whether the last run completed, or was stopped in order."""
        return self.status is TrainerStatus.FINISHED

    @property
    def interrupted(self) -> bool:
        """Whether the last run ended with an exception."""
        return self.status is TrainerStatus.INTERRUPTED

    @property
    def stopped(self) -> bool:
        """Whether the last run is over, however it ended."""
        return self.status.stopped

    def begin(self, fn: str) -> None:
        """Note that a run begins, in the stage of its own batches: train for fit, else its own."""
        self.fn, self.status = TrainerFn(fn), TrainerStatus.RUNNING
        self.stage = RunningStage.TRAINING if fn == "fit" else RunningStage(fn)
        self.has_nothing_to_do = False


def present_step(fn: str | None, progress: Progress) -> int:
    """Return the x axis value of metrics that are logged now.

    As in Lightning, it is the index of the last completed accumulation window during fit, and the
    number of completed windows elsewhere.
    """
    # 0, not -1, in the first window
    return max(0, progress.batches_stepped - 1) if fn == "fit" else progress.batches_stepped
