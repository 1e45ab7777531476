"""The command line of a training, where Lightning has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.cli.run import SUBCOMMANDS, SaveConfigCallback, TrainerCLI
from trainer_hooks.compat.lightning.trainer.trainer import Trainer
from trainer_hooks.compat.refusing import refusing

if TYPE_CHECKING:
    from trainer_hooks.cli.run import TrainerParser

__all__ = ["LightningCLI", "SaveConfigCallback"]

_MADE = "the command line makes objects of classes by itself; elsewhere call the class"


def _load(name: str) -> Any:
    """Return the parser, which cannot be loaded where jsonargparse is not installed."""
    if name != "LightningArgumentParser":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainer_hooks.compat.lightning._cli_parser import LightningArgumentParser

    return LightningArgumentParser


__getattr__ = refusing(__name__, {"instantiate_class": _MADE, "instantiate_module": _MADE}, _load)


class LightningCLI(TrainerCLI):
    """A `trainer_hooks.TrainerCLI` with Lightning's Trainer."""

    default_trainer_class: ClassVar[type[Trainer]] = Trainer

    @staticmethod
    def default_parser_class() -> type[TrainerParser]:
        """Return the class of the parser where none is given."""
        from trainer_hooks.compat.lightning._cli_parser import LightningArgumentParser

        return LightningArgumentParser

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Return the commands, and which arguments of the method are no options of each."""
        return {name: {*skipped, "overrides"} for name, skipped in SUBCOMMANDS.items()}
