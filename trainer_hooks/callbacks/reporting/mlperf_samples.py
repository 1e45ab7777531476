"""How many samples a training has, as MLPerf asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.monitoring import has_validation
from trainer_hooks.data import loaders_in
from trainer_hooks.errors import DataError

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = ["numbers_of_samples"]


def numbers_of_samples(trainer: Trainer, where: str) -> dict[str, int]:
    """Return how many samples are trained on and evaluated, and how many make a batch.

    Raises:
        DataError: there is no validation, or it cannot be told.
    """
    if not has_validation(trainer):
        raise DataError(
            f"validation of {where}: there is none, and MLPerf asks for the metric of one. Pass a "
            "validation loader."
        )
    train = trainer.train_dataloader
    numbers = {
        "train_samples": _count(train, trainer.num_training_batches, where),
        "eval_samples": sum(
            _count(loader, batches, where)
            for loader, batches in zip(
                loaders_in(trainer.val_dataloaders), trainer.num_val_batches, strict=True
            )
        ),
    }
    size = getattr(train, "batch_size", None)
    if isinstance(size, int):
        numbers["global_batch_size"] = size * trainer.world_size
    return numbers


def _count(loader: Any, batches: float, where: str) -> int:
    """Return how many samples a loader has, by its data set or by its batches."""
    dataset = getattr(loader, "dataset", None)
    if hasattr(dataset, "__len__"):
        return len(dataset)  # type: ignore[arg-type]
    size = getattr(loader, "batch_size", None)
    size = 1 if size is None else size
    if not isinstance(size, int) or batches == float("inf"):
        raise DataError(
            f"loader {type(loader).__qualname__} of {where}: it cannot be told how many samples "
            "it has. Give its data set a __len__."
        )
    return int(batches) * size
