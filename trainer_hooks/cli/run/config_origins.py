"""The origins of a config's values: files with line numbers, command line, environment."""

from __future__ import annotations

import argparse
import math
import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonargparse
import yaml  # type: ignore[import-untyped]

from trainer_hooks._files import file_fault, is_missing
from trainer_hooks._text import first_few
from trainer_hooks.cli.run.arguments import SUBCOMMANDS
from trainer_hooks.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_MOST = 1_000_000
"""Values in a config; aliases of aliases make more of a few lines than a memory holds."""

_MOST_BYTES = 10_000_000
"""Bytes of a config."""

_MOST_PLAIN = 100_000
"""Characters of a config that the slow loader explains."""

_SHOWN = 3
"""Unknown keys that a message names."""

_DEEPEST = 100
"""Levels of a config; those of an object in an option of the Trainer are five."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A parsed config file.

    Attributes:
        path: the file's path.
        fault: file, line and reason why it cannot be used; empty if it can.
        root: the root node of the YAML document; nodes know their lines.
        content: the file's mapping.
    """

    path: Path
    fault: str = ""
    root: Any = None
    content: dict[Any, Any] = field(default_factory=dict)


def read_config(path: Path) -> ConfigFile:
    """Read a config file; an error in the file becomes its `fault`."""
    try:
        text = read_config_text(path)
    except UsageError as error:
        return ConfigFile(path, str(error).removesuffix("."))
    # PyYAML has the loader in C only where it was built with libyaml
    fast_loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _parsed(path, text, fast_loader)
    except (ValueError, yaml.YAMLError):
        # the other one speaks plainly, but takes ten seconds for a megabyte
        return _explained(path, text, yaml.SafeLoader if len(text) < _MOST_PLAIN else fast_loader)


def read_config_text(path: Path) -> str:
    """Return the text of a config file.

    Raises:
        UsageError: it is no file that can be read to its end, or no text.
    """
    if fault := file_fault(path):
        raise UsageError(f"{path}: {fault}. Give a file of YAML or JSON.")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path}: it has over {_MOST_BYTES:,} bytes, and is no config.")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: byte {error.start} is no UTF-8. Save it as text in UTF-8."
        ) from error
    except OSError as error:
        raise UsageError(f"{path}: it cannot be read: {error.strerror}.") from error


@contextmanager
def checked_inner_configs() -> Iterator[None]:
    """Let jsonargparse read files that a config names as `read_config` reads the config itself.

    It opens a file of its own accord, where an argument takes a config: a pipe would block it, and
    aliases of aliases fill the memory.
    """
    # any: the package does not list the name, though its documentation does
    path_class: Any = jsonargparse.Path  # type: ignore[attr-defined]
    read_text = path_class.read_text

    def read_checked(path: Any) -> str:
        # as "-" and addresses, which are no files of this machine
        if path.relative == "-" or path.is_url or path.is_fsspec:
            return str(read_text(path))
        text = read_config_text(Path(path.absolute))
        loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            file = _parsed(Path(path.relative), text, loader_class, needs_keys=False)
        except (ValueError, yaml.YAMLError):
            return text  # the argument may take a text that is no YAML
        if file.fault:
            raise UsageError(f"{file.fault}.")
        return text

    path_class.read_text = read_checked
    try:
        yield
    finally:
        path_class.read_text = read_text


def _explained(path: Path, text: str, loader_class: Any) -> ConfigFile:
    """Return the error of a config that is no YAML, with its line."""
    try:
        return _parsed(path, text, loader_class)
    except yaml.MarkedYAMLError as error:
        fault, mark = error.problem or "it cannot be read", error.problem_mark or error.context_mark
    except (ValueError, yaml.YAMLError) as error:
        fault, mark = " ".join(str(error).split()), None
    line = "" if mark is None else f", line {mark.line + 1}"
    return ConfigFile(path, f"{path}{line}: {fault}. Nothing but plain YAML may stand in a config")


def _parsed(path: Path, text: str, loader_class: Any, *, needs_keys: bool = True) -> ConfigFile:
    if _is_too_deep(text, loader_class):
        return ConfigFile(path, f"{path}: it is nested deeper than {_DEEPEST} levels")
    loader = loader_class(text)
    try:
        root = loader.get_single_node()
        if root is None and not needs_keys:
            return ConfigFile(path)
        if needs_keys and not isinstance(root, yaml.MappingNode):
            return ConfigFile(path, f"{path}: it holds no keys. Write some, as model and trainer")
        size = _size(root, {})
        fault = _written_twice(root, set())
        if size == math.inf:
            fault = ": an alias in it stands for what it is itself a part of. Leave it out"
        elif size > _MOST:
            fault = f": it comes to {size} values, counting aliases each time. Leave some out"
        if fault:
            return ConfigFile(path, f"{path}{fault}")
        if not needs_keys:
            return ConfigFile(path, "", root)
        # after the checks: the values of all aliases together may not fit into memory
        return ConfigFile(path, "", root, loader.construct_document(root))
    finally:
        loader.dispose()


def _is_too_deep(text: str, loader_class: Any) -> bool:
    """Return whether the lists and mappings of a YAML text are nested too deep."""
    # by the events, which need no recursion; it stops early, as the time of a scanner grows with
    # the square of the depth
    depth = 0
    for event in yaml.parse(text, loader_class):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            return True
    return False


def _size(node: Any, sizes: dict[int, float]) -> float:
    """Return the number of values in a node, counting aliases each time; infinity if endless."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    # an alias is the very node of its anchor, so its size is counted once and used often
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # until it is done: what it meets in itself is endless
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in parts)
    return sizes[id(node)]


def _written_twice(node: Any, seen: set[int]) -> str:
    """Return line and name of the first duplicate key in a mapping, because YAML would drop one."""
    if isinstance(node, yaml.ScalarNode) or id(node) in seen:
        return ""
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        return next(filter(None, (_written_twice(item, seen) for item in node.value)), "")
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        # `<<` merges another mapping, and may do so more than once
        if isinstance(key, yaml.ScalarNode) and key.value in lines and key.value != "<<":
            first = lines[key.value]
            return f", line {line}: {key.value}: it stands in line {first} already. Leave one out"
        lines[str(key.value)] = line
        if fault := _written_twice(value, seen):
            return fault
    return ""


OBJECT_KEYS = ("class_path", "init_args", "dict_kwargs")
"""What is said of an object; these keys stand between the parts of a dotted key."""


@dataclass(frozen=True, slots=True)
class ConfigOrigins:
    """Config files, command line and environment: which values are explicit, and where they stand.

    jsonargparse keeps neither file nor line of a value, so the files are read here a second time.

    Attributes:
        files: the config files; later ones override earlier ones.
        words: the arguments of the command line.
        subcommand: the command, under whose name a file may hold everything.
        prefix: the prefix of environment variables that hold arguments; empty if none do.
    """

    files: tuple[ConfigFile, ...]
    words: tuple[str, ...]
    subcommand: str | None
    prefix: str = ""

    @classmethod
    def of(
        cls, args: Sequence[str], subcommand: str | None, defaults: Sequence[str] = ()
    ) -> ConfigOrigins:
        """Find the config files among the arguments of a command line."""
        reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        # nargs: an option without its file is the real parser's to report
        reader.add_argument("-c", "--config", action="append", default=[], nargs="?")
        try:
            # all options of a training are unknown to this parser, and left alone
            named = reader.parse_known_args(list(args))[0].config
        except argparse.ArgumentError:
            named = []
        paths = [Path(name).expanduser() for name in [*defaults, *named] if name]
        # a missing file is not reported here: the parser does
        files = tuple(read_config(path) for path in paths if not is_missing(path))
        return cls(files, tuple(args), subcommand)

    def only_command(self) -> str | None:
        """Return the command under whose name the files hold everything; None if there is none."""
        keys = {key for file in self.files for key in file.content}
        return next(iter(keys)) if len(keys) == 1 and keys <= SUBCOMMANDS.keys() else None

    def _options(self) -> list[tuple[str, str]]:
        """Return each option of the command line with its value: after `=`, or the next word."""
        pairs = []
        # the next word may be an option itself, which does no harm where an origin is looked up
        for word, following in zip_longest(self.words, self.words[1:], fillvalue=""):
            option, equals, value = word.partition("=")
            if option.startswith("-"):
                pairs.append((option, value if equals else following))
        return pairs

    def check(self) -> None:
        """Check that the files can be used.

        Raises:
            UsageError: a file cannot be used.
        """
        for file in self.files:
            if file.fault:
                raise UsageError(f"{file.fault}.")

    def require_known(self, keys: Collection[str], groups: Collection[str]) -> None:
        """Require the keys of the files to be arguments, at the top and in some groups.

        jsonargparse says so, too, but compares each unknown key with each argument, again and
        again: 20,000 keys would take it many seconds.

        Args:
            keys: the dotted keys of all arguments.
            groups: groups of arguments that take no other keys.

        Raises:
            UsageError: a key is unknown.
        """
        roots = {key.partition(".")[0] for key in keys} | {*SUBCOMMANDS, str(self.subcommand)}
        for file in self.files:
            for level in (file.content, file.content.get(self.subcommand)):
                if not isinstance(level, dict):
                    continue
                _require_names(level, roots, "")
                for group in groups:
                    inner = level.get(group)
                    if isinstance(inner, dict):
                        names = {key.split(".")[1] for key in keys if key.startswith(f"{group}.")}
                        _require_names(inner, {*names, *OBJECT_KEYS}, f"{group}.")

    def with_environment(self, prefix: str) -> ConfigOrigins:
        """Return a copy that also covers the environment and the config file that it names."""
        prefixed = replace(self, prefix=prefix)
        path = Path(os.environ.get(prefixed.variable("config"), "")).expanduser()
        return (
            # in front: the files of the command line override it
            replace(prefixed, files=(read_config(path), *self.files))
            if os.environ.get(prefixed.variable("config")) and not is_missing(path)
            else prefixed
        )

    def variable(self, key: str) -> str:
        """Return the environment variable of an argument; empty if the environment is not used."""
        return f"{self.prefix}{key.replace('.', '__')}".upper() if self.prefix else ""

    def merged_mapping(self, key: str) -> dict[Any, Any]:
        """Return the mapping under a key; later files override earlier ones."""
        values: dict[Any, Any] = {}
        for file in self.files:
            command_part = file.content.get(self.subcommand)
            # what stands below the command overrides the rest of its file
            for level in (file.content, command_part if isinstance(command_part, dict) else {}):
                value = level.get(key)
                values.update(value if isinstance(value, dict) else {})
        return values

    def explicit_value(self, key: str) -> str:
        """Return the single value of a key on the command line or in the files, or an empty text.

        The value of a class is its class path.
        """
        for name in (key, f"{key}.class_path"):
            # the last one counts, as in the parser
            for option, value in reversed(self._options()):
                if option == f"--{name}":
                    return value
        for file in reversed(self.files):
            for level in (file.content.get(self.subcommand), file.content):
                entry = level.get(key) if isinstance(level, dict) else None
                entry = entry.get("class_path") if isinstance(entry, dict) else entry
                if isinstance(entry, str):
                    return entry
        return ""

    def origin_of(self, key: str, text: str = "") -> str:
        """Return a description of where a key was written; empty if unknown.

        Args:
            key: the dotted key.
            text: a value, or a part of one, that stands under the key.
        """
        return (
            self._on_command_line(key, text)
            or self._in_files(key, text)
            or self._in_environment(key, text)
        )

    def structure_error(self) -> str:
        """Return the error, with its line, of the first key that is not allowed where it stands.

        Such keys are not strings, or stand beside a `class_path` without meaning, or hold
        arguments without names.
        """
        for file in self.files:
            for name, value, siblings in _keys(file.root):
                place = f"{file.path}, line {name.start_mark.line + 1}: {name.value or None}:"
                # in YAML 1.1 `on:`, `no:` and `1:` are booleans and numbers
                if not str(name.tag).endswith((":str", ":merge")):
                    return f"{place} a key must be a text. Write it in quotes, if it is meant."
                if name.value in OBJECT_KEYS[1:] and not isinstance(value, yaml.MappingNode):
                    return f"{place} it must hold arguments by their names. Write some, or none."
                if "class_path" in siblings and name.value not in OBJECT_KEYS:
                    return (
                        f"{place} there is no {name.value!r} beside class_path."
                        f"{did_you_mean(name.value, OBJECT_KEYS)} Known: {', '.join(OBJECT_KEYS)}."
                    )
        return ""

    def _on_command_line(self, key: str, text: str) -> str:
        for option, value in self._options():
            # `--trainer.callbacks+=` appends to a list
            name = option.removeprefix("--").rstrip("+")
            is_named = name == key or key.startswith(f"{name}.") or name.startswith(f"{key}.")
            if is_named and (not text or text in f"{name} {value}"):
                return "on the command line"
        return ""

    def _in_environment(self, key: str, text: str) -> str:
        parts = key.split(".")
        # from the whole key upwards: the variable of a group may hold all of its arguments
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


def _require_names(level: dict[Any, Any], names: Collection[str], prefix: str) -> None:
    # a key may be dotted, and `callbacks+` appends; keys that are no texts have an error of
    # their own
    unknown = [
        key
        for key in level
        if isinstance(key, str) and key.partition(".")[0].rstrip("+") not in names
    ]
    if unknown:
        rest = f", nor {first_few([*map(repr, unknown[1:])], _SHOWN - 1)}" if unknown[1:] else ""
        raise UsageError(f"Option '{prefix}{unknown[0]}' is not accepted{rest}")


def _keys(node: yaml.Node | None) -> Iterator[tuple[Any, Any, set[str]]]:
    """Yield each key in a node with its value and its sibling keys; outer keys first."""
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
    """Yield the lines of a key under a node, with the text in its value or below."""
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
        elif name.value in OBJECT_KEYS:
            yield from _lines(value, parts, text)


def _texts(name: yaml.Node, value: yaml.Node, text: str) -> Iterator[int]:
    """Yield the line of a key, or the lines at or below it that hold the text."""
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
