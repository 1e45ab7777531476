"""A `trainer_hooks.Trainer` for Lightning's own command line, `LightningCLI(trainer_class=...)`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from trainer_hooks.adapters.lightning.package import LIGHTNING_PACKAGES
from trainer_hooks.errors import UsageError
from trainer_hooks.trainer.trainer import Trainer


class _MakesOurs(type):
    """Metaclass of a class of Lightning's Trainer whose call makes a `trainer_hooks.Trainer`.

    The command line reads the options from the class's `__init__`, and the methods from the class,
    so neither is replaced, nor is there a `__new__`, which it would read instead.
    """

    def __call__(cls, *args: Any, **options: Any) -> Any:
        """Return a Trainer of this package."""
        return Trainer(*args, **options)


def lightning_cli_trainer(package: str | None = None) -> type[Any]:
    """Return a class for Lightning's `LightningCLI` that makes a Trainer of this package.

    ::

        LightningCLI(Net, trainer_class=lightning_cli_trainer())

    The command line then has the options of Lightning's Trainer, with short names of Lightning's
    callbacks and loggers, and `trainer_hooks.Trainer` runs what it configures.

    Args:
        package: the package of the command line, `"lightning.pytorch"` or `"pytorch_lightning"`; by
            default the one whose `cli` is imported.

    Raises:
        UsageError: neither is installed, or both command lines are imported and none is named.
    """
    base = import_module(package or _package_of_cli()).Trainer
    return _MakesOurs("CLITrainer", (base,), {"__module__": __name__})


def _package_of_cli() -> str:
    """Return the package of Lightning whose command line this program uses."""
    imported = [name for name in LIGHTNING_PACKAGES if f"{name}.cli" in sys.modules]
    # the first part alone: looking for a submodule imports its parent
    there = [name for name in LIGHTNING_PACKAGES if find_spec(name.partition(".")[0]) is not None]
    if len(imported) > 1 or not (imported or there):
        names = " or ".join(map(repr, LIGHTNING_PACKAGES))
        state = "both are imported" if imported else "neither is installed"
        raise UsageError(f"lightning_cli_trainer(): {state}. Name the package: {names}.")
    return (imported or there)[0]
