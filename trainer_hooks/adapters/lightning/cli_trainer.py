"""A `trainer_hooks.Trainer` for Lightning's own command line, `LightningCLI(trainer_class=...)`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from trainer_hooks.adapters.lightning.package import LIGHTNING_PACKAGES
from trainer_hooks.errors import UsageError
from trainer_hooks.trainer.trainer import Trainer


class _TrainerFactory(type):
    """Metaclass of a subclass of Lightning's Trainer: a call of the class makes our Trainer.

    LightningCLI reads the options from the signature of `__init__`, and its subcommands from the
    methods. So the subclass inherits both. A `__new__` in it would do the same as this metaclass,
    but LightningCLI would read its signature in place of that of `__init__`.
    """

    def __call__(cls, *args: Any, **options: Any) -> Trainer:
        """Return a `trainer_hooks.Trainer` with the options that LightningCLI has parsed."""
        return Trainer(*args, **options)


def lightning_cli_trainer(package: str | None = None) -> type[Any]:
    """Return a class for Lightning's `LightningCLI` that makes a Trainer of this package.

    ::

        LightningCLI(Net, trainer_class=lightning_cli_trainer())

    The command line then has the options of Lightning's Trainer, with short names of Lightning's
    callbacks and loggers, and `trainer_hooks.Trainer` runs what it configures.

    Args:
        package: the package of the command line, `"lightning.pytorch"` or `"pytorch_lightning"`; by
            default the one whose `cli` is imported, or else the one that is installed.

    Raises:
        UsageError: neither is installed, or both command lines are imported and none is named.
    """
    lightning_trainer = import_module(package or _default_package()).Trainer
    return _TrainerFactory("CLITrainer", (lightning_trainer,), {"__module__": __name__})


def _default_package() -> str:
    """Return the package of Lightning whose `cli` is imported, or else the first installed one.

    Raises:
        UsageError: both are imported, or none is installed.
    """
    imported = [name for name in LIGHTNING_PACKAGES if f"{name}.cli" in sys.modules]
    if len(imported) == 1:
        return imported[0]
    if imported:
        raise _unclear_package("both are imported")
    for name in LIGHTNING_PACKAGES:
        # find_spec("lightning.pytorch") would import `lightning`
        if find_spec(name.partition(".")[0]) is not None:
            return name
    raise _unclear_package("neither is installed")


def _unclear_package(reason: str) -> UsageError:
    """Return the error that asks the user to name the package."""
    names = " or ".join(map(repr, LIGHTNING_PACKAGES))
    return UsageError(f"lightning_cli_trainer(): {reason}. Name the package: {names}.")
