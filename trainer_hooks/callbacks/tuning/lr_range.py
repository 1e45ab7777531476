"""A learning rate range test: the rates that were tried, what they led to, and which to choose."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import log
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_count
from trainer_hooks.errors import ModuleError, UsageError

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["LRFinderResult", "RateRamp"]

_MEMORY = 0.98
"""How much of the running mean of the losses is kept at each step."""


class LRFinderResult:
    """What a learning rate range test found.

    Attributes:
        mode: `"exponential"` or `"linear"`: how the rates grew.
        lr_min: the first rate.
        lr_max: the rate that the test was to end with.
        num_training: the steps that it was to take.
        results: the rates under `"lr"` and the smoothed losses under `"loss"`, step by step.
    """

    def __init__(self, mode: str, lr_min: float, lr_max: float, num_training: int) -> None:
        self.mode = mode
        self.lr_min = lr_min
        self.lr_max = lr_max
        self.num_training = num_training
        self.results: dict[str, list[float]] = {"lr": [], "loss": []}

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0; the last one is `lr_max`."""
        share = 0.0 if step == 0 else (step + 1) / self.num_training
        if self.mode == "linear":
            return self.lr_min + share * (self.lr_max - self.lr_min)
        return self.lr_min * math.pow(self.lr_max / self.lr_min, share)

    def suggestion(self, skip_begin: int = 10, skip_end: int = 1) -> float | None:
        """Return the rate at which the loss falls most steeply, or None if there are too few.

        Args:
            skip_begin: how many steps at the start do not count.
            skip_end: how many at the end do not.

        Raises:
            OptionError: an argument is no whole number of at least 0.
        """
        check_count("skip_begin", skip_begin, "suggestion")
        check_count("skip_end", skip_end, "suggestion")
        rates, losses = self.results["lr"], self.results["loss"]
        chosen = slice(skip_begin, max(skip_begin, len(losses) - skip_end))
        points = [
            (rate, loss)
            for rate, loss in zip(rates[chosen], losses[chosen], strict=True)
            if math.isfinite(loss)
        ]
        if len(points) < 2:
            log.warning(
                "no learning rate can be suggested: of %d steps, %d are left after skip_begin=%d "
                "and skip_end=%d. Take more steps, or skip fewer.",
                len(losses), len(points), skip_begin, skip_end,
            )  # fmt: skip
            return None
        at, values = (torch.tensor(column, dtype=torch.float64) for column in zip(*points))  # noqa: B905
        (slopes,) = torch.gradient(values, spacing=(at,))
        return points[int(slopes.argmin())][0]

    def plot(self, suggest: bool = False, show: bool = False, ax: Any = None) -> Any:
        """Draw the losses over the rates with matplotlib; return the figure.

        Args:
            suggest: whether the suggested rate is marked.
            show: whether the figure is shown at once.
            ax: the axes to draw on; a new figure unless given.

        Raises:
            UsageError: matplotlib is not installed.
        """
        try:
            from matplotlib import pyplot as plt
        except ImportError as error:
            raise UsageError(
                "plot() draws with the package matplotlib, which is not installed: "
                "pip install 'trainer-hooks[plots]'."
            ) from error
        figure: Any
        if ax is None:
            figure, ax = plt.subplots()
        else:
            figure = ax.figure
        ax.plot(self.results["lr"], self.results["loss"])
        if self.mode == "exponential":
            ax.set_xscale("log")
        ax.set_xlabel("Learning rate")
        ax.set_ylabel("Loss")
        best = self.suggestion() if suggest else None
        if best is not None:
            loss = self.results["loss"][self.results["lr"].index(best)]
            ax.plot([best], [loss], marker="o", markersize=10, color="red")
        if show:
            plt.show()
        return figure


class RateRamp(Callback):
    """Lets the learning rate grow from step to step, and notes the loss.

    Args:
        result: where it goes.
        early_stop_threshold: how many times the lowest loss ends the test; None: nothing does.
    """

    def __init__(self, result: LRFinderResult, early_stop_threshold: float | None) -> None:
        self._result = result
        self._threshold = early_stop_threshold
        self._window: list[float] = []
        self._mean = 0.0
        self._best = math.inf
        self.has_diverged = False

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Make sure that there is one learning rate to vary.

        Raises:
            UsageError: there is no optimizer, or several.
        """
        count = len(trainer.optimizers)
        if count != 1:
            raise UsageError(
                f"learning rate range test of {type(module).__qualname__}, which has {count} "
                "optimizers: it varies the rate of one. Return one from configure_optimizers."
            )

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Set the rate of the step that this batch belongs to."""
        rate = self._result.rate(len(self._result.results["lr"]))
        for group in trainer.optimizers[0].param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Note the loss of a step that was made.

        Raises:
            ModuleError: the module steps itself and returns no loss.
        """
        if "loss" in outputs:
            self._window.append(float(outputs["loss"]))
        elif not module.automatic_optimization:
            raise ModuleError(
                f"{type(module).__qualname__}.training_step returned no loss, which a learning "
                "rate range test goes by: return it, also where you step yourself."
            )
        if trainer.progress.batches_in_window == 0 and self._window:
            self._note(trainer, sum(self._window) / len(self._window))
            self._window = []

    def _note(self, trainer: Trainer, loss: float) -> None:
        results = self._result.results
        step = len(results["lr"])
        self._mean = _MEMORY * self._mean + (1 - _MEMORY) * loss
        smoothed = self._mean / (1 - math.pow(_MEMORY, step + 1))
        results["lr"].append(self._result.rate(step))
        results["loss"].append(smoothed)
        if self._threshold is not None and step > 0:
            self.has_diverged = not smoothed <= self._threshold * self._best
        if self.has_diverged:
            trainer.stop("the loss diverges")
        if smoothed < self._best:
            self._best = smoothed
