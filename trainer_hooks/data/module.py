"""DataModule: the data of a project in one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.data.hooks import DataHooks

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    ) -> DataModule:
        """Return a data module with a DataLoader for each data set; training data is shuffled."""
        return _FromDatasets(
            {
                "train": train_dataset,
                "val": val_dataset,
                "test": test_dataset,
                "predict": predict_dataset,
            },
            batch_size,
            num_workers,
        )


class _FromDatasets(DataModule):
    def __init__(self, datasets: Mapping[str, Any], batch_size: int, num_workers: int) -> None:
        self._datasets = datasets
        self._batch_size = batch_size
        self._num_workers = num_workers

    def _loader(self, kind: str, *, shuffle: bool = False) -> Any:
        from torch.utils.data import DataLoader, IterableDataset

        dataset = self._datasets[kind]
        if dataset is None:
            return None
        return DataLoader(
            dataset,
            batch_size=self._batch_size,
            num_workers=self._num_workers,
            shuffle=shuffle and not isinstance(dataset, IterableDataset),
        )

    def train_dataloader(self) -> Any:
        return self._loader("train", shuffle=True)

    def val_dataloader(self) -> Any:
        return self._loader("val")

    def test_dataloader(self) -> Any:
        return self._loader("test")

    def predict_dataloader(self) -> Any:
        return self._loader("predict")
