"""SlowStepDetector: find training batches that take much longer than the median, and the cause."""

from __future__ import annotations

import math
import time
from bisect import bisect_left, insort
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import log
from trainer_hooks._options import Rule, finite_number, option_rules, whole_number
from trainer_hooks.callback import Callback
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.runtime.nested_tensors import first_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module


@dataclass(frozen=True, slots=True)
class SlowStep:
    """A slow training batch; times are in seconds.

    Attributes:
        epoch: the index of its epoch.
        batch_idx: its index in the epoch.
        batch: its index in the whole training.
        seconds: its time, including loading.
        loading_seconds: the time that the loop waited for the loader.
        median_seconds: the running median of the batches' time.
        median_loading_seconds: the running median of the time waited for the loader.
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
        """The part that took most of the additional time: `"loading"` or `"step"`."""
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


_SLOW_STEP = {
    "epoch": int,
    "batch_idx": int,
    "batch": int,
    "seconds": float,
    "loading_seconds": float,
    "median_seconds": float,
    "median_loading_seconds": float,
    "batch_shape": list[int],
}
"""The types of the fields of a saved `SlowStep`."""


class SlowStepDetector(Callback):
    """Find training batches that take over `factor` times the running median, and the cause.

    `slow_steps` records each slow batch with its index, its shape, and its time split into loading
    and step. `slow_step/seconds` and `slow_step/loading_seconds` go to the loggers. A warning is
    logged, at most one in `warn_interval` seconds, with the number of slow batches since the last.

    A batch's time begins before the loader is asked for it and ends after `on_train_batch_end`, so
    validations and checkpoints between batches are no part of it. The first batch of an epoch, for
    which workers start, is not judged. Times are those of the host. A GPU runs asynchronously: a
    slow kernel shows in the batch in which the host next waits for the device.

    Args:
        factor: the multiple of the median above which a batch is slow; above 1.
        window: the number of batches of which the median is taken.
        min_steps: the number of batches of this run that are timed before any is judged.
        max_records: the number of slow batches to keep, the newest ones.
        warn_interval: seconds between two warnings in the log; infinity for no warnings.
        clock: returns the time in seconds.

    Attributes:
        slow_steps: the slow batches, each a `SlowStep`, the oldest first.
        count: the number of slow batches, including those that are not kept.

    Raises:
        OptionError: an argument is outside its rule.

    State: the slow batches and their number. The median is not saved, as a resumed run may be on a
    faster machine.

    Example::

        detector = SlowStepDetector(factor=5.0)
        trainer = Trainer(max_epochs=2, callbacks=[detector])
        trainer.fit(module, train_loader, val_loader)
        for slow in detector.slow_steps:
            print(slow.batch_idx, slow.cause)
    """

    band: ClassVar[Band] = Band.SINK

    volatile_state: ClassVar[frozenset[str]] = frozenset({
        "slow_steps", "count", "_started_at", "_unreported", "_warned_at", "_totals", "_loadings",
        "slow_step/*",
    })  # fmt: skip

    @option_rules(
        factor=(
            finite_number(),
            Rule(
                "above 1, which is the median itself",
                lambda factor: factor > 1,
                "Pass one such as 3.0.",
            ),
        ),
        window=whole_number(1),
        min_steps=whole_number(1),
        max_records=whole_number(),
        warn_interval=finite_number(0.0).unless(math.inf),
        clock=Rule(
            "a function without arguments that returns seconds",
            callable,
            "Pass one such as time.perf_counter.",
        ),
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
        self.factor = factor
        self.window = window
        self.min_steps = min_steps
        self.max_records = max_records
        self.warn_interval = warn_interval
        self._clock = clock
        self.slow_steps: deque[SlowStep] = deque(maxlen=max_records)
        self.count = 0
        self._started_at: float | None = None
        self._loaded_at = 0.0
        self._warned_at: float | None = None
        self._unreported = 0
        self._reset()

    @property
    def state_key(self) -> str:
        """`SlowStepDetector{'factor': ..., 'window': ...}`."""
        return self._generate_state_key(factor=self.factor, window=self.window)

    def state_dict(self) -> dict[str, Any]:
        """Return the slow batches and their number."""
        return {"slow_steps": [asdict(slow) for slow in self.slow_steps], "count": self.count}

    @checks_state({"slow_steps": [_SLOW_STEP], "count": int})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the slow batches and their number."""
        records = [SlowStep(**fields) for fields in state_dict["slow_steps"]]
        self.slow_steps = deque(records, self.max_records)
        self.count = state_dict["count"]

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the medians, and for a new training the slow batches."""
        self._reset()
        if trainer.progress.is_new_training:
            self.slow_steps, self.count = deque(maxlen=self.max_records), 0

    def on_before_dataloader(self, trainer: Trainer, module: Module) -> None:
        """Start to time a batch."""
        self._started_at = self._clock()

    def on_after_dataloader(self, trainer: Trainer, module: Module, batch: Any) -> None:
        """Record when the batch was loaded."""
        self._loaded_at = self._clock()

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Compute the batch's time, and record it if it is slow."""
        # the first batch of an epoch waits for the loader's workers to start
        if self._started_at is None or batch_idx == 0:
            return
        seconds, loading = self._clock() - self._started_at, self._loaded_at - self._started_at
        self._started_at = None
        if len(self._totals) >= self.min_steps:
            median = self._totals.median
            # over 0: a clock too coarse for a batch has a median of 0
            if seconds > self.factor * median > 0:
                self._record(trainer, batch, batch_idx, seconds, loading)
        # a slow batch counts as well, or a lasting slowdown would be reported for ever
        self._totals.add(seconds)
        self._loadings.add(loading)

    def _record(
        self, trainer: Trainer, batch: Any, batch_idx: int, seconds: float, loading: float
    ) -> None:
        """Keep a slow batch, log its times, and warn."""
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
            # in the first accumulation window no step is counted yet
            max(0, trainer.progress.batches_stepped - 1),
        )
        self._warn(slow)

    def _warn(self, slow: SlowStep) -> None:
        now, last = self._clock(), self._warned_at
        is_too_soon = last is not None and now - last < self.warn_interval
        if is_too_soon or self.warn_interval == math.inf:
            self._unreported += 1
            return
        count = self._unreported
        more = f"; {count} more since the last of these messages" if count else ""
        log.warning("slow step: %s%s", slow, more)
        self._warned_at, self._unreported = now, 0

    def _reset(self) -> None:
        """Reset the medians and the timer."""
        # a window shorter than `min_steps` would never hold enough to judge by
        self._totals = _RunningMedian(max(self.window, self.min_steps))
        self._loadings = _RunningMedian(max(self.window, self.min_steps))
        self._started_at = self._warned_at = None
        self._unreported = 0


class _RunningMedian:
    """The median of the latest values, which are kept sorted as they come and go."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._values: deque[float] = deque()
        self._ordered: list[float] = []

    def __len__(self) -> int:
        return len(self._values)

    @property
    def median(self) -> float:
        """The middle value; the mean of the two middle ones if their number is even."""
        ordered, half = self._ordered, len(self._ordered) // 2
        if len(ordered) % 2:
            return ordered[half]
        return (ordered[half - 1] + ordered[half]) / 2

    def add(self, value: float) -> None:
        """Add a value, and drop the oldest one if the window is full."""
        if len(self._values) == self._window:
            oldest = self._values.popleft()
            # equal values are interchangeable, so any of them may go
            del self._ordered[bisect_left(self._ordered, oldest)]
        self._values.append(value)
        insort(self._ordered, value)
