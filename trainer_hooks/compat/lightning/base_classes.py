"""The classes under Lightning's names: Trainer, LightningModule, LightningDataModule."""

from __future__ import annotations

from importlib.util import find_spec
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

import trainer_hooks
from trainer_hooks import DataModule, Module, rank_zero_only

if TYPE_CHECKING:
    from trainer_hooks.loggers import Logger

__all__ = ["LightningDataModule", "LightningModule", "Trainer"]

_ARGUMENT = "dataloader_idx"


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
    made.__annotations__ = method.__annotations__
    made.__doc__, made.__qualname__ = method.__doc__, method.__qualname__
    made.__module__ = method.__module__
    return made


class Trainer(trainer_hooks.Trainer):
    """A `trainer_hooks.Trainer`, whose options are Lightning's, with Lightning's default logger.

    That is TensorBoard where it is installed, else CSV files, in `lightning_logs/version_0` and so
    on. Hooks are given the loss of a batch divided by `accumulate_grad_batches`, as there.
    """

    _divides_outputs: ClassVar[bool] = True

    @classmethod
    def default_logger(cls, root: str) -> Logger:
        """Return the logger of `Trainer(logger=True)`.

        Args:
            root: the run's root folder.
        """
        # found without importing it, which takes long
        if find_spec("tensorboard") is not None:
            from trainer_hooks.compat.lightning.logger_classes import TensorBoardLogger

            return TensorBoardLogger(root)
        from trainer_hooks.compat.lightning.logger_classes import CSVLogger

        return CSVLogger(root)


class LightningModule(_OptionalDataloaderIdx, Module):
    """A `trainer_hooks.Module`, which has the hooks, arguments and results of Lightning's.

    A `dataloader_idx` without a default, as in Lightning 1.x, is 0 where there is one loader.
    """


class LightningDataModule(DataModule):
    """A `trainer_hooks.DataModule`, which has Lightning's hooks and arguments."""
