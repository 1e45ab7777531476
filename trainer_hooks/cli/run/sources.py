"""Where a value of a config was written: a file and line, the command line, the environment."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.run.config_file import ConfigFile, read_config
from trainer_hooks.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["BESIDE", "Sources"]

yaml: Any = import_module("yaml")  # which tells no types without a package of its own

BESIDE = ("class_path", "init_args", "dict_kwargs")
"""What is said of an object; these keys stand between the parts of a dotted key."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The config files and the words of a command line, to look up where something was written.

    Attributes:
        files: the config files, in the order in which they are laid over each other.
        words: the arguments of the command line.
        subcommand: the command, under whose name a file may hold everything.
        prefix: what the names of variables begin with that hold arguments; empty where none do.
    """

    files: tuple[ConfigFile, ...]
    words: tuple[str, ...]
    subcommand: str | None
    prefix: str = ""

    @classmethod
    def of(
        cls, args: Sequence[str], subcommand: str | None, defaults: Sequence[str] = ()
    ) -> Sources:
        """Find the config files among the arguments of a command line."""
        reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        reader.add_argument("-c", "--config", action="append", default=[], nargs="?")
        try:
            named = reader.parse_known_args(list(args))[0].config
        except argparse.ArgumentError:
            named = []
        paths = [Path(name).expanduser() for name in [*defaults, *named] if name]
        files = tuple(read_config(path) for path in paths if path.exists())
        return cls(files, tuple(args), subcommand)

    def check(self) -> None:
        """Make sure that the files can be used.

        Raises:
            UsageError: one cannot.
        """
        for file in self.files:
            if file.fault:
                raise UsageError(f"{file.fault}.")

    def with_environment(self, prefix: str) -> Sources:
        """Return the same with the variables of the environment, and the file that one names."""
        found = replace(self, prefix=prefix)
        path = Path(os.environ.get(found.variable("config"), "")).expanduser()
        return replace(found, files=(read_config(path), *self.files)) if path.is_file() else found

    def variable(self, key: str) -> str:
        """Return the name of the variable that may hold an argument; empty where none may."""
        return f"{self.prefix}{key.replace('.', '__')}".upper() if self.prefix else ""

    def values_of(self, key: str) -> dict[Any, Any]:
        """Return the mapping that stands under a key, those of later files over earlier ones."""
        found: dict[Any, Any] = {}
        for file in self.files:
            below = file.content.get(self.subcommand)
            for level in (file.content, below if isinstance(below, dict) else {}):
                value = level.get(key)
                found.update(value if isinstance(value, dict) else {})
        return found

    def given(self, key: str) -> str:
        """Return what the words or the files give a key as one word; empty where they do not.

        Of a class that is its class path.
        """
        for name in (key, f"{key}.class_path"):
            for index in reversed(range(len(self.words))):
                option, equals, value = self.words[index].partition("=")
                following = self.words[index + 1] if index + 1 < len(self.words) else ""
                if option == f"--{name}":
                    return value if equals else following
        for file in reversed(self.files):
            for level in (file.content.get(self.subcommand), file.content):
                found = level.get(key) if isinstance(level, dict) else None
                found = found.get("class_path") if isinstance(found, dict) else found
                if isinstance(found, str):
                    return found
        return ""

    def place_of(self, key: str, text: str = "") -> str:
        """Return where a key was written, in words; empty where that is not known.

        Args:
            key: with dots between its parts.
            text: a value, or a part of one, that stands under the key.
        """
        return (
            self._on_command_line(key, text)
            or self._in_files(key, text)
            or self._in_environment(key, text)
        )

    def misplaced(self) -> str:
        """Return what is wrong with the first key that cannot stand where it does, with its line.

        That is one which is no text, one beside a `class_path` that says nothing, and arguments
        that have no names.
        """
        for file in self.files:
            for name, value, siblings in _keys(file.root):
                place = f"{file.path}, line {name.start_mark.line + 1}: {name.value or None}:"
                if not str(name.tag).endswith((":str", ":merge")):
                    return f"{place} a key must be a text. Write it in quotes, if it is meant."
                if name.value in BESIDE[1:] and not isinstance(value, yaml.MappingNode):
                    return f"{place} it must hold arguments by their names. Write some, or none."
                if "class_path" in siblings and name.value not in BESIDE:
                    return (
                        f"{place} there is no {name.value!r} beside class_path."
                        f"{nearest(name.value, BESIDE)} Known: {', '.join(BESIDE)}."
                    )
        return ""

    def _on_command_line(self, key: str, text: str) -> str:
        for index, word in enumerate(self.words):
            name, _, value = word.partition("=")
            name = name.removeprefix("--").rstrip("+")
            following = self.words[index + 1] if index + 1 < len(self.words) else ""
            is_named = (
                name == key or key.startswith(f"{name}.") or name.startswith(f"{key}.")
            ) and word.startswith("-")
            if is_named and (not text or text in f"{name} {value or following}"):
                return "on the command line"
        return ""

    def _in_environment(self, key: str, text: str) -> str:
        parts = key.split(".")
        for end in range(len(parts), 0, -1):
            name = self.variable(".".join(parts[:end]))
            value = os.environ.get(name)
            if value is not None and (not text or text in value):
                return f"{name} of the environment"
        return ""

    def _in_files(self, key: str, text: str) -> str:
        parts = key.split(".")
        for file in reversed(self.files):
            for start in (parts, [self.subcommand or "", *parts]):
                line = next(_lines(file.root, start, text), None)
                if line is not None:
                    return f"{file.path}, line {line + 1}"
        return ""


def _keys(node: yaml.Node | None) -> Iterator[tuple[Any, Any, set[str]]]:
    """Give each key in a node, its value, and all keys of its mapping; the outer ones first."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _keys(item)
    elif isinstance(node, yaml.MappingNode):
        names = {name.value for name, _ in node.value if isinstance(name, yaml.ScalarNode)}
        for name, value in node.value:
            yield name, value, names
        for _, value in node.value:
            yield from _keys(value)


def _lines(node: yaml.Node | None, parts: list[str], text: str) -> Iterator[int]:
    """Give the lines at which a key stands under a node, with the text in it or below."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _lines(item, parts, text)
    if not isinstance(node, yaml.MappingNode):
        return
    for name, value in node.value:
        written = str(name.value).split(".")  # one key may stand for several
        if written == parts:
            yield from _texts(name, value, text)
        elif written == parts[: len(written)]:
            yield from _lines(value, parts[len(written) :], text)
        elif name.value in BESIDE:
            yield from _lines(value, parts, text)


def _texts(name: yaml.Node, value: yaml.Node, text: str) -> Iterator[int]:
    """Give the line of a key, or those at or below it at which a text stands."""
    if not text:
        yield name.start_mark.line
    elif isinstance(value, yaml.ScalarNode):
        if text in (value.value, name.value):
            yield value.start_mark.line
    elif isinstance(value, yaml.SequenceNode):
        for item in value.value:
            yield from _texts(item, item, text)
    elif isinstance(value, yaml.MappingNode):
        for key, below in value.value:
            if key.value == text:
                yield key.start_mark.line
            yield from _texts(key, below, text)
