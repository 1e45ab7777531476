"""ThresholdStopper: end a fit when a metric is past a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callbacks.monitoring import check_choice, check_number
from trainer_hooks.compat.composer.callbacks.labelled_stopper import LabelledStopper

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ThresholdStopper"]

_WHERE = "ThresholdStopper"


class ThresholdStopper(LabelledStopper):
    """Ask the trainer to stop when a metric is better than a threshold.

    It has Composer's arguments; `EarlyStopping(stopping_threshold=...)` does the same with
    Lightning's. A metric of the validation is looked at after each validation that logs it, one of
    the training at the end of each epoch. The trainer decides when it follows, so `min_epochs` and
    `min_steps` hold.

    Args:
        monitor: the metric to watch.
        dataloader_label: the label of the evaluator that logs it as `monitor/label`; another text,
            such as `"eval"`, where validation logs it under its plain name; `"train"` for a metric
            of the training.
        threshold: the value to compare with; the metric must pass it, not only reach it.
        comp: which values are better: `"gt"` or `"greater"`, `"lt"` or `"less"`, or a function of
            two tensors, the metric and the threshold, such as `torch.less`. By default smaller ones
            where the name contains `loss`, `error` or `perplexity`, otherwise larger ones.
        stop_on_batch: whether a metric of the training is looked at after each batch, too; each
            look waits for the device.

    Attributes:
        stopping_value: the value it asked to stop at, or None.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, `monitor` was not logged or is no single number.

    State: the value it asked to stop at. A resumed run asks again if that value passes the present
    threshold.

    Example::

        from trainer_hooks.compat.composer.callbacks import ThresholdStopper

        stopper = ThresholdStopper("val_acc", "eval", 0.9)
        trainer = Trainer(max_epochs=2, callbacks=[stopper])
        trainer.fit(module, train_loader, val_loader)
    """

    def __init__(
        self,
        monitor: str,
        dataloader_label: str,
        threshold: float,
        *,
        comp: str | Callable[[Tensor, Tensor], Any] | None = None,
        stop_on_batch: bool = False,
    ) -> None:
        check_choice("stop_on_batch", stop_on_batch, _WHERE, (True, False))
        super().__init__(monitor, dataloader_label, comp, checks_batches=stop_on_batch)
        self.threshold = check_number("threshold", threshold, _WHERE)
        self.stop_on_batch = stop_on_batch
        self.stopping_value: float | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return what was decided."""
        return {"stopping_value": self.stopping_value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self.stopping_value = state_dict["stopping_value"]

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Ask again to stop if a resumed training had stopped and would by this threshold."""
        value, self.stopping_value = self.stopping_value, None
        if value is not None:
            self._judge(trainer, torch.tensor(value))

    def _forget(self) -> None:
        self.stopping_value = None

    def _judge(self, trainer: Trainer, score: Tensor) -> None:
        if not self._is_better(score, torch.tensor(self.threshold)):
            return
        self.stopping_value = score.item()
        trainer.stop(
            f"{_WHERE}: {self.monitor} {self.stopping_value:.5g} passed the threshold "
            f"{self.threshold:.5g}"
        )
