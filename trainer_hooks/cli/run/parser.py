"""The parsers of a `TrainerCLI`: jsonargparse's, with the arguments of a training.

jsonargparse leaves some errors unreported; the `check_*` functions at the end find them.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import shutil
import sys
import textwrap
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args, get_type_hints

import jsonargparse
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainer_hooks import callbacks, loggers
from trainer_hooks._log import log
from trainer_hooks._version import __version__
from trainer_hooks.checkpoint.paths import is_remote
from trainer_hooks.errors import OptionError, PluginError, UsageError, did_you_mean
from trainer_hooks.hooks.discovery import installed_plugins, is_interruption, load_entry_point
from trainer_hooks.hooks.plugin import GROUPS, PluginFilter
from trainer_hooks.loggers.registry import installed_loggers, load_logger
from trainer_hooks.module.datamodule import DataModule
from trainer_hooks.module.module import Module
from trainer_hooks.trainer.options.config import TrainerConfig, option_docs

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from jsonargparse import Namespace

    from trainer_hooks.trainer.trainer import Trainer

__all__ = [
    "AUTOMATIC",
    "CommandParsers",
    "ConfigurableClass",
    "TrainerParser",
    "check_classes",
    "check_environment",
    "check_values",
    "import_nameable_classes",
    "parse_config",
]


AUTOMATIC = "AUTOMATIC"
"""Where an optimizer goes that no argument of the module is linked to: `configure_optimizers`."""


@dataclass(frozen=True, slots=True)
class ConfigurableClass:
    """An optimizer or a scheduler among the arguments.

    Attributes:
        kinds: the class, or the base classes of allowed subclasses.
        is_open: whether any subclass may be chosen, by its class path.
        link_to: the argument that takes it, or `AUTOMATIC`.
    """

    kinds: tuple[type, ...]
    is_open: bool
    link_to: str

    def with_class_path(self, values: Any) -> dict[str, Any]:
        """Return class path and arguments."""
        plain: dict[str, Any] = values.as_dict() if hasattr(values, "as_dict") else values
        if self.is_open:
            return plain
        kind = self.kinds[0]
        return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": plain}


class TrainerParser(jsonargparse.ArgumentParser):
    """Parser for the arguments of a training; the hooks of a `TrainerCLI` are given it.

    It is a `jsonargparse.ArgumentParser`, with `link_arguments` and `set_defaults` too.

    Attributes:
        callback_keys: the groups of arguments whose object becomes a callback of the Trainer.
        optimizers: the optimizers that `add_optimizer_args` added, by key.
        lr_schedulers: the schedulers that `add_lr_scheduler_args` added, by key.
        method_arguments: the options of the command that go to the Trainer's method.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)  # a misspelt option would pass for another
        kwargs.setdefault("exit_on_error", False)
        super().__init__(*args, **kwargs)
        self.callback_keys: list[str] = []
        self.optimizers: dict[str, ConfigurableClass] = {}
        self.lr_schedulers: dict[str, ConfigurableClass] = {}
        self.method_arguments: list[str] = []

    @property
    def argument_keys(self) -> frozenset[str]:
        """The keys of all arguments."""
        return frozenset(action.dest for action in self._actions)

    def is_open(self, key: str) -> bool:
        """Return whether the class under a key is chosen by its class path."""
        return f"{key}.help" in self.argument_keys

    def make_optional(self, key: str, name: str) -> None:
        """Make a required argument of the class under a key optional."""
        for action in self._actions:
            if action.dest == key and hasattr(action, "sub_add_kwargs"):
                action.sub_add_kwargs.setdefault("linked_targets", set()).add(name)

    def takes(self, key: str, name: str) -> bool:
        """Return whether a class, by short name or class path, is allowed under a key."""
        return self.class_of(key, name) is not None

    def class_of(self, key: str, name: str) -> type | None:
        """Return the class of a short name or class path under a key, or None."""
        home, _, last = name.rpartition(".")
        bases = tuple(self._bases(key))
        if not home:
            return next(
                (k for base in bases for k in _public_subclasses(base) if k.__name__ == name), None
            )
        try:
            kind = getattr(importlib.import_module(home), last, None)
        except ImportError:
            return None
        return kind if isinstance(kind, type) and issubclass(kind, bases) else None

    def class_names(self, key: str) -> list[str]:
        """Return the short names of the classes that are allowed under a key."""
        return sorted(
            {kind.__name__ for base in self._bases(key) for kind in _public_subclasses(base)}
        )

    def complete_class_names(self) -> None:
        """Let the shell complete short class names."""
        for action in self._actions:
            if self.is_open(action.dest):
                names = self.class_names(action.dest)
                action.completer = lambda names=names, **_: names  # type: ignore[attr-defined]

    def _bases(self, key: str) -> list[type]:
        action = next((a for a in self._actions if a.dest == f"{key}.help"), None)
        return [] if action is None else _classes_in(getattr(action, "_typehint", None))

    def add_trainer_args(self, trainer_class: type[Trainer], key: str = "trainer") -> None:
        """Add the options of the Trainer, and the further arguments of a subclass."""
        self.add_class_arguments(TrainerConfig, key, instantiate=False)
        self._entitle(key, "the Trainer")
        docs = {f"{key}.{name}": doc for name, _, doc in option_docs()}
        for name, type_, default in _own_arguments(trainer_class, {n for n, _, _ in option_docs()}):
            self.add_argument(f"--{key}.{name}", type=type_, default=default)
        for action in self._actions:
            if action.dest in docs:
                action.help = docs[action.dest].replace("%", "%%")

    def add_run_args(self, trainer_class: type[Trainer], name: str, skip: set[str]) -> None:
        """Add the arguments of a Trainer method."""
        self.method_arguments = self.add_method_arguments(trainer_class, name, skip=skip)
        self._action_groups[-1].title = f"trainer.{name}"

    def add_class_args(
        self,
        kind: type | Callable[..., Any],
        key: str,
        *,
        subclass_mode: bool = False,
        required: bool = True,
    ) -> list[str]:
        """Add the arguments of a class or factory function, and return their keys.

        Args:
            kind: the class, or a function with an annotated return type.
            key: the group of the arguments.
            subclass_mode: whether any subclass may be chosen, by `class_path` and `init_args`.
            required: whether a choice is required.
        """
        from trainer_hooks.callback import Callback

        if isinstance(kind, type) and issubclass(kind, Callback):
            self.callback_keys.append(key)
        if subclass_mode and isinstance(kind, type):
            added: list[str] = self.add_subclass_arguments(
                kind, key, fail_untyped=False, required=required
            )
            self._entitle(key, f"{key}: any {kind.__name__}")
        else:
            made = kind if isinstance(kind, type) else jsonargparse.class_from_function(kind)  # type: ignore[attr-defined]
            added = self.add_class_arguments(made, key, fail_untyped=False, sub_configs=True)
        return added

    def add_optimizer_args(
        self,
        optimizer_class: type[Optimizer] | tuple[type[Optimizer], ...] = (Optimizer,),
        nested_key: str = "optimizer",
        link_to: str = AUTOMATIC,
    ) -> None:
        """Add the arguments of an optimizer.

        Args:
            optimizer_class: the class; a tuple allows any subclass of its members.
            nested_key: the group of the arguments.
            link_to: the argument of the module that takes `class_path` and `init_args`; by default
                `configure_optimizers` makes the optimizer of all parameters.
        """
        self.optimizers[nested_key] = self._add_made(
            optimizer_class, nested_key, link_to, {"params"}
        )

    def add_lr_scheduler_args(
        self,
        lr_scheduler_class: type | tuple[type, ...] = (LRScheduler, ReduceLROnPlateau),
        nested_key: str = "lr_scheduler",
        link_to: str = AUTOMATIC,
    ) -> None:
        """Add the arguments of a learning rate scheduler, as `add_optimizer_args` does."""
        self.lr_schedulers[nested_key] = self._add_made(
            lr_scheduler_class, nested_key, link_to, {"optimizer"}
        )

    def _entitle(self, key: str, title: str) -> None:
        """Give a group a title that fits on a line."""
        group = (self.groups or {}).get(key)
        if group is not None:
            group.title = title

    def _add_made(
        self, kind: type | tuple[type, ...], key: str, link_to: str, skip: set[str]
    ) -> ConfigurableClass:
        if isinstance(kind, tuple):
            self.add_subclass_arguments(
                kind, key, fail_untyped=False, required=False, instantiate=False, skip=skip
            )
            self._entitle(key, f"{key}: any {kind[0].__name__}")
            return ConfigurableClass(kind, is_open=True, link_to=link_to)
        self.add_class_arguments(
            kind, key, fail_untyped=False, instantiate=False, sub_configs=True, skip=skip
        )
        return ConfigurableClass((kind,), is_open=False, link_to=link_to)


def _own_arguments(kind: type, options: Container[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of the arguments that a Trainer's subclass adds."""
    own = [p for p in inspect.signature(kind).parameters.values() if p.name not in options]
    named = [p for p in own if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    hints = get_type_hints(kind.__init__) if named else {}  # type: ignore[misc]
    for parameter in named:
        default = None if parameter.default is parameter.empty else parameter.default
        yield parameter.name, hints.get(parameter.name, Any), default


def _classes_in(hint: Any) -> list[type]:
    """Return the classes of ours or of torch that a type annotation names."""
    if isinstance(hint, tuple):
        return [kind for part in hint for kind in _classes_in(part)]
    if isinstance(hint, type) and not hint.__module__.startswith(("builtins", "datetime", "os")):
        return [hint]
    parts: tuple[Any, ...] = get_args(hint)
    return [kind for part in parts for kind in _classes_in(part)]


def _public_subclasses(kind: type) -> Iterator[type]:
    """Yield a class and its public subclasses."""
    if not kind.__name__.startswith("_") and "<locals>" not in kind.__qualname__:
        yield kind
    below: list[type] = kind.__subclasses__()
    for one in below:
        yield from _public_subclasses(one)


def import_nameable_classes() -> None:
    """Import the callbacks and loggers of this package and of installed distributions.

    The parser finds a class by its short name only if it is imported. A broken plugin is skipped
    here: the Trainer reports its error.
    """
    for room in (callbacks, loggers):
        for name in room.__all__:
            getattr(room, name)
    wanted = PluginFilter.of(True)
    if wanted.takes_none:
        return
    for entries in installed_loggers().values():
        for entry in entries:
            try:
                load_logger(entry)
            except PluginError as error:
                log.debug("%s", error, exc_info=error)
    for plugin in installed_plugins():
        if plugin.group not in GROUPS or plugin.status != "found" or wanted.objection(plugin):
            continue
        try:
            load_entry_point(plugin)
        except BaseException as error:
            if is_interruption(error):
                raise
            log.debug("plugin %s cannot be imported", plugin.label, exc_info=error)


class CLISettings(Protocol):
    """The attributes and methods of a TrainerCLI that its parsers use."""

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
        """Return the default class of the parser."""

    def subcommands(self) -> dict[str, set[str]]:
        """Return the commands, each with the method arguments that are no options."""

    def add_arguments_to_parser(self, parser: TrainerParser) -> None:
        """Add further arguments."""

    def link_arguments(self, parser: TrainerParser) -> None:
        """Link arguments."""


class CommandParsers:
    """The parser of a TrainerCLI, and those of its commands.

    Attributes:
        main: the parser of the whole line.
        own: the parser of the chosen command; without commands, the same.
    """

    def __init__(
        self,
        cli: CLISettings,
        parser_class: type[TrainerParser] | None,
        options: Mapping[str, Any],
        has_commands: bool,
    ) -> None:
        import_nameable_classes()
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
        """The prefix of environment variables that hold arguments; empty if none do."""
        return f"{self.own.env_prefix}_".replace("-", "_") if self.own.default_env else ""

    def show_class(self, words: Sequence[str]) -> None:
        """Print the arguments of a class for `--help CLASS`, and exit.

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
                print("\n".join(map(_wrap_title, shown.getvalue().splitlines())))
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


def _wrap_title(line: str) -> str:
    """Wrap a title, which the parser prints on one line, to the width of the terminal."""
    is_title = line[:1].isalpha() and not line.startswith("usage:")
    return textwrap.fill(line, shutil.get_terminal_size().columns) if is_title else line


_CKPT_WORDS = ("auto", "best", "last")
"""What `ckpt_path` may be beside the path of a checkpoint."""


def check_environment(prefix: str, parser: TrainerParser) -> None:
    """Check that each variable with the prefix holds an argument; the parser ignores others.

    Args:
        prefix: the prefix of a command's variables; without a command nothing is checked.
        parser: the parser of the arguments.

    Raises:
        UsageError: a variable holds none.
    """
    keys = {key.lower(): key for key in parser.argument_keys if not key.endswith("help")}
    for name in sorted(os.environ):
        key = name.removeprefix(prefix.upper()).replace("__", ".").lower()
        if not prefix.endswith("__") or not name.startswith(prefix.upper()) or key in keys:
            continue
        group = key.partition(".")[0]
        advice = did_you_mean(key, keys.values())
        if parser.is_open(group):
            advice = f" Give class_path and init_args to {prefix.upper()}{group.upper()}."
        raise UsageError(f"{name} of the environment: there is no argument {key}.{advice}")


def parse_config(parse: Callable[[Any], Namespace], given: Any) -> Namespace:
    """Parse the command line or config.

    Raises:
        UsageError: an imported module ends the process.
    """
    try:
        return parse(given)
    except SystemExit as error:
        if not error.code:  # the parser's own, after it has shown something
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"{place.filename}, line {place.lineno} ends the process as the module is imported. "
            "Let it do so where it is run alone."
        ) from error


def check_classes(config: Any, key: str = "") -> None:
    """Check that each class path names a class and no function, so that none is called.

    Args:
        config: the parsed config, or a part of it.
        key: the key of that part.

    Raises:
        UsageError: a class path names a function.
    """
    if isinstance(config, list):
        for item in config:
            check_classes(item, key)
    if not isinstance(config, dict):
        return
    path = config.get("class_path")
    home, _, name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    if inspect.isroutine(getattr(sys.modules.get(home), name, None)):
        raise UsageError(
            f"{key}: {path} cannot be made: it is a function. Give a class, or call the function "
            "in a script of your own, with TrainerCLI."
        )
    for below, value in config.items():
        part = "" if below in ("init_args", "dict_kwargs") else f".{below}"
        check_classes(value, f"{key}{part}".removeprefix("."))


def check_values(config: Namespace) -> None:
    """Check that the Trainer's options are a mapping, and that the checkpoint exists.

    Raises:
        UsageError: one of the two does not hold.
    """
    options, path = config.get("trainer"), config.get("ckpt_path")
    if options is not None and not hasattr(options, "as_dict"):
        raise UsageError(f"trainer: {options!r} is no mapping of options. Write one.")
    is_there = path is None or path in _CKPT_WORDS or (bool(path) and Path(path).exists())
    if is_there or is_remote(path):
        return
    raise UsageError(
        f"ckpt_path: {path!r} is not there. Give a checkpoint, or one of {', '.join(_CKPT_WORDS)}."
    )
