"""`trainer-hooks checkpoint`: the parser of the command and its subcommands."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks.cli.commands import USAGE_ERROR, at_least_one, number_below, print_failure
from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    import argparse

    from trainer_hooks.cli.commands import Commands

_tolerance = number_below(math.inf, "a number from 0 on")


def add_parser(commands: Commands) -> None:
    """Declare the command and its subcommands."""
    command = commands.add_parser(
        "checkpoint",
        help="look into checkpoints; verify, compare, prune and export them",
        description=(
            "Look into checkpoints of trainer_hooks and of Lightning, and into files of bare "
            "weights. The model's code is not needed, and nothing in a file is ever run."
        ),
        epilog="Example: trainer-hooks checkpoint show checkpoints/last.ckpt",
    )
    command.set_defaults(run=run, parser=command)
    actions: Commands = command.add_subparsers(dest="action", title="actions", metavar="ACTION")

    show = actions.add_parser(
        "show",
        help="tell what is in a file",
        description=(
            "Tell what is in a checkpoint, in a file of bare weights or in a .safetensors file: "
            "sizes, counters, weights, optimizers, callbacks and their states, and whether a "
            "training can go on from it. The tensors are not read, however big they are."
        ),
    )
    show.add_argument("file", metavar="FILE", type=Path)
    show.add_argument("--tensors", action="store_true", help="list each tensor of the weights")
    show.add_argument("--json", action="store_true", help="write JSON, with whole values")

    verify = actions.add_parser(
        "verify",
        help="read files whole and compare them with their checksums",
        description=(
            "Read each file whole, compare it with its checksums, and see whether it can be used."
        ),
        epilog="The exit code is 0 if all are ok, and 1 otherwise.",
    )
    verify.add_argument(
        "paths",
        metavar="PATH",
        type=Path,
        nargs="+",
        help="a file, or a folder: every *.ckpt in it and below it",
    )
    verify.add_argument("--json", action="store_true", help="write JSON")

    diff = actions.add_parser(
        "diff",
        help="tell whether two files are equal, part by part",
        description=(
            "Tell whether weights, optimizers, callbacks, loop, random numbers, metrics, "
            "hyperparameters and files of two checkpoints are equal, and list the differences. "
            "NaN is equal to NaN."
        ),
        epilog=(
            "The exit code is 0 if they are equal, with --ignore paths also if only paths and "
            "event files differ; 1 if they differ; 2 on an error."
        ),
    )
    diff.add_argument("first", metavar="A", type=Path)
    diff.add_argument("second", metavar="B", type=Path)
    diff.add_argument(
        "--atol",
        type=_tolerance,
        default=0.0,
        metavar="X",
        help="take numbers for equal that differ by no more than this (default: 0)",
    )
    diff.add_argument(
        "--rtol",
        type=_tolerance,
        default=0.0,
        metavar="X",
        help="or by no more than this times the number in B (default: 0)",
    )
    diff.add_argument(
        "--ignore",
        choices=["paths"],
        metavar="paths",
        help="leave out where the runs wrote: paths, numbers of runs, names of event files",
    )
    diff.add_argument("--json", action="store_true", help="write JSON, with every difference")

    prune = actions.add_parser(
        "prune",
        help="remove old checkpoints of a folder",
        description=(
            "Remove the old checkpoints of a folder, judged by the counters in the files, and what "
            "killed processes left unfinished there. The newest whole checkpoint always stays, "
            "and so do the newest that a training can go on from, what a link points to, and every "
            "file that trainer_hooks has not saved. All files are read whole first."
        ),
    )
    prune.add_argument("folder", metavar="FOLDER", type=Path)
    prune.add_argument(
        "--keep",
        type=at_least_one,
        default=1,
        metavar="N",
        help="how many of the newest to keep (default: 1)",
    )
    prune.add_argument(
        "--keep-best", type=at_least_one, metavar="N", help="keep the best ones too, by --monitor"
    )
    prune.add_argument("--monitor", metavar="METRIC", help="the logged metric that tells the best")
    prune.add_argument("--mode", choices=["min", "max"], help="which values of it are better")
    prune.add_argument("--damaged", action="store_true", help="remove damaged files too")
    prune.add_argument("--dry-run", action="store_true", help="tell what would go, remove nothing")
    prune.add_argument("--yes", action="store_true", help="do not ask")
    # over the `parser` of the whole command: the error shows the usage of prune
    prune.set_defaults(parser=prune)

    export = actions.add_parser(
        "export",
        help="write the weights of a checkpoint to a file of their own",
        description=(
            "Write the weights of a checkpoint to another file: .ckpt with the hyperparameters, "
            ".pt the bare weights, .safetensors the weights for other tools."
        ),
    )
    export.add_argument("file", metavar="FILE", type=Path)
    export.add_argument(
        "--weights-only", action="store_true", help="nothing but the weights, as always"
    )
    export.add_argument(
        "-o", "--output", metavar="OUT", type=Path, required=True, help="the file to write"
    )
    export.add_argument("--force", action="store_true", help="write over a file that is there")


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen subcommand and return the exit code."""
    if arguments.action is None:
        arguments.parser.print_help(sys.stderr)
        return USAGE_ERROR
    try:
        return _run_action(arguments)
    except BrokenPipeError:  # an OSError too, but who read the output has left: `main` ends quietly
        raise
    except (TrainerHooksError, OSError, ValueError) as error:
        reason = str(error)
    except RecursionError:
        # decoding and describing follow the nesting of a file that anybody may have made
        reason = "what the file holds is nested too deep, or holds itself"
    return print_failure(f"checkpoint {arguments.action}", reason)


def _run_action(arguments: argparse.Namespace) -> int:
    # imported here, because they import torch: help is given at once
    if arguments.action == "show":
        from trainer_hooks.cli.checkpoint.show import show

        return show(arguments.file, lists_tensors=arguments.tensors, is_json=arguments.json)
    if arguments.action == "verify":
        from trainer_hooks.cli.checkpoint.verify import verify

        return verify(arguments.paths, is_json=arguments.json)
    if arguments.action == "diff":
        from trainer_hooks.checkpoint.difference import Tolerance
        from trainer_hooks.cli.checkpoint.diff import diff

        tolerance = Tolerance(arguments.atol, arguments.rtol)
        return diff(
            arguments.first,
            arguments.second,
            tolerance,
            ignores_paths=arguments.ignore == "paths",
            is_json=arguments.json,
        )
    if arguments.action == "prune":
        wanted = (arguments.keep_best, arguments.monitor, arguments.mode)
        # argparse has no groups of options that go together
        if any(wanted) and not all(wanted):
            arguments.parser.error("--keep-best, --monitor and --mode go together: give all three")
        from trainer_hooks.checkpoint.folder_retention import RetentionRule
        from trainer_hooks.cli.checkpoint.prune import prune

        rule = RetentionRule(
            arguments.keep,
            arguments.keep_best or 0,
            arguments.monitor or "",
            arguments.mode or "min",
            arguments.damaged,
        )
        return prune(arguments.folder, rule, is_dry=arguments.dry_run, is_agreed=arguments.yes)
    from trainer_hooks.cli.checkpoint.export import export

    return export(arguments.file, arguments.output, is_forced=arguments.force)
