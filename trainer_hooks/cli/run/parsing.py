"""Parsers: the parser of a TrainerCLI, and those of its commands."""

from __future__ import annotations

import contextlib
import io
import shutil
import textwrap
from typing import TYPE_CHECKING, Any, Protocol

import jsonargparse

from trainer_hooks._version import __version__
from trainer_hooks.cli.run.known import import_known
from trainer_hooks.cli.run.parser import AUTOMATIC
from trainer_hooks.errors import OptionError
from trainer_hooks.module import DataModule, Module

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.cli.run.parser import TrainerParser
    from trainer_hooks.trainer import Trainer

__all__ = ["Parsers"]


class Asking(Protocol):
    """What a TrainerCLI says of its arguments."""

    model_class: Any
    datamodule_class: Any
    trainer_class: type[Trainer]
    trainer_defaults: dict[str, Any]
    seed_everything_default: bool | int
    subclass_mode_model: bool
    subclass_mode_data: bool
    auto_configure_optimizers: bool
    subcommand: str | None

    def default_parser_class(self) -> type[TrainerParser]:
        """Return the class of the parser where none is given."""

    def subcommands(self) -> dict[str, set[str]]:
        """Return the commands, and what they leave out."""

    def add_arguments_to_parser(self, parser: TrainerParser) -> None:
        """Add arguments of its own."""

    def link_arguments(self, parser: TrainerParser) -> None:
        """Link arguments."""


class Parsers:
    """The parser of a TrainerCLI, and those of its commands.

    Attributes:
        main: the parser of the whole line.
        own: that of the command that is given; without a command, the same.
    """

    def __init__(
        self,
        cli: Asking,
        parser_class: type[TrainerParser] | None,
        options: Mapping[str, Any],
        has_commands: bool,
    ) -> None:
        import_known()
        # an empty list beside its own: what can run commands may not stand in a config
        jsonargparse.set_parsing_settings(import_path_denylist=[])
        self._cli = cli
        self._kind = parser_class or cli.default_parser_class()
        commands = cli.subcommands()
        self.main = self._new({n: value for n, value in options.items() if n not in commands})
        self.own = self.main
        if has_commands:
            self._add_commands(options)
        else:
            self._fill(self.main)

    @property
    def prefix(self) -> str:
        """What the names of variables begin with that hold arguments; empty where none do."""
        return f"{self.own.env_prefix}_".replace("-", "_") if self.own.default_env else ""

    def show_class(self, words: Sequence[str]) -> None:
        """Show what a class takes where the words hold `--help CLASS`, and exit.

        Raises:
            OptionError: no argument takes such a class.
        """
        at = list(words).index("--help") + 1 if "--help" in words else len(words)
        if at >= len(words) or words[at].startswith("-"):
            return
        keys = sorted(key for key in self.own.argument_keys if key.endswith(".help"))
        for key in keys:
            if self.own.takes(key.removesuffix(".help"), words[at]):
                shown = io.StringIO()
                with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
                    self.own.parse_args([f"--{key}", words[at]])
                print("\n".join(map(_folded, shown.getvalue().splitlines())))
                raise SystemExit(0)
        raise OptionError(
            f"--help {words[at]}: no argument takes a class of that name. Give its short name, or "
            "its class path."
        )

    def _new(self, options: Mapping[str, Any]) -> TrainerParser:
        parser = self._kind(**{"dump_header": [f"trainer_hooks {__version__}"], **options})
        parser.add_argument(
            "-c",
            "--config",
            action=jsonargparse.ActionConfigFile,  # type: ignore[attr-defined]
            help="A config file, in YAML or JSON.",
        )
        return parser

    def _add_commands(self, options: Mapping[str, Any]) -> None:
        actions = self.main.add_subcommands()
        for name, skipped in self._cli.subcommands().items():
            function = getattr(self._cli.trainer_class, name)
            first = (function.__doc__ or "").partition("\n")[0]
            summary = first.partition(";")[0].partition(". ")[0]  # it fits a narrow terminal
            usage = "%(prog)s [--config FILE] [--OPTION VALUE ...]"  # all of them fill a screen
            parser = self._new({"description": summary, "usage": usage, **options.get(name, {})})
            # all others than the one that is given stay empty: to fill each takes its time
            if name == self._cli.subcommand:
                self.own = parser
                self._fill(parser)
                parser.add_run_args(self._cli.trainer_class, name, set(skipped))
            actions.add_subcommand(name, parser, help=summary)

    def _fill(self, parser: TrainerParser) -> None:
        cli = self._cli
        parser.add_argument(
            "--seed_everything",
            type=bool | int,
            default=cli.seed_everything_default,
            help="The seed; true: PL_GLOBAL_SEED or 0; false: none is set.",
        )
        parser.add_trainer_args(cli.trainer_class)
        parser.set_defaults(
            {f"trainer.{n}": v for n, v in cli.trainer_defaults.items() if n != "callbacks"}
        )
        parser.add_class_args(
            cli.model_class or Module, "model", subclass_mode=cli.subclass_mode_model
        )
        parser.add_class_args(
            cli.datamodule_class or DataModule,
            "data",
            subclass_mode=cli.subclass_mode_data,
            required=cli.datamodule_class is not None,
        )
        cli.add_arguments_to_parser(parser)
        if cli.auto_configure_optimizers and not parser.optimizers:
            parser.add_optimizer_args()
        if cli.auto_configure_optimizers and not parser.lr_schedulers:
            parser.add_lr_scheduler_args()
        for key, made in [*parser.optimizers.items(), *parser.lr_schedulers.items()]:
            if made.link_to != AUTOMATIC:
                parser.link_arguments(key, made.link_to, compute_fn=made.with_class_path)
        parser.add_argument(
            "--links",
            type=dict[str, str],
            default={},
            help="Arguments that take the value of another, or of what was made: {target: source}.",
        )
        cli.link_arguments(parser)


def _folded(line: str) -> str:
    """Return a title, which the parser leaves in one line, in lines that fit the terminal."""
    is_title = line[:1].isalpha() and not line.startswith("usage:")
    return textwrap.fill(line, shutil.get_terminal_size().columns) if is_title else line
