"""CosineLrScheduler: a cosine with warmup and cooldown."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.accelerated.run_config import TrainerPlaceholderValues
from trainer_hooks.compat.accelerated.schedulers.scheduler_base import StatefulSchedulerBase
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = ["CosineLrScheduler"]


class CosineLrScheduler(StatefulSchedulerBase):
    """Raise the rate in equal steps, lower it by a cosine, and hold the lowest.

    As in pytorch-accelerated, the cosine is cut off: it spans all steps but those of warmup and
    cooldown, counts from the end of the warmup, and stops as many steps before the cooldown as the
    warmup has.

    Args:
        optimizer: the optimizer.
        total_num_epochs: the number of epochs, with those of warmup and cooldown.
        num_update_steps_per_epoch: the number of optimizer steps in an epoch.
        k_decay: the power of the time within the cosine; above 1 the rate stays high for longer.
        lr_min: the lowest rate.
        min_lr_ratio: the lowest rate as a fraction of each group's own, in place of `lr_min`.
        num_warmup_epochs: the number of epochs of warmup.
        warmup_starting_lr: the rate with which a warmup begins.
        warmup_starting_lr_ratio: that rate as a fraction of each group's own, from the first step
            of the scheduler on.
        num_cooldown_epochs: the number of epochs with the lowest rate.

    Raises:
        OptionError: there is no step, or `lr_min` is negative.

    Example::

        import torch

        from trainer_hooks.compat.accelerated.schedulers import CosineLrScheduler

        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
        scheduler = CosineLrScheduler(optimizer, 2, 4, lr_min=0.1)
        rates = []
        for _ in range(8):
            optimizer.step()
            scheduler.step()
            rates.append(round(optimizer.param_groups[0]["lr"], 2))
        assert rates == [0.5, 0.48, 0.44, 0.38, 0.3, 0.22, 0.16, 0.12]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_num_epochs: int,
        num_update_steps_per_epoch: int,
        k_decay: float = 1.0,
        lr_min: float = 1e-6,
        min_lr_ratio: float | None = None,
        num_warmup_epochs: int = 0,
        warmup_starting_lr: float = 1e-6,
        warmup_starting_lr_ratio: float | None = None,
        num_cooldown_epochs: int = 0,
    ) -> None:
        super().__init__(optimizer)
        steps = num_update_steps_per_epoch
        if total_num_epochs <= 0 or steps <= 0 or lr_min < 0:
            raise OptionError(
                f"CosineLrScheduler(total_num_epochs={total_num_epochs!r}, "
                f"num_update_steps_per_epoch={steps!r}, lr_min={lr_min!r}): the first two must be "
                "above 0, and lr_min 0 or more."
            )
        self.total_iterations = total_num_epochs * steps
        self.lr_min_ratio, self.lr_min = min_lr_ratio, lr_min
        self.warmup_iterations = num_warmup_epochs * steps
        self.warmup_lr_init, self.warmup_lr_ratio = warmup_starting_lr, warmup_starting_lr_ratio
        self.k_decay = k_decay
        self.num_cooldown_iterations = num_cooldown_epochs * steps
        if self.warmup_iterations:
            self._update_param_groups(self.warmup_lr_init)

    def get_updated_values(self, num_updates: int) -> list[float]:
        """Return the rate of each group.

        Args:
            num_updates: the number of steps before.
        """
        warmup = self.warmup_iterations
        if num_updates < warmup:
            return [
                _either(self.warmup_lr_ratio, lr, self.warmup_lr_init)
                + num_updates * ((lr - self.warmup_lr_init) / warmup)
                for lr in self.base_lr_values
            ]
        lowest = [_either(self.lr_min_ratio, lr, self.lr_min) for lr in self.base_lr_values]
        length = self.total_iterations - (warmup + self.num_cooldown_iterations)
        if num_updates >= length:
            return lowest
        # in this order: another would change the last bit
        angle = math.pi * (num_updates - warmup) ** self.k_decay / length**self.k_decay
        return [
            low + 0.5 * (lr - low) * (1 + math.cos(angle))
            for low, lr in zip(lowest, self.base_lr_values, strict=True)
        ]

    @classmethod
    def create_scheduler_fn(
        cls,
        total_num_epochs: Any = TrainerPlaceholderValues.NUM_EPOCHS,
        num_update_steps_per_epoch: Any = TrainerPlaceholderValues.NUM_UPDATE_STEPS_PER_EPOCH,
        k_decay: float = 1.0,
        lr_min: float = 1e-6,
        min_lr_ratio: float | None = None,
        num_warmup_epochs: int = 0,
        warmup_starting_lr: float = 1e-6,
        warmup_starting_lr_ratio: float | None = None,
        num_cooldown_epochs: int = 0,
    ) -> partial[CosineLrScheduler]:
        """Return a function for `Trainer.train(create_scheduler_fn=...)`.

        The arguments are those of the class; the run's own numbers stand for the first two.
        """
        return partial(
            cls,
            total_num_epochs=total_num_epochs,
            num_update_steps_per_epoch=num_update_steps_per_epoch,
            k_decay=k_decay,
            lr_min=lr_min,
            min_lr_ratio=min_lr_ratio,
            num_warmup_epochs=num_warmup_epochs,
            warmup_starting_lr=warmup_starting_lr,
            warmup_starting_lr_ratio=warmup_starting_lr_ratio,
            num_cooldown_epochs=num_cooldown_epochs,
        )


def _either(ratio: float | None, lr: float, value: float) -> float:
    """Return a fraction of a rate if there is one, and else a value."""
    return value if ratio is None else ratio * lr
