"""The command line of a training, where Lightning has it."""

from __future__ import annotations

from typing import ClassVar

from trainer_hooks.cli.run import SaveConfigCallback, TrainerCLI
from trainer_hooks.cli.run import TrainerParser as LightningArgumentParser
from trainer_hooks.compat.lightning._refusing import refusing
from trainer_hooks.compat.lightning.trainer.trainer import Trainer

__all__ = ["LightningArgumentParser", "LightningCLI", "SaveConfigCallback"]

_MADE = "the command line makes objects of classes by itself; elsewhere call the class"

__getattr__ = refusing(__name__, {"instantiate_class": _MADE, "instantiate_module": _MADE})


class LightningCLI(TrainerCLI):
    """A `trainer_hooks.TrainerCLI` with Lightning's Trainer."""

    default_trainer_class: ClassVar[type[Trainer]] = Trainer
