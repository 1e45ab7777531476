"""DataModule: the data of a project in one object."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from trainer_hooks import checkpoint
from trainer_hooks.data import DataHooks
from trainer_hooks.module.loading import MethodOfClass
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from trainer_hooks.module.hyperparameters import KeptArguments

__all__ = ["DataModule"]


class DataModule(DataHooks):
    """Prepare, set up and load data; a module then need not know where its batches come from.

    Called in this order: `prepare_data`, `setup(stage)`, the loaders, `teardown(stage)`.

    Attributes:
        trainer: the trainer that runs it, while it does.
    """

    trainer: Any = None
    _kept: KeptArguments | None = None

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

    def save_hyperparameters(
        self, *args: Any, ignore: Any = None, frame: Any = None, logger: bool = True
    ) -> None:
        """Keep the arguments of `__init__` in `hparams` and in checkpoints, as a module does.

        Args:
            args: names of the arguments to keep; or one mapping, Namespace or dataclass, whose
                items are kept instead; all arguments unless given.
            ignore: names to leave out.
            frame: the frame of `__init__`, where it is not the caller's.
            logger: whether loggers are given them when fit begins.

        Raises:
            ModuleError: a name is no argument, or this is called outside `__init__`.
        """
        from trainer_hooks.module.hyperparameters import kept_arguments

        self._kept = kept_arguments(self, self._kept, args, ignore, frame, logger)

    @property
    def hparams(self) -> checkpoint.HyperParameters:
        """The hyperparameters, as a dict with attributes."""
        if self._kept is None:
            from trainer_hooks.module.hyperparameters import KeptArguments

            self._kept = KeptArguments()
        return self._kept.given

    @property
    def hparams_initial(self) -> checkpoint.HyperParameters:
        """A copy of the hyperparameters as they were when they were saved."""
        return checkpoint.HyperParameters() if self._kept is None else self._kept.copied()

    @property
    def saved_hparams(self) -> Mapping[str, Any] | None:
        """What of the hyperparameters a checkpoint holds; None if none were saved."""
        return None if self._kept is None else self._kept.saved

    @property
    def hparams_name(self) -> str | None:
        """The argument of `__init__` that was all of the hyperparameters, if it was one."""
        return None if self._kept is None else self._kept.name

    @property
    def logged_hparams(self) -> Mapping[str, Any] | None:
        """What of the hyperparameters loggers are given, or None."""
        return self.hparams if self._kept is not None and self._kept.is_logged else None

    @MethodOfClass
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | os.PathLike[str],
        map_location: Any = "cpu",
        hparams_file: str | os.PathLike[str] | None = None,
        weights_only: bool | None = None,  # noqa: ARG003 - Lightning's
        **kwargs: Any,
    ) -> Self:
        """Make a data module with a checkpoint's hyperparameters, and give it the state there.

        The global random numbers are as before afterwards.

        Args:
            checkpoint_path: a checkpoint of trainer_hooks or of Lightning 2.x.
            map_location: where tensors in it go, as in `torch.load`.
            hparams_file: a `.yaml` or `.csv` file whose hyperparameters are used, and not those of
                the checkpoint.
            weights_only: without effect, for Lightning's scripts: no file is opened in a way that
                could run code.
            kwargs: arguments of `__init__` that replace or complete the hyperparameters.

        Raises:
            CheckpointError: it cannot be read.
            ModuleError: `__init__` needs an argument that is neither there nor given, or the file
                of hyperparameters cannot be read.
        """
        from trainer_hooks.module.hyperparameters import arguments_from

        found = checkpoint.load_checkpoint(checkpoint_path, map_location)
        name = found.get("datamodule_hparams_name")
        saved = found.get(checkpoint.lightning.DATA_HPARAMS, {})
        if hparams_file is not None:
            from trainer_hooks.module.hparams_file import read_hparams

            saved = read_hparams(hparams_file)
        with rng.isolated():
            made = cls(**arguments_from(cls, saved, name, kwargs, str(checkpoint_path)))
        state = found.get(cls.__qualname__)
        if state:
            made.load_state_dict(state)
        return made

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
            kwargs: arguments of this class, which is given `batch_size` and `num_workers` too, as
                far as it takes them.
        """
        loading = {"batch_size": batch_size, "num_workers": num_workers}
        taken = inspect.signature(cls).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in taken.values()):
            loading = {name: value for name, value in loading.items() if name in taken}
        made = cls(**kwargs, **loading)
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
