"""The command `trainer-hooks plot RUN_DIR NAME`: draw the curves of metrics on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.cli.commands import install_hint, number_below, print_failure
from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    import argparse

    from trainer_hooks.cli.commands import Commands

__all__ = ["add_parser", "run"]


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "plot",
        help="draw metrics of a run on the terminal",
        description=(
            "Draw metrics of a run, or of several over each other, on the terminal: for who is "
            "logged in from afar."
        ),
        epilog="Example: trainer-hooks plot trainer_logs/version_0 train_loss val_loss",
    )
    parser.add_argument(
        "words",
        metavar="RUN_DIR [RUN_DIR ...] NAME",
        nargs="+",
        help="folders of runs, and then the names of metrics; without a name they are listed. Of a "
        "folder that holds several runs, as trainer_logs, the newest is taken",
    )
    parser.add_argument("--log", action="store_true", help="draw values by their logarithm")
    parser.add_argument(
        "--smooth",
        type=number_below(1.0, "a number from 0 to under 1"),
        default=0.0,
        metavar="W",
        help="draw a moving mean that keeps this share of what it was, from 0 to under 1",
    )
    parser.add_argument(
        "--x", choices=["step", "epoch"], default="step", help="the x axis (default: step)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Draw the metrics and return the exit code."""
    # here, since they import torch, which the help of the command line does not need
    from trainer_hooks.cli.report.logged_run import newest_runs
    from trainer_hooks.cli.report.terminal_plot import PlotOptions, draw_metrics

    folders, names = _split_words(arguments.words)
    try:
        draw_metrics(
            newest_runs(folders, "plot"),
            names,
            PlotOptions(
                is_log=arguments.log, smoothing=arguments.smooth, is_by_epoch=arguments.x == "epoch"
            ),
        )
    except ModuleNotFoundError as error:
        return print_failure("plot", install_hint(error, "report", "plotext"))
    except BrokenPipeError:
        raise
    except (TrainerHooksError, OSError) as error:
        return print_failure("plot", str(error))
    return 0


def _split_words(words: list[str]) -> tuple[list[Path], list[str]]:
    """Split the words into folders and metric names.

    The first word is a folder even if it does not exist, and so is each next one that does.
    """
    count = 1
    while count < len(words) and Path(words[count]).is_dir():
        count += 1
    return list(map(Path, dict.fromkeys(words[:count]))), list(dict.fromkeys(words[count:]))
