"""Evaluator: a loader to evaluate, with a label, metrics and an interval."""

from __future__ import annotations

import math
import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.core.data_spec import ensure_data_spec
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.time import Time, TimeUnit
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Evaluator", "create_interval_scheduler", "ensure_evaluator"]


if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.compat.composer.core.state import State

    Due = Callable[[State, Event], bool]


def create_interval_scheduler(
    interval: Any,
    include_end_of_training: bool = True,
    checkpoint_events: bool = True,
    final_events: set[Event] | None = None,
) -> Due:
    """Return a function of the state and the event that is true at each multiple of an interval.

    Args:
        interval: a time, a text such as `"500ba"`, or a number of epochs; 0 for never.
        include_end_of_training: whether it is also true at the end of the training.
        checkpoint_events: whether it is called at the events for saving, such as
            `BATCH_CHECKPOINT`; otherwise at those before, such as `BATCH_END`.
        final_events: the events at which the training may end.

    Raises:
        OptionError: the interval is no time.
    """
    time = Time.from_input(interval, TimeUnit.EPOCH)
    suffix = "CHECKPOINT" if checkpoint_events else "END"
    prefix = {TimeUnit.EPOCH: "EPOCH", TimeUnit.ITERATION: "ITERATION"}.get(time.unit, "BATCH")
    event_of_interval = Event[f"{prefix}_{suffix}"]
    finals = final_events or {Event.BATCH_CHECKPOINT, Event.EPOCH_CHECKPOINT}
    last_batch = -1  # so that the end of the training is not due twice at one batch

    def is_due(state: State, event: Event) -> bool:
        nonlocal last_batch
        # no previous timestamp: nothing was trained yet
        if time.value <= 0 or state.previous_timestamp is None:
            return False
        batch = int(state.timestamp.batch)
        elapsed = state.get_elapsed_duration()
        is_over = elapsed is not None and elapsed.value >= 1.0
        is_final = include_end_of_training and event in finals and is_over and batch != last_batch
        if is_final or (event is event_of_interval and _is_crossed(state, time)):
            last_batch = batch
            return True
        return False

    return is_due


def _is_crossed(state: State, time: Time) -> bool:
    """Return whether the last batch, epoch or iteration passed a multiple of a time."""
    before, now = state.previous_timestamp, state.timestamp
    assert before is not None
    unit: TimeUnit = time.unit
    interval: float = time.value
    if unit is TimeUnit.DURATION:
        longest = state.max_duration
        if longest is None or not longest.value:
            return False
        unit, whole = longest.unit, longest.value
        if unit is TimeUnit.EPOCH:  # an epoch is not counted before its end, but batches are
            if state.dataloader_len is None:
                raise OptionError(
                    f"interval {str(time)!r}: a share of max_duration={str(longest)!r} cannot be "
                    "found while the loader has no length. Give one of the two in batches."
                )
            unit, whole = TimeUnit.BATCH, whole * state.dataloader_len.value
        interval = math.ceil(whole * interval)  # rounded up, as in Composer
    # not by the remainder: samples and tokens pass a multiple without meeting it
    first, last = (math.floor(timestamp.get(unit).value / interval) for timestamp in (before, now))
    return first != last


class Evaluator:
    """A loader to evaluate, with a label, metrics and an interval.

    Args:
        label: the name that its metrics are logged under: `metrics/<label>/<name>`.
        dataloader: a loader, a `DataSpec`, or a dict of the arguments of one.
        metric_names: regular expressions of the model's metrics that it computes; None for all.
        subset_num_batches: at most so many batches; -1 for all; None for the Trainer's number.
        eval_interval: a time, a text, a number of epochs (0 for never), or a function of the state
            and the event; None for the Trainer's interval.
        device_eval_microbatch_size: at most so many samples at a time; None for whole batches.

    Attributes:
        is_never_due: whether the interval is zero.

    Raises:
        OptionError: an argument is outside its rule.
    """

    def __init__(
        self,
        *,
        label: str,
        dataloader: Any,
        metric_names: list[str] | None = None,
        subset_num_batches: int | None = None,
        eval_interval: Any = None,
        device_eval_microbatch_size: int | str | float | None = None,
    ) -> None:
        if metric_names is not None and not isinstance(metric_names, list):
            raise OptionError(
                f"metric_names {metric_names!r} of Evaluator {label!r}: must be a list of texts. "
                "Write ['MulticlassAccuracy']."
            )
        size = device_eval_microbatch_size
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise OptionError(
                f"device_eval_microbatch_size {size!r} of Evaluator {label!r}: must be a number of "
                "samples. Give a smaller batch_size to the loader, or such a number."
            )
        self.label = label
        self.dataloader = ensure_data_spec(dataloader)
        self.metric_names = metric_names
        self.subset_num_batches = subset_num_batches
        self.device_eval_microbatch_size: int | None = size
        self.auto_microbatching = False
        self._eval_interval: Any = None
        self.is_never_due = False
        self.eval_interval = eval_interval

    @property
    def eval_interval(self) -> Any:
        """A function of the state and the event that returns whether it is due; or None."""
        return self._eval_interval

    @eval_interval.setter
    def eval_interval(self, value: Any) -> None:
        # a fit does not take the loader of such a one at all
        self.is_never_due = not callable(value) and str(value) in ("0", "0ep", "0ba", "0tok", "0sp")
        if value is None or callable(value):
            self._eval_interval = value
        else:
            self._eval_interval = create_interval_scheduler(
                value, checkpoint_events=False, final_events={Event.FIT_END}
            )

    def copy_metrics(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Return copies of the metrics that it computes.

        Args:
            metrics: the model's metric objects, by name.
        """
        names = [
            name
            for name in metrics
            if self.metric_names is None
            or any(re.search(pattern, name, re.IGNORECASE) for pattern in self.metric_names)
        ]
        return {name: deepcopy(metrics[name]) for name in names}


def ensure_evaluator(evaluator: Any, default_metric_names: list[str]) -> Evaluator:
    """Return an evaluator, made of a loader with the label `"eval"` if it is none yet."""
    if isinstance(evaluator, Evaluator):
        return evaluator
    return Evaluator(label="eval", dataloader=evaluator, metric_names=list(default_metric_names))
