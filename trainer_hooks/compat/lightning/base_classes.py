"""The classes under Lightning's names: its Trainer, and the bases of users' classes.

The bases leave all public names to the user that Lightning's classes have not: a helper
`on_epoch_end` or `on_log` is no hook there, and `self.num_samples = 5` is an attribute.
"""

from __future__ import annotations

import os
from abc import ABCMeta
from collections.abc import Mapping, Sized
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

from torch.utils.data import DataLoader

import trainer_hooks
from trainer_hooks import DataModule, Module, loggers, rank_zero_only
from trainer_hooks._annotations import own_annotations
from trainer_hooks._log import warn
from trainer_hooks._names import leave_to_user
from trainer_hooks.adapters.lightning.names import (
    CALLBACK_NAMES,
    DATAMODULE_NAMES,
    LOGGER_NAMES,
    MODULE_NAMES,
    names_of_the_user,
)
from trainer_hooks.compat.not_offered import not_offered_attribute
from trainer_hooks.errors import OptionError
from trainer_hooks.hooks.check import REMOVED_METHODS
from trainer_hooks.runtime import rng

__all__ = ["Callback", "LightningDataModule", "LightningModule", "Logger", "Trainer"]

_ARGUMENT = "dataloader_idx"
_CONNECTORS = {
    "_accelerator_connector": "AcceleratorConnectorProxy",
    "_checkpoint_connector": "CheckpointConnectorProxy",
    "_logger_connector": "LoggerConnectorProxy",
}
"""Internal parts of Lightning's Trainer that packages around it use, as guests' callbacks do."""
_LOOP = "read trainer.progress and trainer.num_val_batches"
_NOT_OFFERED = {
    "_callback_connector": "append to trainer.callbacks; a band decides the place of a callback",
    "_data_connector": "read trainer.train_dataloader, trainer.val_dataloaders, trainer.datamodule",
    "_results": "read trainer.callback_metrics and trainer.logged_metrics",
    "_signal_connector": "read trainer.received_sigterm",
    "predict_loop": "predict returns the predictions, and in a run trainer.predictions has them",
    "test_loop": _LOOP,
    "validate_loop": _LOOP,
}
"""What to use instead of other parts."""

_REFUSED_METHODS = {"training_epoch_end", "validation_epoch_end", "test_epoch_end"}
"""Methods of Lightning 1.x that Lightning 2 refuses; the others may be helpers of the user's."""


def _set_rank_of_lightning_utilities() -> None:
    """Set the rank for lightning_utilities' `rank_zero_only`, as importing Lightning does.

    Packages around Lightning decorate functions with it, and it fails where nobody set the rank.
    """
    # imported, and not only looked up: such a package may be imported after this one
    if find_spec("lightning_utilities") is None:
        return
    from lightning_utilities.core import rank_zero

    if getattr(rank_zero.rank_zero_only, "rank", None) is None:
        vars(rank_zero.rank_zero_only)["rank"] = rank_zero_only.rank


_set_rank_of_lightning_utilities()


class _OptionalDataloaderIdx:
    """Give `dataloader_idx` the default 0 in the methods that a subclass defines.

    Lightning 1.x passed it always; since 2.0 it is passed where there are several loaders.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in list(vars(cls).items()):
            # of other callables, such as a staticmethod, the defaults cannot be replaced like this
            if isinstance(method, FunctionType) and _requires_dataloader_idx(method):
                setattr(cls, name, _with_default(method))


def _requires_dataloader_idx(method: FunctionType) -> bool:
    """Return whether the last positional parameter is `dataloader_idx`, without a default."""
    code = method.__code__
    # positional parameters come first, before keyword-only ones and local variables
    by_position = code.co_varnames[: code.co_argcount]
    return by_position[-1:] == (_ARGUMENT,) and not method.__defaults__


def _with_default(method: FunctionType) -> FunctionType:
    """Return the same function with the default 0 for its last argument."""
    # a copy, as the function may be shared with a class that is not Lightning's
    made = FunctionType(
        method.__code__, method.__globals__, method.__name__, (0,), method.__closure__
    )
    made.__kwdefaults__ = method.__kwdefaults__
    made.__dict__.update(method.__dict__)
    made.__annotations__ = own_annotations(method)
    made.__doc__, made.__qualname__ = method.__doc__, method.__qualname__
    made.__module__ = method.__module__
    return made


class Trainer(trainer_hooks.Trainer):
    """A `trainer_hooks.Trainer`, whose options are Lightning's, with Lightning's default logger.

    That is TensorBoard where it is installed, else CSV files, in `lightning_logs/version_0` and so
    on. Hooks are given the loss of a batch divided by `accumulate_grad_batches`, as there. It has
    those internal parts of Lightning's Trainer that others use; an error names the replacement of
    the rest.
    """

    _divides_outputs: ClassVar[bool] = True

    @wraps(trainer_hooks.Trainer.__init__)  # type: ignore[misc]
    def __init__(self, **options: Any) -> None:
        if options.get("plugins") is not None:
            # imported where it is needed: most programs pass none
            plugin_classes = import_module("trainer_hooks.compat.lightning.plugin_classes")
            plugins, meant = plugin_classes.trainer_options(options["plugins"])
            for name, value in meant.items():
                if options.get(name) not in (None, value):
                    raise OptionError(
                        f"Trainer({name}={options[name]!r}) and its plugins, which stand for "
                        f"{name}={value!r}, contradict each other: leave one of them out."
                    )
            options = {**options, "plugins": plugins, **meant}
        super().__init__(**options)

    @classmethod
    def default_logger(cls, root: str) -> loggers.Logger:
        """Return the logger of `Trainer(logger=True)`.

        Args:
            root: the run's root folder.
        """
        # found without importing it, which takes long
        if find_spec("tensorboard") is not None:
            from trainer_hooks.compat.lightning._logger_classes import TensorBoardLogger

            return TensorBoardLogger(root)
        from trainer_hooks.compat.lightning._logger_classes import CSVLogger

        return CSVLogger(root)

    if not TYPE_CHECKING:  # type checkers would take any attribute to be there

        def __getattr__(self, name: str) -> Any:
            if name in _CONNECTORS:
                proxies = import_module("trainer_hooks.adapters.lightning.trainer_proxy")
                return getattr(proxies, _CONNECTORS[name])(self)
            raise not_offered_attribute(self, name, _NOT_OFFERED)


def _configure_sharded_model(module: Any) -> None:
    """Call the method that was called `configure_model` later, as Lightning still does."""
    module.configure_sharded_model()


class LightningModule(_OptionalDataloaderIdx, Module):
    """A `trainer_hooks.Module`, which has the hooks, arguments and results of Lightning's.

    A `dataloader_idx` without a default, as in Lightning 1.x, is 0 where there is one loader. Names
    that only `trainer_hooks.Module` has, such as `num_samples` and `on_epoch_end`, are the user's.
    """

    # where a checkpoint has the hyperparameters, for programs that read it themselves
    CHECKPOINT_HYPER_PARAMS_KEY: ClassVar[str] = "hyper_parameters"
    CHECKPOINT_HYPER_PARAMS_NAME: ClassVar[str] = "hparams_name"
    CHECKPOINT_HYPER_PARAMS_TYPE: ClassVar[str] = "hparams_type"

    _pickles_hparams: ClassVar[bool] = True
    _makes_default_steps = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "configure_sharded_model" in vars(cls) and "configure_model" not in vars(cls):
            cls.configure_model = _configure_sharded_model  # type: ignore[method-assign, assignment]

    def to_torchscript(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module as TorchScript; a `DeprecationWarning` tells that it is deprecated.

        The arguments are those of `trainer_hooks.Module.to_torchscript`.
        """
        warn(
            "Lightning's LightningModule.to_torchscript has been deprecated in v2.7 and will be "
            "removed in v2.8 of Lightning. Use torch.export, or trainer_hooks.Module, which keeps "
            "the method.",
            DeprecationWarning,
        )
        return super().to_torchscript(*args, **kwargs)


_LOADERS = {
    "Train": "train_dataloader",
    "Validation": "val_dataloader",
    "Test": "test_dataloader",
    "Predict": "predict_dataloader",
}


def _data_sizes(loaders: Any) -> str:
    """Return the sizes of the data sets of loaders, numbered if there are several."""
    if isinstance(loaders, DataLoader):
        return f"size={_data_size(loaders)}"
    several = loaders.values() if isinstance(loaders, Mapping) else loaders
    return " ; ".join(
        f"{i}. size={_data_size(loader)}" for i, loader in enumerate(several, start=1)
    )


def _data_size(loader: Any) -> int | str:
    dataset = loader.dataset
    return len(dataset) if isinstance(dataset, Sized) else "NA"


class LightningDataModule(DataModule):
    """A `trainer_hooks.DataModule`, which has Lightning's hooks and arguments.

    `str(datamodule)` lists the sizes of the data sets, None for loaders that are not there or not
    set up; for that it calls the methods that make the loaders.
    """

    CHECKPOINT_HYPER_PARAMS_KEY: ClassVar[str] = "datamodule_hyper_parameters"
    CHECKPOINT_HYPER_PARAMS_NAME: ClassVar[str] = "datamodule_hparams_name"
    CHECKPOINT_HYPER_PARAMS_TYPE: ClassVar[str] = "datamodule_hparams_type"

    _pickles_hparams: ClassVar[bool] = True

    def __str__(self) -> str:
        lines = []
        for name, method in _LOADERS.items():
            try:
                # making a loader may draw random numbers, which a print must not change
                with rng.isolated():
                    sizes = _data_sizes(getattr(self, method)())
            # before `setup` a user's method raises any error, and a print must not
            except Exception:  # noqa: BLE001
                sizes = "None"
            lines.append(f"{{{name} dataloader: {sizes}}}")
        return os.linesep.join(lines)


class Callback(trainer_hooks.Callback, metaclass=ABCMeta):
    """A `trainer_hooks.Callback` with Lightning's hooks alone; so are the built-in callbacks.

    Names that only `trainer_hooks.Callback` has, such as `band` and `on_log`, are the user's.
    """

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        """Count every callback of trainer_hooks as one of this class."""
        return trainer_hooks.Callback in kind.__mro__ if cls is Callback else NotImplemented

    @classmethod
    def __subclasses__(cls) -> list[type[trainer_hooks.Callback]]:
        """Return the subclasses; of this class the built-in callbacks too, for command lines."""
        subclasses = super().__subclasses__()
        if cls is Callback:
            subclasses += [
                kind for kind in trainer_hooks.Callback.__subclasses__() if kind is not cls
            ]
        return subclasses


class Logger(loggers.Logger):
    """A `trainer_hooks.loggers.Logger`; the built-in loggers are some, too.

    Names that only that class has, such as `on_error`, are the user's.
    """

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        """Count every logger of trainer_hooks as one of this class."""
        # not issubclass(): that of an abstract class asks its subclasses, of which this is one
        return loggers.Logger in kind.__mro__ if cls is Logger else NotImplemented


leave_to_user(
    LightningModule,
    names_of_the_user(Module, MODULE_NAMES) | (REMOVED_METHODS.keys() - _REFUSED_METHODS),
)
leave_to_user(LightningDataModule, names_of_the_user(DataModule, DATAMODULE_NAMES))
leave_to_user(Callback, names_of_the_user(trainer_hooks.Callback, CALLBACK_NAMES))
leave_to_user(Logger, names_of_the_user(loggers.Logger, LOGGER_NAMES))
