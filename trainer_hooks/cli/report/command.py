"""`trainer-hooks report RUN_DIR`: a page that tells of a run, or compares several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.cli.commands import failed, to_install
from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    import argparse

    from trainer_hooks.cli.commands import Commands

__all__ = ["add_parser", "run"]


def add_parser(commands: Commands) -> None:
    """Declare the command."""
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
        written = _write(arguments.runs, arguments.output)
    except ModuleNotFoundError as error:
        return failed("report", to_install(error, "report", "jinja2", "plotly"))
    except (TrainerHooksError, OSError) as error:
        return failed("report", str(error))
    print(written)
    return 0


def _write(given: list[Path], output: Path | None) -> Path:
    # here, because they import torch: help is given at once
    from trainer_hooks._files import replace_file
    from trainer_hooks.cli.report.charts import points_for
    from trainer_hooks.cli.report.page import page_of
    from trainer_hooks.cli.report.rendering import rendered
    from trainer_hooks.cli.report.run import count_metrics, labels_of, read_run
    from trainer_hooks.cli.report.run_folders import newest_of_each

    folders = newest_of_each(given, "report")
    most = points_for(sum(map(count_metrics, folders)))
    runs = [
        read_run(folder, label, most, beside=[other for other in folders if other != folder])
        for folder, label in zip(folders, labels_of(folders), strict=True)
    ]
    page = rendered(page_of(runs))
    target = output or (folders[0] if len(folders) == 1 else Path()) / "report.html"
    replace_file(target, lambda file: file.write(page))
    return target
