"""Timer: measure how long each stage takes, and end a fit when its time is up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import log
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.clock import Cue, Filter, parse_span, word_or_when
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from trainer_hooks.clock import Time, When
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["Timer"]

_WHERE = "Timer"
_STAGES = ("train", "validate", "test", "predict")


@dataclass(slots=True)
class _Span:
    """The time of one stage: `before` from earlier runs, and the span under way or done last."""

    before: float = 0.0
    start: float | None = None
    end: float | None = None

    @property
    def elapsed(self) -> float:
        if self.start is None:
            return self.before
        return self.before + (time.monotonic() if self.end is None else self.end) - self.start

    def open(self) -> None:
        self.before, self.start, self.end = self.elapsed, time.monotonic(), None

    def close(self) -> None:
        if self.start is not None and self.end is None:
            self.end = time.monotonic()


class Timer(Callback):
    """Measure how long each stage takes, and ask a fit to stop when its time is up.

    Time of training includes the validations inside it, and the runs that this one resumed. The
    trainer finishes what it must: the batch or epoch, `min_epochs`, `min_steps`.

    Args:
        duration: the time that training may take: `"8h30m"`, `"DD:HH:MM:SS"`, a `Time` in seconds,
            a timedelta, or the keyword arguments of one as a dict; None only to measure.
        interval: whether it looks after each step (`"step"`) or each epoch (`"epoch"`); or when
            `"50ba"`, a `Time`, a filter or a function of `trainer.clock` says, and after each
            epoch.
        verbose: whether the end of the time is logged at level INFO.

    Raises:
        OptionError: an argument is outside its rule.

    State: the seconds spent in each stage, and the counts when it last looked. A resumed run goes
    on from them with another duration or interval, too.

    Example::

        timer = Timer("00:08:00:00")
        Trainer(max_epochs=2, callbacks=[timer]).fit(module, train_loader)
        print(timer.time_elapsed("train"))
    """

    band: ClassVar[Band] = Band.CONTROL

    volatile_state: ClassVar[frozenset[str]] = frozenset({"time_elapsed"})

    def __init__(
        self,
        duration: str | Time | timedelta | Mapping[str, float] | None = None,
        interval: When = "step",
        verbose: bool = True,
    ) -> None:
        self._duration = None if duration is None else parse_span(duration, "duration", _WHERE)
        self._interval: str | Filter = word_or_when(interval, "interval", _WHERE, ("step", "epoch"))
        self._is_by_step = self._interval == "step"
        self._cue = Cue(self._interval) if isinstance(self._interval, Filter) else None
        self.verbose: bool = check_choice("verbose", verbose, _WHERE, (True, False))
        self._deadline: float | None = None
        self._is_told = False
        self._spans = {stage: _Span() for stage in _STAGES}

    @property
    def state_key(self) -> str:
        """The class, with the duration and the interval where they are not the default."""
        if self._duration is None and self._is_by_step:
            return type(self).__qualname__
        return self._generate_state_key(duration=self._duration, interval=str(self._interval))

    def former_state_key(self, keys: Sequence[str]) -> str | None:
        """Return the key of a Timer with another duration, as all Timers of a run tell one time."""
        name = type(self).__qualname__
        return next((key for key in keys if key == name or key.startswith(f"{name}{{")), None)

    def start_time(self, stage: str = "train") -> float | None:
        """Return when the stage began last, by `time.monotonic()`, or None."""
        return self._span(stage).start

    def end_time(self, stage: str = "train") -> float | None:
        """Return when the stage ended last, by `time.monotonic()`; None if it has not."""
        return self._span(stage).end

    def time_elapsed(self, stage: str = "train") -> float:
        """Return the seconds spent in a stage so far, resumed runs included."""
        return self._span(stage).elapsed

    def time_remaining(self, stage: str = "train") -> float | None:
        """Return the seconds that are left of the duration, at least 0; None without one."""
        if self._duration is None:
            return None
        return max(0.0, self._duration - self._span(stage).elapsed)

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds spent in each stage, and the counts when it last looked."""
        state: dict[str, Any] = {"time_elapsed": {k: v.elapsed for k, v in self._spans.items()}}
        return state if self._cue is None else {**state, "asked": self._cue.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Count the seconds of the run that is resumed."""
        elapsed = state_dict.get("time_elapsed", {})
        self._spans = {stage: _Span(before=elapsed.get(stage, 0.0)) for stage in _STAGES}
        if self._cue is not None and "asked" in state_dict:
            self._cue.load_state_dict(state_dict["asked"])

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin at zero when a new training begins."""
        self._is_told = False
        if trainer.progress.is_fresh:
            self._spans = {stage: _Span() for stage in _STAGES}
            if self._cue is not None:
                self._cue.forget()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start the clock; what is left may be nothing."""
        span = self._spans["train"]
        span.open()
        if self._cue is not None:
            self._cue.start(trainer.clock)
        if self._duration is not None:
            self._deadline = time.monotonic() + self._duration - span.before
            self._stop_if_over(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Look at the clock, if it is to be looked at now."""
        if self._deadline is None:
            return
        if self._is_by_step or (self._cue is not None and self._cue.is_due(trainer.clock)):
            self._stop_if_over(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Look at the clock; the epoch's validation took time, too."""
        if self._deadline is not None:
            self._stop_if_over(trainer)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Stop the clock."""
        self._spans["train"].close()

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Start the clock of validation; the sanity check does not count."""
        if not trainer.sanity_checking:
            self._spans["validate"].open()

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Stop the clock of validation."""
        if not trainer.sanity_checking:
            self._spans["validate"].close()

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Start the clock of testing."""
        self._spans["test"].open()

    def on_test_end(self, trainer: Trainer, module: Module) -> None:
        """Stop the clock of testing."""
        self._spans["test"].close()

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Start the clock of prediction."""
        self._spans["predict"].open()

    def on_predict_end(self, trainer: Trainer, module: Module) -> None:
        """Stop the clock of prediction."""
        self._spans["predict"].close()

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Stop every clock that an error left running."""
        for span in self._spans.values():
            span.close()

    def _span(self, stage: str) -> _Span:
        return self._spans[check_choice("stage", str(stage), _WHERE, _STAGES)]

    def _stop_if_over(self, trainer: Trainer) -> None:
        """Ask to stop once the deadline has passed."""
        if self._deadline is None or time.monotonic() < self._deadline:
            return
        reason = f"Timer: the time for training, {self._duration:g} s, is up"
        if self.verbose and not self._is_told:
            log.info(reason)
        self._is_told = True
        trainer.stop(reason)
