"""BasePredictionWriter: write predictions as they come, or all of them at the end."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import warn
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.errors import CallbackError, TrainerHooksWarning
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["BasePredictionWriter", "WriteInterval"]


class WriteInterval(StrEnum):
    """When predictions are written."""

    BATCH = "batch"
    EPOCH = "epoch"
    BATCH_AND_EPOCH = "batch_and_epoch"

    @property
    def on_batch(self) -> bool:
        """Whether each batch is written as it comes."""
        return self is not WriteInterval.EPOCH

    @property
    def on_epoch(self) -> bool:
        """Whether all are written at the end."""
        return self is not WriteInterval.BATCH


class BasePredictionWriter(Callback):
    """Write predictions: define `write_on_batch_end`, `write_on_epoch_end` or both in a subclass.

    Both are given the indices in the data set of the samples that were predicted, whatever sampler
    chose them and however many workers loaded them. Each process writes its own share.

    Where only batches are written, `trainer.predict(..., return_predictions=False)` keeps none of
    them in memory. `write_on_epoch_end` is given all, also with `return_predictions=False`.

    Args:
        write_interval: `"batch"`, `"epoch"` or `"batch_and_epoch"`.

    Attributes:
        interval: the same, with `on_batch` and `on_epoch`.

    State: none.

    Raises:
        OptionError: the argument is outside its rule.
        CallbackError: the method that is to be called is not defined.

    Example::

        class Writer(BasePredictionWriter):
            def write_on_batch_end(self, trainer, module, prediction, batch_indices, *about):
                torch.save((batch_indices, prediction), f"{about[1]}.pt")

        trainer = Trainer(callbacks=[Writer("batch")])
        trainer.predict(module, val_loader, return_predictions=False)
    """

    band: ClassVar[Band] = Band.SINK

    def __init__(self, write_interval: str = "batch") -> None:
        name = type(self).__qualname__
        value = str(write_interval) if isinstance(write_interval, str) else write_interval
        choices = tuple(str(interval) for interval in WriteInterval)
        self.interval = WriteInterval(check_choice("write_interval", value, name, choices))
        for method, is_called in (
            ("write_on_batch_end", self.interval.on_batch),
            ("write_on_epoch_end", self.interval.on_epoch),
        ):
            if is_called and getattr(type(self), method) is getattr(BasePredictionWriter, method):
                raise CallbackError(
                    f"{name}(write_interval={str(self.interval)!r}) has no {method}: it is what "
                    f"writes. Define {method}, or choose another write_interval."
                )
        self._predictions: list[list[Any]] = []
        self._indices: list[list[Any]] = []

    def write_on_batch_end(
        self,
        trainer: Trainer,
        pl_module: Module,
        prediction: Any,
        batch_indices: Sequence[int] | None,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Write the predictions of one batch.

        Args:
            trainer: the trainer.
            pl_module: the module.
            prediction: what `predict_step` returned.
            batch_indices: the indices of the samples in the data set, or None where there are none.
            batch: the batch.
            batch_idx: its number.
            dataloader_idx: the number of its loader.
        """

    def write_on_epoch_end(
        self,
        trainer: Trainer,
        pl_module: Module,
        predictions: Sequence[Any],
        batch_indices: Sequence[Any],
    ) -> None:
        """Write all predictions.

        Args:
            trainer: the trainer.
            pl_module: the module.
            predictions: what `predict_step` returned for each batch; a list of those for each
                loader where there are several.
            batch_indices: for each loader, for each batch, the indices of the samples in the data
                set, or None where there are none.
        """

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Ask for the indices."""
        self._predictions, self._indices = [], []
        trainer.note_batch_indices()

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Write the batch, or keep it for the end."""
        indices = trainer.batch_indices
        if indices is None and batch_idx == 0:
            warn(
                f"{type(self).__qualname__}: the samples of predict loader {dataloader_idx} have "
                "no indices, so batch_indices is None. They have with a DataLoader on a map-style "
                "data set whose batches come in order.",
                TrainerHooksWarning,
            )
        if self.interval.on_batch:
            self.write_on_batch_end(
                trainer, module, outputs, indices, batch, batch_idx, dataloader_idx
            )
        if self.interval.on_epoch:
            while len(self._predictions) <= dataloader_idx:
                self._predictions.append([])
                self._indices.append([])
            self._predictions[dataloader_idx].append(outputs)
            self._indices[dataloader_idx].append(indices)

    def on_predict_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Write all."""
        if not self.interval.on_epoch:
            return
        for kept in (self._predictions, self._indices):
            kept += [[] for _ in range(len(trainer.num_predict_batches) - len(kept))]
        several = len(self._predictions) > 1
        predictions = self._predictions if several else self._predictions[0]
        self.write_on_epoch_end(trainer, module, predictions, self._indices)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Let go of what was kept."""
        self._predictions, self._indices = [], []
