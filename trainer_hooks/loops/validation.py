"""Validation inside fit: when it is due, the sanity check before training, and the run of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.filters import Filter
from trainer_hooks.loops.evaluation import EvaluationLoop
from trainer_hooks.loops.evaluators import EvaluatorSchedule, StoredCue
from trainer_hooks.loops.steps import has_evaluation
from trainer_hooks.runtime import rng
from trainer_hooks.timing import Time

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext

__all__ = ["FitValidation", "ValidationSchedule"]


class FitValidation:
    """Validate inside fit: before training, after batches, and at the end of epochs.

    Args:
        context: the run.
        num_batches: training batches an epoch.

    Attributes:
        is_inside: whether one may be due inside an epoch.

    Raises:
        OptionError: `val_check_interval` does not fit the number of batches.
        ModuleError: the validation step takes other arguments.
    """

    def __init__(self, context: RunContext, num_batches: int | float) -> None:
        self._context = context
        self._is_told = False
        schedule = ValidationSchedule(context, num_batches)
        self._schedule = schedule
        self._evaluators = EvaluatorSchedule(context, schedule)
        self.is_inside = schedule.is_inside or self._evaluators.has_own
        if schedule.is_on:
            EvaluationLoop(context, "validate")  # a step that cannot be called is told at once

    def check_sanity(self) -> None:
        """Run a few validation batches, so that a fault in them shows before hours of training.

        It leaves no trace: random numbers, the loaders' generators and the metrics are put back.
        """
        context = self._context
        trainer, module, hooks = context.trainer, context.module, context.hooks
        limit = context.plan.num_sanity_val_steps
        if limit == 0 or not context.evaluation["validate"]:
            return
        context.state.stage = "sanity_check"
        generators = context.evaluation["validate"].generator_states()
        with rng.isolated(), context.metrics.isolated():
            hooks.on_sanity_check_start(trainer, module)
            EvaluationLoop(context, "validate").run(None if limit < 0 else limit)
            hooks.on_sanity_check_end(trainer, module)
        context.evaluation["validate"].set_generator_states(generators)

    def start(self) -> None:
        """Begin to ask what is due, or go on where the checkpoint was saved."""
        self._schedule.start()
        self._evaluators.start()

    def after_batch(self) -> None:
        """Validate after the batch just done, if that is due inside the epoch."""
        if self._evaluators.has_own:
            chosen = self._evaluators.due_on_batch()
            if chosen:
                self.run(chosen)
        elif self._schedule.is_due_on_batch():
            self.run()

    def after_batches(self, *, is_complete: bool) -> None:
        """Validate at the end of the epoch's batches, if that is due.

        Args:
            is_complete: whether all batches of the epoch were done; else something ended it.
        """
        if self._evaluators.has_own:
            chosen = self._evaluators.due_after_batches(is_complete=is_complete)
            if chosen:
                self.run(chosen)
        elif self._schedule.is_due_after_batches(is_complete=is_complete):
            self.run()
        # of one that was not due, the weights were validated already
        self._context.progress.is_validation_requested = False

    def run(self, chosen: list[int] | None = None) -> None:
        """Validate once, or say why what was asked for cannot be done.

        Args:
            chosen: the numbers of the loaders to run; all unless given.
        """
        context, progress = self._context, self._context.progress
        trainer, module, hooks = context.trainer, context.module, context.hooks
        if self._schedule.is_on:
            data = context.evaluation["validate"]
            data.chosen = chosen
            # one that is broken off is run again on a resume, from where it began
            context.before_validation = context.random_states()
            context.state.stage = "validate"
            context.timekeeper.stopwatch.start_evaluating()
            hooks.on_validation_run_start(trainer, module)
            EvaluationLoop(context, "validate").run(context.validation_limit)
            context.validation_limit = None
            hooks.on_validation_run_end(trainer, module)
            context.timekeeper.end_validation(progress)
            context.state.stage = "train"
            if chosen is None or self._evaluators.are_common_in(chosen):
                progress.validated_at = progress.batches_completed
            self._schedule.note()
            self._evaluators.note(chosen or [])
            data.chosen = None
            context.before_validation = {}
        elif not self._is_told:
            self._is_told = True
            warn(
                f"trainer.request_validation() was called, but {_obstacle(context)}.",
                TrainerHooksWarning,
            )
        progress.is_validation_requested = False


class ValidationSchedule:
    """When validation is due inside fit.

    Args:
        context: the run.
        num_batches: training batches an epoch.

    Attributes:
        is_on: whether there is anything to validate.
        every: batches after which to see whether one is due, or infinity: the end of the epoch.
        is_inside: whether one may be due inside an epoch.

    Raises:
        OptionError: `val_check_interval` does not fit the number of batches.
    """

    def __init__(self, context: RunContext, num_batches: int | float) -> None:
        self._context = context
        self.is_on = bool(context.evaluation["validate"])
        interval = context.plan.val_check_interval
        self._time = interval if isinstance(interval, Time) else None
        self._cue = StoredCue("", interval, context) if isinstance(interval, Filter) else None
        self.every = self._batches_between(num_batches) if self.is_on else math.inf
        self.is_inside = self.every < math.inf or (self.is_on and self._cue is not None)

    def start(self) -> None:
        """Begin to ask, or go on where the checkpoint was saved."""
        if self._cue is not None:
            self._cue.start()

    def note(self) -> None:
        """Note that what was due is done."""
        if self._cue is not None:
            self._cue.note()

    def is_due_on_batch(self) -> bool:
        """Return whether a validation is due after the batch just done, inside the epoch.

        One that was asked for is, unless the epoch's own validation is what comes next.
        """
        progress = self._context.progress
        is_cued = self._cue is not None and self._cue.is_due()
        if is_cued or (progress.is_validation_requested and not self._context.is_last_batch):
            return True
        if self.every == math.inf:
            return False
        if self._time is not None:
            keeper = self._context.timekeeper
            return self._is_due_in_epoch() and keeper.is_passed(self._time, progress)
        if self._context.plan.check_val_every_n_epoch is None:
            return progress.batches_completed % self.every == 0
        return progress.batches_in_epoch % self.every == 0 and self._is_due_in_epoch()

    def is_due_after_batches(self, *, is_complete: bool) -> bool:
        """Return whether a validation is due at the end of the epoch's batches.

        It is after what may be the last batches of all, too, so that the final weights are
        validated and what watches a metric finds it; and where it was asked for. Weights that were
        validated already are not validated again.

        Args:
            is_complete: whether all batches of the epoch were done; else something ended it.
        """
        progress = self._context.progress
        is_cued = self._cue is not None and self._cue.is_due()
        if progress.validated_at == progress.batches_completed:
            return False
        if progress.is_validation_requested or is_cued:
            return True
        is_at_end = not self.is_inside or not is_complete or self._context.has_to_stop
        return self.is_on and is_at_end and self._is_due_in_epoch()

    def _is_due_in_epoch(self) -> bool:
        every_n = self._context.plan.check_val_every_n_epoch
        return every_n is None or (self._context.progress.epochs_completed + 1) % every_n == 0

    def _batches_between(self, num_batches: int | float) -> int | float:
        plan = self._context.plan
        interval = plan.val_check_interval
        if isinstance(interval, Time):
            return 1
        if isinstance(interval, Filter):
            return math.inf
        if isinstance(interval, int):
            if plan.check_val_every_n_epoch is not None and interval > num_batches:
                raise OptionError(
                    f"Trainer(val_check_interval={interval!r}): an epoch has {num_batches} "
                    "batches, so validation would never run. Give a smaller number, or count over "
                    "epochs with check_val_every_n_epoch=None."
                )
            return interval
        if interval == 1.0:
            return math.inf
        if num_batches == math.inf:
            raise OptionError(
                f"Trainer(val_check_interval={interval!r}) is a share of an epoch, but the "
                "training loader has no length: give a number of batches as an int."
            )
        return max(1, int(num_batches * interval))


def _obstacle(context: RunContext) -> str:
    """Return why there is nothing to validate, and what to do about it."""
    data, name = context.evaluation["validate"], type(context.module).__qualname__
    if not has_evaluation(context.module, "validate"):
        return f"{name} has no validation_step, so nothing is validated: define it"
    if not data.loaders:
        return (
            "fit was given no validation data, so nothing is validated: pass val_dataloaders=, or "
            "define val_dataloader()"
        )
    return (
        "the validation loaders give no batch, so nothing is validated: check their data sets' "
        "length, limit_val_batches and overfit_batches"
    )
