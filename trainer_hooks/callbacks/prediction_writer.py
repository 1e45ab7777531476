"""BasePredictionWriter and PredictionWriter: write predictions, by code of yours or to a file."""

from __future__ import annotations

import glob
import os
import shutil
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._files import hidden_beside
from trainer_hooks._log import log, warn
from trainer_hooks._options import PATH, answers_keywords, check_option, one_of
from trainer_hooks._system import is_running, move
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import decide_on_rank_zero
from trainer_hooks.errors import CallbackError, OptionError, TrainerHooksWarning, did_you_mean
from trainer_hooks.hooks.band import Band

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.callbacks.prediction_files import Part, PartWriter
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

    @answers_keywords
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
        if indices is None and batch_idx == 0 and self._needs_indices(trainer):
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

    def _needs_indices(self, trainer: Trainer) -> bool:
        """Return whether to warn where samples have no indices."""
        return True

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


class PredictionWriter(BasePredictionWriter):
    """Write all predictions to one file, whose ending chooses the format.

    - `.csv`: a line for each sample, after one with the names; `pandas.read_csv(path)` reads it.
    - `.jsonl`: an object for each sample, tensors as lists; `json.loads(line)`.
    - `.npz`: an array for each name; `numpy.load(path)`.
    - `.pt`: a dict with a tensor for each name, a list of other values; `torch.load(path)`.

    A tensor has a row for each item of its first dimension, a list one for each of its items. The
    keys of dicts and the positions of tuples are the names, `a.b` where they are nested; a tensor
    alone is `prediction`. In a csv a row of several numbers has several columns: `0, 1, ...`, or
    `key.0, key.1, ...`. A number or a text stands for the batch: it is in each of its rows.

    Rows come in the order of the data set, with several ranks and a shuffled loader, too, and each
    sample once where ranks share the data; samples without indices come rank by rank. Several
    loaders have a column `dataloader` with their index. Samples of different sizes: a list in
    `.jsonl` and `.pt`; in `.npz` all values one after the other in `key`, and `key.lengths`.

    Memory holds a batch, and some bytes a sample. Pass `return_predictions=False` to
    `trainer.predict`, or it keeps all of them. The file is written whole or not at all: until the
    end, predictions are in a hidden folder beside it, which all ranks must see, and a file that is
    there stays. After `trainer.stop` it holds the predictions until then; with `fast_dev_run` none
    is written.

    Args:
        path: the file. Its folder must exist.

    State: none.

    Raises:
        OptionError: the ending is none of these; at the start, there is no such folder, or it
            cannot be written to; at a batch, the format cannot hold its predictions.

    Example::

        trainer = Trainer(callbacks=[PredictionWriter("predictions.csv")])
        trainer.predict(module, val_loader, return_predictions=False)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__("batch")
        name = type(self).__name__
        check_option("path", path, name, PATH)
        self.path = Path(path).absolute()
        # here, and not after hours of predicting
        if "://" in str(path):
            raise OptionError(
                f"path {str(path)!r} of {name}: it must be of this machine's files. Write to a "
                "local folder, and copy the file."
            )
        if self.path.suffix.lower() not in _ENDINGS:
            raise OptionError(
                f"path {str(path)!r} of {name}: its ending must be one of {', '.join(_ENDINGS)}."
                f"{did_you_mean(self.path.suffix, _ENDINGS)} Choose one: it is the format."
            )
        self._folder: Path | None = None
        self._writer: PartWriter | None = None
        self._has_several_loaders = False

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Make the hidden folder, on rank 0, so that a bad path is refused before the first batch.

        Raises:
            OptionError: the path cannot be written to.
        """
        super().on_predict_start(trainer, module)
        from trainer_hooks.callbacks.prediction_files import FORMATS, PartWriter

        self._folder = decide_on_rank_zero(trainer, self._make_folder)
        self._has_several_loaders = len(trainer.num_predict_batches) > 1
        try:
            self._writer = PartWriter(
                self._folder, trainer.global_rank, FORMATS[self.path.suffix.lower()]
            )
        except OSError as error:
            raise self._refusal(
                f"rank {trainer.global_rank} cannot write to {self._folder} ({error.strerror}). "
                "Choose a folder that all ranks share"
            ) from error

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
        """Write the rows of a batch to this rank's part.

        Raises:
            OptionError: the format cannot hold them, or another rank's have other keys or types.
        """
        from trainer_hooks.callbacks.prediction_files import LOADER, Table, as_table

        if prediction is None and trainer.should_stop:  # the step has asked to stop
            return
        try:
            if prediction is None:
                raise ValueError("predict_step returned None. Return the predictions")
            table = as_table(prediction)
            columns, count = table.columns, table.count
            if self._has_several_loaders:
                columns = {LOADER: [dataloader_idx] * count, **columns}
            # of rows that are no samples, the first sample's index says where they belong
            indices = list(batch_indices or [-1])
            if not all(isinstance(index, int) for index in indices):  # keys of another kind
                indices = [-1]
            if len(indices) != count:
                indices = indices[:1] * count
            if self._writer is not None:
                self._writer.append(
                    Table(columns, count), [(dataloader_idx, index) for index in indices]
                )
        except ValueError as error:
            where = f" of loader {dataloader_idx}" if self._has_several_loaders else ""
            raise self._refusal(
                f"the prediction of batch {batch_idx}{where} cannot be written: {error}"
            ) from error

    def on_predict_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Put the parts of all ranks in order, on rank 0, and move the file to its place.

        Raises:
            OptionError: the ranks have returned different keys or types.
        """
        super().on_predict_epoch_end(trainer, module)
        if self._writer is None:
            return
        self._writer.close()
        parts = trainer.strategy.gather(self._writer.part)
        if not trainer.fast_dev_run:
            count = decide_on_rank_zero(trainer, lambda: self._write_file(parts))
            if trainer.is_global_zero:
                log.info("wrote %d predictions to %s", count, self.path)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Delete the hidden folder."""
        super().teardown(trainer, module, stage)
        if self._writer is not None:
            self._writer.close()
        if self._folder is not None:
            # another rank may be deleting it, too
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = self._writer = None

    def _needs_indices(self, trainer: Trainer) -> bool:
        """Return whether the order of the file depends on the indices of samples."""
        return trainer.world_size > 1

    def _make_folder(self) -> Path:
        """Make the hidden folder, and delete those that killed processes have left."""
        parent = self.path.parent
        if self.path.is_dir():
            raise self._refusal("it is a folder. Name a file in it")
        if not parent.is_dir():
            raise self._refusal(f"there is no folder {str(parent)!r}. Make it, or choose another")
        ending = ".tmp"
        for stale in parent.glob(f"{glob.escape(f'.{self.path.name}')}.*{ending}"):
            pid = stale.name.removesuffix(ending).rpartition(".")[2]
            if stale.is_dir() and pid.isdecimal() and not is_running(int(pid)):
                shutil.rmtree(stale, ignore_errors=True)
        folder = hidden_beside(self.path, f".{os.getpid()}{ending}")
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise self._refusal(
                f"the folder {str(parent)!r} cannot be written to ({error.strerror}). Choose "
                "another"
            ) from error
        return folder

    def _write_file(self, parts: Sequence[Part]) -> int:
        """Write the file from the parts of all ranks; return the number of rows."""
        from trainer_hooks.callbacks.prediction_files import FORMATS, MergedParts

        assert self._folder is not None
        try:
            rows = MergedParts(self._folder, parts)
        except ValueError as error:
            raise self._refusal(str(error)) from error
        finished = self._folder / "finished"
        FORMATS[self.path.suffix.lower()].write(rows, finished, self._folder)
        move(finished, self.path)
        return len(rows)

    def _refusal(self, fault: str) -> OptionError:
        return OptionError(f"path {str(self.path)!r} of {type(self).__name__}: {fault}.")


_ENDINGS = (".csv", ".jsonl", ".npz", ".pt")
