"""`trainer.fit_loop`: the counters of a training under Lightning's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.clock import EpochStage
from trainer_hooks.errors import OptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.trainer.run import Session

__all__ = ["FitLoopView"]


class Counts:
    """How many of something were begun and done.

    Args:
        ready: how many were begun.
        processed: how many were run, those whose end hooks are still to come included.
        completed: how many are over.
        change: sets `processed` and `completed`; None where that is no one's to do.
    """

    def __init__(
        self,
        ready: int,
        processed: int,
        completed: int,
        change: Callable[[int], None] | None = None,
    ) -> None:
        self._ready, self._processed, self._completed = ready, processed, completed
        self._change = change

    @property
    def ready(self) -> int:
        """How many were begun."""
        return self._ready

    @property
    def started(self) -> int:
        """The same."""
        return self._ready

    @property
    def processed(self) -> int:
        """How many were run, those whose end hooks are still to come included."""
        return self._processed

    @processed.setter
    def processed(self, value: int) -> None:
        self._set("processed", value)

    @property
    def completed(self) -> int:
        """How many are over."""
        return self._completed

    @completed.setter
    def completed(self, value: int) -> None:
        self._set("completed", value)

    def _set(self, name: str, value: int) -> None:
        if self._change is None:
            raise UsageError(
                f"trainer.fit_loop: the batches {name} cannot be set, as the loader would not be "
                "there. Set epoch_progress, or resume from a checkpoint."
            )
        self._change(value)

    def __repr__(self) -> str:
        return f"<ready {self._ready}, processed {self._processed}, completed {self._completed}>"


class ProgressView:
    """Counts of the present epoch or fit, and of all.

    Attributes:
        current: those of the present one.
        total: those of all.
        is_last_batch: whether the batch in work is its epoch's last.
    """

    def __init__(self, current: Counts, total: Counts, *, is_last_batch: bool = False) -> None:
        self.current, self.total = current, total
        self.is_last_batch = is_last_batch


class _StepLimits:
    """What both loops tell: how many steps there may be.

    Args:
        session: the trainer's.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def min_steps(self) -> int:
        """Optimizer steps before a stop that is asked for is heeded."""
        return self._session.plan.min_steps

    @property
    def max_steps(self) -> int:
        """Optimizer steps to train, -1 for no end. May be set, as `trainer.max_steps`."""
        return self._session.plan.max_steps

    @max_steps.setter
    def max_steps(self, value: int) -> None:
        self._session.change_plan("max_steps", value)


class EpochLoopView(_StepLimits):
    """`trainer.fit_loop.epoch_loop`: the batches.

    Args:
        session: the trainer's.
    """

    @property
    def batch_progress(self) -> ProgressView:
        """The batches of the epoch, or of the last one between two, and of all epochs."""
        session, progress = self._session, self._session.training.progress
        context = session.context
        taken = int(context is not None and context.state.fn == "fit" and context.batch.is_taken)
        is_open = int(progress.is_batch_open)
        done, total = progress.batches_in_epoch, progress.batches_completed
        if progress.stage is EpochStage.BETWEEN:
            done = progress.batches_in_last_epoch
        is_last = 0 < done == session.training.num_batches if context is None else None
        return ProgressView(
            Counts(done + taken, done, done - min(is_open, done)),
            Counts(total + taken, total, total - is_open),
            is_last_batch=context.batch.is_last if context is not None else bool(is_last),
        )

    @property
    def batch_idx(self) -> int:
        """The index of the batch in work in its epoch, or of the last one; -1 before any."""
        return self.batch_progress.current.ready - 1

    @property
    def total_batch_idx(self) -> int:
        """The same over all epochs."""
        return self.batch_progress.total.ready - 1

    @property
    def global_step(self) -> int:
        """Optimizer steps so far, over all optimizers."""
        return self._session.training.progress.steps_completed


class FitLoopView(_StepLimits):
    """The training: its epochs, and what ends it.

    Args:
        session: the trainer's.
    """

    @property
    def epoch_loop(self) -> EpochLoopView:
        """The batches."""
        return EpochLoopView(self._session)

    @property
    def epoch_progress(self) -> ProgressView:
        """The epochs. `current.completed` may be set between two, as before a first fit."""
        progress = self._session.training.progress
        done = progress.epochs_completed
        is_open = int(progress.stage is not EpochStage.BETWEEN)
        is_run = int(progress.stage in (EpochStage.CLOSING, EpochStage.ENDED))
        counts = Counts(done + is_open, done + is_run, done, self._go_to)
        return ProgressView(counts, counts)

    @property
    def current_epoch(self) -> int:
        """The index of the epoch under way; afterwards, the number of epochs done."""
        return self._session.training.progress.epochs_completed

    @property
    def min_epochs(self) -> int:
        """Epochs before a stop that is asked for is heeded. May be set."""
        return self._session.plan.min_epochs

    @min_epochs.setter
    def min_epochs(self, value: int) -> None:
        self._session.change_plan("min_epochs", value)

    @property
    def max_epochs(self) -> int:
        """Epochs to train, -1 for no end. May be set, as `trainer.max_epochs`."""
        return self._session.plan.max_epochs

    @max_epochs.setter
    def max_epochs(self, value: int) -> None:
        self._session.change_plan("max_epochs", value)

    @property
    def max_batches(self) -> int | float:
        """Training batches an epoch; infinity where that is unknown."""
        context, training = self._session.context, self._session.training
        if context is None or context.data.stream is None:
            return training.length
        return context.data.stream.length

    def _go_to(self, epoch: int) -> None:
        progress = self._session.training.progress
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise OptionError(
                f"trainer.fit_loop.epoch_progress = {epoch!r}: must be an int of at least 0."
            )
        if progress.stage is not EpochStage.BETWEEN:
            raise UsageError(
                "trainer.fit_loop.epoch_progress was set inside an epoch, which is one already: "
                "set it before fit, or in on_train_start."
            )
        progress.epochs_completed = epoch
