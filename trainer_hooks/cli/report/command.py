"""The command `trainer-hooks report RUN_DIR`: write a page about a run, or compare several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.cli.commands import install_hint, print_failure
from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    import argparse

    from trainer_hooks.cli.commands import Commands

__all__ = ["add_parser", "run"]


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "report",
        help="write a page that tells of a run, or compares several",
        description=(
            "Write one page, which needs no network, from what a run has left on disk, also of one "
            "that died or is still going: curves, learning rates, throughput, time by callback and "
            "hook, checkpoints, the timeline of its interruptions, hyperparameters, environment "
            "and plugins. Several runs are drawn over each other and compared."
        ),
        epilog="Example: trainer-hooks report trainer_logs/version_0 -o report.html",
    )
    parser.add_argument(
        "runs",
        metavar="RUN_DIR",
        type=Path,
        nargs="+",
        help="the folder of a run, as trainer.log_dir tells it; of a folder that holds several, as "
        "trainer_logs, the newest run is taken",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="where to write the page (default: report.html in the folder of the run, or in the "
        "working directory where there are several)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the page and return the exit code."""
    try:
        written = _write_report(arguments.runs, arguments.output)
    except ModuleNotFoundError as error:
        return print_failure("report", install_hint(error, "report", "jinja2", "plotly"))
    except (TrainerHooksError, OSError) as error:
        return print_failure("report", str(error))
    print(written)
    return 0


def _write_report(run_paths: list[Path], output: Path | None) -> Path:
    """Write the page and return its path."""
    # here, since they import torch, which the help of the command line does not need
    from trainer_hooks._files import replace_file
    from trainer_hooks.cli.report.charts import points_for
    from trainer_hooks.cli.report.logged_run import (
        count_metrics,
        labels_of,
        newest_runs,
        read_run,
    )
    from trainer_hooks.cli.report.page import make_page, render_page

    folders = newest_runs(run_paths, "report")
    most = points_for(sum(map(count_metrics, folders)))
    runs = [
        read_run(folder, label, most, beside=[other for other in folders if other != folder])
        for folder, label in zip(folders, labels_of(folders), strict=True)
    ]
    page = render_page(make_page(runs))
    target = output or (folders[0] if len(folders) == 1 else Path()) / "report.html"
    replace_file(target, lambda file: file.write(page))
    return target
