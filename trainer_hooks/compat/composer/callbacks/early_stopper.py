"""EarlyStopper: early stopping with the arguments of Composer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callbacks.monitoring import check_count, check_number
from trainer_hooks.clock import Time, TimeUnit, parse_time
from trainer_hooks.compat.composer.callbacks.labelled_stopper import LabelledStopper

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks.clock import Clock
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["EarlyStopper"]

_WHERE = "EarlyStopper"
_UNITS = (
    TimeUnit.ITERATION,
    TimeUnit.EPOCH,
    TimeUnit.BATCH,
    TimeUnit.STEP,
    TimeUnit.SAMPLE,
    TimeUnit.TOKEN,
)


class EarlyStopper(LabelledStopper):
    """Ask the trainer to stop when a metric has not improved for some time.

    It has Composer's arguments; `EarlyStopping` has Lightning's, and counts checks. A metric of the
    validation is looked at after each validation that logs it, one of the training at the end of
    each epoch, and with a patience in batches after each batch. The trainer decides when it
    follows, so `min_epochs` and `min_steps` hold.

    Args:
        monitor: the metric to watch.
        dataloader_label: the label of the evaluator that logs it as `monitor/label`; another text,
            such as `"eval"`, where validation logs it under its plain name; `"train"` for a metric
            of the training.
        comp: which values are better: `"gt"` or `"greater"`, `"lt"` or `"less"`, or a function of
            two tensors, the metric and the best one, such as `torch.less`. By default smaller ones
            where the name contains `loss`, `error` or `perplexity`, otherwise larger ones.
        min_delta: by how much a value must beat the best one to count as an improvement.
        patience: it stops when the best value is older than this: a number of epochs, or a count
            such as `"2ep"`, `"500ba"` or `Time("1e6tok")`.

    Attributes:
        best: the best value, or None.
        best_occurred: how far the training was when it was seen, by unit; empty before.
        is_stopped: whether it asked to stop.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, `monitor` was not logged or is no single number.

    State: the best value, when it was seen, and whether it asked to stop. A resumed run asks again
    only if the present patience has passed.

    Example::

        from trainer_hooks.compat.composer.callbacks import EarlyStopper

        stopper = EarlyStopper("val_loss", "eval", patience="2ep")
        trainer = Trainer(max_epochs=2, callbacks=[stopper])
        trainer.fit(module, train_loader, val_loader)
    """

    best: float | None
    best_occurred: dict[str, int]

    def __init__(
        self,
        monitor: str,
        dataloader_label: str,
        comp: str | Callable[[Tensor, Tensor], Any] | None = None,
        min_delta: float = 0.0,
        patience: int | str | Time = 1,
    ) -> None:
        if isinstance(patience, int):
            self.patience = Time(check_count("patience", patience, _WHERE), TimeUnit.EPOCH)
        else:
            self.patience = parse_time(patience, "patience", _WHERE, units=_UNITS)
        is_in_batches = self.patience.unit is TimeUnit.BATCH
        super().__init__(monitor, dataloader_label, comp, checks_batches=is_in_batches)
        self.min_delta = check_number("min_delta", min_delta, _WHERE, least=0.0)
        self._forget()

    def state_dict(self) -> dict[str, Any]:
        """Return what was seen and decided."""
        return {
            "best": self.best,
            "best_occurred": dict(self.best_occurred),
            "is_stopped": self.is_stopped,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self.best = state_dict["best"]
        self.best_occurred = dict(state_dict["best_occurred"])
        self.is_stopped = state_dict["is_stopped"]

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Ask again to stop if a resumed training had stopped and would by this patience."""
        was_stopped, self.is_stopped = self.is_stopped, False
        if was_stopped:
            self._stop_if_late(trainer)

    def _forget(self) -> None:
        self.best = None
        self.best_occurred = {}
        self.is_stopped = False

    def _judge(self, trainer: Trainer, score: Tensor) -> None:
        if self._is_improved(score):
            self.best = score.item()
            self.best_occurred = _counts(trainer.clock)
        self._stop_if_late(trainer)

    def _is_improved(self, score: Tensor) -> bool:
        """Return whether a value is the best by more than the least difference; NaN never is."""
        if self.best is None:
            return True
        best = torch.tensor(self.best, dtype=score.dtype)
        if bool(best.isnan()):
            return not bool(score.isnan())
        return self._is_better(score, best) and bool((score - best).abs() > self.min_delta)

    def _stop_if_late(self, trainer: Trainer) -> None:
        unit = self.patience.unit.value
        waited = _counts(trainer.clock)[unit] - self.best_occurred[unit]
        if waited > self.patience.value:
            self.is_stopped = True
            trainer.stop(
                f"{_WHERE}: {self.monitor} not better in {Time(waited, unit)}; best {self.best:.5g}"
            )


def _counts(clock: Clock) -> dict[str, int]:
    return {unit.value: int(clock.count(unit)) for unit in _UNITS}
