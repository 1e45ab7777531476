"""DataModule: the data of a project in one object."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from trainer_hooks.data.hooks import DataHooks

__all__ = ["DataModule"]


class DataModule(DataHooks):
    """Prepare, set up and load data; a module then need not know where its batches come from.

    Called in this order: `prepare_data`, `setup(stage)`, the loaders, `teardown(stage)`.

    Attributes:
        trainer: the trainer that runs it, while it does.
    """

    trainer: Any = None

    def setup(self, stage: str) -> None:
        """Split and build data sets; `stage` is fit, validate, test or predict."""

    def teardown(self, stage: str) -> None:
        """Let go of what `setup` took; called also after an exception."""

    def state_dict(self) -> dict[str, Any]:
        """Return plain data to save in checkpoints."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned."""

    def on_exception(self, exception: BaseException) -> None:
        """Called for any exception that leaves fit, validate, test or predict."""

    @classmethod
    def from_datasets(
        cls,
        train_dataset: Any = None,
        val_dataset: Any = None,
        test_dataset: Any = None,
        predict_dataset: Any = None,
        batch_size: int = 1,
        num_workers: int = 0,
        **kwargs: Any,
    ) -> Self:
        """Return a data module with a DataLoader for each data set; training data is shuffled.

        Args:
            train_dataset: a data set, or a list or dict of them, as for the others.
            val_dataset: for validation.
            test_dataset: for the test.
            predict_dataset: for prediction.
            batch_size: of every loader.
            num_workers: of every loader.
            kwargs: arguments of this class.
        """
        made = cls(**kwargs)
        for name, dataset in (
            ("train_dataloader", train_dataset),
            ("val_dataloader", val_dataset),
            ("test_dataloader", test_dataset),
            ("predict_dataloader", predict_dataset),
        ):
            if dataset is not None:
                shuffles = name == "train_dataloader"
                setattr(made, name, partial(_load, dataset, shuffles, batch_size, num_workers))
        return made


def _load(dataset: Any, shuffles: bool, batch_size: int, num_workers: int) -> Any:
    """Return a loader for a data set, or for each of a list or dict of data sets."""
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    if isinstance(dataset, dict):
        return {k: _load(v, shuffles, batch_size, num_workers) for k, v in dataset.items()}
    # a list may be a data set itself
    if isinstance(dataset, list | tuple) and all(isinstance(item, Dataset) for item in dataset):
        return [_load(item, shuffles, batch_size, num_workers) for item in dataset]
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=num_workers,
        shuffle=shuffles and not isinstance(dataset, IterableDataset),
    )
