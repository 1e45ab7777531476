"""SlowStepDetector: find the training batches that take much longer than most, and say why."""

from __future__ import annotations

import math
import time
from bisect import bisect_left, insort
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import log
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_count, check_number
from trainer_hooks.errors import OptionError
from trainer_hooks.hooks import Band
from trainer_hooks.runtime import first_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["SlowStep", "SlowStepDetector"]

_WHERE = "SlowStepDetector"


@dataclass(frozen=True, slots=True)
class SlowStep:
    """One training batch that took long; times are in seconds.

    Attributes:
        epoch: the index of its epoch.
        batch_idx: its number in the epoch.
        batch: its number in the whole training, from 0 on.
        seconds: how long it took, loading included.
        loading_seconds: how long the loop waited for it to be loaded.
        median_seconds: how long a batch took at that time.
        median_loading_seconds: how long the loop waited for a batch at that time.
        batch_shape: the shape of the batch's first tensor; empty if it has none.
    """

    epoch: int
    batch_idx: int
    batch: int
    seconds: float
    loading_seconds: float
    median_seconds: float
    median_loading_seconds: float
    batch_shape: tuple[int, ...]

    @property
    def cause(self) -> str:
        """What more of the time went to than usual: `"loading"` or `"step"`."""
        surplus = self.seconds - self.median_seconds
        loading = self.loading_seconds - self.median_loading_seconds
        return "loading" if loading > surplus / 2 else "step"

    def __str__(self) -> str:
        return (
            f"batch {self.batch_idx} of epoch {self.epoch} took {self.seconds:.3g} s, "
            f"{self.seconds / self.median_seconds:.1f} times the median of "
            f"{self.median_seconds:.3g} s, more than usual of it for the {self.cause} "
            f"({self.loading_seconds:.3g} s were spent waiting for data; usual are "
            f"{self.median_loading_seconds:.3g} s)"
        )


class SlowStepDetector(Callback):
    """Find training batches that take over `factor` times the running median, and say why.

    Such a batch is noted in `slow_steps`: which it was, of what shape, and how much of the time was
    spent waiting for data and how much on the step. `slow_step/seconds` and
    `slow_step/loading_seconds` go to the loggers for it. The log tells of it as a warning, at most
    once in `warn_interval` seconds, with how many were not told.

    A batch's time begins before it is asked of the loader and ends after `on_train_batch_end`, so
    validations and checkpoints between batches are no part of it. The first batch of an epoch, for
    which workers start, is not judged. Times are those of the host. A GPU works behind it, so what
    takes long there shows in the batch in which the host waits for it next.

    Args:
        factor: how many times the median is slow; above 1.
        window: of how many batches the median is.
        min_steps: how many batches of this run must be timed before any is judged.
        max_records: how many slow batches are kept, the newest.
        warn_interval: seconds between two warnings in the log; infinity for none.
        clock: tells the time in seconds.

    Attributes:
        slow_steps: the slow batches, each a `SlowStep`, the oldest first.
        count: how many there were, those included that are not kept.

    Raises:
        OptionError: an argument is outside its rule.

    State: the slow batches and their number. The median is that of the run under way, for another
    machine may be faster.

    Example::

        detector = SlowStepDetector(factor=5.0)
        trainer = Trainer(max_epochs=2, callbacks=[detector])
        trainer.fit(module, train_loader, val_loader)
        for slow in detector.slow_steps:
            print(slow.batch_idx, slow.cause)
    """

    band: ClassVar[Band] = Band.SINK

    volatile_state: ClassVar[frozenset[str]] = frozenset(
        {
            "slow_steps",
            "count",
            "_asked",
            "_untold",
            "_warned_at",
            "_totals",
            "_loadings",
            "slow_step/*",
        }
    )

    def __init__(
        self,
        factor: float = 3.0,
        window: int = 50,
        min_steps: int = 10,
        max_records: int = 100,
        warn_interval: float = 60.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if check_number("factor", factor, _WHERE) <= 1:
            raise OptionError(
                f"factor {factor!r} of {_WHERE}: it must be above 1, which is the median itself. "
                "Pass one such as 3.0."
            )
        if not callable(clock):
            raise OptionError(
                f"clock {clock!r} of {_WHERE}: it must be a function without arguments that "
                "returns seconds. Pass one such as time.perf_counter."
            )
        if warn_interval != math.inf:
            check_number("warn_interval", warn_interval, _WHERE, least=0.0)
        self.factor = factor
        self.window = check_count("window", window, _WHERE, least=1)
        self.min_steps = check_count("min_steps", min_steps, _WHERE, least=1)
        self.max_records = check_count("max_records", max_records, _WHERE)
        self.warn_interval = warn_interval
        self._clock = clock
        self.slow_steps: deque[SlowStep] = deque(maxlen=max_records)
        self.count = 0
        self._asked: float | None = None
        self._taken = 0.0
        self._warned_at: float | None = None
        self._untold = 0
        self._begin()

    @property
    def state_key(self) -> str:
        """The class with what it takes for slow."""
        return self._generate_state_key(factor=self.factor, window=self.window)

    def state_dict(self) -> dict[str, Any]:
        """Return the slow batches, and how many there were."""
        return {"slow_steps": [asdict(slow) for slow in self.slow_steps], "count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        found = [SlowStep(**fields) for fields in state_dict["slow_steps"]]
        self.slow_steps = deque(found, self.max_records)
        self.count = state_dict["count"]

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Time anew; a new training forgets the slow batches of an earlier one."""
        self._begin()
        if trainer.progress.is_fresh:
            self.slow_steps, self.count = deque(maxlen=self.max_records), 0

    def on_before_dataloader(self, trainer: Trainer, module: Module) -> None:
        """Start the time of a batch."""
        self._asked = self._clock()

    def on_after_dataloader(self, trainer: Trainer, module: Module, batch: Any) -> None:
        """Note how long it took to load."""
        self._taken = self._clock()

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Stop the time, and judge it."""
        if self._asked is None or batch_idx == 0:
            return
        seconds, loading = self._clock() - self._asked, self._taken - self._asked
        self._asked = None
        if len(self._totals) >= self.min_steps:
            median = self._totals.median
            if seconds > self.factor * median > 0:
                self._note(trainer, batch, batch_idx, seconds, loading)
        self._totals.add(seconds)
        self._loadings.add(loading)

    def _note(
        self, trainer: Trainer, batch: Any, batch_idx: int, seconds: float, loading: float
    ) -> None:
        """Keep a slow batch, and tell of it."""
        tensor = first_tensor(batch)
        slow = SlowStep(
            epoch=trainer.current_epoch,
            batch_idx=batch_idx,
            batch=trainer.progress.batches_completed - 1,
            seconds=seconds,
            loading_seconds=loading,
            median_seconds=self._totals.median,
            median_loading_seconds=self._loadings.median,
            batch_shape=() if tensor is None else tuple(tensor.shape),
        )
        self.slow_steps.append(slow)
        self.count += 1
        trainer.log_metrics(
            {"slow_step/seconds": seconds, "slow_step/loading_seconds": loading},
            max(0, trainer.progress.batches_stepped - 1),
        )
        self._warn(slow)

    def _warn(self, slow: SlowStep) -> None:
        now, last = self._clock(), self._warned_at
        is_too_soon = last is not None and now - last < self.warn_interval
        if is_too_soon or self.warn_interval == math.inf:
            self._untold += 1
            return
        more = f"; {self._untold} more since the last of these messages" if self._untold else ""
        log.warning("slow step: %s%s", slow, more)
        self._warned_at, self._untold = now, 0

    def _begin(self) -> None:
        """Know nothing of how long a batch takes."""
        self._totals = _RunningMedian(max(self.window, self.min_steps))
        self._loadings = _RunningMedian(max(self.window, self.min_steps))
        self._asked = self._warned_at = None
        self._untold = 0


class _RunningMedian:
    """The median of the last values, kept in order as they come and go."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._values: deque[float] = deque()
        self._ordered: list[float] = []

    def __len__(self) -> int:
        return len(self._values)

    @property
    def median(self) -> float:
        """The middle value; of two the mean."""
        ordered, half = self._ordered, len(self._ordered) // 2
        if len(ordered) % 2:
            return ordered[half]
        return (ordered[half - 1] + ordered[half]) / 2

    def add(self, value: float) -> None:
        """Take one in, and leave the oldest out if there are too many."""
        if len(self._values) == self._window:
            oldest = self._values.popleft()
            del self._ordered[bisect_left(self._ordered, oldest)]
        self._values.append(value)
        insort(self._ordered, value)
