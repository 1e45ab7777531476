"""`trainer-hooks fit|validate|test|predict`: what a config says, with any module and data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.cli.commands import failed, to_install
from trainer_hooks.cli.run.subcommands import SUBCOMMANDS
from trainer_hooks.errors import DataError, OptionError, message_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.cli.commands import Commands

__all__ = ["ENVIRONMENT", "add_parser", "is_training", "run_training"]

ENVIRONMENT = "TRAINER_HOOKS"
"""What the names of environment variables begin with that hold arguments."""

_HELP = {
    "fit": "train what a config file or options say",
    "validate": "run the validation of the same",
    "test": "run the test of the same",
    "predict": "run the prediction of the same",
}


def add_parser(commands: Commands) -> None:
    """Declare the commands; what follows their names is read by jsonargparse alone."""
    for name, text in _HELP.items():
        commands.add_parser(name, help=text, add_help=False)


def is_training(words: Sequence[str]) -> bool:
    """Return whether a line begins with one of the commands."""
    return bool(words) and words[0] in SUBCOMMANDS


def run_training(words: Sequence[str]) -> int:
    """Carry out a line that begins with one of the commands, and return the exit code."""
    here = str(Path.cwd())  # in full: a config is read with its own folder as the working one
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: the classes may stand there
    try:
        import jsonargparse  # noqa: F401 - to tell that it is missing before anything is made
    except ModuleNotFoundError as error:
        return failed(words[0], to_install(error, "cli", "jsonargparse"))
    from trainer_hooks.cli.run.trainer_cli import TrainerCLI

    try:
        TrainerCLI(
            args=list(words),
            parser_kwargs={"prog": "trainer-hooks", "default_env": True, "env_prefix": ENVIRONMENT},
        )
    except (DataError, OptionError) as error:  # a folder that is none, data that is not there
        return failed(words[0], message_of(error))
    return 0
