"""RuntimeEstimator: log how long the training will still take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice, check_count
from trainer_hooks.callbacks.watching.due import is_logged

if TYPE_CHECKING:
    from trainer_hooks.clock import Clock
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["SECONDS", "RuntimeEstimator"]

_WHERE = "RuntimeEstimator"
SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
"""How many seconds a unit of time has."""


class RuntimeEstimator(Callback):
    """Log how long the training will still take, under Composer's name.

    The loggers are given `time/remaining_estimate` each `log_every_n_steps` steps, and the
    hyperparameter `time/remaining_estimate_unit`. It is what the rest of the training takes at the
    pace of this run since its first batches, validations included: for each validation loader its
    mean time, as often as it came so far, and once at the end where it is an `Evaluator` with an
    interval. One that has not come yet is not known of. Whatever ends the training counts: epochs,
    steps, tokens, time. Without an end nothing is logged.

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

    volatile_state: ClassVar[frozenset[str]] = frozenset(
        {"_left", "_start", "_begun", "_loaders", "_current", "_attributed", "time/*"}
    )

    def __init__(self, skip_batches: int = 1, time_unit: str = "hours") -> None:
        self.skip_batches = check_count("skip_batches", skip_batches, _WHERE)
        self.time_unit: str = check_choice("time_unit", time_unit, _WHERE, tuple(SECONDS))
        self._left = 0
        self._start: Clock | None = None
        self._begun: Clock | None = None
        self._loaders: dict[int, _Loader] = {}
        self._current: _Loader | None = None
        self._attributed = 0.0

    @property
    def state_key(self) -> str:
        """The class with what tells apart what two of them log."""
        return self._generate_state_key(skip_batches=self.skip_batches, time_unit=self.time_unit)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Tell the unit, and measure from here on."""
        self._left, self._loaders, self._current = self.skip_batches, {}, None
        self._start = None if self._left else trainer.clock
        self._begun = trainer.clock
        self._attributed = self._begun.eval_seconds
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
            remaining = seconds * (1 - clock.share_done) + self._validating(trainer, clock)
            trainer.log_metrics(
                {"time/remaining_estimate": remaining / SECONDS[self.time_unit]},
                trainer.progress.batches_stepped - 1,
            )

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Give the time so far to the loader that was run last."""
        self._attribute(trainer.clock)
        self._current = None

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Note that a loader has its turn."""
        if batch_idx == 0 and trainer.state.fn == "fit" and not trainer.sanity_checking:
            clock = trainer.clock
            self._attribute(clock)
            self._current = self._loaders.setdefault(dataloader_idx, _Loader())
            self._current.count += 1
            self._current.share = clock.share_done

    def _attribute(self, clock: Clock) -> None:
        """Give the time of validation that no loader has yet to the one that is or was run."""
        if self._current is not None:
            self._current.seconds += clock.eval_seconds - self._attributed
            self._attributed = clock.eval_seconds

    def _validating(self, trainer: Trainer, clock: Clock) -> float:
        """Return the seconds that the validations to come will take."""
        begun, evaluators = self._begun, trainer.val_evaluators
        if begun is None:
            return 0.0
        self._attribute(clock)
        seconds = 0.0
        for index, loader in self._loaders.items():
            has_own = bool(evaluators) and evaluators[index].when is not None
            seconds += loader.seconds / loader.count * loader.to_come(begun.share_done, has_own)
        return seconds


@dataclass(slots=True)
class _Loader:
    """What is known of a validation loader: how often it was run, for how long, and when last."""

    count: int = 0
    seconds: float = 0.0
    share: float = 0.0

    def to_come(self, begun: float, is_run_at_end: bool) -> int:
        """Return how often it will still be run, as often as since a share of the training."""
        between = (self.share - begun) / self.count
        if between <= 0:
            return 0
        rest = (1 - self.share) / between
        # a rest that is a hair from whole, as sums of floats are, is whole
        return math.ceil(rest - 1e-6) if is_run_at_end else int(rest + 1e-6)
