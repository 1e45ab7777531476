"""How long a trainer runs and how much of the data it takes: the numbers that it goes by."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from trainer_hooks.context import EvalData, Plan
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from trainer_hooks.session import Session

__all__ = ["PlanView"]


class PlanView:
    """Counts of batches and limits, under Lightning 2.x's names where it has them."""

    _session: Session

    @property
    def num_training_batches(self) -> int | float:
        """Training batches an epoch; infinity where unknown or outside fit."""
        context = self._session.fit_context
        stream = context.stream if context is not None else None
        return math.inf if stream is None else stream.num_batches

    @property
    def num_val_batches(self) -> list[int | float]:
        """Validation batches of each loader."""
        return self._evaluation("validate").num_batches

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
        plan = self._session.plan
        steps: int | float = math.inf
        if plan.max_epochs >= 0:
            windows = self.num_training_batches / plan.accumulate_grad_batches
            windows = windows if windows == math.inf else math.ceil(windows)
            steps = windows * plan.max_epochs
        return min(steps, plan.max_steps) if plan.max_steps >= 0 else steps

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
        """Batches of a window."""
        return self._session.plan.accumulate_grad_batches

    @property
    def gradient_clip_val(self) -> float | None:
        """Bound on the gradients."""
        return self._session.plan.gradient_clip_val

    @property
    def gradient_clip_algorithm(self) -> str:
        """How they are bounded: by norm or by value."""
        return self._session.plan.gradient_clip_algorithm

    @property
    def val_check_interval(self) -> int | float:
        """Batches, or a share of an epoch, between two validations."""
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
        return EvalData() if context is None else context.evaluation.get(stage, EvalData())

    def _change_plan(self, option: str, value: int, lowest: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise OptionError(f"trainer.{option} = {value!r}: must be an int of at least {lowest}.")
        self._session.plan = _changed(self._session.plan, option, value)


def _changed(plan: Plan, option: str, value: int) -> Plan:
    if option == "max_epochs":
        return replace(plan, max_epochs=value)
    return replace(plan, max_steps=value)
