"""TrainerCLI: a training from the command line or from a config file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import log
from trainer_hooks.cli.commands import install_hint
from trainer_hooks.cli.run.arguments import (
    SUBCOMMANDS,
    complete,
    find_subcommand,
    is_completing,
    words_to_complete,
)
from trainer_hooks.cli.run.save_config import SaveConfigCallback
from trainer_hooks.errors import MetricError, TrainerHooksError, UsageError
from trainer_hooks.runtime.rng import seed_everything
from trainer_hooks.trainer.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jsonargparse import Namespace

    from trainer_hooks.callback import Callback
    from trainer_hooks.cli.run.parser import CommandParsers, TrainerParser
    from trainer_hooks.module.datamodule import DataModule
    from trainer_hooks.module.module import Module

__all__ = ["TrainerCLI"]


class TrainerCLI:
    """Run a training that a command line and config files describe.

    `python train.py fit --config run.yaml --trainer.max_epochs 3` makes the data module, the module
    and the Trainer, and calls `trainer.fit`. The page "The command line" tells what may be written.

    Subclass it to add arguments and links (`add_arguments_to_parser`, `link_arguments`), or to act
    before and after (`before_fit`, `after_fit`, and so for the other commands;
    `before_instantiate_classes`, `after_instantiate_classes`). A method `fit` of the subclass takes
    the place of the Trainer's, and so for the others.

    Args:
        model_class: the module's class, or a function that returns one. None: any, by class path.
        datamodule_class: the same for the data module; with None there may be none.
        save_config_callback: what writes the config down; None: nothing does.
        save_config_kwargs: further arguments for it.
        trainer_class: the class of the Trainer; `default_trainer_class` unless given.
        trainer_defaults: defaults of the Trainer's options; its `callbacks` always take part.
        seed_everything_default: the seed; True: `PL_GLOBAL_SEED` or 0; False: none is set.
        parser_kwargs: arguments for the parser, those for a command's alone under its name.
        parser_class: the class of the parser.
        subclass_mode_model: whether any subclass of `model_class` may be given.
        subclass_mode_data: whether any subclass of `datamodule_class` may be given.
        args: the words of the command line, or a dict; those of this process unless given.
        run: whether a command is expected, and carried out. False: the objects are made alone.
        auto_configure_optimizers: whether `optimizer` and `lr_scheduler` are arguments.

    Attributes:
        parser: what parsed the arguments.
        subcommand: the command that was given; None with `run=False`.
        config: the arguments as they were resolved; below the command's name with `run=True`.
        config_init: the same with the objects that were made.
        model: the module.
        datamodule: the data module, or None.
        trainer: the Trainer.
        returned: what the Trainer's method returned, as the predictions.

    Raises:
        UsageError: jsonargparse is not installed.
        SystemExit: the arguments cannot be understood; standard error says what is wrong, in a
            line. With `parser_kwargs={"exit_on_error": False}` a UsageError is raised instead.
    """

    default_trainer_class: ClassVar[type[Trainer]] = Trainer

    def __init__(
        self,
        model_class: type[Module] | Callable[..., Module] | None = None,
        datamodule_class: type[DataModule] | Callable[..., DataModule] | None = None,
        save_config_callback: Callable[..., Callback] | None = SaveConfigCallback,
        save_config_kwargs: Mapping[str, Any] | None = None,
        trainer_class: type[Trainer] | None = None,
        trainer_defaults: Mapping[str, Any] | None = None,
        seed_everything_default: bool | int = True,
        parser_kwargs: Mapping[str, Any] | None = None,
        parser_class: type[TrainerParser] | None = None,
        subclass_mode_model: bool = False,
        subclass_mode_data: bool = False,
        args: Sequence[str] | Mapping[str, Any] | Namespace | None = None,
        run: bool = True,
        auto_configure_optimizers: bool = True,
    ) -> None:
        try:
            from trainer_hooks.cli.run.config_sources import ConfigSources
            from trainer_hooks.cli.run.parser import CommandParsers
        except ModuleNotFoundError as error:
            missing = install_hint(error, "cli", "jsonargparse", "yaml")
            raise UsageError(f"{type(self).__qualname__}: {missing}") from error

        self.model_class = model_class
        self.datamodule_class = datamodule_class
        self.save_config_callback = save_config_callback
        self.save_config_kwargs = dict(save_config_kwargs or {})
        self.trainer_class = trainer_class or self.default_trainer_class
        self.trainer_defaults = dict(trainer_defaults or {})
        self.seed_everything_default = seed_everything_default
        self.subclass_mode_model = subclass_mode_model or model_class is None
        self.subclass_mode_data = subclass_mode_data or datamodule_class is None
        self.auto_configure_optimizers = auto_configure_optimizers
        options = dict(parser_kwargs or {})
        self._exits = bool(options.pop("exit_on_error", True))
        given = sys.argv[1:] if args is None else args
        if args is None and is_completing():
            given = words_to_complete()
        self.subcommand = find_subcommand(given) if run else None
        words = () if isinstance(given, Mapping) or hasattr(given, "as_dict") else tuple(given)
        self._sources = ConfigSources.of(
            words, self.subcommand, options.get("default_config_files", ())
        )
        self._report_config_errors(
            lambda: self._parse(CommandParsers(self, parser_class, options, run), given, words)
        )
        self._report_config_errors(self._seed)
        self.before_instantiate_classes()
        self._report_config_errors(self.instantiate_classes)
        if self._command_config.seed_everything is not False:
            # only now: a refused config prints its one line alone
            log.info("seed set to %d", self._command_config.seed_everything)
        self.after_instantiate_classes()
        if self.subcommand is not None:
            self._run(self.subcommand)

    # --- what a subclass may override ---

    def add_arguments_to_parser(self, parser: TrainerParser) -> None:
        """Override it to add or link arguments."""

    def link_arguments(self, parser: TrainerParser) -> None:
        """Override it to link arguments; called after `add_arguments_to_parser`."""

    def before_instantiate_classes(self) -> None:
        """Override it to act after parsing and seeding, before any object is made."""

    def after_instantiate_classes(self) -> None:
        """Override it to act after all objects are made, before the run."""

    @staticmethod
    def default_parser_class() -> type[TrainerParser]:
        """Return the default class of the parser."""
        from trainer_hooks.cli.run.parser import TrainerParser

        return TrainerParser

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Return the commands, each with the method arguments that are no options."""
        return {name: set(skipped) for name, skipped in SUBCOMMANDS.items()}

    @staticmethod
    def configure_optimizers(
        module: Module,  # noqa: ARG004 - what an override may want
        optimizer: Any,
        lr_scheduler: Any = None,
    ) -> Any:
        """Return optimizer and scheduler in the form that `configure_optimizers` returns.

        Args:
            module: the module.
            optimizer: the optimizer of all parameters of the module.
            lr_scheduler: the scheduler, or None.
        """
        from trainer_hooks.cli.run.optimizers import as_configured

        return as_configured(optimizer, lr_scheduler)

    def instantiate_classes(self) -> None:
        """Make the data module, the module and the Trainer."""
        from trainer_hooks.cli.run.optimizers import configure_from_config

        self.config_init = self._links.instantiate(
            self.parser, self.config, self.subcommand, self.trainer_class
        )
        self.datamodule = self._command_objects.get("data")
        self.model = self._command_objects.get("model")
        if self.auto_configure_optimizers and self.model is not None:
            configure_from_config(
                self.model, self._command_parser, self._command_objects, self.configure_optimizers
            )
        self.trainer = self.instantiate_trainer()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Make the Trainer.

        Args:
            kwargs: options that override those of the config.
        """
        options = {**dict(self._command_objects.get("trainer") or {}), **kwargs}
        own = [self._command_objects[key] for key in self._command_parser.callback_keys]
        fixed = self.trainer_defaults.get("callbacks")
        callbacks = [*_listed(options.get("callbacks")), *own, *_listed(fixed)]
        if self.save_config_callback is not None and not options.get("fast_dev_run"):
            callbacks.append(
                self.save_config_callback(
                    self._command_parser, self._command_config, **self.save_config_kwargs
                )
            )
        return self.trainer_class(**{**options, "callbacks": callbacks})

    # --- the way from words to a run ---

    def _parse(self, parsers: CommandParsers, given: Any, words: Sequence[str]) -> None:
        from trainer_hooks.cli.run import parser as checks
        from trainer_hooks.cli.run.checkpoint_defaults import set_defaults_from_checkpoint
        from trainer_hooks.cli.run.links import ArgumentLinks, arguments_with_links, read_links

        self.parser = parsers.main
        self._command_parser = parsers.own
        is_line = not (isinstance(given, Mapping) or hasattr(given, "as_dict"))
        below = {} if is_line else given[self.subcommand] if self.subcommand else given
        self._sources = self._sources.with_environment(parsers.prefix)
        self._sources.check()
        self._links = ArgumentLinks(self._command_parser, read_links(self._sources, below))
        self._links.add()
        if "ckpt_path" in self._command_parser.method_arguments:
            path = below.get("ckpt_path") or self._sources.given("ckpt_path")
            set_defaults_from_checkpoint(self._command_parser, path, self._sources.given)
        if is_completing():
            complete(self._command_parser, self.subcommand)
        parse = self.parser.parse_args if is_line else self.parser.parse_object
        if is_line:
            parsers.show_class(words)
            checks.check_environment(parsers.prefix, self._command_parser)
            given = arguments_with_links(words, self._links.sources)
        self.config: Namespace = checks.parse_config(parse, given)
        checks.check_values(self._command_config)
        checks.check_classes(self._command_config.as_dict())
        self._links.check(self._command_config)

    @property
    def _command_config(self) -> Any:
        return self.config if self.subcommand is None else self.config[self.subcommand]

    @property
    def _command_objects(self) -> Any:
        return self.config_init if self.subcommand is None else self.config_init[self.subcommand]

    def _seed(self) -> None:
        seed = self._command_config.seed_everything
        if seed is not False:
            chosen = None if seed is True else seed
            chosen = seed_everything(chosen, workers=True, verbose=False)
            self._command_config.seed_everything = chosen

    def _run(self, subcommand: str) -> None:
        from trainer_hooks.cli.run.config_errors import add_monitor_note
        from trainer_hooks.cli.run.optimizers import check_optimizer

        _hook(self, f"before_{subcommand}")
        if subcommand == "fit" and not hasattr(self, "fit"):
            self._report_config_errors(lambda: check_optimizer(self.model, self._command_parser))
        function = getattr(self, subcommand, None) or getattr(self.trainer, subcommand)
        options = {
            n: self._command_objects[n]
            for n in self._command_parser.method_arguments
            if n in self._command_objects
        }
        if self.datamodule is not None:
            options["datamodule"] = self.datamodule
        try:
            self.returned = function(model=self.model, **options)
        except MetricError as error:
            add_monitor_note(error, self._sources)
            raise
        _hook(self, f"after_{subcommand}")

    def _report_config_errors(self, step: Callable[[], None]) -> None:
        """Run a step before the training; an error in the config becomes a one-line message."""
        from jsonargparse import ArgumentError

        from trainer_hooks.cli.run.config_errors import (
            constructor_error,
            explain_error,
            is_config_error,
        )

        refused: Exception | None = None
        try:
            step()
        except (ArgumentError, TrainerHooksError, ValueError) as error:
            refused = error
        if refused is None:
            return
        if not is_config_error(refused):
            raise constructor_error(refused, self._sources)
        line = explain_error(refused, self._sources, getattr(self, "_command_parser", None))
        if not self._exits:
            raise UsageError(line) from refused
        # there is no parser yet where an override of add_arguments_to_parser raised
        program = self.parser.prog.split()[0] if hasattr(self, "parser") else Path(sys.argv[0]).name
        command = f"{program} {self.subcommand or ''}".rstrip()
        print(f"{command}: error: {line}", file=sys.stderr)
        raise SystemExit(2)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | set) else [value]


def _hook(cli: TrainerCLI, name: str) -> None:
    function = getattr(cli, name, None)
    if callable(function):
        function()
