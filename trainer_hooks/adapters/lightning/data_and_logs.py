"""LightningDataModules and Loggers of Lightning in a Trainer, as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.lightning.home import told_stage
from trainer_hooks.adapters.lightning.views import trainer_view
from trainer_hooks.loggers import Logger
from trainer_hooks.module import DataModule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

__all__ = ["DataModuleGuest", "LoggerGuest", "adapt_datamodule", "adapt_logger", "overridden"]


def adapt_datamodule(guest: Any) -> DataModule:
    """Return what stands for a LightningDataModule."""
    return DataModuleGuest(guest)


def adapt_logger(guest: Any) -> Logger:
    """Return what stands for a Logger of Lightning."""
    return LoggerGuest(guest)


def overridden(guest: Any, base: type) -> Iterator[str]:
    """Yield the methods of a guest that Lightning does not define, and that `base` knows."""
    seen = set()
    for kind in type(guest).__mro__:
        if kind.__module__.startswith(("lightning.", "pytorch_lightning.", "torch.")):
            break
        for name, value in vars(kind).items():
            known = not name.startswith("_") and name not in seen and hasattr(base, name)
            if known and callable(value):
                seen.add(name)
                yield name


class DataModuleGuest(DataModule):
    """Stand for a LightningDataModule.

    Args:
        guest: it.
    """

    def __init__(self, guest: Any) -> None:
        self.lightning_guest = guest
        for name in overridden(guest, DataModule):
            if name not in {"load_from_checkpoint", "setup", "teardown"}:
                vars(self)[name] = getattr(guest, name)
        kind = type(guest)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        self.__class__ = type(kind.__name__, (DataModuleGuest,), names)

    @property
    def trainer(self) -> Any:
        """The trainer that runs it."""
        return self.lightning_guest.trainer

    @trainer.setter
    def trainer(self, trainer: Any) -> None:
        guest = self.lightning_guest
        guest.trainer = None if trainer is None else trainer_view(trainer, guest)

    def setup(self, stage: str) -> None:
        """Let the guest set up."""
        told_stage(self.lightning_guest.setup, self.lightning_guest)(stage)

    def teardown(self, stage: str) -> None:
        """Let the guest clean up; not after an exception, as there."""
        trainer = self.lightning_guest.trainer
        if trainer is None or not trainer.interrupted:
            told_stage(self.lightning_guest.teardown, self.lightning_guest)(stage)

    @property
    def saved_hparams(self) -> Mapping[str, Any] | None:
        """The guest's hyperparameters, or None."""
        return dict(self.lightning_guest.hparams) or None

    def __getattr__(self, name: str) -> Any:
        if name == "lightning_guest":
            raise AttributeError(name)
        return getattr(self.lightning_guest, name)

    def __reduce__(self) -> Any:
        """Copy and pickle the guest."""
        return adapt_datamodule, (self.lightning_guest,)


class LoggerGuest(Logger):
    """Stand for a Logger of Lightning.

    Args:
        guest: it.
    """

    def __init__(self, guest: Any) -> None:
        self.lightning_guest = guest
        kind = type(guest)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        self.__class__ = type(kind.__name__, (LoggerGuest,), names)

    @property
    def name(self) -> str | None:
        """The guest's name."""
        name: str | None = self.lightning_guest.name
        return name

    @property
    def version(self) -> int | str | None:
        """The guest's version."""
        version: int | str | None = self.lightning_guest.version
        return version

    @property
    def save_dir(self) -> str | None:
        """Where it saves; one of Fabric's calls it otherwise."""
        guest = self.lightning_guest
        folder: str | None = getattr(guest, "save_dir", getattr(guest, "root_dir", None))
        return folder

    @property
    def log_dir(self) -> str | None:
        """The folder of the run, where it has one."""
        folder: str | None = getattr(self.lightning_guest, "log_dir", self.save_dir)
        return folder

    @property
    def experiment(self) -> Any:
        """What the guest writes to."""
        return self.lightning_guest.experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Hand the guest metrics."""
        self.lightning_guest.log_metrics(dict(metrics), step)

    def log_hyperparams(self, params: Any, metrics: Any = None) -> None:
        """Hand the guest hyperparameters."""
        given = (params,) if metrics is None else (params, metrics)
        self.lightning_guest.log_hyperparams(*given)

    def log_graph(self, model: nn.Module, input_array: Any = None) -> None:
        """Hand the guest the module."""
        self.lightning_guest.log_graph(getattr(model, "lightning_guest", model), input_array)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Tell the guest of a checkpoint."""
        tell = getattr(self.lightning_guest, "after_save_checkpoint", None)  # Fabric's has none
        if tell is not None:
            tell(checkpoint_callback)

    def save(self) -> None:
        """Let the guest write what it holds."""
        self.lightning_guest.save()

    def finalize(self, status: str) -> None:
        """Let the guest end."""
        self.lightning_guest.finalize(status)

    def __getattr__(self, name: str) -> Any:
        if name == "lightning_guest":
            raise AttributeError(name)
        return getattr(self.lightning_guest, name)
