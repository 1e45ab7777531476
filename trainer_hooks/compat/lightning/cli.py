"""The command line of a training, where Lightning has it."""

from __future__ import annotations

from typing import Any, ClassVar

from trainer_hooks.cli.run import SaveConfigCallback, TrainerCLI
from trainer_hooks.compat.lightning._refusing import refusing
from trainer_hooks.compat.lightning.trainer.trainer import Trainer

__all__ = ["LightningCLI", "SaveConfigCallback"]

_MADE = "the command line makes objects of classes by itself; elsewhere call the class"


def _load(name: str) -> Any:
    """Return the parser, which cannot be loaded where jsonargparse is not installed."""
    if name != "LightningArgumentParser":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainer_hooks.cli.run import TrainerParser

    return TrainerParser


__getattr__ = refusing(__name__, {"instantiate_class": _MADE, "instantiate_module": _MADE}, _load)


class LightningCLI(TrainerCLI):
    """A `trainer_hooks.TrainerCLI` with Lightning's Trainer."""

    default_trainer_class: ClassVar[type[Trainer]] = Trainer
