"""`trainer-hooks fit|validate|test|predict`: run a training command, and return its exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.commands import install_hint, print_failure
from trainer_hooks.errors import DataError, OptionError, error_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.cli.run.trainer_cli import TrainerCLI


def run_command(
    words: Sequence[str],
    trainer_defaults: Mapping[str, Any] | None = None,
    cli_class: type[TrainerCLI] | None = None,
) -> tuple[int, TrainerCLI | None]:
    """Run fit, validate, test or predict; `TrainerCLI.__init__` draws the path of the config.

    Args:
        words: the command and its arguments.
        trainer_defaults: as in `TrainerCLI`.
        cli_class: a subclass of `TrainerCLI` that takes its place.

    Returns:
        The exit code, and what ran; None if it failed, with its one line on standard error.

    Raises:
        SystemExit: the arguments cannot be understood (code 2), or were answered at once (code 0).
    """
    # absolute: the parser changes into a config's folder while it reads the file
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: the classes may stand there
    try:
        import jsonargparse  # noqa: F401 - to tell that it is missing before anything is made
    except ModuleNotFoundError as error:
        return print_failure(words[0], install_hint(error, "cli", "jsonargparse")), None
    from trainer_hooks.cli.run.trainer_cli import TrainerCLI

    # so TRAINER_HOOKS_FIT__TRAINER__MAX_EPOCHS=3 of a job script gives an option
    parser_options = {"prog": "trainer-hooks", "default_env": True, "env_prefix": "TRAINER_HOOKS"}
    try:
        cli = (cli_class or TrainerCLI)(
            args=list(words), trainer_defaults=trainer_defaults, parser_kwargs=parser_options
        )
    except (DataError, OptionError) as error:  # of the run; errors in the config exited before
        return print_failure(words[0], error_message(error)), None
    return 0, cli
