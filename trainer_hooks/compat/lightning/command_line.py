"""LightningCLI: the command line of a training, under Lightning's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainer_hooks.cli.run.arguments import SUBCOMMANDS
from trainer_hooks.cli.run.save_config import SaveConfigCallback
from trainer_hooks.cli.run.trainer_cli import TrainerCLI
from trainer_hooks.compat.lightning.base_classes import Trainer

if TYPE_CHECKING:
    from trainer_hooks.cli.run.parser import TrainerParser

__all__ = ["LightningCLI", "SaveConfigCallback"]


class LightningCLI(TrainerCLI):
    """A `trainer_hooks.TrainerCLI` with Lightning's Trainer."""

    default_trainer_class: ClassVar[type[Trainer]] = Trainer

    @staticmethod
    def default_parser_class() -> type[TrainerParser]:
        """Return the class of the parser, unless the user passes one."""
        # here, since it imports jsonargparse, an optional package
        from trainer_hooks.compat.lightning.argument_parser import LightningArgumentParser

        return LightningArgumentParser

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Return the subcommands, each with the arguments of its method that are no flags."""
        return {name: {*skipped, "overrides"} for name, skipped in SUBCOMMANDS.items()}
