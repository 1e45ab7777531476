"""The parsers of a `TrainerCLI`: jsonargparse's, with the arguments of a training.

jsonargparse leaves some errors unreported: `check_environment` and `parse_config` find them.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import shutil
import sys
import textwrap
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import jsonargparse
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainer_hooks import callbacks, loggers
from trainer_hooks._annotations import signature_of
from trainer_hooks._log import log
from trainer_hooks._system import without_file_scheme
from trainer_hooks._version import __version__
from trainer_hooks.callbacks.reporting.run_facts import HIDDEN
from trainer_hooks.checkpoint import lightning
from trainer_hooks.checkpoint.file import absence_of
from trainer_hooks.checkpoint.inspection import (
    CheckpointKind,
    UnusableFileError,
    as_mapping,
    inspect_file,
)
from trainer_hooks.checkpoint.paths import is_remote
from trainer_hooks.cli.run.arguments import import_class
from trainer_hooks.cli.run.optimizers import AUTOMATIC, ConfigurableClass, ReduceLROnPlateau
from trainer_hooks.errors import OptionError, PluginError, UsageError, did_you_mean, is_interruption
from trainer_hooks.hooks.discovery import installed_plugins, load_entry_point
from trainer_hooks.hooks.plugin import GROUPS, PluginFilter
from trainer_hooks.loggers.registry import installed_loggers, load_logger
from trainer_hooks.trainer.options.config import TrainerConfig, option_docs

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from jsonargparse import Namespace

    from trainer_hooks.trainer.trainer import Trainer


class TrainerParser(jsonargparse.ArgumentParser):
    """Parser of a training's arguments.

    The methods that a `TrainerCLI` lets you override are given it. It is a
    `jsonargparse.ArgumentParser`, with `link_arguments` and `set_defaults` too.

    Attributes:
        callback_keys: the groups of arguments whose object becomes a callback of the Trainer.
        optimizers: the optimizers that `add_optimizer_args` added, by key.
        lr_schedulers: the schedulers that `add_lr_scheduler_args` added, by key.
        method_arguments: the options of the command that go to the Trainer's method.
        command_arguments: the options that no other command has, and that go elsewhere.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)  # a misspelt option would pass for another
        # TrainerCLI explains the error, and decides whether the process exits
        kwargs.setdefault("exit_on_error", False)
        super().__init__(*args, **kwargs)
        self.callback_keys: list[str] = []
        self.optimizers: dict[str, ConfigurableClass] = {}
        self.lr_schedulers: dict[str, ConfigurableClass] = {}
        self.method_arguments: list[str] = []
        self.command_arguments: list[str] = []

    @property
    def variable_prefix(self) -> str:
        """The prefix of environment variables that hold arguments; empty if none do."""
        return f"{self.env_prefix}_".replace("-", "_") if self.default_env else ""

    @property
    def argument_keys(self) -> frozenset[str]:
        """The keys of all arguments."""
        return frozenset(action.dest for action in self._actions)

    def is_open(self, key: str) -> bool:
        """Return whether the class under a key is chosen by its class path."""
        # jsonargparse adds this option to arguments that take a class path, and to no others
        return f"{key}.help" in self.argument_keys

    def make_optional(self, key: str, name: str) -> None:
        """Make a required argument of the class under a key optional."""
        for action in self._actions:
            if action.dest == key and hasattr(action, "sub_add_kwargs"):
                # jsonargparse's own mark of arguments that a link gives a value
                action.sub_add_kwargs.setdefault("linked_targets", set()).add(name)

    def takes(self, key: str, name: str) -> bool:
        """Return whether a class, by short name or class path, is allowed under a key."""
        return self.class_of(key, name) is not None

    def class_of(self, key: str, name: str) -> type | None:
        """Return the class of a short name or class path under a key, or None."""
        bases = tuple(self._bases(key))
        if not name.rpartition(".")[0]:
            classes = (subclass for base in bases for subclass in _public_subclasses(base))
            return next((subclass for subclass in classes if subclass.__name__ == name), None)
        try:
            class_ = import_class(name)
        except (AttributeError, ImportError):
            return None
        return class_ if isinstance(class_, type) and issubclass(class_, bases) else None

    def class_names(self, key: str) -> list[str]:
        """Return the short names of the classes that are allowed under a key."""
        return sorted(
            {
                subclass.__name__
                for base in self._bases(key)
                for subclass in _public_subclasses(base)
            }
        )

    def complete_class_names(self) -> None:
        """Let the shell complete short class names."""
        for action in self._actions:
            if self.is_open(action.dest):
                names = self.class_names(action.dest)
                # bound as a default: the lambda is called after the loop, with the last `names`
                action.completer = lambda names=names, **_: names  # type: ignore[attr-defined]

    def _bases(self, key: str) -> list[type]:
        action = next((a for a in self._actions if a.dest == f"{key}.help"), None)
        return [] if action is None else _classes_in(getattr(action, "_typehint", None))

    def add_trainer_args(self, trainer_class: type[Trainer], key: str = "trainer") -> None:
        """Add the options of the Trainer, and the further arguments of a subclass."""
        # not instantiated: callbacks are still added to the options before the Trainer is made
        self.add_class_arguments(TrainerConfig, key, instantiate=False)
        self._entitle(key, "the Trainer")
        docs = {f"{key}.{name}": doc for name, _, doc in option_docs()}
        options = {name for name, _, _ in option_docs()}
        for name, type_, default in _subclass_arguments(trainer_class, options):
            self.add_argument(f"--{key}.{name}", type=type_, default=default)
        for action in self._actions:
            if action.dest in docs:
                # argparse formats the help with %, and fails on a lone one as it prints it
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
        if isinstance(kind, type) and issubclass(kind, callbacks.Callback):
            self.callback_keys.append(key)
        added: list[str]
        if subclass_mode and isinstance(kind, type):
            # fail_untyped: an argument without a type hint takes any value; else it would raise
            added = self.add_subclass_arguments(kind, key, fail_untyped=False, required=required)
            self._entitle(key, f"{key}: any {kind.__name__}")
        else:
            if not isinstance(kind, type):
                kind = jsonargparse.class_from_function(kind)  # type: ignore[attr-defined]
            added = self.add_class_arguments(kind, key, fail_untyped=False, sub_configs=True)
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
        self.optimizers[nested_key] = self._add_configurable(
            optimizer_class, nested_key, link_to, {"params"}
        )

    def add_lr_scheduler_args(
        self,
        lr_scheduler_class: type | tuple[type, ...] = (LRScheduler, ReduceLROnPlateau),
        nested_key: str = "lr_scheduler",
        link_to: str = AUTOMATIC,
    ) -> None:
        """Add the arguments of a learning rate scheduler, as `add_optimizer_args` does."""
        self.lr_schedulers[nested_key] = self._add_configurable(
            lr_scheduler_class, nested_key, link_to, {"optimizer"}
        )

    def _entitle(self, key: str, title: str) -> None:
        """Give a group a title that fits on a line."""
        group = (self.groups or {}).get(key)
        if group is not None:
            group.title = title

    def _add_configurable(
        self, kind: type | tuple[type, ...], key: str, link_to: str, skip: set[str]
    ) -> ConfigurableClass:
        if isinstance(kind, tuple):
            # not instantiated: there are no parameters before the module is made
            self.add_subclass_arguments(
                kind, key, fail_untyped=False, required=False, instantiate=False, skip=skip
            )
            self._entitle(key, f"{key}: any {kind[0].__name__}")
            return ConfigurableClass("", link_to)
        self.add_class_arguments(
            kind, key, fail_untyped=False, instantiate=False, sub_configs=True, skip=skip
        )
        return ConfigurableClass(f"{kind.__module__}.{kind.__qualname__}", link_to)


def _subclass_arguments(
    trainer_class: type, options: Container[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of the arguments that a Trainer's subclass adds."""
    parameters = [
        parameter
        for name, parameter in signature_of(trainer_class).parameters.items()
        if name not in options
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    # asked only where needed: a hint that is there for type checkers alone raises
    hints = get_type_hints(trainer_class.__init__) if parameters else {}  # type: ignore[misc]
    for parameter in parameters:
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
    subclasses: list[type] = kind.__subclasses__()
    for subclass in subclasses:
        yield from _public_subclasses(subclass)


def import_nameable_classes() -> None:
    """Import the callbacks and loggers of this package and of installed distributions.

    The parser finds a class by its short name only if it is imported. A broken plugin is skipped
    here: the Trainer reports its error.
    """
    for room in (callbacks, loggers):
        # these packages are lazy: the access imports the class
        for name in room.__all__:
            getattr(room, name)
    plugin_filter = PluginFilter.of(True)
    if plugin_filter.takes_none:
        return
    for entries in installed_loggers().values():
        for entry in entries:
            try:
                load_logger(entry)
            except PluginError as error:
                log.debug("%s", error, exc_info=error)
    for plugin in installed_plugins():
        is_usable = plugin.group in GROUPS and plugin.status == "found"
        if not is_usable or plugin_filter.objection(plugin):
            continue
        try:
            load_entry_point(plugin)
        except BaseException as error:
            if is_interruption(error):
                raise
            log.debug("plugin %s cannot be imported", plugin.label, exc_info=error)


def new_parser(
    parser_class: type[TrainerParser], parser_options: Mapping[str, Any]
) -> TrainerParser:
    """Return a parser that reads config files, with no other arguments yet.

    Args:
        parser_class: its class.
        parser_options: arguments of the class.
    """
    # an empty list beside jsonargparse's own: what can run commands may not stand in a config
    jsonargparse.set_parsing_settings(import_path_denylist=[])
    parser = parser_class(**{"dump_header": [f"trainer_hooks {__version__}"], **parser_options})
    parser.add_argument(
        "-c",
        "--config",
        action=jsonargparse.ActionConfigFile,  # type: ignore[attr-defined]
        help="A config file, in YAML or JSON.",
    )
    return parser


def complete(parser: TrainerParser, subcommand: str | None) -> None:
    """Print the completions for the shell and exit.

    Args:
        parser: the command's own parser. The command's name is taken off the line first, because
            the setup of jsonargparse for argcomplete does not reach parsers of subcommands.
        subcommand: the command on the line, None without one.
    """
    # with spaces around it: a path or a program may have the word in its name
    line, name = os.environ.get("COMP_LINE", ""), f" {subcommand} "
    if subcommand is not None and name in line:
        point = int(os.environ.get("COMP_POINT", len(line)))
        os.environ["COMP_LINE"] = line.replace(name, " ", 1)
        # the cursor moves by what was taken out, less the space that was put back
        os.environ["COMP_POINT"] = str(max(0, point - len(name) + 1))
    parser.complete_class_names()
    parser.parse_args([])  # it answers and exits where argcomplete is installed


def show_class_help(parser: TrainerParser, words: Sequence[str]) -> None:
    """Print the arguments of a class for `--help CLASS`, and exit.

    Raises:
        OptionError: no argument takes such a class.
    """
    at = list(words).index("--help") + 1 if "--help" in words else len(words)
    if at >= len(words) or words[at].startswith("-"):
        return
    # sorted, because a class may fit several: the same one is shown each time
    for key in sorted(key for key in parser.argument_keys if key.endswith(".help")):
        if parser.takes(key.removesuffix(".help"), words[at]):
            # jsonargparse's help of one class; it prints and exits, and leaves its title unwrapped
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
                parser.parse_args([f"--{key}", words[at]])
            print("\n".join(map(_wrap_title, shown.getvalue().splitlines())))
            raise SystemExit(0)
    raise OptionError(
        f"--help {words[at]}: no argument takes a class of that name. Give its short name, or "
        "its class path."
    )


def _wrap_title(line: str) -> str:
    """Wrap a title, which the parser prints on one line, to the width of the terminal."""
    is_title = line[:1].isalpha() and not line.startswith("usage:")
    return textwrap.fill(line, shutil.get_terminal_size().columns) if is_title else line


_SAVED = {"model": "hyper_parameters", "data": lightning.DATA_HPARAMS}
_CLASS_PATH = "_class_path"
"""Where Lightning keeps the class of a module among its hyperparameters."""


def set_defaults_from_checkpoint(
    parser: TrainerParser, path: str, explicit_value: Callable[[str], str]
) -> None:
    """Use the arguments that a checkpoint was trained with as defaults of module and data module.

    The file is opened without running code and does not choose classes: the config does. Arguments
    come from the config in the file and from the hyperparameters; those that are not plain values,
    or that the class does not take, are left out.

    Args:
        parser: the parser whose defaults are set.
        path: the checkpoint; a missing or unusable file sets no defaults.
        explicit_value: returns the class name that was chosen for a group, empty if none was.
    """
    if not path or path in (*_CKPT_WORDS, "null"):
        return
    try:
        saved = inspect_file(path).data
    except (OSError, UnusableFileError):
        return  # the Trainer tells what is wrong with it
    for group, key in _SAVED.items():
        config = as_mapping(as_mapping(saved.get("config")).get(group))
        # the config wins: a module may have changed its hyperparameters since
        values = {**as_mapping(saved.get(key)), **as_mapping(config.get("init_args", config))}
        class_path = values.pop(_CLASS_PATH, None) or config.get("class_path")
        values = {name: value for name, value in values.items() if _is_plain(value)}
        if parser.is_open(group):
            defaults = _defaults_of_class(
                parser.class_of(group, explicit_value(group)), class_path, values
            )
            defaults = {group: defaults} if defaults else {}
        else:
            defaults = {f"{group}.{name}": value for name, value in values.items()}
            defaults = {k: v for k, v in defaults.items() if k in parser.argument_keys}
        if defaults:
            parser.set_defaults(defaults)
            log.info("arguments of %s that are not given come from %s", group, path)


def _defaults_of_class(
    class_: type | None, saved: object, values: dict[str, Any]
) -> dict[str, Any]:
    """Return class path and arguments for the chosen class; empty if another class was saved."""
    # by its name alone: the module of a class in a script is `__main__`
    if class_ is None or (saved and str(saved).rpartition(".")[2] != class_.__name__):
        return {}
    parameters = signature_of(class_).parameters
    init_args = {name: value for name, value in values.items() if name in parameters}
    return {"class_path": f"{class_.__module__}.{class_.__qualname__}", "init_args": init_args}


def _is_plain(value: Any) -> bool:
    """Return whether a value can stand in a config and holds no hidden secret."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return HIDDEN not in value
    return value is None or isinstance(value, bool | int | float)


_CKPT_WORDS = ("auto", "best", "last")
"""What `ckpt_path` may be beside the path of a checkpoint."""


def check_environment(parser: TrainerParser) -> None:
    """Check that each variable of a command holds an argument; the parser ignores others.

    Args:
        parser: the parser of the command; without a command nothing is checked.

    Raises:
        UsageError: a variable holds none.
    """
    prefix = parser.variable_prefix.upper()
    keys = {key.lower(): key for key in parser.argument_keys if not key.endswith("help")}
    for name in sorted(os.environ):
        key = name.removeprefix(prefix).replace("__", ".").lower()
        # the prefix of a command ends in two; without a command it begins variables of
        # the library as well, as TRAINER_HOOKS_BLOCK_PLUGINS
        if not prefix.endswith("__") or not name.startswith(prefix) or key in keys:
            continue
        group = key.partition(".")[0]
        advice = did_you_mean(key, keys.values())
        if parser.is_open(group):
            advice = f" Give class_path and init_args to {prefix}{group.upper()}."
        raise UsageError(f"{name} of the environment: there is no argument {key}.{advice}")


def parse_config(parse: Callable[[Any], Namespace], args: Any, subcommand: str | None) -> Namespace:
    """Parse the command line or config object, and check for mistakes that the parser ignores.

    Args:
        parse: the method of the parser.
        args: the command line or config object.
        subcommand: the command; None without one.

    Raises:
        UsageError: an imported module ends the process, a value is nested too deeply, the Trainer's
            options are no mapping, the checkpoint cannot be opened, or a class path names a
            function.
    """
    try:
        parsed = parse(args)
    except RecursionError:
        # `from None`: a thousand frames of the parser tell nothing
        raise UsageError(
            "a value on the command line or in the environment is nested too deeply. Give a "
            "simpler one."
        ) from None
    except SystemExit as error:
        if not error.code:  # the parser's own, after it has shown something
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"{place.filename}, line {place.lineno} ends the process as the module is imported. "
            "Let it do so where it is run alone."
        ) from error
    config = parsed if subcommand is None else parsed[subcommand]
    if config.get("ckpt_path") == "None":
        # of the word `null`: the parser reads it as None, and then makes the text of that, since
        # a text is the first type that the argument takes
        config.ckpt_path = None
    options, path = config.get("trainer"), config.get("ckpt_path")
    if options is not None and not hasattr(options, "as_dict"):
        raise UsageError(f"trainer: {options!r} is no mapping of options. Write one.")
    # the path of an empty text would be the working directory, which exists
    if path is not None and path not in _CKPT_WORDS and not is_remote(path):
        _check_checkpoint(str(path))
    _check_classes(config.as_dict(), "")
    return parsed


def _check_checkpoint(path: str) -> None:
    """Check that there is a checkpoint to open, before anything is made; a run reads it later."""
    file = without_file_scheme(path)
    # the path of an empty text would be the working directory, which exists
    if absence := absence_of(Path(file)) if path else "is not there":
        raise UsageError(
            f"ckpt_path: {path!r} {absence}.{did_you_mean(path, _CKPT_WORDS)} Give a checkpoint, "
            f"or one of {', '.join(_CKPT_WORDS)}."
        )
    try:
        contents = inspect_file(file)
    except UnusableFileError as error:
        raise UsageError(f"ckpt_path: {error}. Give another checkpoint.") from error
    if contents.kind is CheckpointKind.WEIGHTS:
        raise UsageError(
            f"ckpt_path: {path!r} holds bare weights, and is no checkpoint. Load them in the "
            "module with load_state_dict, or give a checkpoint."
        )


def _check_classes(config: Any, key: str) -> None:
    """Check that each class path below a key names a class and no function, so none is called."""
    if isinstance(config, list):
        for item in config:
            _check_classes(item, key)
    if not isinstance(config, dict):
        return
    path = config.get("class_path")
    module, _, name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    # the parser has imported the module: looked up, so that nothing is imported here
    if inspect.isroutine(getattr(sys.modules.get(module), name, None)):
        raise UsageError(
            f"{key}: {path} cannot be made: it is a function. Give a class, or call the function "
            "in a script of your own, with TrainerCLI."
        )
    for name, value in config.items():
        part = "" if name in ("init_args", "dict_kwargs") else f".{name}"
        _check_classes(value, f"{key}{part}".removeprefix("."))
