"""Evaluator: a loader to evaluate on, with a label, metrics and an interval."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.core.data_spec import ensure_data_spec
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.running.intervals import create_interval_scheduler
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Evaluator", "ensure_evaluator"]


class Evaluator:
    """Evaluate on a loader when it is due.

    Args:
        label: its name, which its metrics are logged under: `metrics/<label>/<name>`.
        dataloader: a loader, a `DataSpec`, or a dict of the arguments of one.
        metric_names: regular expressions of the model's metrics that it computes; None for all.
        subset_num_batches: at most so many batches; -1 for all; None: as the Trainer says.
        eval_interval: a time, a text, a number of epochs (0 for never), a function of the state and
            the event; None: as the Trainer says.
        device_eval_microbatch_size: at most so many samples at a time; None for whole batches.

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
        """When it is due: a function of the state and the event, or None."""
        return self._eval_interval

    @eval_interval.setter
    def eval_interval(self, value: Any) -> None:
        self.is_never_due = not callable(value) and str(value) in ("0", "0ep", "0ba", "0tok", "0sp")
        if value is None or callable(value):
            self._eval_interval = value
        else:
            self._eval_interval = create_interval_scheduler(
                value, checkpoint_events=False, final_events={Event.FIT_END}
            )

    def chosen(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Return copies of the metrics that it computes."""
        names = [
            name
            for name in metrics
            if self.metric_names is None
            or any(re.search(wanted, name, re.IGNORECASE) for wanted in self.metric_names)
        ]
        return {name: deepcopy(metrics[name]) for name in names}


def ensure_evaluator(evaluator: Any, default_metric_names: list[str]) -> Evaluator:
    """Return an evaluator as it is, or one of the label `"eval"` for a loader."""
    if isinstance(evaluator, Evaluator):
        return evaluator
    return Evaluator(label="eval", dataloader=evaluator, metric_names=list(default_metric_names))
