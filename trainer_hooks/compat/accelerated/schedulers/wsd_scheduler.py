"""WSDLrScheduler: warmup, a stable phase and a decay, once or before each of several models."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.accelerated.run_config import TrainerPlaceholderValues
from trainer_hooks.compat.accelerated.schedulers.scheduler_base import StatefulSchedulerBase
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = ["WSDLrScheduler", "estimate_checkpoint_steps"]


class WSDLrScheduler(StatefulSchedulerBase):
    """Raise the rate, hold it, and lower it before each step at which a model is taken.

    `WSDCheckpointCallback` saves before and after each decay. A longer training goes on from such a
    file with `is_continuation_from_checkpoint=True`: it counts from zero, and has no warmup.

    Args:
        optimizer: the optimizer.
        num_epochs: the number of epochs.
        num_update_steps_per_epoch: the number of optimizer steps in an epoch.
        total_steps: the number of optimizer steps, in place of these two.
        num_warmup_steps: the number of steps of warmup; None for a hundredth of all.
        decay_phase_ratio: the fraction of a period that its decay takes.
        lr_min: the lowest rate, as a fraction of each group's own.
        warmup_starting_lr: the rate with which a warmup begins.
        use_inverse_sqrt_decay: whether the rate falls with the root of the time; else with the
            inverse of a straight line.
        num_checkpoints: the number of periods at most: the first is a quarter of all steps, and
            each further one ends at twice the steps.
        is_continuation_from_checkpoint: whether it goes on from the file of a shorter training.

    Attributes:
        total_steps: the number of optimizer steps.
        checkpoint_steps: the steps at which the decays end.
        checkpoint_decay_info: the first and last step of each period, and of its decay.

    Raises:
        OptionError: an argument is outside its rule.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        num_epochs: int | None = None,
        num_update_steps_per_epoch: int | None = None,
        total_steps: int | None = None,
        num_warmup_steps: int | None = 0,
        decay_phase_ratio: float = 0.1,
        lr_min: float = 1e-6,
        warmup_starting_lr: float = 1e-6,
        use_inverse_sqrt_decay: bool = True,
        num_checkpoints: int = 1,
        is_continuation_from_checkpoint: bool = False,
    ) -> None:
        super().__init__(optimizer)
        if num_epochs is not None and num_update_steps_per_epoch is not None:
            _require(total_steps is None, "total_steps", total_steps, "left out beside epochs")
            total_steps = num_epochs * num_update_steps_per_epoch
        ratio = decay_phase_ratio
        # two decays of longer periods would overlap
        longest = 1 if num_checkpoints == 1 else 1 / 3
        if total_steps is None or total_steps <= 0:
            raise OptionError(
                f"WSDLrScheduler(total_steps={total_steps!r}): it must be above 0. Pass it, or "
                "num_epochs and num_update_steps_per_epoch."
            )
        _require(num_checkpoints > 0, "num_checkpoints", num_checkpoints, "above 0")
        _require(0 <= ratio <= longest, "decay_phase_ratio", ratio, f"from 0 to {longest:.3g}")
        _require(lr_min >= 0, "lr_min", lr_min, "0 or more")
        highest = max(self.base_lr_values)
        _require(
            warmup_starting_lr <= highest, "warmup_starting_lr", warmup_starting_lr,
            f"at most the highest rate, {highest}",
        )  # fmt: skip
        self.total_steps = total_steps
        self.num_warmup_steps = (
            int(0.01 * total_steps) if num_warmup_steps is None else num_warmup_steps
        )
        self.decay_phase_ratio = decay_phase_ratio
        self.lr_min = lr_min
        self.warmup_starting_lr = warmup_starting_lr
        self.use_inverse_sqrt_decay = use_inverse_sqrt_decay
        self.num_checkpoints = num_checkpoints
        self.is_continuation_from_checkpoint = is_continuation_from_checkpoint
        self._divide()

    def _divide(self) -> None:
        """Divide the steps into periods."""
        self.checkpoint_steps = estimate_checkpoint_steps(self.total_steps, self.num_checkpoints)
        self.checkpoint_decay_info = []
        start = 0
        for end in self.checkpoint_steps:
            decay = int((end - start) * self.decay_phase_ratio)
            self.checkpoint_decay_info.append(
                {
                    "period_start": start,
                    "period_end": end,
                    "decay_steps": decay,
                    "pre_decay_step": end - decay,
                }
            )
            start = end

    def get_checkpoint_steps(self) -> list[int]:
        """Return the steps at which the decays end."""
        return self.checkpoint_steps

    def get_decay_info(self) -> list[dict[str, int]]:
        """Return the first and last step of each period, and of its decay."""
        return self.checkpoint_decay_info

    def get_phase_info(self, num_updates: int) -> dict[str, int]:
        """Return the period of a step; the last one after the end."""
        infos = self.checkpoint_decay_info
        return next((info for info in infos if info["period_end"] >= num_updates), infos[-1])

    def get_current_step(self) -> int:
        """Return the number of the last step; -1 before the first."""
        return self._num_updates

    def get_current_phase_info(self) -> dict[str, int]:
        """Return the period of the last step."""
        return self.get_phase_info(self._num_updates)

    def get_updated_values(self, num_updates: int) -> list[float]:
        """Return the rate of each group.

        Args:
            num_updates: the number of steps before.
        """
        base, low = self.base_lr_values, self.lr_min
        if num_updates < self.num_warmup_steps and not self.is_continuation_from_checkpoint:
            done, start = num_updates / self.num_warmup_steps, self.warmup_starting_lr
            return [start + done * (lr - start) for lr in base]
        infos = self.checkpoint_decay_info
        # after the end it is in the first period, as in pytorch-accelerated: its lowest rate holds
        info = next((info for info in infos if num_updates < info["period_end"]), infos[0])
        past = num_updates - info["pre_decay_step"]
        if past < 0:
            return base
        part = min(past / info["decay_steps"], 1.0) if info["decay_steps"] else 1.0
        if self.use_inverse_sqrt_decay:
            return [lr * (low + (1 - low) * (1 - math.sqrt(part))) for lr in base]
        return [lr / (part * (1.0 / low) + (1.0 - part) * 1.0) for lr in base]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state; a continuation takes a shorter training's options, and not its count."""
        total_steps = self.total_steps
        is_same_run = state_dict["is_continuation_from_checkpoint"] and (
            state_dict["total_steps"] == total_steps
        )
        begins_anew = self.is_continuation_from_checkpoint and not is_same_run
        super().load_state_dict(state_dict)
        if begins_anew:
            self.is_continuation_from_checkpoint = True
            self.total_steps, self._num_updates = total_steps, -1
            self._divide()

    @classmethod
    def create_scheduler_fn(
        cls,
        total_num_epochs: Any = TrainerPlaceholderValues.NUM_EPOCHS,
        num_update_steps_per_epoch: Any = (
            TrainerPlaceholderValues.PER_PROCESS_NUM_UPDATE_STEPS_PER_EPOCH
        ),
        num_warmup_epochs: int | None = None,
        decay_phase_ratio: float = 0.1,
        lr_min: float = 1e-6,
        warmup_starting_lr: float = 1e-6,
        use_inverse_sqrt_decay: bool = True,
        num_checkpoints: int = 1,
        is_continuation_from_checkpoint: bool = False,
    ) -> partial[WSDLrScheduler]:
        """Return a function for `Trainer.train(create_scheduler_fn=...)`.

        The arguments are those of the class, with the warmup in epochs; the run's own numbers stand
        for the first two.
        """
        steps: Any = TrainerPlaceholderValues.PER_PROCESS_NUM_UPDATE_STEPS_PER_EPOCH
        return partial(
            cls,
            num_epochs=total_num_epochs,
            num_update_steps_per_epoch=num_update_steps_per_epoch,
            num_warmup_steps=None if num_warmup_epochs is None else steps * num_warmup_epochs,
            decay_phase_ratio=decay_phase_ratio,
            lr_min=lr_min,
            warmup_starting_lr=warmup_starting_lr,
            use_inverse_sqrt_decay=use_inverse_sqrt_decay,
            num_checkpoints=num_checkpoints,
            is_continuation_from_checkpoint=is_continuation_from_checkpoint,
        )


def estimate_checkpoint_steps(total_steps: int, num_checkpoints: int = 3) -> list[int]:
    """Return the steps at which models are taken: a quarter of all, its double, and so on.

    Args:
        total_steps: the number of steps.
        num_checkpoints: the number of models at most; 1 for one at the end.
    """
    if num_checkpoints == 1:
        return [total_steps]
    steps: list[int] = []
    for index in range(num_checkpoints):
        steps.append(min(total_steps // 4 * 2**index, total_steps))
        if steps[-1] == total_steps:
            break
    return steps


def _require(is_met: bool, name: str, value: Any, rule: str) -> None:
    if not is_met:
        raise OptionError(f"WSDLrScheduler({name}={value!r}): it must be {rule}.")
