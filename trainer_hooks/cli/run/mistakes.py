"""What is wrong with a config, in a line: where it stands, what was meant, what may stand there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentError

from trainer_hooks.cli.run.subcommands import SUBCOMMANDS
from trainer_hooks.cli.run.what_fits import (
    arguments_in,
    arguments_of,
    classes,
    listed,
    misfit,
    unimportable,
)
from trainer_hooks.errors import MetricError, TrainerHooksError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.cli.run.parser import TrainerParser
    from trainer_hooks.cli.run.sources import Sources

__all__ = ["is_told", "note_monitor", "told", "unmade"]

_KEY = re.compile(r'Parser key "([^"]+)":')
_UNKNOWN = re.compile(r"Option '([^']+)' is not accepted")
_IN_GROUP = re.compile(r"(?:Group|Subcommand) '([^']+)' does not accept option '([^']+)'")
_UNRECOGNIZED = re.compile(r"Unrecognized arguments: (.*)", re.IGNORECASE)
_REQUIRED = re.compile(r"the following arguments are required: (.*)")
_CLASS = re.compile(r"Problem with given class_path '([^']+)'")
_NOT_TAKEN = re.compile(r"Problem with given class_path '([^']+)':\n\s+Option '([^']+)' is not acc")
_SUBTYPES = re.compile(r"Subtypes: \[(.*)\]")
_UNLOADED = re.compile(r'Parser key "([^"]+)":\nUnable to load config \'([^\n]*)\'\n')
_PLAIN = re.compile(r"<class '(?:int|float|str|bool)'>")
_DISABLED = re.compile(r"Subclasses are disabled for TrainerConfig")
_WHOLE = re.compile(r"(trainer|ckpt_path): ")
_UNMADE = re.compile(r"([\w.]+): ([\w.]+) (?:cannot be made: |needs )")
_NO_CLASS = re.compile(r"Expected a dot import path string: (\S+)")
_NO_SUBCLASS = re.compile(
    r"(?:Import path|class_path) .*?does not correspond to a subclass of (\w+)"
)
_IMPORTED = re.compile(r"Import path (\S+) does not correspond to a subclass")
_LITERAL = re.compile(r"Expected a (?:typing\.)?Literal\[([^]]+)\]")
_PATH = re.compile(r"File does not exist: '(.+)'")
_NO_MODULE = re.compile(r"No module named '([^']+)'|module '(\S+)' has no attribute '(\w+)'")
_VALUE = re.compile(r"Given value: (.*)|Got value: (.*)")
_TYPES = re.compile(r"Expected a (<class '[^']+'>)|Expected (?:a|an) (?!path )([^.:\n]+)")
_OF_TRAINER = re.compile(r"Trainer\((\w+)=|(seed_everything)\(|Linked \"([^\"]+)\"")
_DENIED = re.compile(r"Importing '([^']+)' is not allowed")
_LINK = re.compile(r"links: '?([\w.]*)")
_OF_UNION = re.compile(r"^Does not validate against any of the Union subtypes\nSubtypes: \[([^]]*)")
_BULLET = re.compile(r"^  - (.+)$", re.MULTILINE)
_UNIONS = {"Logger": "trainer.logger", "DataModule": "data", "Module": "model"}
_NOISE = ("Expected a", "Not a valid subclass")


@dataclass(frozen=True, slots=True)
class _Fault:
    """A mistake, taken out of what the parser says.

    Attributes:
        key: the argument, with dots.
        what: what is wrong with it.
        advice: what was meant, and what may stand there.
        text: a value or a name by which the line is found.
    """

    key: str
    what: str
    advice: str = ""
    text: str = ""


def is_told(error: Exception) -> bool:
    """Return whether an error is one of a config's, and none of the code that it names."""
    if isinstance(error, ArgumentError | TrainerHooksError):
        return True
    if isinstance(error.__cause__, TrainerHooksError):  # of a link, which the parser calls
        return True
    # what else a constructor raises is a fault of its code, of which the traceback tells
    is_made = _OF_UNION.search(str(error)) is not None
    return is_made and isinstance(_root_of(error), ValueError | TrainerHooksError)


def unmade(error: Exception, sources: Sources) -> Exception:
    """Return what the code of an object raised that could not be made, noting its place."""
    found = _OF_UNION.search(str(error))
    root = _root_of(error)
    if found is None or not isinstance(root, Exception):
        return error
    key = _key_of_union(found[1])
    root.add_note(f"raised in making {key}, {sources.place_of(key)}".rstrip(", "))
    return root


def note_monitor(error: MetricError, sources: Sources) -> None:
    """Note where a monitor was written that nothing logged."""
    key, found = "trainer.callbacks.monitor", re.match(r"monitor '([^']+)' of ", str(error))
    if found and (place := sources.place_of(key, found[1])):
        error.add_note(f"{place}: {key}")


def told(error: Exception, sources: Sources, parser: TrainerParser | None) -> str:
    """Return in one line what is wrong, with the file and line where that is known.

    Args:
        error: what the parser, or the Trainer, raised.
        sources: the files and the words in which it was written.
        parser: whose arguments they are.
    """
    own = error.__cause__ if isinstance(error.__cause__, TrainerHooksError) else error
    message = str(own if str(own).startswith("links: ") else error)
    if line := sources.misplaced():
        return line
    found = _fault_of(message, parser)
    if found is None:
        return " ".join(message.split())
    texts = (found.text, found.text.rpartition(".")[2], "")  # a class path, or a short name
    place = next(filter(None, (sources.place_of(found.key, text) for text in texts)), "")
    line = f"{place + ': ' if place else ''}{found.key}: {found.what}."
    return " ".join(f"{line} {found.advice}".split())


def _fault_of(message: str, parser: TrainerParser | None) -> _Fault | None:
    keys = frozenset() if parser is None else parser.argument_keys
    if (found := _IN_GROUP.search(message)) and not _KEY.search(message):
        return _unknown_below(
            found[2] if found[1] in SUBCOMMANDS else f"{found[1]}.{found[2]}", keys
        )
    if found := _UNRECOGNIZED.search(message):
        return _unknown_below(found[1].split()[0].partition("=")[0].removeprefix("--"), keys)
    if found := _REQUIRED.match(message):
        first, _, rest = found[1].split(", ")[0].partition(".")
        missing = rest if first in SUBCOMMANDS else found[1].split(", ")[0]
        return _Fault(
            missing, "is required and was not given", f"Give --{missing}, or name it in a config."
        )
    if (found := _UNKNOWN.search(message)) and not _KEY.search(message):
        return _unknown_below(found[1], keys)
    if found := _KEY.search(message):
        return _of_key(message, found[1], parser)
    if _DISABLED.match(message):
        return _Fault("trainer", "it holds options, and no class_path")
    if found := _WHOLE.match(message):
        return _Fault(found[1], message.partition(": ")[2].rstrip("."))
    if found := _UNMADE.match(message):
        what = message.partition(": ")[2].rstrip(".")
        return _Fault(found[1], what, text=found[2])
    if found := _OF_TRAINER.search(message):
        key = found[2] or found[3] or f"trainer.{found[1]}"
        return _Fault(key, message.rstrip("."))
    if found := _LINK.match(message):
        return _Fault("links", message.partition(": ")[2].rstrip("."), text=found[1])
    if found := _OF_UNION.search(message):
        own = [line for line in _BULLET.findall(message) if not line.startswith(_NOISE)]
        kinds = re.findall(r"class_path='(?:\w+\.)*(\w+)'", message)
        named = [kind for kind in kinds if own and kind in own[0]]
        return _Fault(
            _key_of_union(found[1]),
            (own or ["it cannot be made"])[0].rstrip("."),
            text=(named or [""])[0],
        )
    return None


def _key_of_union(types: str) -> str:
    return next((k for name, k in _UNIONS.items() if f".{name}'" in types), "trainer.callbacks")


def _root_of(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _unknown_below(key: str, keys: frozenset[str]) -> _Fault:
    """Return the fault of a key of which the group may be unknown as well."""
    first, dot, name = key.partition(".")
    roots = {known.partition(".")[0] for known in keys}
    return (
        _unknown(f"{first}.", name, keys) if dot and first in roots else _unknown("", first, roots)
    )


def _unknown(prefix: str, name: str, keys: Iterable[str]) -> _Fault:
    """Return the fault of a key that is not there."""
    below = {key.removeprefix(prefix).partition(".")[0] for key in keys if key.startswith(prefix)}
    below -= {"help", "print_config", "print_shtab"}
    return _Fault(
        f"{prefix}{name}",
        f"there is no {name!r}" + (f" in {prefix.rstrip('.')}" if prefix else ""),
        f"{nearest(name, below)} {listed(below)}",
    )


def _of_key(message: str, key: str, parser: TrainerParser | None) -> _Fault:
    """Return the fault of a key's value, or of what stands below it."""
    if found := _UNLOADED.match(message):
        what = f"{found[2]!r} is no mapping of options, and no file that holds one"
        return _Fault(found[1], what, "Write one.", found[2])
    kind = _CLASS.findall(message)
    inner = ".".join(_KEY.findall(message))
    if kind and (found := _IN_GROUP.search(message)):
        names = arguments_in(kind[-1], found[1])
        return _Fault(
            f"{inner}.{found[1]}.{found[2]}",
            f"there is no {found[2]!r} in {found[1]}",
            f"{nearest(found[2], names)} {listed(names)}",
        )
    if pair := _not_taken(message):
        names, name = arguments_of(pair[0]), pair[1].rpartition(".")[2]
        return _Fault(
            f"{inner}.{name}",
            f"{pair[0]} takes no {name!r}",
            f"{nearest(name, names)} {listed(names)}",
        )
    if found := _DENIED.search(message):
        return _Fault(inner, f"{found[1]} may not stand in a config", "", found[1])
    if found := _NO_MODULE.search(message):
        what = f"no module {found[1]!r}" if found[1] else f"no {found[3]!r} in {found[2]}"
        path = kind[-1] if kind else ""
        return _Fault(
            inner,
            f"{path} cannot be imported: {what}",
            "Install its package, or run where it can be imported.",
            path,
        )
    if fault := _of_class(message, key, inner, kind, parser):
        return fault
    innermost = message[message.rindex("Parser key") :]
    value, types = _value(innermost), _types(innermost)
    bases = " ".join(_SUBTYPES.findall(innermost))
    if not _PLAIN.search(bases) and (broken := unimportable(value)):
        return _Fault(inner, f"{broken[0]} cannot be imported: {broken[1]}", text=broken[0])
    if not types:
        what = " ".join(innermost.partition(":")[2].split()).rstrip(".")
        path = _PATH.search(what)
        return _Fault(inner, what, text=Path(path[1]).name if path else "")
    return _Fault(inner, f"{value!r} must be {types}", text=value)


def _of_class(
    message: str, key: str, inner: str, kind: list[str], parser: TrainerParser | None
) -> _Fault | None:
    """Return the fault of a class that does not fit, is not known, or is not given enough."""
    if found := _NO_SUBCLASS.search(message):
        path = _IMPORTED.search(message)
        value = path[1] if path else misfit(_value(message), found[1])
        advice = "" if inner != key else classes(parser, key, "")
        return _Fault(inner, f"{value} is no {found[1]}", advice, value)
    types = _SUBTYPES.findall(message)
    if (found := _NO_CLASS.search(message)) and not (types and _PLAIN.search(types[-1])):
        return _Fault(
            inner, f"there is no class {found[1]!r}", classes(parser, key, found[1]), found[1]
        )
    if kind and (found := _REQUIRED.search(message)):
        return _Fault(
            inner, f"{kind[-1]} needs {found[1].splitlines()[0]}", "Give it in init_args.", kind[-1]
        )
    return None


def _not_taken(message: str) -> tuple[str, str] | None:
    """Return the class that was given, and what it does not take."""
    bases = " ".join(_SUBTYPES.findall(message))
    for path, name in _NOT_TAKEN.findall(message):
        last = path.rpartition(".")[2]
        if f".{last}'" not in bases and f".{last}]" not in bases:
            return path, name
    return None


def _value(message: str) -> str:
    found = _VALUE.search(message)
    return "" if found is None else (found[1] or found[2] or "").strip()


def _types(message: str) -> str:
    """Return in words what types a value may have."""
    if found := _LITERAL.search(message):
        return f"one of {found[1]}"
    found = _SUBTYPES.search(message) or _TYPES.search(message)
    if found is None:
        return ""
    text = next(group for group in found.groups() if group)
    names = re.sub(r"<class '([^']+)'>", r"\1", text)
    names = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", names).replace("NoneType", "null")
    return " or ".join(names.split(", "))
