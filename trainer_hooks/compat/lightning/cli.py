"""LightningCLI: the command line of a training, under Lightning's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.cli.run.arguments import SUBCOMMANDS
from trainer_hooks.cli.run.save_config import SaveConfigCallback
from trainer_hooks.cli.run.trainer_cli import TrainerCLI
from trainer_hooks.compat.lightning.base_classes import Trainer
from trainer_hooks.compat.not_offered import refusing_getattr

if TYPE_CHECKING:
    from trainer_hooks.cli.run.parser import TrainerParser

__all__ = ["LightningCLI", "SaveConfigCallback"]

_MADE = "the command line makes objects of classes by itself; elsewhere call the class"


def _load(name: str) -> Any:
    """Return the parser's class, whose module imports jsonargparse, an optional package."""
    if name != "LightningArgumentParser":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainer_hooks.compat.lightning._cli_parser import LightningArgumentParser

    return LightningArgumentParser


__getattr__ = refusing_getattr(
    __name__, {"instantiate_class": _MADE, "instantiate_module": _MADE}, _load
)


class LightningCLI(TrainerCLI):
    """A `trainer_hooks.TrainerCLI` with Lightning's Trainer."""

    default_trainer_class: ClassVar[type[Trainer]] = Trainer

    @staticmethod
    def default_parser_class() -> type[TrainerParser]:
        """Return the class of the parser, unless the user passes one."""
        # here, since it imports jsonargparse, an optional package
        from trainer_hooks.compat.lightning._cli_parser import LightningArgumentParser

        return LightningArgumentParser

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Return the subcommands, each with the arguments of its method that are no flags."""
        return {name: {*skipped, "overrides"} for name, skipped in SUBCOMMANDS.items()}
