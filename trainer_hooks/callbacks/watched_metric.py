"""The metric that ranks checkpoints: its value, and whether that is up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.callbacks.monitoring import (
    advise_on_monitor,
    as_score,
    has_validation,
    is_batch_the_last,
    missing_monitor,
    validates_after_epoch,
)
from trainer_hooks.errors import MetricError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from torch import Tensor

    from trainer_hooks.context import Trainer

__all__ = ["WatchedMetric", "nameable_metrics"]


class WatchedMetric:
    """Look up a monitored metric at moments that need not be those at which it is logged.

    Args:
        name: the metric, or None to watch nothing.
        where: who watches, for messages.

    Attributes:
        name: under which it was logged when it was last looked up.
        is_validated: whether validation is what logs it, as far as could be seen.
        found_as: returns that name, given the one that was chosen and what is logged; None where
            the two are the same.
    """

    def __init__(self, name: str | None, where: str) -> None:
        self.name = self._chosen = name
        self.found_as: Callable[[str, Container[str]], str] | None = None
        self.is_validated = False
        self._where = where
        self._before: Any = None
        self._is_warned = False

    def note_validation_start(self, trainer: Trainer) -> None:
        """Remember what was logged before a validation; the sanity check is one, too."""
        self._look_up(trainer)
        self._before = trainer.callback_metrics.get(self.name or "")

    def note_validation_end(self, trainer: Trainer) -> None:
        """See whether the validation logged it."""
        self._look_up(trainer)
        if trainer.callback_metrics.get(self.name or "") is not self._before:
            self.is_validated = True
        if self.name not in (None, "epoch", "step"):
            advise_on_monitor(self.name or "", self._where, trainer)

    def is_to_come(self, trainer: Trainer) -> bool:
        """Return whether a validation that logs it follows the batch just done."""
        if self.name is None or not is_batch_the_last(trainer):
            return False
        comes_from_it = self.is_validated or self.name not in nameable_metrics(trainer)
        return comes_from_it and validates_after_epoch(trainer)

    def score(self, trainer: Trainer) -> Tensor | None:
        """Return its value, or None with one warning before the first validation has run.

        Raises:
            MetricError: it was not logged although validation has run, or is no single number.
        """
        self._look_up(trainer)
        metrics, name = nameable_metrics(trainer), self.name or ""
        if name in metrics:
            return as_score(metrics[name], name, self._where)
        message = missing_monitor(name, self._where, trainer.callback_metrics)
        if not has_validation(trainer) or trainer.progress.validated_at >= 0:
            raise MetricError(message)
        if not self._is_warned:
            self._is_warned = True
            hint = "Until the first validation has run, no checkpoint is ranked by it."
            warn(f"{message} {hint}", TrainerHooksWarning)
        return None

    def _look_up(self, trainer: Trainer) -> None:
        """Find out under which name it is logged."""
        if self.found_as is not None and self._chosen is not None:
            self.name = self.found_as(self._chosen, trainer.callback_metrics)


def nameable_metrics(trainer: Trainer) -> dict[str, Any]:
    """Return what can be monitored and stand in a filename: the metrics and two counters.

    `epoch` and `step` are the trainer's own, whatever was logged under these names.
    """
    counters = {"epoch": trainer.current_epoch, "step": trainer.global_step}
    return {**trainer.callback_metrics, **counters}
