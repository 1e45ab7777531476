"""TunerGuest: Lightning's finders of learning rates and batch sizes, and the runs that they try."""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.lightning.callbacks import LightningGuest
from trainer_hooks.adapters.lightning.home import home_of
from trainer_hooks.adapters.lightning.module_view import unwrapped
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks import BatchSizeFinder, LearningRateFinder
from trainer_hooks.module import LRSchedulerConfig

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TunerGuest"]

_SIZES = (
    "mode", "steps_per_trial", "init_val", "max_trials", "batch_arg_name", "margin", "max_val",
)  # fmt: skip


class TunerGuest(LightningGuest):
    """Stand for a finder of learning rates or batch sizes.

    When it searches is the guest's matter. The search runs loops, so these are trials of ours, with
    the guest's settings. Rates are tried and judged by Lightning's own parts.
    """

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        if hasattr(guest, "lr_find"):
            vars(guest)["lr_find"] = self._find_rate
        else:
            vars(guest)["scale_batch_size"] = self._find_size

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what calls the guest at `hook`, less the checks of Lightning's own `setup`."""
        if hook == "setup" and "lightning" in type(self.guest).setup.__module__:
            return None
        return super().translated(hook)

    def _find_rate(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's own
        real, has = unwrapped(trainer), vars(self.guest)
        if real.fast_dev_run:
            return
        setting = LearningRateFinder(attr_name=has["_attr_name"]).setting_of(
            real.module, real.datamodule
        ) if has["_update_attr"] else None  # fmt: skip
        parts = vars(importlib.import_module(f"{home_of(self.guest)}.tuner.lr_finder"))
        steps = has["_num_training_steps"]
        found = parts["_LRFinder"](has["_mode"], has["_min_lr"], has["_max_lr"], steps)
        losses = parts["_LRCallback"](steps, has["_early_stop_threshold"])
        kind = parts["_LinearLR" if has["_mode"] == "linear" else "_ExponentialLR"]
        ramp = _Ramp(has["_min_lr"], lambda optimizer: kind(optimizer, has["_max_lr"], steps))
        real.trial_run(ramp, LightningGuest.hosting(losses), steps=_most_steps(real, steps))
        found.results.update({"lr": losses.lrs, "loss": losses.losses})
        self.guest.optimal_lr = found
        rate = found.suggestion() if setting is not None else None
        if setting is not None and rate is not None:
            setting.write(rate)
            real.renew_learning_rates()

    def _find_size(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's own
        has = vars(self.guest)
        given = {name: has[f"_{name}"] for name in _SIZES if f"_{name}" in has}
        finder = BatchSizeFinder(**given)
        real = unwrapped(trainer)
        finder.scale_batch_size(real, real.module)
        self.guest.optimal_batch_size = finder.optimal_batch_size


class _Ramp(Callback):
    """Let Lightning's scheduler raise the learning rate from step to step.

    Args:
        low: the first rate.
        make: returns the scheduler of an optimizer.
    """

    def __init__(self, low: float, make: Callable[[Any], Any]) -> None:
        self._low, self._make = low, make
        self._scheduler: Any = None

    def on_train_start(self, trainer: Any, module: Any) -> None:  # noqa: ARG002 - a hook
        """Begin with the lowest."""
        (optimizer,) = trainer.optimizers
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] = self._low
        self._scheduler = self._make(optimizer)
        # where `_LRCallback` looks for the rate; it is stepped here
        trainer.lr_scheduler_configs.append(LRSchedulerConfig(self._scheduler, interval="step"))

    def on_train_batch_end(
        self,
        trainer: Any,
        module: Any,  # noqa: ARG002 - a hook
        outputs: Any,  # noqa: ARG002
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Raise it."""
        if trainer.progress.batches_in_window == 0:
            self._scheduler.step()


def _most_steps(trainer: Any, steps: int) -> int:
    """Return how many steps are tried at most: there, as many as the fit may still make."""
    batches = trainer.num_training_batches
    if trainer.max_epochs < 0 or math.isinf(batches):
        return steps
    windows = math.ceil(batches / trainer.accumulate_grad_batches)
    most: int = windows * (trainer.max_epochs - trainer.current_epoch)
    return max(1, min(steps, most))
