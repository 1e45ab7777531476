"""RuntimeEstimator: log the estimated time until the training ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._options import one_of, option_rules, whole_number
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import is_logged

if TYPE_CHECKING:
    from trainer_hooks.clock.clock import Clock
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
"""The seconds in each unit of time."""


class RuntimeEstimator(Callback):
    """Log the estimated time until the training ends, under Composer's name.

    The loggers get `time/remaining_estimate` each `log_every_n_steps` steps, and the hyperparameter
    `time/remaining_estimate_unit`. The estimate assumes the pace of this run since its first
    batches. It includes validations: each validation loader's mean time, as often as the loader
    ran so far, and once more at the end for an `Evaluator` with an interval. A loader that has not
    run yet is not included. The end is that of the training: by epochs, steps, tokens or time.
    Without an end nothing is logged.

    A resumed run measures its pace anew.

    Args:
        skip_batches: the batches at the start of a run that are not measured, as they are slow.
        time_unit: the unit of the estimate: `"hours"`, `"minutes"`, `"seconds"` or `"days"`.

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

    volatile_state: ClassVar[frozenset[str]] = frozenset(
        {"_left", "_start", "_begun", "_loaders", "_current", "_attributed", "time/*"}
    )

    @option_rules(skip_batches=whole_number(), time_unit=one_of(*tuple(SECONDS)))
    def __init__(self, skip_batches: int = 1, time_unit: str = "hours") -> None:
        self.skip_batches = skip_batches
        self.time_unit = time_unit
        self._left = 0
        self._start: Clock | None = None
        self._begun: Clock | None = None
        self._loaders: dict[int, _Loader] = {}
        self._current: _Loader | None = None
        self._attributed = 0.0

    @property
    def state_key(self) -> str:
        """`RuntimeEstimator{...}` with its options."""
        return self._generate_state_key(skip_batches=self.skip_batches, time_unit=self.time_unit)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Log the unit, and start to measure."""
        self._left, self._loaders, self._current = self.skip_batches, {}, None
        self._start = None if self._left else trainer.clock
        self._begun = trainer.clock
        self._attributed = self._begun.eval_seconds
        for logger in trainer.loggers:
            logger.log_hyperparams({"time/remaining_estimate_unit": self.time_unit})

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log the estimate if it is due."""
        if self._start is None:
            self._left -= 1
            if self._left <= 0:
                self._start = trainer.clock
            return
        if not is_logged(trainer):
            return
        clock = trainer.clock
        done = clock.share_done - self._start.share_done
        # nothing is known of the pace before a measured batch, or of an end that never comes
        if done > 0:
            seconds = (clock.train_seconds - self._start.train_seconds) / done
            remaining = seconds * (1 - clock.share_done) + self._validation_seconds(trainer, clock)
            trainer.log_metrics(
                {"time/remaining_estimate": remaining / SECONDS[self.time_unit]},
                trainer.progress.batches_stepped - 1,
            )

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Add the validation time so far to the loader that ran last."""
        self._attribute(trainer.clock)
        self._current = None

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Count a loader's validation when its first batch starts."""
        # no hook tells that a loader begins, but its first batch does
        if batch_idx == 0 and trainer.state.fn == "fit" and not trainer.sanity_checking:
            clock = trainer.clock
            self._attribute(clock)
            self._current = self._loaders.setdefault(dataloader_idx, _Loader())
            self._current.count += 1
            self._current.share = clock.share_done

    def _attribute(self, clock: Clock) -> None:
        """Add the validation time that no loader has yet to the current loader."""
        if self._current is not None:
            self._current.seconds += clock.eval_seconds - self._attributed
            self._attributed = clock.eval_seconds

    def _validation_seconds(self, trainer: Trainer, clock: Clock) -> float:
        """Estimate the seconds of the remaining validations."""
        # the train time of the clock does not include validations, so they are estimated apart
        begun, evaluators = self._begun, trainer.val_evaluators
        if begun is None:
            return 0.0
        self._attribute(clock)
        seconds = 0.0
        for index, loader in self._loaders.items():
            has_own = bool(evaluators) and evaluators[index].when is not None
            seconds += (
                loader.seconds / loader.count * loader.remaining_count(begun.share_done, has_own)
            )
        return seconds


@dataclass(slots=True)
class _Loader:
    """The validations of one loader: their number, their seconds, and the progress at the last."""

    count: int = 0
    seconds: float = 0.0
    share: float = 0.0  # of the training that was done when it last ran, from 0 to 1

    def remaining_count(self, begun: float, is_run_at_end: bool) -> int:
        """Estimate how often it will still run, at the rate since the share `begun` was done."""
        # the share of the training between two of its runs, on average
        between = (self.share - begun) / self.count
        if between <= 0:
            return 0
        rest = (1 - self.share) / between
        # a rest that is whole but for the rounding of floats counts as whole
        return math.ceil(rest - 1e-6) if is_run_at_end else int(rest + 1e-6)
