"""TrainerCLI: a training from the command line or from a config file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch.optim.lr_scheduler import ReduceLROnPlateau

from trainer_hooks._log import log
from trainer_hooks._names import is_of_package
from trainer_hooks._options import answers_keywords
from trainer_hooks.callbacks.prediction_writer import BasePredictionWriter, PredictionWriter
from trainer_hooks.checkpoint.parts import UnfitPartError
from trainer_hooks.cli.commands import install_hint, one_line
from trainer_hooks.cli.run.arguments import (
    SUBCOMMANDS,
    find_subcommand,
    is_completing,
    is_config_object,
    words_to_complete,
)
from trainer_hooks.cli.run.optimizers import (
    AUTOMATIC,
    check_optimizer,
    configure_from_config,
)
from trainer_hooks.cli.run.save_config import SaveConfigCallback
from trainer_hooks.errors import (
    CheckpointError,
    MetricError,
    OptionError,
    TrainerHooksError,
    UsageError,
)
from trainer_hooks.hooks.spec import overrides
from trainer_hooks.module.datamodule import DataModule
from trainer_hooks.module.module import Module
from trainer_hooks.runtime.rng import seed_everything
from trainer_hooks.trainer.trainer import Trainer

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Mapping, Sequence

    from jsonargparse import Namespace

    from trainer_hooks.callback import Callback
    from trainer_hooks.cli.run.parser import TrainerParser

_OUTPUT = "A file for the predictions, such as out.csv; .jsonl, .npz and .pt are formats, too."


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
    _has_output = False

    @answers_keywords
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
        """Parse the arguments, make the objects, and carry out the command.

        The path of a config, down to the Trainer::

            ConfigOrigins                     the files, for links and messages; config_origins.py
            _build_parsers                    a parser with a group for each object; parser.py
                import_nameable_classes       the classes that have short names
            _parse
                find_links, links.add         `links` of the config, added to the parser; links.py
                set_defaults_from_checkpoint  parser.py, as the next two
                check_environment             variables that hold no argument
                parse_config                  defaults < environment < files and options
                links.check                   links into classes that do not take the argument
                seed_everything               before any object is made
            instantiate_classes
                links.instantiate             data module, module, then options of the Trainer
                configure_from_config         optimizer, scheduler, into the module; optimizers.py
                instantiate_trainer           callbacks of config, class and this command
            _run_subcommand                   `trainer.fit`, or the class's own method of that name
                check_optimizer               before the Trainer's `fit`; optimizers.py

        An error in the config becomes one line (`_explain_errors`, config_errors.py); a
        constructor's own error keeps its traceback.
        """
        try:
            import jsonargparse  # noqa: F401 - to tell that it is missing before it is needed

            from trainer_hooks.cli.run.config_origins import ConfigOrigins
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
        parser_options = dict(parser_kwargs or {})
        # taken out: the parsers always raise, and `_explain_errors` exits
        self._exits = bool(parser_options.pop("exit_on_error", True))
        if args is None:
            args = words_to_complete() if is_completing() else sys.argv[1:]
        self.subcommand = find_subcommand(args, self.subcommands()) if run else None
        words = () if is_config_object(args) else tuple(args)
        defaults = parser_options.get("default_config_files", ())
        if run and words and self.subcommand is None:
            # a config may hold everything under the name of the command
            self.subcommand = ConfigOrigins.of(words, None, defaults).only_command()
            if self.subcommand is not None:
                args = words = (*words, self.subcommand)
        if run and self.subcommand is None and parser_options.get("default_env"):
            self.subcommand = self._command_of_environment(parser_class, parser_options)
        self._origins = ConfigOrigins.of(words, self.subcommand, defaults)

        def parse() -> None:
            self.parser, self._command_parser = self._build_parsers(
                parser_class, parser_options, run
            )
            self._parse(args, words)

        self._explain_errors(parse)
        self.before_instantiate_classes()
        self._explain_errors(self.instantiate_classes)
        # `is`, and not `!=`: 0 is a seed, and equals False
        is_seeded = self._command_config.seed_everything is not False
        # only now: a refused config prints its one line alone, and so does a refused checkpoint
        if is_seeded and self._command_config.get("ckpt_path") is None:
            self._log_seed()
        elif is_seeded:
            log.addFilter(self._log_seed_after_restore)
        self.after_instantiate_classes()
        if self.subcommand is not None:
            self._run_subcommand(self.subcommand)

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
        if lr_scheduler is None:
            return optimizer
        if isinstance(lr_scheduler, ReduceLROnPlateau):
            # this one steps by a metric; torch's own class has no argument for its name
            monitor = getattr(lr_scheduler, "monitor", None)
            if monitor is None:
                raise OptionError(
                    "lr_scheduler torch.optim.lr_scheduler.ReduceLROnPlateau of the config names "
                    "no metric. Write ReduceLROnPlateau, without torch's path, and give it monitor."
                )
            entry = {"scheduler": lr_scheduler, "monitor": monitor}
            return {"optimizer": optimizer, "lr_scheduler": entry}
        return [optimizer], [lr_scheduler]

    def instantiate_classes(self) -> None:
        """Make the data module, the module and the Trainer."""
        self.config_init = self._links.instantiate(
            self.parser, self.config, self.subcommand, self.trainer_class
        )
        self.datamodule = self._command_objects.get("data")
        self.model = self._command_objects.get("model")
        if self.auto_configure_optimizers and self.model is not None:
            configure_from_config(
                self.model,
                self._command_parser.optimizers,
                self._command_parser.lr_schedulers,
                self._command_objects,
                self.configure_optimizers,
            )
        self.trainer = self.instantiate_trainer()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Make the Trainer.

        Args:
            kwargs: options that override those of the config.
        """
        trainer_options = {**dict(self._command_objects.get("trainer") or {}), **kwargs}
        # all that add some together: the option in the config alone would replace the others
        callbacks = [
            *_listed(trainer_options.get("callbacks")),
            *(self._command_objects[key] for key in self._command_parser.callback_keys),
            *_listed(self.trainer_defaults.get("callbacks")),
        ]
        if self.save_config_callback is not None and not trainer_options.get("fast_dev_run"):
            callbacks.append(
                self.save_config_callback(
                    self._command_parser, self._command_config, **self.save_config_kwargs
                )
            )
        if self._output is not None:
            callbacks.append(PredictionWriter(self._output))
        return self.trainer_class(**{**trainer_options, "callbacks": callbacks})

    # --- the path of a config ---

    def _build_parsers(
        self,
        parser_class: type[TrainerParser] | None,
        parser_options: Mapping[str, Any],
        has_commands: bool,
    ) -> tuple[TrainerParser, TrainerParser]:
        """Return the parser of the whole line and that of the command; without commands, one."""
        from trainer_hooks.cli.run.parser import import_nameable_classes, new_parser

        import_nameable_classes()
        parser_class = parser_class or self.default_parser_class()
        commands = self.subcommands()
        main = command_parser = new_parser(
            parser_class,
            {name: value for name, value in parser_options.items() if name not in commands},
        )
        if not has_commands:
            self._add_arguments(main)
            return main, main
        actions = main.add_subcommands()
        for name, skipped in commands.items():
            # of the class in use: a subclass may add arguments to `fit`, or say more of it
            method = getattr(self.trainer_class, name)
            first_line = (method.__doc__ or "").partition("\n")[0]
            summary = first_line.partition(";")[0].partition(". ")[0]  # it fits a narrow terminal
            usage = "%(prog)s [--config FILE] [--OPTION VALUE ...]"  # all of them fill a screen
            parser = new_parser(
                parser_class,
                {"description": summary, "usage": usage, **parser_options.get(name, {})},
            )
            # the parsers of other commands stay empty: to fill each takes its time
            if name == self.subcommand:
                command_parser = parser
                self._add_arguments(parser)
                parser.add_run_args(self.trainer_class, name, set(skipped))
                # a class of the user may have such an argument itself
                if name == "predict" and "output" not in parser.argument_keys:
                    parser.add_argument("--output", type=str | None, default=None, help=_OUTPUT)
                    parser.command_arguments = ["output"]
                    self._has_output = True
            actions.add_subcommand(name, parser, help=summary)
        return main, command_parser

    def _command_of_environment(
        self, parser_class: type[TrainerParser] | None, parser_options: Mapping[str, Any]
    ) -> str | None:
        """Return the command that an environment variable names, such as PL_SUBCOMMAND, or None."""
        from trainer_hooks.cli.run.parser import new_parser

        commands = self.subcommands()
        options = {name: value for name, value in parser_options.items() if name not in commands}
        prefix = new_parser(parser_class or self.default_parser_class(), options).variable_prefix
        named = os.environ.get(f"{prefix}subcommand".upper())
        return named if named in commands else None

    def _add_arguments(self, parser: TrainerParser) -> None:
        """Add the arguments of a training, but for those of the Trainer's method."""
        parser.add_argument(
            "--seed_everything",
            type=bool | int,
            default=self.seed_everything_default,
            help="The seed; true: PL_GLOBAL_SEED or 0; false: none is set.",
        )
        parser.add_trainer_args(self.trainer_class)
        # callbacks are no default: those of a config would take their place
        parser.set_defaults(
            {f"trainer.{n}": v for n, v in self.trainer_defaults.items() if n != "callbacks"}
        )
        parser.add_class_args(
            self.model_class or Module, "model", subclass_mode=self.subclass_mode_model
        )
        parser.add_class_args(
            self.datamodule_class or DataModule,
            "data",
            subclass_mode=self.subclass_mode_data,
            required=self.datamodule_class is not None,
        )
        self.add_arguments_to_parser(parser)
        if self.auto_configure_optimizers and not parser.optimizers:
            parser.add_optimizer_args()
        if self.auto_configure_optimizers and not parser.lr_schedulers:
            parser.add_lr_scheduler_args()
        for key, configurable in [*parser.optimizers.items(), *parser.lr_schedulers.items()]:
            if configurable.link_to != AUTOMATIC:
                parser.link_arguments(
                    key, configurable.link_to, compute_fn=configurable.with_class_path
                )
        parser.add_argument(
            "--links",
            type=dict[str, str],
            default={},
            help="Arguments that take the value of another, or of what was made: {target: source}.",
        )
        self.link_arguments(parser)

    def _parse(self, args: Any, words: Sequence[str]) -> None:
        """Parse the command line or config object into `config`, and check it.

        Args:
            args: the arguments.
            words: those of a command line; empty for a config object.
        """
        from trainer_hooks.cli.run.config_origins import checked_inner_configs
        from trainer_hooks.cli.run.links import ArgumentLinks, find_links, merge_links
        from trainer_hooks.cli.run.parser import (
            check_environment,
            complete,
            parse_config,
            set_defaults_from_checkpoint,
            show_class_help,
        )

        command_parser = self._command_parser
        is_object = is_config_object(args)
        explicit = {} if not is_object else args[self.subcommand] if self.subcommand else args
        self._origins = self._origins.with_environment(command_parser.variable_prefix)
        self._origins.check()
        # before it parses: an argument that a link or a default gives is not required any more
        self._links = ArgumentLinks(command_parser, find_links(self._origins, explicit))
        self._links.add()
        self._origins.require_known(command_parser.argument_keys, ["trainer"])
        if "ckpt_path" in command_parser.method_arguments:
            path = explicit.get("ckpt_path") or self._origins.explicit_value("ckpt_path")
            set_defaults_from_checkpoint(command_parser, path, self._origins.explicit_value)
        # not checked any further: a line that is still being typed is seldom right
        if is_completing():
            complete(command_parser, self.subcommand)
        parse = self.parser.parse_object if is_object else self.parser.parse_args
        if not is_object:
            show_class_help(command_parser, words)
            check_environment(command_parser)
            args = merge_links(words, self._links.sources)
        with checked_inner_configs():
            self.config: Namespace = parse_config(parse, args, self.subcommand)
        self._links.check(self._command_config)
        seed = self._command_config.seed_everything
        if seed is not False:
            self._command_config.seed_everything = seed_everything(
                None if seed is True else seed, workers=True, verbose=False
            )

    @property
    def _command_config(self) -> Any:
        return self.config if self.subcommand is None else self.config[self.subcommand]

    @property
    def _command_objects(self) -> Any:
        return self.config_init if self.subcommand is None else self.config_init[self.subcommand]

    @property
    def _output(self) -> str | None:
        """The file of `--output`, or None."""
        return self._command_config.get("output") if self._has_output else None

    def _run_subcommand(self, subcommand: str) -> None:
        """Carry out a command: that of the line, or another one after it, as subclasses do."""
        from trainer_hooks.cli.run.config_errors import add_monitor_note, refuse_checkpoint

        self._call_if_defined(f"before_{subcommand}")
        if subcommand == "fit" and not hasattr(self, "fit"):
            optimizers = self._command_parser.optimizers
            self._explain_errors(lambda: check_optimizer(self.model, optimizers))
        # `fit` of a subclass takes the place of the Trainer's
        function = getattr(self, subcommand, None) or getattr(self.trainer, subcommand)
        method_arguments = self._prepare_subcommand_kwargs(subcommand)
        if subcommand == "predict":
            self._see_to_predictions(method_arguments)
        refused: CheckpointError | None = None
        try:
            self.returned = function(**method_arguments)
        except MetricError as error:
            add_monitor_note(error, self._origins)
            raise
        except CheckpointError as error:
            if not self._is_about_start(method_arguments.get("ckpt_path"), error):
                raise
            refused = error
        finally:
            if self._log_seed_after_restore in log.filters:
                log.removeFilter(self._log_seed_after_restore)
                if refused is None:
                    self._log_seed()
        if refused is not None:
            self._explain_errors(lambda: refuse_checkpoint(refused))
        self._call_if_defined(f"after_{subcommand}")

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        """Return the arguments of the Trainer's method; those of the config for its command."""
        arguments: dict[str, Any] = {"model": self.model}
        if subcommand == self.subcommand:
            objects, names = self._command_objects, self._command_parser.method_arguments
            arguments.update({name: objects[name] for name in names if name in objects})
        if self.datamodule is not None:
            arguments["datamodule"] = self.datamodule
        return arguments

    def _see_to_predictions(self, method_arguments: dict[str, Any]) -> None:
        """Say before the first batch that nothing takes the predictions; keep them in a file only.

        A script may use `returned`, the command `trainer-hooks` does not.
        """
        if self._output is not None and method_arguments.get("return_predictions") is None:
            method_arguments["return_predictions"] = False
        is_command = self.parser.prog.split()[0] == "trainer-hooks"
        if is_command and self.trainer.is_global_zero and not self._takes_predictions():
            print(
                "predict: the predictions go nowhere. To keep them, add --output predictions.csv "
                "(or .jsonl, .npz, .pt), or a callback that writes them to the config.",
                file=sys.stderr,
            )

    def _takes_predictions(self) -> bool:
        """Return whether a writer, or code of the user's, gets the outputs of `predict_step`."""
        return any(
            isinstance(callback, BasePredictionWriter) or not is_of_package(type(callback))
            for callback in (*self.trainer.callbacks, self.model)
            if overrides(callback, "on_predict_batch_end")
        )

    def _log_seed(self) -> None:
        log.info("seed set to %d", self._command_config.seed_everything)

    def _log_seed_after_restore(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - a filter
        """Log the seed before the first record of a run that has restored its checkpoint."""
        if self.trainer.load_report is not None:
            log.removeFilter(self._log_seed_after_restore)  # first: `_log_seed` comes here, too
            self._log_seed()
        return True

    def _is_about_start(self, asked: str | None, error: CheckpointError) -> bool:
        """Return whether a CheckpointError of the run is about the checkpoint to start from."""
        # later ones are about saves, in the middle of a training, but for parts that wait for the
        # loop
        is_restored = self.trainer.load_report is not None and not isinstance(error, UnfitPartError)
        is_new = asked == "auto" and self.trainer.ckpt_path is None
        return asked is not None and not is_restored and not is_new

    def _call_if_defined(self, name: str) -> None:
        """Call a method that a subclass may have, such as `before_fit`."""
        method = getattr(self, name, None)
        if callable(method):
            method()

    def _explain_errors(self, step: Callable[[], None]) -> None:
        """Run a step before the training; an error in the config becomes a one-line message."""
        from jsonargparse import ArgumentError

        from trainer_hooks.cli.run.config_errors import (
            constructor_error,
            explain_error,
            is_config_error,
        )

        # raised outside of `except`: a constructor's own error shows no error of the parser
        refused: Exception | None = None
        try:
            step()
        except (ArgumentError, TrainerHooksError, ValueError) as error:
            refused = error
        if refused is None:
            return
        if not is_config_error(refused):
            raise constructor_error(refused, self._origins)
        line = explain_error(refused, self._origins, getattr(self, "_command_parser", None))
        if not self._exits:
            raise UsageError(line) from refused
        # there is no parser yet where an override of add_arguments_to_parser raised
        program = self.parser.prog.split()[0] if hasattr(self, "parser") else Path(sys.argv[0]).name
        command = f"{program} {self.subcommand or ''}".rstrip()
        print(f"{command}: error: {one_line(line)}", file=sys.stderr)
        raise SystemExit(2)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | set) else [value]
