"""`trainer-hooks sweep`: its arguments, and its table."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._text import printable, show_table
from trainer_hooks.cli.commands import (
    INTERRUPTED,
    at_least_one,
    install_hint,
    nearest_file,
    print_failure,
)
from trainer_hooks.cli.sweep.search_space import parse_arguments
from trainer_hooks.errors import OptionError, TrainerHooksError, error_summary

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from trainer_hooks.cli.commands import Commands
    from trainer_hooks.cli.sweep.study import SweepDefinition, SweepStudy


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "sweep",
        help="train a config with many values of its arguments",
        description=(
            "Train a config of `trainer-hooks fit` with many values of its arguments, over Optuna: "
            "each trial in a process and a folder of its own, some at the same time. Run the same "
            "line again to go on with a sweep that was killed or interrupted: its trials resume "
            "from their checkpoints, finished ones stay, failed ones run again."
        ),
        epilog="Example: trainer-hooks sweep run.yaml --set optimizer.lr=1e-3,1e-2 --jobs 2",
    )
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the config of each trial")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUES",
        dest="settings",
        action="append",
        required=True,
        help="the values of an argument: a list, such as optimizer.lr=1e-3,1e-2; or a range, both "
        "ends included: uniform(0,0.5), loguniform(1e-5,0.1), int(1,8), logint(8,512). One value "
        "is the same for all trials. Give the option once for each argument",
    )
    parser.add_argument("--monitor", default="val_loss", help="the metric (default: val_loss)")
    parser.add_argument(
        "--mode",
        choices=["min", "max"],
        default="min",
        help="which of its values are better (default: min)",
    )
    parser.add_argument(
        "--trials",
        type=at_least_one,
        help="the number of trials; a grid has one for each combination unless given",
    )
    parser.add_argument(
        "--jobs",
        type=at_least_one,
        default=1,
        help="trials that run at the same time, on the same devices (default: 1)",
    )
    parser.add_argument(
        "--sampler",
        help="grid, random, tpe or another of Optuna's (default: grid if all values are lists, "
        "else tpe)",
    )
    parser.add_argument(
        "--pruner",
        default="none",
        help="none, median, hyperband or another of Optuna's: it ends trials that fall behind "
        "(default: none)",
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed of the sampler (default: 0)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        help="the folder of the sweep (default: sweep_NAME in the working directory, with the "
        "config's name)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run a sweep; return 0 if all its trials have a result, 1 if one failed."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        return print_failure("sweep", install_hint(error, "sweep", "optuna"))
    from trainer_hooks.cli.sweep.run_trials import locked, run_trials
    from trainer_hooks.cli.sweep.study import SweepStudy, check_trials

    # each trial has a line of its own here
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder = (arguments.output or Path(f"sweep_{arguments.config.stem}")).absolute()
    try:
        definition = _definition(arguments)
        check_trials(definition, arguments.trials)
        if code := _check_config(definition):
            return code
        with locked(folder) as lock:
            sweep = SweepStudy.begin(folder, definition)
            planned = sweep.count_planned(arguments.trials)
            try:
                failed = run_trials(sweep, planned, arguments.jobs, lock)
            except KeyboardInterrupt:
                from trainer_hooks.trainer.messages.resume_line import typed_command

                print(f"\ninterrupted; to go on: {printable(typed_command())}", file=sys.stderr)
                return INTERRUPTED
    except (TrainerHooksError, OSError) as error:
        return print_failure("sweep", str(error))
    _show_results(sweep)
    _write_report(sweep)
    return 1 if failed else 0


def _definition(arguments: argparse.Namespace) -> SweepDefinition:
    from trainer_hooks.cli.sweep.study import GRID, SweepDefinition

    swept = parse_arguments(arguments.settings)
    try:
        config_text = arguments.config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        reason = "is not there" if is_missing else f"cannot be read: {error_summary(error)}"
        raise OptionError(
            f"config {str(arguments.config)!r} {reason}.{nearest_file(arguments.config)}"
        ) from error
    is_grid = all(argument.choices for argument in swept)
    return SweepDefinition(
        str(arguments.config.absolute()),
        config_text,
        arguments.settings,
        arguments.monitor,
        arguments.mode,
        arguments.sampler or (GRID if is_grid else "tpe"),
        arguments.pruner,
        arguments.seed,
    )


def _check_config(definition: SweepDefinition) -> int:
    """Parse the config with each value once, so that no trial fails by a misspelt one.

    Returns:
        The exit code; if it is not 0, standard error says what is wrong.

    Raises:
        OptionError: trials of the config would not keep to their folders.
    """
    from trainer_hooks.cli.run.command import run_command
    from trainer_hooks.cli.run.trainer_cli import TrainerCLI
    from trainer_hooks.cli.sweep.trial_folders import check_trial_folders

    class ParsingCLI(TrainerCLI):
        """A training that ends once its config is parsed."""

        def before_instantiate_classes(self) -> None:
            raise _ParsedError(self.config.fit)

    swept = definition.arguments
    first = {a.key: a.choices[0] if a.choices else a.inside() for a in swept}
    variants = [first, *({**first, a.key: choice} for a in swept for choice in a.choices[1:])]
    for values in variants:
        words = ["fit", f"--config={definition.config}"]
        words += [f"--{key}={value}" for key, value in values.items()]
        told = io.StringIO()
        config: Any = None
        code: Any = 0
        try:
            with _seeds_of_environment(), contextlib.redirect_stderr(told):
                code, _ = run_command(words, cli_class=ParsingCLI)
        except _ParsedError as parsed:
            config = parsed.config
        except SystemExit as answer:
            code = answer.code
        # of the command that the user called; without an error, warnings
        text = told.getvalue().replace("trainer-hooks fit: ", "trainer-hooks sweep: ")
        print(text, end="", file=sys.stderr)
        if config is None:
            return int(code or 0)
        if config.get("ckpt_path") not in (None, "auto"):
            raise OptionError(
                f"ckpt_path {config['ckpt_path']!r} in the config: a trial resumes from its own "
                "checkpoints alone. Leave it out."
            )
        check_trial_folders(config.get("trainer"))
    return 0


class _ParsedError(Exception):
    """Carries a parsed config out of a training before anything is made.

    Attributes:
        config: the config.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config


@contextlib.contextmanager
def _seeds_of_environment() -> Iterator[None]:
    """Put back the variables that seed trials, which a parsed config sets."""
    names = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")
    before = {name: os.environ[name] for name in names if name in os.environ}
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


def _show_results(sweep: SweepStudy) -> None:
    """Print the table of the trials, the best first."""
    keys = [argument.key for argument in sweep.arguments]
    rows = [
        [
            str(trial.number),
            *(str(trial.params.get(key, "")) for key in keys),
            "" if trial.value is None else f"{trial.value:.6g}",
            trial.state.name.lower(),
            "" if trial.duration is None else f"{trial.duration.total_seconds():.0f} s",
            os.path.relpath(sweep.folder_of(trial.number)),
        ]
        for trial in sweep.results()
    ]
    monitor = sweep.definition.monitor
    show_table(["trial", *keys, monitor, "state", "time", "folder"], rows)


def _write_report(sweep: SweepStudy) -> None:
    """Write the page that compares the trials, and print its path."""
    from trainer_hooks.cli.report.command import write_report

    has_result = any(trial.value is not None for trial in sweep.results())
    try:
        page = write_report([sweep.folder], None) if has_result else None
    except ModuleNotFoundError as error:
        print(f"no report: {install_hint(error, 'report', 'jinja2', 'yaml')}", file=sys.stderr)
    except (TrainerHooksError, OSError) as error:
        print(printable(f"no report: {error}"), file=sys.stderr)
    else:
        if page is not None:
            print(printable(page))
