"""LearningRateFinder: try growing learning rates before training, and choose one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import log
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice, check_count, check_number
from trainer_hooks.callbacks.tuning.attributes import Setting, find_setting
from trainer_hooks.callbacks.tuning.lr_range import LRFinderResult, RateRamp
from trainer_hooks.errors import OptionError
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import DataModule, Module

__all__ = ["LearningRateFinder"]

_WHERE = "LearningRateFinder"


class LearningRateFinder(Callback):
    """Try growing learning rates for some steps before training, and train with a good one.

    The rate grows from `min_lr` to `max_lr`, and the loss is noted. Good is the rate at which it
    falls most steeply. Afterwards everything is as it was, to the last random number: the weights,
    the optimizers, the module's attributes, the loaders; no logger and no other callback hears of
    it. Then the rate is set in the module, as the attribute or hyperparameter `lr`,
    `learning_rate`, or `attr_name`, and the optimizers take it over as `configure_optimizers` makes
    them with it.

    A resumed run does not try again: it knows what was found. To try at other times, call
    `lr_find` in `on_train_epoch_start` of a subclass, with an `on_fit_start` that does nothing.

    Args:
        min_lr: the first rate.
        max_lr: the last one.
        num_training_steps: how many steps are tried.
        mode: `"exponential"` or `"linear"`: how the rate grows.
        early_stop_threshold: end it when the loss is over so many times the lowest; None: do not.
        update_attr: whether the rate is set.
        attr_name: the name of the attribute or hyperparameter that holds it.

    Attributes:
        optimal_lr: what was found, with `results`, `suggestion()` and `plot()`; None before.
        chosen: the rate that was set, or None.

    State: the rates, the losses, and the rate that was chosen.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a fit, the module has no such attribute, or more than one optimizer.

    Example::

        finder = LearningRateFinder(num_training_steps=30, update_attr=False)
        Trainer(max_epochs=2, callbacks=[finder]).fit(module, train_loader)
        print(finder.optimal_lr.suggestion())
    """

    SUPPORTED_MODES: ClassVar[tuple[str, ...]] = ("linear", "exponential")

    band: ClassVar[Band] = Band.TRANSFORM

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
        low, high = check_number("min_lr", min_lr, _WHERE), check_number("max_lr", max_lr, _WHERE)
        if not 0 < low < high:
            raise OptionError(
                f"min_lr {min_lr!r} and max_lr {max_lr!r} of {_WHERE}: the first must be over 0 "
                "and below the second. Pass such a range."
            )
        self.min_lr, self.max_lr = low, high
        self.num_training_steps = check_count("num_training_steps", num_training_steps, _WHERE, 2)
        self.mode: str = check_choice("mode", mode, _WHERE, self.SUPPORTED_MODES)
        threshold = early_stop_threshold
        if threshold is not None and check_number("early_stop_threshold", threshold, _WHERE) <= 1:
            raise OptionError(
                f"early_stop_threshold {threshold!r} of {_WHERE}: it must be over 1, or None. Pass "
                "how many times the lowest loss is too much."
            )
        self.early_stop_threshold = threshold
        self.update_attr: bool = check_choice("update_attr", update_attr, _WHERE, (True, False))
        if not isinstance(attr_name, str):
            raise OptionError(
                f"attr_name {attr_name!r} of {_WHERE}: it must be the name of an attribute. Pass "
                "it as a text."
            )
        self.attr_name = attr_name
        self.optimal_lr: LRFinderResult | None = None
        self.chosen: float | None = None

    @property
    def state_key(self) -> str:
        """The class's name with the attribute that it sets."""
        return self._generate_state_key(attr_name=self.attr_name)

    def state_dict(self) -> dict[str, Any]:
        """Return what was found, and what was chosen."""
        found = self.optimal_lr
        if found is None:
            return {"found": None, "chosen": None}
        return {
            "found": {
                "mode": found.mode, "lr_min": found.lr_min, "lr_max": found.lr_max,
                "num_training": found.num_training,
                "lr": list(found.results["lr"]), "loss": list(found.results["loss"]),
            },
            "chosen": self.chosen,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        found, self.chosen = state_dict["found"], state_dict["chosen"]
        self.optimal_lr = None
        if found is not None:
            names = ("mode", "lr_min", "lr_max", "num_training")
            self.optimal_lr = LRFinderResult(*(found[name] for name in names))
            self.optimal_lr.results = {"lr": list(found["lr"]), "loss": list(found["loss"])}

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Find the rate for a new training; set the one that was found in one that is resumed."""
        if trainer.progress.is_fresh:
            self.lr_find(trainer, module)
        elif self.update_attr and self.chosen is not None:
            # the optimizers have it from the checkpoint
            self.setting_of(module, trainer.datamodule).write(self.chosen)

    def lr_find(self, trainer: Trainer, module: Module) -> None:
        """Try the rates now, and set the one that is chosen.

        Raises:
            UsageError: it is inside an epoch, or the module has nothing to set.
        """
        if trainer.fast_dev_run:
            log.info("%s: nothing is tried in a dry run (fast_dev_run)", _WHERE)
            return
        setting = self.setting_of(module, trainer.datamodule) if self.update_attr else None
        found = LRFinderResult(self.mode, self.min_lr, self.max_lr, self.num_training_steps)
        ramp = RateRamp(found, self.early_stop_threshold)
        trainer.trial_run(ramp, steps=self.num_training_steps)
        if ramp.has_diverged:
            log.info("%s: the loss diverged after %d steps", _WHERE, len(found.results["lr"]))
        self.optimal_lr, self.chosen = found, None
        if setting is None:
            return
        self.chosen = found.suggestion()
        if self.chosen is not None:
            setting.write(self.chosen)
            trainer.renew_learning_rates()
            log.info("%s: %s is set to %g", _WHERE, setting.name, self.chosen)

    def setting_of(self, module: Module, datamodule: DataModule | None) -> Setting:
        """Return the number that it sets.

        Raises:
            UsageError: neither of them has it.
        """
        names = (self.attr_name,) if self.attr_name else ("lr", "learning_rate")
        return find_setting(names, module, datamodule, _WHERE, "attr_name=")
