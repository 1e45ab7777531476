"""RunJournal: how much a model has been trained, over all the runs that it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks import Callback

if TYPE_CHECKING:
    from trainer_hooks import Module, Trainer

__all__ = ["Counts", "RunJournal", "samples_in"]


@dataclass(slots=True)
class Counts:
    """What the journal counts.

    Attributes:
        batches: training batches.
        samples: the samples in them.
        epochs: training epochs that ended.
        fits: calls of `fit`, resumed ones included.
        resumes: how many of those went on from a checkpoint.
    """

    batches: int = 0
    samples: int = 0
    epochs: int = 0
    fits: int = 0
    resumes: int = 0


class RunJournal(Callback):
    """Count batches, samples, epochs, fits and resumes, and print a line after each epoch.

    The counts are kept in checkpoints, so they go on where a run that died left off.

    Args:
        quiet: count, but print nothing.
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset({"fits", "resumes"})

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.counts = Counts()
        self._is_restored = False

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Start over with a fresh run; count a resume if a checkpoint was restored."""
        if trainer.progress.is_fresh:
            self.counts = Counts()
        elif self._is_restored:
            self.counts.resumes += 1
        self._is_restored = False
        self.counts.fits += 1

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Count the batch and its samples; no tensor is read, so nothing waits for the device."""
        self.counts.batches += 1
        self.counts.samples += samples_in(batch)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Count the epoch and print a line."""
        self.counts.epochs += 1
        self._print(trainer, f"epoch {self.counts.epochs}")

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Print a last line."""
        self._print(trainer, f"fit {self.counts.fits} done")

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return asdict(self.counts)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the counts back; one that an older release did not save starts at zero."""
        known = {field.name for field in fields(Counts)}
        self.counts = Counts(**{name: n for name, n in state_dict.items() if name in known})
        self._is_restored = True

    def _print(self, trainer: Trainer, moment: str) -> None:
        if not self.quiet:
            counts = self.counts
            trainer.print(
                f"[run-journal] {moment}: {counts.batches:,} batches, {counts.samples:,} samples "
                f"so far (resumed {counts.resumes}x)"
            )


def samples_in(batch: Any) -> int:
    """Return the length of the first tensor in `batch`, or 0 if there is none.

    A tensor is anything with a `shape` of one dimension or more; lists, tuples and mappings are
    searched in their order, however they are nested.
    """
    return next(_lengths(batch), 0)


def _lengths(batch: Any) -> Iterator[int]:
    shape = getattr(batch, "shape", None)
    if shape is not None:
        if len(shape) > 0:
            yield int(shape[0])
    elif isinstance(batch, Mapping):
        for item in batch.values():
            yield from _lengths(item)
    elif isinstance(batch, list | tuple):
        for item in batch:
            yield from _lengths(item)
