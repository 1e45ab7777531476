"""What Composer's two stoppers share: the metric of one loader, and how values compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import (
    as_score,
    check_monitor,
    check_text,
    is_training,
    missing_monitor,
)
from trainer_hooks.errors import MetricError, OptionError, nearest
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["LabelledStopper"]

_COMPARISONS = {
    "gt": torch.gt,
    "greater": torch.gt,
    "lt": torch.lt,
    "less": torch.lt,
}
_LESS_IS_BETTER = ("loss", "error", "perplexity")
_TRAIN = "train"


class LabelledStopper(Callback):
    """Look at one loader's metric after its validations, or at the end of training epochs.

    Args:
        monitor: the metric.
        dataloader_label: whose it is.
        comp: which values are better.
        checks_batches: whether a metric of the training is looked at after each batch as well.
    """

    band: ClassVar[Band] = Band.CONTROL

    def __init__(
        self,
        monitor: str,
        dataloader_label: str,
        comp: str | Callable[[Tensor, Tensor], Any] | None,
        checks_batches: bool,
    ) -> None:
        where = type(self).__name__
        self.monitor = check_monitor(monitor, where)
        if check_text("dataloader_label", dataloader_label, where) is None:
            raise OptionError(
                f"dataloader_label None of {where}: it must be 'train' or the label of an "
                "evaluator. Pass 'eval' where there is one validation loader without a label."
            )
        self.dataloader_label = dataloader_label
        self.comp = _comparison(comp, monitor, where)
        self._checks_batches = checks_batches and dataloader_label == _TRAIN
        self._before: Any = None
        self._is_awaited = False

    @property
    def state_key(self) -> str:
        """The class with what it watches."""
        return self._generate_state_key(
            monitor=self.monitor, dataloader_label=self.dataloader_label
        )

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Forget an earlier training when a new one begins."""
        self._is_awaited = False
        if trainer.progress.is_fresh:
            self._forget()

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look, if it looks after each batch."""
        if self._checks_batches and self._name(trainer) in trainer.callback_metrics:
            self._look(trainer)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Remember what was logged before: not every validation runs every evaluator."""
        self._before = trainer.callback_metrics.get(self._name(trainer))

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Look at what the validation logged."""
        if self.dataloader_label == _TRAIN or trainer.sanity_checking:
            return
        self._is_awaited = True
        is_alone = len(trainer.num_val_batches) == 1  # of several, some may have their own interval
        metric = trainer.callback_metrics.get(self._name(trainer))
        if metric is not self._before or (metric is None and is_alone):
            self._look(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Look at what the training logged."""
        if self.dataloader_label == _TRAIN:
            self._look(trainer)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Refuse a metric that was never logged: the training could not have been stopped."""
        is_missing = self._name(trainer) not in trainer.callback_metrics
        if self._is_awaited and is_missing and is_training(trainer):
            raise self._missing(trainer)

    def _name(self, trainer: Trainer) -> str:
        """Return what the metric is called: with the loader's label, if so it was logged."""
        labelled = f"{self.monitor}/{self.dataloader_label}"
        return labelled if labelled in trainer.callback_metrics else self.monitor

    def _look(self, trainer: Trainer) -> None:
        """Hand the metric to `_judge`."""
        if not is_training(trainer):
            return
        metrics, name = trainer.callback_metrics, self._name(trainer)
        if name not in metrics:
            raise self._missing(trainer)
        self._judge(trainer, as_score(metrics[name], name, type(self).__name__))

    def _missing(self, trainer: Trainer) -> MetricError:
        return MetricError(
            missing_monitor(self.monitor, type(self).__name__, trainer.callback_metrics)
        )

    def _is_better(self, value: Tensor, other: Tensor) -> bool:
        return bool(self.comp(value, other))

    def _forget(self) -> None:
        raise NotImplementedError

    def _judge(self, trainer: Trainer, score: Tensor) -> None:
        raise NotImplementedError


def _comparison(
    comp: str | Callable[[Tensor, Tensor], Any] | None, monitor: str, where: str
) -> Callable[[Tensor, Tensor], Any]:
    """Return the function that an argument says, or by the metric's name the usual one."""
    if comp is None:
        is_less = any(part in monitor.lower() for part in _LESS_IS_BETTER)
        return torch.lt if is_less else torch.gt
    if isinstance(comp, str) and comp.lower() in _COMPARISONS:
        return _COMPARISONS[comp.lower()]
    if callable(comp):
        return comp
    hint = nearest(comp, list(_COMPARISONS)) if isinstance(comp, str) else ""
    raise OptionError(
        f"comp {comp!r} of {where}: it must be one of {', '.join(map(repr, _COMPARISONS))}, or a "
        f"function of two tensors.{hint} Choose one, or pass a function such as torch.less."
    )
