"""Timer: measure the time of each stage, and stop a fit when its time is up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import log
from trainer_hooks._options import FLAG, check_option, one_of, option_rules
from trainer_hooks.callbacks.base import ScheduledCallback, evaluation_stage
from trainer_hooks.clock.schedules import DueCondition, parse_word_or_when
from trainer_hooks.clock.timing import parse_span
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from trainer_hooks.clock.schedules import When
    from trainer_hooks.clock.timing import Time
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "Timer"
_STAGES = ("train", "validate", "test", "predict")


@dataclass(slots=True)
class _Span:
    """The seconds of one stage: `before` in earlier runs, and the last or running span."""

    before: float = 0.0
    start: float | None = None
    end: float | None = None

    @property
    def elapsed(self) -> float:
        if self.start is None:
            return self.before
        return self.before + (time.monotonic() if self.end is None else self.end) - self.start

    def open(self) -> None:
        # monotonic: the system's clock may be set during a run
        self.before, self.start, self.end = self.elapsed, time.monotonic(), None

    def close(self) -> None:
        if self.start is not None and self.end is None:
            self.end = time.monotonic()


class Timer(ScheduledCallback):
    """Measure how long each stage takes, and request a stop of the fit when its time is up.

    The time of training includes its validations and the runs that this run resumed. The trainer
    first completes the batch or epoch, `min_epochs` and `min_steps`.

    Args:
        duration: the time that training may take: `"8h30m"`, `"DD:HH:MM:SS"`, a `Time` in seconds,
            a timedelta, or the keyword arguments of one as a dict; None only to measure.
        interval: when the clock is read: after each step (`"step"`), after each epoch (`"epoch"`),
            or at an interval such as `"50ba"`, a `Time`, a filter or a function of `trainer.clock`,
            and then after each epoch too.
        verbose: whether the end of the time is logged at level INFO.

    Raises:
        OptionError: an argument is outside its rule.

    State: the seconds spent in each stage, and the clock's counts at the last reading. A resumed
    run goes on from them, also with another duration or interval.

    Example::

        timer = Timer("00:08:00:00")
        Trainer(max_epochs=2, callbacks=[timer]).fit(module, train_loader)
        print(timer.time_elapsed("train"))
    """

    band: ClassVar[Band] = Band.CONTROL
    renews_stop: ClassVar[bool] = True

    # wall time differs between a run and its repetition; the resume checks skip it
    volatile_state: ClassVar[frozenset[str]] = frozenset({"time_elapsed"})

    @option_rules(verbose=FLAG)
    def __init__(
        self,
        duration: str | Time | timedelta | Mapping[str, float] | None = None,
        interval: When = "step",
        verbose: bool = True,
    ) -> None:
        self._duration = None if duration is None else parse_span(duration, "duration", _WHERE)
        self._interval: str | DueCondition = parse_word_or_when(
            interval, "interval", _WHERE, ("step", "epoch")
        )
        self._is_by_step = self._interval == "step"
        super().__init__(self._interval if isinstance(self._interval, DueCondition) else None)
        self.verbose = verbose
        self._deadline: float | None = None
        self._is_logged = False
        self._spans = {stage: _Span() for stage in _STAGES}

    @property
    def state_key(self) -> str:
        """The class name, with the duration and the interval unless both are the defaults."""
        if self._duration is None and self._is_by_step:
            return type(self).__qualname__
        return self._generate_state_key(duration=self._duration, interval=str(self._interval))

    def former_state_key(self, keys: Sequence[str]) -> str | None:
        """Return the key of a Timer with another duration, to restore its times.

        All Timers of a run measure the same times, so any Timer's state will do.
        """
        name = type(self).__qualname__
        return next((key for key in keys if key == name or key.startswith(f"{name}{{")), None)

    def start_time(self, stage: str = "train") -> float | None:
        """Return the last start of a stage, as `time.monotonic()` read it; None if it never ran."""
        return self._span(stage).start

    def end_time(self, stage: str = "train") -> float | None:
        """Return the last end of a stage, as `time.monotonic()` read it; None while it runs."""
        return self._span(stage).end

    def time_elapsed(self, stage: str = "train") -> float:
        """Return the seconds spent in a stage so far, resumed runs included."""
        return self._span(stage).elapsed

    def time_remaining(self, stage: str = "train") -> float | None:
        """Return the seconds left of the duration, at least 0; None without a duration."""
        if self._duration is None:
            return None
        return max(0.0, self._duration - self._span(stage).elapsed)

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds spent in each stage, and the clock's counts at the last reading."""
        elapsed = {stage: span.elapsed for stage, span in self._spans.items()}
        return {"time_elapsed": elapsed, **super().state_dict()}

    @checks_state({}, {"time_elapsed": dict[Any, float]})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the seconds spent in each stage by the run that is resumed."""
        # a state of another version may lack a stage
        elapsed = state_dict.get("time_elapsed", {})
        self._spans = {stage: _Span(before=elapsed.get(stage, 0.0)) for stage in _STAGES}
        super().load_state_dict(state_dict)

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the times when a new training begins."""
        super().on_fit_start(trainer, module)
        self._is_logged = False
        if trainer.progress.is_new_training:
            self._spans = {stage: _Span() for stage in _STAGES}

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start the training's clock; stop at once if no time is left."""
        span = self._spans["train"]
        span.open()
        super().on_train_start(trainer, module)
        if self._duration is not None:
            # `before` and not `elapsed`: the span was opened a moment ago and belongs to this run.
            self._deadline = time.monotonic() + self._duration - span.before
            self._check_time_remaining(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Check the deadline, if a check is due."""
        if self._deadline is not None and (self._is_by_step or self._is_due(trainer)):
            self._check_time_remaining(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Check the deadline; the epoch's validation took time too."""
        if self._deadline is not None:
            self._check_time_remaining(trainer)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Stop the training's clock."""
        self._spans["train"].close()

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Start the clock of an evaluation, except for the sanity check."""
        if not trainer.sanity_checking:
            self._spans[evaluation_stage(trainer)].open()

    on_test_start = on_predict_start = on_validation_start

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Stop the clock of an evaluation."""
        if not trainer.sanity_checking:
            self._spans[evaluation_stage(trainer)].close()

    on_test_end = on_predict_end = on_validation_end

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Stop every clock that an error left running."""
        for span in self._spans.values():
            span.close()

    def _span(self, stage: str) -> _Span:
        return self._spans[check_option("stage", str(stage), _WHERE, one_of(*_STAGES))]

    def _check_time_remaining(self, trainer: Trainer) -> None:
        """Request a stop once the deadline has passed; subclasses for Lightning override it."""
        if self._deadline is None or time.monotonic() < self._deadline:
            return
        reason = f"Timer: the time for training, {self._duration:g} s, is up"
        # once: the trainer may go on for long, until `min_steps` are done
        if self.verbose and not self._is_logged:
            log.info(reason)
        self._is_logged = True
        trainer.stop(reason)
