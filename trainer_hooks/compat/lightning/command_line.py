"""LightningCLI: the command line of a training, under Lightning's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.cli.run.arguments import SUBCOMMANDS, import_class
from trainer_hooks.cli.run.save_config import SaveConfigCallback
from trainer_hooks.cli.run.trainer_cli import TrainerCLI
from trainer_hooks.compat.lightning.base_classes import Trainer
from trainer_hooks.module.hyperparameters import made_from_config

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

    def instantiate_classes(self) -> None:
        """Make the objects, whose hyperparameters have the form that they have in the config.

        An argument whose class the config names is `class_path` and `init_args` among them, so that
        `load_from_checkpoint` makes it again.
        """
        config = self.config if self.subcommand is None else self.config[self.subcommand]
        arguments: dict[type, dict[str, Any]] = {}
        for key, kind in (("model", self.model_class), ("data", self.datamodule_class)):
            group = config.get(key)
            values = {} if group is None else group.as_dict()
            if isinstance(values.get("class_path"), str):
                kind = import_class(values["class_path"])
                values = values.get("init_args", {})
            if isinstance(kind, type):
                arguments[kind] = values
        with made_from_config(arguments):
            super().instantiate_classes()

    def _build_parsers(self, *args: Any) -> tuple[TrainerParser, TrainerParser]:
        from trainer_hooks.compat.lightning.argument_parser import lightnings_names, with_paths_here

        self.trainer_defaults = with_paths_here(self.trainer_defaults)
        with lightnings_names():
            return super()._build_parsers(*args)

    def _parse(self, *args: Any) -> None:
        from trainer_hooks.compat.lightning.argument_parser import lightnings_names

        with lightnings_names():
            super()._parse(*args)
