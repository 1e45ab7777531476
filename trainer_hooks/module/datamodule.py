"""DataModule: the data sets and loaders of a project in one object."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

from trainer_hooks._annotations import signature_of
from trainer_hooks.data.data_hooks import DataHooks
from trainer_hooks.errors import ModuleError
from trainer_hooks.hooks.check import definition_clash
from trainer_hooks.module.hyperparameters import (
    HyperparametersMixin,
    MethodOfClass,
    init_arguments_from,
    made_from_config,
    read_hparams,
)
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    import os


class DataModule(HyperparametersMixin, DataHooks):
    """Base class of an object that prepares, sets up and loads data for a module.

    Its methods are called in this order: `prepare_data`, `setup(stage)`, the loaders,
    `teardown(stage)`.

    Attributes:
        trainer: the trainer that runs it, during a run.
    """

    trainer: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names = frozenset({"hparams_name", "hparams_type", "logged_hparams", "saved_hparams"})
        if clash := definition_clash(cls, names):
            raise ModuleError(clash)

    def setup(self, stage: str) -> None:
        """Split and build data sets; `stage` is fit, validate, test or predict."""

    def teardown(self, stage: str) -> None:
        """Release the resources of `setup`; called also after an exception."""

    def state_dict(self) -> dict[str, Any]:
        """Return plain data to save in checkpoints."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""

    def on_exception(self, exception: BaseException) -> None:
        """Called for an exception that breaks off a run, unless it comes from `teardown`."""

    @MethodOfClass
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | os.PathLike[str],
        map_location: Any = "cpu",
        hparams_file: str | os.PathLike[str] | None = None,
        weights_only: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make a data module with a checkpoint's hyperparameters, and load its state.

        The global random state is restored afterwards.

        Args:
            checkpoint_path: a checkpoint of trainer_hooks or of Lightning 2.x.
            map_location: the device of the tensors in the checkpoint, as in `torch.load`.
            hparams_file: a `.yaml` or `.csv` file whose hyperparameters are used instead of those
                of the checkpoint.
            weights_only: False to open hyperparameters that the checkpoint holds as pickles, which
                runs the code that the file names. Nothing else runs code, whatever it is.
            kwargs: arguments of `__init__` that replace or complete the hyperparameters.

        Raises:
            CheckpointError: the checkpoint cannot be read.
            ModuleError: an argument that `__init__` needs is missing, or the file of
                hyperparameters cannot be read.
        """
        from trainer_hooks.checkpoint.file import load_checkpoint
        from trainer_hooks.checkpoint.lightning import DATA_HPARAMS

        checkpoint = load_checkpoint(checkpoint_path, map_location)
        name = checkpoint.get("datamodule_hparams_name")
        saved = checkpoint.get(DATA_HPARAMS, {})
        if hparams_file is not None:
            saved = read_hparams(hparams_file)
        with rng.isolated():
            path, is_trusted = str(checkpoint_path), weights_only is False
            form = checkpoint.get("datamodule_hparams_type")
            arguments = init_arguments_from(
                cls, saved, name, kwargs, path, is_trusted=is_trusted, form=form
            )
            with made_from_config({cls: {**saved, **kwargs}}):
                datamodule = cls(**arguments)
        # Lightning's key for it
        state = checkpoint.get(cls.__qualname__)
        if state:
            datamodule.load_state_dict(state)
        return datamodule

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
            train_dataset: a data set, or a list or dict of them; likewise for the others.
            val_dataset: the data set for validation.
            test_dataset: the data set for the test.
            predict_dataset: the data set for prediction.
            batch_size: the batch size of every loader.
            num_workers: the number of workers of every loader.
            kwargs: arguments of this class. `batch_size` and `num_workers` are passed too if it
                takes them.
        """
        loading = {"batch_size": batch_size, "num_workers": num_workers}
        parameters = signature_of(cls).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            loading = {name: value for name, value in loading.items() if name in parameters}
        datamodule = cls(**kwargs, **loading)
        for name, dataset in (
            ("train_dataloader", train_dataset),
            ("val_dataloader", val_dataset),
            ("test_dataloader", test_dataset),
            ("predict_dataloader", predict_dataset),
        ):
            if dataset is not None:
                shuffles = name == "train_dataloader"
                # `partial` binds the values of this round, and can be pickled, unlike a lambda
                setattr(
                    datamodule, name, partial(_load, dataset, shuffles, batch_size, num_workers)
                )
        return datamodule


def _load(dataset: Any, shuffles: bool, batch_size: int, num_workers: int) -> Any:
    """Return a loader for a data set, or one for each data set of a list or dict."""
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
        # a DataLoader refuses shuffle=True for an iterable data set
        shuffle=shuffles and not isinstance(dataset, IterableDataset),
    )
