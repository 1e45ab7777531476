"""`trainer-hooks fit|validate|test|predict`: a run that a config or the command line describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.cli.run.arguments import SUBCOMMANDS
    from trainer_hooks.cli.run.optuna_pruning import OptunaPruning
    from trainer_hooks.cli.run.parser import TrainerParser
    from trainer_hooks.cli.run.save_config import SaveConfigCallback
    from trainer_hooks.cli.run.trainer_cli import TrainerCLI

__all__ = ["SUBCOMMANDS", "OptunaPruning", "SaveConfigCallback", "TrainerCLI", "TrainerParser"]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "OptunaPruning": "optuna_pruning",
            "SUBCOMMANDS": "arguments",
            "SaveConfigCallback": "save_config",
            "TrainerCLI": "trainer_cli",
            "TrainerParser": "parser",
        },
    )
