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
    names = [] if parser is None else parser.class_names(key)
    if len(names) < 2:  # the base alone
        return "Give the class path of one."
    return f"{did_you_mean(name, names) if name else ''} {list_known(names)}"


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


# parts of the messages of jsonargparse, whose errors have no fields
_KEY = re.compile(r'Parser key "([^"]+)":')
_CLASS = re.compile(r"Problem with given class_path '([^']+)'")
# Option 'widht' is not accepted | Group 'head' does not accept option 'widht' |
# unrecognized arguments: --trainer.max_epoch=3
_UNKNOWN = re.compile(
    r"(?:(?:Group|Subcommand) '([^']+)' does not accept option |Option |unrecognized arguments: )"
    r"'?([^' ]+)",
    re.IGNORECASE,
)
_REQUIRED = re.compile(r"the following arguments are required: (.*)")
# Expected a dot import path string: SGDD | Import path configured.Stranger does not correspond to a
# subclass of Callback
_CLASS_NAMED = re.compile(r"(?:path string:|Import path) '?([\w.]+)")
_NO_ATTRIBUTE = re.compile(r"module '(\S+)' has no attribute '(\w+)'")
_SUBTYPES = re.compile(r"Subtypes: \[(.*)\]")
_VALUE = re.compile(r"(?:Given|Got) value: (.*)")
_PATH = re.compile(r"File does not exist: '(.+)'")
_NO_UNION_MEMBER_FITS = re.compile(
    r"^Does not validate against any of the Union subtypes\nSubtypes: \[([^]]*)"
)
_FRAME = (
    "Parser key", "Problem with given", "Does not validate against", "Subtypes:", "Errors:",
    "Given value", "Subclass types expect", "a class path (str)", "a dict with", "a dict without",
    "Expected a <class 'NoneType'>", "Expected a path but",
)  # fmt: skip
"""Beginnings of lines that hold a reason together, or say that a value is not None or no file."""
# and of errors of this package
_NAMES_OPTION = re.compile(r"Trainer\((\w+)=|(seed_everything)\(|Linked \"([^\"]+)\"")
_BEGINS_WITH_KEY = re.compile(r"([\w.]+): '?([\w.]*)")
_UNIONS = {"Logger": "trainer.logger", "DataModule": "data", "Module": "model"}


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
    keys = frozenset() if parser is None else parser.argument_keys
    fault = (
        _of_value(message, parser)
        if _KEY.search(message)
        else _of_line(message, keys) or _of_option(message, keys) or _of_constructor(message)
    )
    if fault is None:
        return " ".join(message.split())
    texts = (fault.text, fault.text.rpartition(".")[2], "")  # a class path, or a short name
    place = next(filter(None, (origins.origin_of(fault.key, text) for text in texts)), "")
    line = f"{place + ': ' if place else ''}{fault.key}: {fault.mistake.rstrip('.')}."
    return " ".join(f"{line} {fault.advice}".split())


def _of_line(message: str, keys: frozenset[str]) -> _ConfigError | None:
    """Return the error of a key that no argument has, or of an argument that is missing."""
    if match := _REQUIRED.match(message):
        # the parser of the whole line puts the command before the key: `fit.model`
        first, _, rest = match[1].split(", ")[0].partition(".")
        missing = rest if first in SUBCOMMANDS else match[1].split(", ")[0]
        return _ConfigError(
            missing, "is required and was not given", f"Give --{missing}, or name it in a config."
        )
    match = _UNKNOWN.match(message)
    if match is None:
        return None
    word = match[2]
    # the command `sweep` takes its config without an option
    if word.endswith((".yaml", ".yml")) and not word.startswith("-"):
        return _ConfigError(word, "it stands after no option", f"Write --config {word}.", word)
    key = word.partition("=")[0].removeprefix("--")
    fault = _unknown_key(key if match[1] in (None, *SUBCOMMANDS) else f"{match[1]}.{key}", keys)
    return replace(fault, mistake=f"{fault.mistake}{message.partition(' is not accepted')[2]}")


def _unknown_key(key: str, keys: frozenset[str]) -> _ConfigError:
    """Return the error of an unknown key, whose group may be unknown as well."""
    group, dot, name = key.partition(".")
    if not dot or not any(candidate.startswith(f"{group}.") for candidate in keys):
        group, dot, name = "", "", group
    below = {
        candidate.removeprefix(f"{group}{dot}").partition(".")[0]
        for candidate in keys
        if candidate.startswith(f"{group}{dot}")
    }
    # options that jsonargparse adds to every parser: nobody meant one of them
    below -= {"help", "print_config", "print_shtab"}
    hint = suggest("options", name, below) if group == "trainer" else did_you_mean(name, below)
    if not group and not hint:
        hint = _place_below(name, keys)
    return _ConfigError(
        f"{group}{dot}{name}",
        f"there is no {name!r}" + (f" in {group}" if group else ""),
        f"{hint} {list_known(below)}",
    )


def _place_below(name: str, keys: Iterable[str]) -> str:
    """Return a sentence about the group below which a key that stands at the top may belong."""
    places = sorted(key for key in keys if key.rpartition(".")[2] == name)
    if places:
        return f" Did you mean {' or '.join(map(repr, places))}?"
    # the arguments of a class that its class path chooses are no keys of the parser
    return f" An argument of the module is 'model.{name}'."


def _of_option(message: str, keys: frozenset[str]) -> _ConfigError | None:
    """Return the error of an option of the Trainer, or of a key that the message begins with."""
    if message.startswith("Subclasses are disabled for TrainerConfig"):
        return _ConfigError("trainer", "it holds options, and no class_path")
    if match := _NAMES_OPTION.search(message):
        return _ConfigError(match[2] or match[3] or f"trainer.{match[1]}", message)
    match = _BEGINS_WITH_KEY.match(message)
    if match is None or match[1].partition(".")[0] not in {key.partition(".")[0] for key in keys}:
        return None
    return _ConfigError(match[1], message.partition(": ")[2], text=match[2])


def _of_constructor(message: str) -> _ConfigError | None:
    """Return the error of a class that refused its arguments as one of a union's members."""
    match = _NO_UNION_MEMBER_FITS.search(message)
    if match is None:
        return None
    reason = _take_apart(message).reason
    class_names = re.findall(r"class_path='(?:\w+\.)*(\w+)'", message)
    named = next((name for name in class_names if name in reason), "")
    return _ConfigError(_key_of_union(match[1]), reason, text=named)


def _key_of_union(types: str) -> str:
    return next((k for name, k in _UNIONS.items() if f".{name}'" in types), "trainer.callbacks")


def _root_of(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@dataclass(frozen=True, slots=True)
class _ParserMessage:
    """A message of the parser, which is indented: one level for each object in the config.

    Attributes:
        key: the dotted key of the value that is at fault.
        class_path: the class of the innermost object; empty if it has none.
        reason: the first line that says why the value does not fit.
        types: the types of which the value must be one, in words; empty if there is one type alone.
        value: the value, as text.
    """

    key: str
    class_path: str
    reason: str
    types: str
    value: str


def _take_apart(message: str) -> _ParserMessage:
    # a short message has its reason behind the key
    lines = re.sub(r'(Parser key "[^"]+":) ', r"\1\n  ", message).splitlines()
    texts = [line.lstrip(" -") for line in lines]
    reasons = [at for at, text in enumerate(texts) if text and not text.startswith(_FRAME)]
    # of several types the others say only that the value is none of theirs
    at = min(reasons, key=lambda at: texts[at].startswith("Not a valid subclass"), default=0)
    keys: list[str] = []
    class_path = types = ""
    depth = len(lines[at]) - len(texts[at]) + 1
    # outwards, over the lines that the reason stands below
    for line, text in zip(lines[at::-1], texts[at::-1], strict=True):
        if len(line) - len(text) >= depth:
            continue
        if match := _KEY.match(text):
            keys.insert(0, match[1])
        elif match := _CLASS.match(text):
            class_path = class_path or match[1]
        elif not keys and (match := _SUBTYPES.match(text)):
            types = match[1]
        else:
            continue
        depth = len(line) - len(text)
    value = _VALUE.search("\n".join(lines[at:]))
    return _ParserMessage(
        ".".join(keys), class_path, texts[at], _in_words(types), value[1] if value else ""
    )


def _in_words(types: str) -> str:
    names = re.sub(r"<class '([^']+)'>", r"\1", types)
    # null, as YAML writes None
    names = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", names).replace("NoneType", "null")
    choices = re.fullmatch(r"Literal\[(.*)\]", names)
    if choices:
        return f"one of {choices[1]}"
    return names if "Literal" in names else " or ".join(names.split(", "))


def _of_value(message: str, parser: TrainerParser | None) -> _ConfigError:
    """Return the error of a value that does not fit its key."""
    part = _take_apart(message)
    key, reason = part.key, part.reason
    if match := _UNKNOWN.match(reason):
        name = match[2].partition("=")[0].removeprefix("--")
        group, owner = (f"{match[1]}.", match[1]) if match[1] else ("", part.class_path)
        names = (
            dataclass_arguments(part.class_path, match[1])
            if match[1]
            else class_arguments(part.class_path)
        )
        return _ConfigError(
            f"{key}.{group}{name}",
            f"{owner} takes no {name!r}",
            f"{did_you_mean(name.rpartition('.')[2], names)} {list_known(names)}",
        )
    if match := _REQUIRED.match(reason):
        mistake = f"{part.class_path} needs {match[1]}"
        return _ConfigError(key, mistake, "Give it in init_args.", part.class_path)
    if match := _NO_ATTRIBUTE.match(reason):
        # the module was imported before the name was looked for
        hint = did_you_mean(match[2], vars(sys.modules.get(match[1], sys)))
        mistake = f"{part.class_path} cannot be imported: {reason}"
        return _ConfigError(key, mistake, hint, part.class_path)
    if match := _CLASS_NAMED.search(reason):
        is_short = reason.startswith("Expected a dot")  # most often a short name is misspelt
        mistake = f"there is no class {match[1]!r}" if is_short else reason
        return _ConfigError(key, mistake, suggest_classes(parser, key, match[1]), match[1])
    if match := _PATH.search(reason):
        file = Path(match[1])
        return _ConfigError(key, reason, nearest_file(file), file.name)
    if reason.startswith(("Expected", "Not a valid subclass")):
        # Expected a <class 'int'>. Got value: wide | Expected a typing.Literal['relu', 'tanh']
        expected = re.sub(r"Expected an? |\. Got value.*", "", reason)
        # of an option of the command line below the key
        value = re.sub(r"NestedArg\(key='([^']+)', val='(.*)'\)", r"\1=\2", part.value)
        mistake = f"{value!r} must be {part.types or _in_words(expected)}"
        return _ConfigError(key, mistake, text=part.value)
    # a module that may not be imported is not imported here either
    if not reason.startswith("Importing") and (broken := find_import_error(part.value)):
        mistake = f"{broken[0]} cannot be imported: {broken[1]}"
        return _ConfigError(key, mistake, text=broken[0])
    return _ConfigError(key, reason, text=part.class_path or part.value)
