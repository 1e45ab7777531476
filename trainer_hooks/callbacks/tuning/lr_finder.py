"""LearningRateFinder: a learning rate range test before training, with its results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._log import log
from trainer_hooks._names import ours
from trainer_hooks._options import (
    FLAG,
    Combination,
    Rule,
    check_option,
    finite_number,
    one_of,
    option_rules,
    whole_number,
)
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.tuning.tuned_attribute import TunedAttribute, find_tuned_attribute
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import ModuleError, UsageError
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.datamodule import DataModule
    from trainer_hooks.module.module import Module

_SMOOTHING = 0.98
"""The weight of the old mean in the exponential moving average of the losses."""
_WHERE = "LearningRateFinder"
STEPS = whole_number(2)
"""The rule for the number of steps of a learning rate range test."""


class LearningRateFinder(Callback):
    """Try growing learning rates for some steps before training, and train with a good one.

    The rate grows from `min_lr` to `max_lr`, and the loss is recorded. The rate at which the loss
    falls most steeply is chosen. Afterwards everything is as it was, to the last random number: the
    weights, the optimizers, the module's attributes, the loaders; no logger and no other callback
    takes part. Then the rate is set in the module, as the attribute or hyperparameter `lr`,
    `learning_rate`, or `attr_name`, and the optimizers get the rates that `configure_optimizers`
    gives them with it.

    A resumed run does not try again: its state holds the earlier result. To try at other times,
    call `lr_find` in `on_train_epoch_start` of a subclass, with an `on_fit_start` that does
    nothing.

    Args:
        min_lr: the first rate.
        max_lr: the last one.
        num_training_steps: the number of steps to try.
        mode: `"exponential"` or `"linear"`: the growth of the rate.
        early_stop_threshold: stop when the loss exceeds the lowest loss times this number; None for
            no limit.
        update_attr: whether the rate is set.
        attr_name: the name of the attribute or hyperparameter that holds it.

    Attributes:
        optimal_lr: the result, with `results`, `suggestion()` and `plot()`; None before.
        chosen: the rate that was set, or None.

    State: the rates, the losses, and the chosen rate.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a fit, the module has no such attribute, or more than one optimizer.

    Example::

        finder = LearningRateFinder(num_training_steps=30, update_attr=False)
        Trainer(max_epochs=2, callbacks=[finder]).fit(module, train_loader)
        print(finder.optimal_lr.suggestion())
    """

    needs_steps: ClassVar[bool] = True
    SUPPORTED_MODES: ClassVar[tuple[str, ...]] = ("linear", "exponential")

    band: ClassVar[Band] = Band.TRANSFORM

    @option_rules(
        Combination(
            ("min_lr", "max_lr"),
            lambda low, high: 0 < low < high,
            "the first must be over 0 and below the second. Pass such a range.",
            "min_lr {min_lr!r} and max_lr {max_lr!r} of {owner}",
        ),
        min_lr=finite_number(),
        max_lr=finite_number(),
        num_training_steps=STEPS,
        mode=one_of(*SUPPORTED_MODES),
        early_stop_threshold=(
            finite_number().unless(None),
            Rule(
                "over 1, or None",
                lambda threshold: threshold is None or threshold > 1,
                "Pass how many times the lowest loss is too much.",
            ),
        ),
        update_attr=FLAG,
        attr_name=Rule(
            "the name of an attribute", lambda name: isinstance(name, str), "Pass it as a text."
        ),
    )
    def __init__(
        self,
        min_lr: float = 1e-8,
        max_lr: float = 1,
        num_training_steps: int = 100,
        mode: str = "exponential",
        early_stop_threshold: float | None = 4.0,
        update_attr: bool = True,
        attr_name: str = "",
    ) -> None:
        self.min_lr, self.max_lr = min_lr, max_lr
        self.num_training_steps = num_training_steps
        self.mode = mode
        self.early_stop_threshold = early_stop_threshold
        self.update_attr = update_attr
        self.attr_name = attr_name
        self.optimal_lr: LRFinderResult | None = None
        self.chosen: float | None = None

    @property
    def state_key(self) -> str:
        """The class name with the name of the attribute."""
        return self._generate_state_key(attr_name=self.attr_name)

    def state_dict(self) -> dict[str, Any]:
        """Return the result and the chosen rate."""
        result = self.optimal_lr
        if result is None:
            return {"found": None, "chosen": None}
        # plain data, as a checkpoint is loaded without making objects of any class
        return {
            "found": {
                "mode": result.mode, "lr_min": result.lr_min, "lr_max": result.lr_max,
                "num_training": result.num_training,
                "lr": list(result.results["lr"]), "loss": list(result.results["loss"]),
            },
            "chosen": self.chosen,
        }  # fmt: skip

    @checks_state(
        {
            "found": (
                None,
                {
                    "mode": str,
                    "lr_min": float,
                    "lr_max": float,
                    "num_training": int,
                    "lr": list[float],
                    "loss": list[float],
                },
            ),
            "chosen": float | None,
        }
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the result and the chosen rate."""
        result, self.chosen = state_dict["found"], state_dict["chosen"]
        self.optimal_lr = None
        if result is not None:
            names = ("mode", "lr_min", "lr_max", "num_training")
            self.optimal_lr = LRFinderResult(*(result[name] for name in names))
            self.optimal_lr.results = {"lr": list(result["lr"]), "loss": list(result["loss"])}

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Find the rate for a new training; set the earlier one in a resumed training."""
        if trainer.progress.is_new_training:
            self.lr_find(trainer, module)
        elif self.update_attr and self.chosen is not None:
            # the module's attribute alone: the optimizers' states came from the checkpoint
            ours(self).tuned_attribute(module, trainer.datamodule).write(self.chosen)

    def lr_find(self, trainer: Trainer, module: Module) -> None:
        """Try the rates now, and set the chosen one.

        Raises:
            UsageError: the run is inside an epoch, or the module has no attribute to set.
        """
        if trainer.fast_dev_run:
            log.info("%s: nothing is tried in a dry run (fast_dev_run)", _WHERE)
            return
        attribute = (
            ours(self).tuned_attribute(module, trainer.datamodule) if self.update_attr else None
        )
        result = LRFinderResult(self.mode, self.min_lr, self.max_lr, self.num_training_steps)
        ramp = RateRamp(result, self.early_stop_threshold)
        # a trial run restores all that it changed: weights, optimizers, loaders, random state
        trainer.trial_run(ramp, steps=self.num_training_steps)
        if ramp.has_diverged:
            log.info("%s: the loss diverged after %d steps", _WHERE, len(result.results["lr"]))
        self.optimal_lr, self.chosen = result, None
        if attribute is None:
            return
        self.chosen = result.suggestion()
        if self.chosen is not None:
            attribute.write(self.chosen)
            trainer.renew_learning_rates()
            log.info("%s: %s is set to %g", _WHERE, attribute.name, self.chosen)

    def tuned_attribute(self, module: Module, datamodule: DataModule | None) -> TunedAttribute:
        """Return the attribute that this finder sets.

        Raises:
            UsageError: neither the module nor the data module has it.
        """
        names = (self.attr_name,) if self.attr_name else ("lr", "learning_rate")
        return find_tuned_attribute(names, module, datamodule, _WHERE, "attr_name=")


class LRFinderResult:
    """The result of a learning rate range test.

    Attributes:
        mode: `"exponential"` or `"linear"`: the growth of the rates.
        lr_min: the first rate.
        lr_max: the last rate, unless the test stops early.
        num_training: the number of steps, unless the test stops early.
        results: the rates under `"lr"` and the smoothed losses under `"loss"`, step by step.
    """

    def __init__(self, mode: str, lr_min: float, lr_max: float, num_training: int) -> None:
        self.mode = mode
        self.lr_min = lr_min
        self.lr_max = lr_max
        self.num_training = num_training
        self.results: dict[str, list[float]] = {"lr": [], "loss": []}
        self._warnings: set[str] = set()

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0; the last one is `lr_max`."""
        # the first rate is exactly `lr_min`, the last exactly `lr_max`
        share = 0.0 if step == 0 else (step + 1) / self.num_training
        if self.mode == "linear":
            return self.lr_min + share * (self.lr_max - self.lr_min)
        return self.lr_min * math.pow(self.lr_max / self.lr_min, share)

    def suggestion(self, skip_begin: int = 10, skip_end: int = 1) -> float | None:
        """Return the rate at which the loss falls most steeply, or None with fewer than two points.

        Args:
            skip_begin: the number of steps at the start to leave out.
            skip_end: the number of steps at the end to leave out.

        Raises:
            OptionError: an argument is not an integer of at least 0.
        """
        check_option("skip_begin", skip_begin, "suggestion", whole_number())
        check_option("skip_end", skip_end, "suggestion", whole_number())
        rates, losses = self.results["lr"], self.results["loss"]
        chosen = slice(skip_begin, max(skip_begin, len(losses) - skip_end))
        steps = [step for step in range(len(losses))[chosen] if math.isfinite(losses[step])]
        if len(steps) < 2:
            self._warn_once(
                self._why_the_loss_is_useless()
                or f"of {len(losses)} steps, {len(steps)} are left after skip_begin={skip_begin} "
                f"and skip_end={skip_end}. Take more steps, or skip fewer."
            )
            return None
        values = torch.tensor([losses[step] for step in steps], dtype=torch.float64)
        # from step to step, so over the logarithm of exponential rates: over the rates themselves
        # the lowest ones would win, as any noise of the loss is steep between them
        (slopes,) = torch.gradient(values, spacing=(torch.tensor(steps, dtype=torch.float64),))
        return rates[steps[int(slopes.argmin())]]

    def _why_the_loss_is_useless(self) -> str:
        """Return the first step with a NaN or infinite loss and a cure; empty without one."""
        rates, losses = self.results["lr"], self.results["loss"]
        first = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
        if first is None:
            return ""
        cure = (
            "Pass a lower max_lr or more steps, or look for the cause in the loss and the data."
            if first
            else "No learning rate helps: look for the cause in the loss, the data or the weights."
        )
        return (
            f"the loss is {losses[first]} from step {first + 1} on, at the rate "
            f"{rates[first]:g}. {cure}"
        )

    def _warn_once(self, reason: str) -> None:
        # a finder asks for a suggestion, and so may the user
        if reason not in self._warnings:
            self._warnings.add(reason)
            log.warning("no learning rate can be suggested: %s", reason)

    def plot(self, suggest: bool = False, show: bool = False, ax: Any = None) -> Any:
        """Plot the losses over the rates with matplotlib, and return the figure.

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
        figure, ax = plt.subplots() if ax is None else (ax.figure, ax)
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
    """A trial callback that raises the learning rate from step to step and records the loss.

    Args:
        result: the result to fill.
        early_stop_threshold: the multiple of the lowest loss at which the test stops; None for no
            limit.
    """

    def __init__(self, result: LRFinderResult, early_stop_threshold: float | None) -> None:
        self._result = result
        self._threshold = early_stop_threshold
        self._window: list[float] = []
        self._mean = 0.0
        self._best = math.inf
        self.has_diverged = False

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Check that there is one optimizer.

        Raises:
            UsageError: there is none, or there are several.
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
        # a rate is recorded for each step made, so this is the index of the coming one
        rate = self._result.rate(len(self._result.results["lr"]))
        for group in trainer.optimizers[0].param_groups:
            # in place: a capturable or compiled optimizer holds on to its tensor of the rate
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Record the mean loss of a completed step.

        Raises:
            ModuleError: the module optimizes manually and returns no loss.
        """
        if "loss" in outputs:
            self._window.append(float(outputs["loss"]))
        elif not module.automatic_optimization:
            raise ModuleError(
                f"{type(module).__qualname__}.training_step returned no loss, which a learning "
                "rate range test goes by: return it, also where you step yourself."
            )
        # inside an accumulation window no step was made
        if trainer.progress.batches_in_window == 0 and self._window:
            self._record(trainer, sum(self._window) / len(self._window))
            self._window = []

    def _record(self, trainer: Trainer, loss: float) -> None:
        results = self._result.results
        step = len(results["lr"])
        self._mean = _SMOOTHING * self._mean + (1 - _SMOOTHING) * loss
        # the division corrects the bias of an average that starts at 0, as in Adam
        smoothed = self._mean / (1 - math.pow(_SMOOTHING, step + 1))
        results["lr"].append(self._result.rate(step))
        results["loss"].append(smoothed)
        if self._threshold is not None and step > 0:
            # negated, so that a NaN loss counts as diverged
            self.has_diverged = not smoothed <= self._threshold * self._best
        if self.has_diverged:
            trainer.stop("the loss diverges")
        if smoothed < self._best:
            self._best = smoothed
