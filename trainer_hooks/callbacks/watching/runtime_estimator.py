"""RuntimeEstimator: log how long the training will still take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice, check_count
from trainer_hooks.callbacks.watching.due import is_logged
from trainer_hooks.callbacks.watching.speed_monitor import SECONDS

if TYPE_CHECKING:
    from trainer_hooks.clock import Clock
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["RuntimeEstimator"]

_WHERE = "RuntimeEstimator"


class RuntimeEstimator(Callback):
    """Log how long the training will still take, under Composer's name.

    The loggers are given `time/remaining_estimate` each `log_every_n_steps` steps, and the
    hyperparameter `time/remaining_estimate_unit`. It is what the rest of the training takes at the
    pace of this run since its first batches, validations included: their mean time, as often as
    they came so far. Whatever ends the training counts: epochs, steps, tokens, time. Without an
    end nothing is logged.

    A resumed run measures its pace anew.

    Args:
        skip_batches: how many batches of a run are left out, as the first ones are slow.
        time_unit: what the estimate is counted in: `"hours"`, `"minutes"`, `"seconds"` or `"days"`.

    State: none.

    Raises:
        OptionError: an argument is outside its rule.

    Example::

        estimator = RuntimeEstimator(time_unit="seconds")
        trainer = Trainer(
            max_epochs=2, logger=CSVLogger("logs"), log_every_n_steps=2, callbacks=[estimator]
        )
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(self, skip_batches: int = 1, time_unit: str = "hours") -> None:
        self.skip_batches = check_count("skip_batches", skip_batches, _WHERE)
        self.time_unit: str = check_choice("time_unit", time_unit, _WHERE, tuple(SECONDS))
        self._left = 0
        self._start: Clock | None = None
        self._begun: Clock | None = None
        self._validations = 0
        self._validated_share = 0.0

    @property
    def state_key(self) -> str:
        """The class with what tells apart what two of them log."""
        return self._generate_state_key(skip_batches=self.skip_batches, time_unit=self.time_unit)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Tell the unit, and measure from here on."""
        self._left, self._validations = self.skip_batches, 0
        self._start = None if self._left else trainer.clock
        self._begun = trainer.clock
        for logger in trainer.loggers:
            logger.log_hyperparams({"time/remaining_estimate_unit": self.time_unit})

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log the estimate, if it is due."""
        if self._start is None:
            self._left -= 1
            if self._left <= 0:
                self._start = trainer.clock
            return
        if not is_logged(trainer):
            return
        clock = trainer.clock
        done = clock.share_done - self._start.share_done
        if done > 0:
            seconds = (clock.train_seconds - self._start.train_seconds) / done
            remaining = seconds * (1 - clock.share_done) + self._validating(clock)
            trainer.log_metrics(
                {"time/remaining_estimate": remaining / SECONDS[self.time_unit]},
                trainer.progress.batches_stepped - 1,
            )

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Count a validation."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._validations += 1
            self._validated_share = trainer.clock.share_done

    def _validating(self, clock: Clock) -> float:
        """Return the seconds that the validations to come will take."""
        begun = self._begun
        if begun is None or not self._validations:
            return 0.0
        between = (self._validated_share - begun.share_done) / self._validations
        if between <= 0:
            return 0.0
        mean = (clock.eval_seconds - begun.eval_seconds) / self._validations
        # a rest that is a hair short of whole, as sums of floats are, is whole
        return mean * int((1 - self._validated_share) / between + 1e-6)
