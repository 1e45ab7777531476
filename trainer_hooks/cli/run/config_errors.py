"""Errors in a config, explained in one line: the place, the mistake and the remedy."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, get_type_hints

from jsonargparse import ArgumentError

from trainer_hooks._annotations import signature_of
from trainer_hooks.cli.commands import nearest_file
from trainer_hooks.cli.run.arguments import SUBCOMMANDS, import_class
from trainer_hooks.errors import (
    CheckpointError,
    MetricError,
    TrainerHooksError,
    UsageError,
    did_you_mean,
    is_interruption,
    suggest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.cli.run.config_origins import ConfigOrigins
    from trainer_hooks.cli.run.parser import TrainerParser

_MOST = 12
"""Names that a line lists."""


def list_known(names: Iterable[str]) -> str:
    """Return a sentence with the first names and how many more there are."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:_MOST])
    rest = f" and {len(ordered) - _MOST} more: --help lists them" if len(ordered) > _MOST else ""
    return f"Known: {shown}{rest}." if ordered else ""


def suggest_classes(parser: TrainerParser | None, key: str, name: str) -> str:
    """Return which classes are allowed under a key, and which one a name may mean."""
    known = [] if parser is None else parser.class_names(key)
    if len(known) < 2:  # the base alone
        return "Give the class path of one."
    return f"{did_you_mean(name, known) if name else ''} {list_known(known)}"


def class_arguments(class_path: str) -> list[str]:
    """Return the names of a class's arguments."""
    names: list[str] = []
    for class_ in import_class(class_path).__mro__:
        try:
            parameters = signature_of(class_).parameters.values()
        except ValueError:
            break  # a class of Python's own, such as dict, has no signature
        names += [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        if all(parameter.kind != parameter.VAR_KEYWORD for parameter in parameters):
            break  # the class passes none on to its base
    return list(dict.fromkeys(names))


def dataclass_arguments(class_path: str, name: str) -> list[str]:
    """Return the fields of an argument that is a dataclass."""
    try:
        # it resolves the hints of all arguments: one that is there for type checkers alone raises
        hints = get_type_hints(import_class(class_path).__init__)
        return list(signature_of(hints[name]).parameters)
    except (KeyError, NameError, TypeError, ValueError):
        return []


def unfitting_class_path(value: str, base: str) -> str:
    """Return the class path in a value that is no subclass of `base`."""
    paths = re.findall(r"class_path'?[:=] ?'([^']+)'", value)
    for path in paths:
        home, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(home), name, None) if home else None
        # by its name: the message tells the base without its module
        if base not in {one.__name__ for one in getattr(kind, "__mro__", ())}:
            return str(path)
    return value


def find_import_error(value: str) -> tuple[str, str] | None:
    """Return the class path in a value whose module raises on import, and its error.

    The parser does not report that error: it says that the value has none of the expected types.
    """
    # the look-behind passes over paths of files, which have dots as well
    for path in re.findall(r"(?<![\w./])[.A-Za-z_][\w.]*\.\w+", value):
        try:
            importlib.import_module(path.rpartition(".")[0])
        # not Exception: a script without a main guard may end in SystemExit as it is imported
        except BaseException as error:
            if is_interruption(error):
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f", in {place.filename}, line {place.lineno}"
            # a SyntaxError names its line itself; an error within importlib means that
            # there is no such module, and has no place in anybody's code
            is_told = isinstance(error, SyntaxError) or "importlib" in place.filename
            return path, f"{type(error).__name__}: {error}{'' if is_told else where}"
    return None


# parts of the messages of jsonargparse, of trainer_hooks and of Python's import
_KEY = re.compile(r'Parser key "([^"]+)":')
_UNKNOWN = re.compile(r"Option '([^']+)' is not accepted(, nor .*)?")
_IN_GROUP = re.compile(r"(?:Group|Subcommand) '([^']+)' does not accept option '([^']+)'")
_UNRECOGNIZED = re.compile(r"Unrecognized arguments: (.*)", re.IGNORECASE)
_REQUIRED = re.compile(r"the following arguments are required: (.*)")
_CLASS = re.compile(r"Problem with given class_path '([^']+)'")
_NOT_TAKEN = re.compile(r"Problem with given class_path '([^']+)':\n\s+Option '([^']+)' is not acc")
_FIRST_SUBTYPE = re.compile(r"Subtypes: \[(?:<class ')?([\w.]+)")
_SUBTYPES = re.compile(r"Subtypes: \[(.*)\]")
_NOT_LOADED_AS_CONFIG = re.compile(r'Parser key "([^"]+)":\nUnable to load config \'([^\n]*)\'\n')
_PLAIN = re.compile(r"<class '(?:int|float|str|bool)'>")
_DISABLED = re.compile(r"Subclasses are disabled for TrainerConfig")
_TRAINER_OR_CKPT_PATH = re.compile(r"(trainer|ckpt_path): ")
_CANNOT_BE_MADE = re.compile(r"([\w.]+): ([\w.]+) (?:cannot be made: |needs )")
_NO_CLASS = re.compile(r"Expected a dot import path string: (\S+)")
_NO_SUBCLASS = re.compile(
    r"(?:Import path|class_path) .*?does not correspond to a subclass of (\w+)"
)
_IMPORTED = re.compile(r"Import path (\S+) does not correspond to a subclass")
_LITERAL = re.compile(r"Expected a (?:typing\.)?Literal\[([^]]+)\]")
_PATH = re.compile(r"File does not exist: '(.+)'")
_NO_MODULE = re.compile(r"No module named '([^']+)'|module '(\S+)' has no attribute '(\w+)'")
_VALUE = re.compile(r"Given value: (.*)|Got value: (.*)")
_OPTION_BELOW = re.compile(r"NestedArg\(key='([^']+)'")
_TYPES = re.compile(r"Expected a (<class '[^']+'>)|Expected (?:a|an) (?!path )([^.:\n]+)")
_NAMES_TRAINER_OPTION = re.compile(r"Trainer\((\w+)=|(seed_everything)\(|Linked \"([^\"]+)\"")
_DENIED = re.compile(r"Importing '([^']+)' is not allowed")
_LINK = re.compile(r"links: '?([\w.]*)")
_NO_UNION_MEMBER_FITS = re.compile(
    r"^Does not validate against any of the Union subtypes\nSubtypes: \[([^]]*)"
)
_BULLET = re.compile(r"^  - (.+)$", re.MULTILINE)
_UNIONS = {"Logger": "trainer.logger", "DataModule": "data", "Module": "model"}
_NOISE = ("Expected a", "Not a valid subclass")


@dataclass(frozen=True, slots=True)
class _ConfigError:
    """An error in a config, extracted from the parser's message.

    Attributes:
        key: the dotted key of the argument.
        mistake: the mistake, in words.
        advice: what may have been meant, and what is allowed.
        text: a value or a name by which the line in the file is found.
    """

    key: str
    mistake: str
    advice: str = ""
    text: str = ""


def is_config_error(error: Exception) -> bool:
    """Return whether the config is at fault: True prints one line, False lets the error through."""
    if isinstance(error, ArgumentError | TrainerHooksError):
        return True
    if isinstance(error.__cause__, TrainerHooksError):  # of a link, which the parser calls
        return True
    # a constructor that was called while the parser tried a union's members: its ValueError blames
    # the config's value, any other error its code, and keeps the traceback
    is_made = _NO_UNION_MEMBER_FITS.search(str(error)) is not None
    return is_made and isinstance(_root_of(error), ValueError | TrainerHooksError)


def constructor_error(error: Exception, origins: ConfigOrigins) -> Exception:
    """Return the error that a constructor raised, with a note on the place in the config."""
    match = _NO_UNION_MEMBER_FITS.search(str(error))
    root = _root_of(error)
    if match is None or not isinstance(root, Exception):
        return error
    key = _key_of_union(match[1])
    root.add_note(f"raised in making {key}, {origins.origin_of(key)}".rstrip(", "))
    return root


def add_monitor_note(error: MetricError, origins: ConfigOrigins) -> None:
    """Add a note on where the config names the metric that was never logged."""
    key, match = "trainer.callbacks.monitor", re.match(r"monitor '([^']+)' of ", str(error))
    if match and (place := origins.origin_of(key, match[1])):
        error.add_note(f"{place}: {key}")


def refuse_checkpoint(error: CheckpointError) -> NoReturn:
    """Raise the error of the checkpoint that a run was to start from as one of `ckpt_path`."""
    raise UsageError(f"ckpt_path: {error}") from error


def explain_error(error: Exception, origins: ConfigOrigins, parser: TrainerParser | None) -> str:
    """Return the error in one line, with file and line if they are known.

    Args:
        error: the error of the parser or the Trainer.
        origins: the files and the arguments in which the config was written.
        parser: the parser of the arguments.
    """
    cause = error.__cause__ if isinstance(error.__cause__, TrainerHooksError) else error
    message = str(cause if str(cause).startswith("links: ") else error)
    # first, because it knows the line, and no message of the parser does
    if line := origins.structure_error():
        return line
    fault = _parse_message(message, parser)
    if fault is None:
        return " ".join(message.split())
    texts = (fault.text, fault.text.rpartition(".")[2], "")  # a class path, or a short name
    place = next(filter(None, (origins.origin_of(fault.key, text) for text in texts)), "")
    line = f"{place + ': ' if place else ''}{fault.key}: {fault.mistake}."
    return " ".join(f"{line} {fault.advice}".split())


def _parse_message(message: str, parser: TrainerParser | None) -> _ConfigError | None:
    """Return key, mistake and advice from a parser's message; None if no pattern fits."""
    keys = frozenset() if parser is None else parser.argument_keys
    # below a key it speaks of a dataclass among a class's arguments: `_of_key` explains that
    if (match := _IN_GROUP.search(message)) and not _KEY.search(message):
        return _unknown_below(
            match[2] if match[1] in SUBCOMMANDS else f"{match[1]}.{match[2]}", keys
        )
    if (match := _UNRECOGNIZED.search(message)) and not _KEY.search(message):
        return _unknown_word(match[1].split()[0], keys)
    # at the beginning alone: further on it speaks of a class's argument (`_of_class`)
    if match := _REQUIRED.match(message):
        # the parser of the whole line puts the command before the key: `fit.model`
        first, _, rest = match[1].split(", ")[0].partition(".")
        missing = rest if first in SUBCOMMANDS else match[1].split(", ")[0]
        return _ConfigError(
            missing, "is required and was not given", f"Give --{missing}, or name it in a config."
        )
    if (match := _UNKNOWN.search(message)) and not _KEY.search(message):
        fault = _unknown_below(match[1], keys)
        return replace(fault, mistake=f"{fault.mistake}{match[2] or ''}")
    if match := _KEY.search(message):
        return _of_key(message, match[1], parser)
    if _DISABLED.match(message):
        return _ConfigError("trainer", "it holds options, and no class_path")
    if match := _TRAINER_OR_CKPT_PATH.match(message):
        return _ConfigError(match[1], message.partition(": ")[2].rstrip("."))
    if match := _CANNOT_BE_MADE.match(message):
        mistake = message.partition(": ")[2].rstrip(".")
        return _ConfigError(match[1], mistake, text=match[2])
    if match := _NAMES_TRAINER_OPTION.search(message):
        key = match[2] or match[3] or f"trainer.{match[1]}"
        return _ConfigError(key, message.rstrip("."))
    if match := _LINK.match(message):
        return _ConfigError("links", message.partition(": ")[2].rstrip("."), text=match[1])
    if match := _NO_UNION_MEMBER_FITS.search(message):
        bullets = [line for line in _BULLET.findall(message) if not line.startswith(_NOISE)]
        class_names = re.findall(r"class_path='(?:\w+\.)*(\w+)'", message)
        named = [name for name in class_names if bullets and name in bullets[0]]
        return _ConfigError(
            _key_of_union(match[1]),
            (bullets or ["it cannot be made"])[0].rstrip("."),
            text=(named or [""])[0],
        )
    return None


def _key_of_union(types: str) -> str:
    return next((k for name, k in _UNIONS.items() if f".{name}'" in types), "trainer.callbacks")


def _root_of(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _unknown_word(word: str, keys: frozenset[str]) -> _ConfigError:
    """Return the error of a word of the command line that no option takes."""
    # the command `sweep` takes its config without an option
    if word.endswith((".yaml", ".yml")) and not word.startswith("-"):
        return _ConfigError(word, "it stands after no option", f"Write --config {word}.", word)
    return _unknown_below(word.partition("=")[0].removeprefix("--"), keys)


def _unknown_below(key: str, keys: frozenset[str]) -> _ConfigError:
    """Return the error of an unknown key, whose group may be unknown as well."""
    first, dot, name = key.partition(".")
    roots = {known.partition(".")[0] for known in keys}
    return (
        _unknown(f"{first}.", name, keys) if dot and first in roots else _unknown("", first, keys)
    )


def _unknown(prefix: str, name: str, keys: Iterable[str]) -> _ConfigError:
    """Return the error of an unknown key."""
    below = {key.removeprefix(prefix).partition(".")[0] for key in keys if key.startswith(prefix)}
    # options that jsonargparse adds to every parser: nobody meant one of them
    below -= {"help", "print_config", "print_shtab"}
    hint = suggest("options", name, below) if prefix == "trainer." else did_you_mean(name, below)
    if not prefix and not hint:
        hint = _place_below(name, keys)
    return _ConfigError(
        f"{prefix}{name}",
        f"there is no {name!r}" + (f" in {prefix.rstrip('.')}" if prefix else ""),
        f"{hint} {list_known(below)}",
    )


def _place_below(name: str, keys: Iterable[str]) -> str:
    """Return a sentence about the group below which a key that stands at the top may belong."""
    places = sorted(key for key in keys if key.rpartition(".")[2] == name)
    if places:
        return f" Did you mean {' or '.join(map(repr, places))}?"
    # the arguments of a class that its class path chooses are no keys of the parser
    return f" An argument of the module is 'model.{name}'."


def _of_key(message: str, key: str, parser: TrainerParser | None) -> _ConfigError:
    """Return the error of a key's value, or of a key below it."""
    if match := _NOT_LOADED_AS_CONFIG.match(message):
        mistake = f"{match[2]!r} is no mapping of options, and no file that holds one"
        return _ConfigError(match[1], mistake, "Write one.", match[2])
    class_paths = _CLASS.findall(message)
    # messages are nested, one for each level of the config, the outermost first
    full_key = ".".join(_KEY.findall(message))
    if class_paths and (match := _IN_GROUP.search(message)):
        names = dataclass_arguments(class_paths[-1], match[1])
        return _ConfigError(
            f"{full_key}.{match[1]}.{match[2]}",
            f"there is no {match[2]!r} in {match[1]}",
            f"{did_you_mean(match[2], names)} {list_known(names)}",
        )
    if pair := _not_taken(message):
        names, name = class_arguments(pair[0]), pair[1].rpartition(".")[2]
        return _ConfigError(
            f"{full_key}.{name}",
            f"{pair[0]} takes no {name!r}",
            f"{did_you_mean(name, names)} {list_known(names)}",
        )
    if match := _DENIED.search(message):
        return _ConfigError(full_key, f"{match[1]} may not stand in a config", "", match[1])
    if match := _NO_MODULE.search(message):
        mistake = f"no module {match[1]!r}" if match[1] else f"no {match[3]!r} in {match[2]}"
        path = class_paths[-1] if class_paths else ""
        # the module was imported before the name was looked for
        known = [] if match[1] else list(vars(sys.modules.get(match[2], sys)))
        return _ConfigError(
            full_key,
            f"{path} cannot be imported: {mistake}",
            did_you_mean(match[3] or "", known).strip()
            or "Install its package, or run where it can be imported.",
            path,
        )
    if fault := _of_class(message, key, full_key, class_paths, parser):
        return fault
    innermost = message[message.rindex("Parser key") :]
    value, types = _value(innermost), _types(innermost)
    if match := _OPTION_BELOW.match(value):
        return _option_below(full_key, match[1], types)
    bases = " ".join(_SUBTYPES.findall(innermost))
    if not _PLAIN.search(bases) and (broken := find_import_error(value)):
        return _ConfigError(
            full_key, f"{broken[0]} cannot be imported: {broken[1]}", text=broken[0]
        )
    if not types:
        mistake = " ".join(innermost.partition(":")[2].split()).rstrip(".")
        path = _PATH.search(mistake)
        if path is None:
            return _ConfigError(full_key, mistake)
        file = Path(path[1])
        return _ConfigError(full_key, mistake, nearest_file(file).strip(), file.name)
    return _ConfigError(full_key, f"{value!r} must be {types}", text=value)


def _option_below(key: str, name: str, types: str) -> _ConfigError:
    """Return the error of an option below the key of an object, which does not take it."""
    if "Iterable[" not in types and "list[" not in types:
        return _ConfigError(
            f"{key}.{name}",
            "there is no such argument",
            "Choose the class first, and give one of its arguments: --help CLASS lists them.",
        )
    last = name.rpartition(".")[2]
    return _ConfigError(
        f"{key}.{name}",
        f"an option reaches the last object of {key} alone, by the name of its argument",
        f"Write --{key}.{last} after that object, or change the config file.",
    )


def _of_class(
    message: str, key: str, full_key: str, class_paths: list[str], parser: TrainerParser | None
) -> _ConfigError | None:
    """Return the error of a class that does not fit, is unknown, or lacks an argument."""
    # first: of several base classes the others say that the class is not theirs
    if class_paths and (match := _REQUIRED.search(message)):
        return _ConfigError(
            full_key,
            f"{class_paths[-1]} needs {match[1].splitlines()[0]}",
            "Give it in init_args.",
            class_paths[-1],
        )
    if match := _NO_SUBCLASS.search(message):
        path = _IMPORTED.search(message)
        value = path[1] if path else unfitting_class_path(_value(message), match[1])
        advice = "" if full_key != key else suggest_classes(parser, key, "")
        return _ConfigError(full_key, f"{value} is no {match[1]}", advice, value)
    types = _SUBTYPES.findall(message)
    if (match := _NO_CLASS.search(message)) and not (types and _PLAIN.search(types[-1])):
        return _ConfigError(
            full_key,
            f"there is no class {match[1]!r}",
            suggest_classes(parser, key, match[1]),
            match[1],
        )
    return None


def _not_taken(message: str) -> tuple[str, str] | None:
    """Return the chosen class and the argument that it does not take."""
    match = _NOT_TAKEN.search(message)
    if match is None:
        return None
    class_ = import_class(match[1])  # its path here may be another than the one in the subtypes
    # where no class was chosen, the parser tries the allowed ones, from the first
    is_tried = f"{class_.__module__}.{class_.__qualname__}" in _FIRST_SUBTYPE.findall(message)
    return None if is_tried else (match[1], match[2])


def _value(message: str) -> str:
    match = _VALUE.search(message)
    return "" if match is None else (match[1] or match[2] or "").strip()


def _types(message: str) -> str:
    """Return the allowed types of a value, in words."""
    if match := _LITERAL.search(message):
        return f"one of {match[1]}"
    match = _SUBTYPES.search(message) or _TYPES.search(message)
    if match is None:
        return ""
    text = next(group for group in match.groups() if group)
    names = re.sub(r"<class '([^']+)'>", r"\1", text)
    # null, as YAML writes None
    names = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", names).replace("NoneType", "null")
    return " or ".join(names.split(", "))
