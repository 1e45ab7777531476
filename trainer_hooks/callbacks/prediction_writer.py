"""BasePredictionWriter: write predictions batch by batch, or all of them at the end."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import warn
from trainer_hooks._options import check_option, one_of
from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError, TrainerHooksWarning
from trainer_hooks.hooks.band import Band

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module


class WriteInterval(StrEnum):
    """When predictions are written: after each batch, after all batches, or both."""

    BATCH = "batch"
    EPOCH = "epoch"
    BATCH_AND_EPOCH = "batch_and_epoch"

    @property
    def on_batch(self) -> bool:
        """Whether each batch is written as soon as it is predicted."""
        return self is not WriteInterval.EPOCH

    @property
    def on_epoch(self) -> bool:
        """Whether all predictions are written at the end."""
        return self is not WriteInterval.BATCH


class BasePredictionWriter(Callback):
    """Base class of prediction writers: define `write_on_batch_end`, `write_on_epoch_end` or both.

    Both methods receive the dataset indices of the predicted samples, whatever sampler chose them
    and however many workers loaded them. Each rank writes the predictions of its own samples.

    Where only batches are written, `trainer.predict(..., return_predictions=False)` keeps no
    predictions in memory. `write_on_epoch_end` receives all of them also then.

    Args:
        write_interval: `"batch"`, `"epoch"` or `"batch_and_epoch"`.

    Attributes:
        interval: the same, with `on_batch` and `on_epoch`.

    State: none.

    Raises:
        OptionError: the argument is outside its rule.
        CallbackError: the method that the interval calls is not defined.

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
        self.interval = WriteInterval(check_option("write_interval", value, name, one_of(*choices)))
        for method, is_called in (
            ("write_on_batch_end", self.interval.on_batch),
            ("write_on_epoch_end", self.interval.on_epoch),
        ):
            # at construction, not after hours of predicting
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
            prediction: the value that `predict_step` returned.
            batch_indices: the dataset indices of the samples, or None where they are unknown.
            batch: the batch.
            batch_idx: the index of the batch.
            dataloader_idx: the index of its loader.
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
            predictions: the values that `predict_step` returned for each batch; a list of these for
                each loader where there are several.
            batch_indices: for each loader, for each batch, the dataset indices of the samples, or
                None where they are unknown.
        """

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Let the trainer record the dataset indices of each batch."""
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
        """Write the batch's predictions, or keep them for the end."""
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
            # a loader without batches, before this one, has an empty list
            while len(self._predictions) <= dataloader_idx:
                self._predictions.append([])
                self._indices.append([])
            self._predictions[dataloader_idx].append(outputs)
            self._indices[dataloader_idx].append(indices)

    def on_predict_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Write all predictions, if the interval says so."""
        if not self.interval.on_epoch:
            return
        # a loader without batches still gets its list, so that positions are loader indices
        for per_loader in (self._predictions, self._indices):
            missing = len(trainer.num_predict_batches) - len(per_loader)
            per_loader += [[] for _ in range(missing)]
        has_several_loaders = len(self._predictions) > 1
        # as in Lightning: of a single loader the predictions come without the outer list,
        # and the indices with it
        predictions = self._predictions if has_several_loaders else self._predictions[0]
        self.write_on_epoch_end(trainer, module, predictions, self._indices)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Release the predictions that were kept."""
        self._predictions, self._indices = [], []
