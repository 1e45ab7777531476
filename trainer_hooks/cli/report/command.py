"""`trainer-hooks report`, `watch` and `plot`: a page about runs, their table, and plots."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._text import printable
from trainer_hooks.cli.commands import install_hint, number_below, print_failure
from trainer_hooks.errors import TrainerHooksError, UsageError

if TYPE_CHECKING:
    from trainer_hooks.cli.commands import Commands
    from trainer_hooks.cli.report.comparison import Objective

_PAGES = (".html", ".htm")
"""The suffixes of files that a report may replace."""


_PORT = 8017
"""The port of the page that follows the runs: no well-known program has it."""


def port_number(text: str) -> int:
    """Return the number of a port, for argparse."""
    if text.isascii() and text.isdigit() and int(text) < 2**16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: a port is a whole number from 0 to 65535")


def add_parser(commands: Commands) -> None:
    """Declare the three commands."""
    report = commands.add_parser(
        "report",
        help="write a page that tells of a run, or compares several",
        description=(
            "Write one page, which needs no network, from what a run has left on disk, also of one "
            "that died or is still going: curves, learning rates, throughput, time by callback and "
            "hook, checkpoints, the timeline of its interruptions, hyperparameters, environment "
            "and plugins. Several runs, of a sweep, of folds or seeds, are compared: a table of "
            "them by what differs, their curves over each other, and each hyperparameter against "
            "the metric. Absolute paths and the host's name are left out."
        ),
        epilog="Example: trainer-hooks report trainer_logs/version_0; trainer-hooks report "
        "sweep_run --live",
    )
    report.add_argument(
        "runs",
        metavar="RUN_DIR",
        type=Path,
        nargs="+",
        help="the folder of a run, as trainer.log_dir tells it, or one that holds several, as "
        "trainer_logs or that of a sweep: all of them are compared",
    )
    report.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="where to write the page (default: report.html in the folder, or in the working "
        "directory where several are named)",
    )
    _add_objective(report)
    report.add_argument(
        "--with-machine",
        action="store_true",
        help="show absolute paths, the host's name and process ids, too",
    )
    report.add_argument(
        "--live",
        action="store_true",
        help="write no file: show the page at an address of this machine, where it follows the "
        "runs as they write, new ones too, until Ctrl-C",
    )
    report.add_argument(
        "--port",
        type=port_number,
        metavar="N",
        help=f"the port of that address, 0 for one that is free (default: {_PORT})",
    )
    report.set_defaults(run=_report)

    watch = commands.add_parser(
        "watch",
        help="show the runs of a folder on the terminal, as they go on",
        description=(
            "Show a table of the runs in a folder, those of a sweep as well, with their progress "
            "and the metric, and follow them as they write. It reads their files alone. Ctrl-C "
            "ends it; into a file or a pipe the table is printed once."
        ),
        epilog="Example: trainer-hooks watch sweep_run",
    )
    watch.add_argument(
        "folder", metavar="FOLDER", type=Path, help="the folder of a run, of runs, or of a sweep"
    )
    _add_objective(watch)
    watch.set_defaults(run=_watch)

    plot = commands.add_parser(
        "plot",
        help="draw metrics of a run on the terminal",
        description=(
            "Draw metrics of a run, or of several over each other, on the terminal: for who is "
            "logged in from afar."
        ),
        epilog="Example: trainer-hooks plot trainer_logs/version_0 train_loss val_loss",
    )
    plot.add_argument(
        "words",
        metavar="RUN_DIR [RUN_DIR ...] NAME",
        nargs="+",
        help="folders of runs, and then the names of metrics; without a name they are listed. Of a "
        "folder that holds several runs, as trainer_logs, the newest is taken",
    )
    plot.add_argument("--log", action="store_true", help="draw values by their logarithm")
    plot.add_argument(
        "--smooth",
        type=number_below(1.0, "a number from 0 to under 1"),
        default=0.0,
        metavar="W",
        help="draw a moving mean that keeps this share of what it was, from 0 to under 1",
    )
    plot.add_argument(
        "--x", choices=["step", "epoch"], default="step", help="the x axis (default: step)"
    )
    plot.set_defaults(run=_plot)


def _add_objective(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the metric by which runs are compared."""
    parser.add_argument(
        "--monitor",
        metavar="NAME",
        help="the metric by which runs are compared (default: that of the sweep or of a callback, "
        "else a loss of the validation)",
    )
    parser.add_argument(
        "--mode",
        choices=["min", "max"],
        help="which of its values are better (default: by its name)",
    )


def _objective(monitor: str | None, mode: str | None) -> Objective | None:
    """Return the metric that the user chose; None without one.

    Raises:
        UsageError: there is a mode and no metric.
    """
    from trainer_hooks.cli.report.comparison import Objective, better_mode

    if monitor is None:
        if mode is not None:
            raise UsageError("--mode needs --monitor, the metric whose values it is about.")
        return None
    return Objective(monitor, mode or better_mode(monitor), is_chosen=True)


def _watch(arguments: argparse.Namespace) -> int:
    # here, since it imports torch, which the help of the command line does not need
    from trainer_hooks.cli.report.watch import watch

    try:
        watch(arguments.folder, _objective(arguments.monitor, arguments.mode))
    except ModuleNotFoundError as error:
        return print_failure("watch", install_hint(error, "report", "yaml"))
    # an OSError as well, but no failure: `main` ends quietly
    except BrokenPipeError:
        raise
    except (TrainerHooksError, OSError) as error:
        return print_failure("watch", str(error))
    return 0


def _report(arguments: argparse.Namespace) -> int:
    try:
        if arguments.live:
            return _serve(arguments)
        if arguments.port is not None:
            raise UsageError("--port is of --live, the page that follows the runs.")
        written = write_report(
            arguments.runs,
            arguments.output,
            arguments.monitor,
            arguments.mode,
            with_machine=arguments.with_machine,
        )
    except ModuleNotFoundError as error:
        return print_failure("report", install_hint(error, "report", "jinja2", "yaml"))
    except (TrainerHooksError, OSError) as error:
        return print_failure("report", str(error))
    print(printable(written))
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    # here, since it imports torch, which the help of the command line does not need
    from trainer_hooks.cli.report.live import LiveReport, serve

    if arguments.output is not None:
        raise UsageError("--live writes no file: leave --output out, or --live.")
    objective = _objective(arguments.monitor, arguments.mode)
    report = LiveReport(arguments.runs, objective, with_machine=arguments.with_machine)
    serve(report, _PORT if arguments.port is None else arguments.port)
    return 0


def write_report(
    run_paths: list[Path],
    output: Path | None,
    monitor: str | None = None,
    mode: str | None = None,
    *,
    with_machine: bool = False,
) -> Path:
    """Write a page about runs and return its path.

    Args:
        run_paths: the folders of the runs, or folders that hold several.
        output: the file to write; None: `report.html` in the folder.
        monitor: the metric by which runs are compared; None: that of the sweep, or a likely one.
        mode: `"min"` or `"max"`, the values that are better; None: by the metric's name.
        with_machine: whether absolute paths and the host's name are shown.

    Raises:
        ModuleNotFoundError: a package of the extra `report` is not installed.
    """
    # here, since they import torch, which the help of the command line does not need
    from trainer_hooks._files import file_fault, is_missing, replace_file
    from trainer_hooks.cli.report.comparison import own_page
    from trainer_hooks.cli.report.logged_run import runs_in
    from trainer_hooks.cli.report.page import collect_page, render_page

    chosen = _objective(monitor, mode)
    folders = list(dict.fromkeys(run for path in run_paths for run in runs_in(path)))
    # a comparison of runs that were named one by one belongs to none of the folders
    target = output or (run_paths[0] if len(run_paths) == 1 else Path()) / "report.html"
    # before the work: a file of that name is replaced, and nothing else
    if not is_missing(target):
        if fault := file_fault(target):
            raise UsageError(f"output {str(target)!r}: {fault}. Name a file.")
        if target.suffix not in _PAGES:
            raise UsageError(
                f"output {str(target)!r} is there already, and by its name it is no page. Name a "
                "file that ends in .html."
            )
    elif not target.parent.is_dir():
        raise UsageError(
            f"output {str(target)!r}: there is no folder {str(target.parent)!r}. Make it, or name "
            "a file in another folder."
        )
    page, _, notes = collect_page(
        run_paths, folders, chosen, partial(own_page, target.parent), with_machine=with_machine
    )
    for note in notes:
        print(f"trainer-hooks report: {printable(note)}", file=sys.stderr)
    text = render_page(page)
    replace_file(target, lambda file: file.write(text))
    return target


def _plot(arguments: argparse.Namespace) -> int:
    # here, since they import torch, which the help of the command line does not need
    from trainer_hooks.cli.report.logged_run import newest_runs
    from trainer_hooks.cli.report.terminal_plot import PlotOptions, draw_metrics

    folders, names = _split_words(arguments.words)
    try:
        draw_metrics(
            newest_runs(folders),
            names,
            PlotOptions(
                is_log=arguments.log, smoothing=arguments.smooth, is_by_epoch=arguments.x == "epoch"
            ),
        )
    except ModuleNotFoundError as error:
        return print_failure("plot", install_hint(error, "report", "plotext"))
    # an OSError as well, but no failure: `main` ends quietly
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
    # argparse cannot split the two: both are lists of any length
    while count < len(words) and Path(words[count]).is_dir():
        count += 1
    return list(map(Path, dict.fromkeys(words[:count]))), list(dict.fromkeys(words[count:]))
