"""How long a trainer runs and how much of the data it takes: the numbers that it goes by."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock import Time, TimeUnit
from trainer_hooks.context import EvalData
from trainer_hooks.errors import OptionError
from trainer_hooks.trainer.options import check_duration, with_duration, without_duration

if TYPE_CHECKING:
    from datetime import timedelta

    from trainer_hooks.clock import Filter
    from trainer_hooks.data import Evaluator
    from trainer_hooks.trainer.run import Session

__all__ = ["PlanView"]


class PlanView:
    """Counts of batches and limits, under Lightning 2.x's names where it has them."""

    _session: Session

    @property
    def num_training_batches(self) -> int | float:
        """Training batches an epoch; infinity where unknown or outside fit."""
        context, training = self._session.context, self._session.training
        if context is None or context.state.fn != "fit":
            return training.num_batches
        return math.inf if context.data.stream is None else context.data.stream.num_batches

    @property
    def num_val_batches(self) -> list[int | float]:
        """Validation batches of each loader; 0 of those that are not due in this validation."""
        data = self._evaluation("validate")
        context = self._session.context
        limit = None if context is None else context.validation.limit
        if data.chosen is None and limit is None:
            return data.num_batches
        most = math.inf if limit is None else limit
        return [
            min(n, most) if data.is_chosen(index) else 0 for index, n in enumerate(data.num_batches)
        ]

    @property
    def val_evaluators(self) -> list[Evaluator]:
        """What the validation loaders were given in, if in evaluators; else nothing."""
        return self._evaluation("validate").evaluators

    @property
    def num_sanity_val_batches(self) -> list[int | float]:
        """Batches of each loader in the sanity check."""
        limit = self._session.plan.num_sanity_val_steps
        return [n if limit < 0 else min(n, limit) for n in self.num_val_batches]

    @property
    def num_test_batches(self) -> list[int | float]:
        """Test batches of each loader."""
        return self._evaluation("test").num_batches

    @property
    def num_predict_batches(self) -> list[int | float]:
        """Predict batches of each loader."""
        return self._evaluation("predict").num_batches

    @property
    def estimated_stepping_batches(self) -> int | float:
        """Optimizer steps that the whole fit will make, as far as its limits tell."""
        plan, length = self._session.plan, self.num_training_batches
        every = plan.accumulate_grad_batches
        windows = length if length == math.inf else math.ceil(length / every)
        limits = [windows * plan.max_epochs] if plan.max_epochs >= 0 else []
        limits += [plan.max_steps] if plan.max_steps >= 0 else []
        if plan.max_duration is not None and plan.max_duration.unit is TimeUnit.BATCH:
            epochs, rest = divmod(int(plan.max_duration), length or math.inf)
            limits.append((epochs * windows if epochs else 0) + rest // every)
        return min(limits, default=math.inf)

    # --- limits, some of which may be changed between two fits ---

    @property
    def max_epochs(self) -> int:
        """Epochs to train, -1 for no end. May be set, to let a finished fit go on."""
        return self._session.plan.max_epochs

    @max_epochs.setter
    def max_epochs(self, value: int) -> None:
        self._change_plan("max_epochs", value, -1)

    @property
    def max_steps(self) -> int:
        """Optimizer steps to train, -1 for no end. May be set, to let a finished fit go on."""
        return self._session.plan.max_steps

    @max_steps.setter
    def max_steps(self, value: int) -> None:
        self._change_plan("max_steps", value, -1)

    @property
    def max_duration(self) -> Time | None:
        """What to train, or None. May be set, to let a finished fit go on."""
        return self._session.plan.max_duration

    @max_duration.setter
    def max_duration(self, value: str | Time | timedelta) -> None:
        session = self._session
        time = check_duration(value, session.plan.iteration_length)
        session.plan = with_duration(session.plan, time)

    @property
    def min_epochs(self) -> int:
        """Epochs before a stop that is asked for is heeded."""
        return self._session.plan.min_epochs

    @property
    def min_steps(self) -> int:
        """Optimizer steps before a stop that is asked for is heeded."""
        return self._session.plan.min_steps

    @property
    def fast_dev_run(self) -> int:
        """Batches of a dry run, 0 if it is none."""
        return int(self._session.config.fast_dev_run)

    @property
    def accumulate_grad_batches(self) -> int:
        """Batches of a window. May be set; a fit under way heeds it from its next epoch on."""
        return self._session.plan.accumulate_grad_batches

    @accumulate_grad_batches.setter
    def accumulate_grad_batches(self, value: int) -> None:
        self._change_plan("accumulate_grad_batches", value, 1)
        context, state = self._session.context, self._session.state
        if context is not None and state.fn == "fit" and state.status == "running":
            context.plan = replace(context.plan, accumulate_grad_batches=value)

    @property
    def gradient_clip_val(self) -> float | None:
        """Bound on the gradients."""
        return self._session.plan.gradient_clip_val

    @property
    def gradient_clip_algorithm(self) -> str:
        """How they are bounded: by norm or by value."""
        return self._session.plan.gradient_clip_algorithm

    @property
    def val_check_interval(self) -> int | float | Time | Filter:
        """Batches, a share of an epoch, or a time between two validations."""
        return self._session.plan.val_check_interval

    @property
    def check_val_every_n_epoch(self) -> int | None:
        """Epochs between two that are validated."""
        return self._session.plan.check_val_every_n_epoch

    @property
    def num_sanity_val_steps(self) -> int:
        """Validation batches that are run before training, -1 for all."""
        return self._session.plan.num_sanity_val_steps

    @property
    def log_every_n_steps(self) -> int:
        """Steps between two hand-overs to the loggers."""
        return self._session.plan.log_every_n_steps

    @property
    def limit_train_batches(self) -> int | float:
        """Number or share of the training batches."""
        return self._session.plan.limit_train_batches

    @property
    def limit_val_batches(self) -> int | float:
        """Number or share of the validation batches."""
        return self._session.plan.limit_val_batches

    @property
    def limit_test_batches(self) -> int | float:
        """Number or share of the test batches."""
        return self._session.plan.limit_test_batches

    @property
    def limit_predict_batches(self) -> int | float:
        """Number or share of the predict batches."""
        return self._session.plan.limit_predict_batches

    def _evaluation(self, stage: str) -> EvalData:
        context = self._session.context
        known = self._session.evaluation if context is None else context.data.evaluation
        return known.get(stage, EvalData())

    def _change_plan(self, option: str, value: int, lowest: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise OptionError(f"trainer.{option} = {value!r}: must be an int of at least {lowest}.")
        plan = self._session.plan
        if option in ("max_epochs", "max_steps"):
            plan = without_duration(plan, option)
        changes: dict[str, Any] = {option: value}
        self._session.plan = replace(plan, **changes)
