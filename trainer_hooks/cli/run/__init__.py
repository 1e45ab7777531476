"""The command line of a training: one file, or a line of options, says all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.cli.run.parser import TrainerParser
    from trainer_hooks.cli.run.pruning import OptunaPruning
    from trainer_hooks.cli.run.save_config import SaveConfigCallback
    from trainer_hooks.cli.run.subcommands import SUBCOMMANDS
    from trainer_hooks.cli.run.trainer_cli import TrainerCLI

__all__ = ["SUBCOMMANDS", "OptunaPruning", "SaveConfigCallback", "TrainerCLI", "TrainerParser"]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "OptunaPruning": "pruning",
            "SUBCOMMANDS": "subcommands",
            "SaveConfigCallback": "save_config",
            "TrainerCLI": "trainer_cli",
            "TrainerParser": "parser",
        },
    )
