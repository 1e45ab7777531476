"""`trainer-hooks fit|validate|test|predict`: run a config with any module and data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.cli.commands import install_hint, print_failure
from trainer_hooks.cli.run.arguments import SUBCOMMANDS
from trainer_hooks.errors import DataError, OptionError, error_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.cli.commands import Commands

__all__ = [
    "ENVIRONMENT",
    "add_parser",
    "is_training",
    "run_training",
]


ENVIRONMENT = "TRAINER_HOOKS"
"""The prefix of the environment variables that hold arguments."""

_HELP = {
    "fit": "train what a config file or options say",
    "validate": "run the validation of the same",
    "test": "run the test of the same",
    "predict": "run the prediction of the same",
}


def add_parser(commands: Commands) -> None:
    """Declare the commands; jsonargparse alone parses their arguments."""
    for name, text in _HELP.items():
        commands.add_parser(name, help=text, add_help=False)


def is_training(words: Sequence[str]) -> bool:
    """Return whether the arguments begin with one of the commands."""
    return bool(words) and words[0] in SUBCOMMANDS


def run_training(words: Sequence[str]) -> int:
    """Run one of the commands and return the exit code."""
    # absolute: the parser changes into a config's folder while it reads the file
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: the classes may stand there
    try:
        import jsonargparse  # noqa: F401 - to tell that it is missing before anything is made
    except ModuleNotFoundError as error:
        return print_failure(words[0], install_hint(error, "cli", "jsonargparse"))
    from trainer_hooks.cli.run.trainer_cli import TrainerCLI

    try:
        TrainerCLI(
            args=list(words),
            parser_kwargs={"prog": "trainer-hooks", "default_env": True, "env_prefix": ENVIRONMENT},
        )
    except (DataError, OptionError) as error:  # of the run; errors in the config exited before
        return print_failure(words[0], error_message(error))
    return 0
