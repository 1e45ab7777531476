"""A config file, read once: what stands in it, in which lines, and what is wrong with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ConfigFile", "read_config"]

yaml: Any = import_module("yaml")  # which tells no types without a package of its own

_MOST = 1_000_000
"""Values in a config; aliases of aliases make more of a few lines than a memory holds."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config file.

    Attributes:
        path: where it is.
        fault: file, line, and why it cannot be used; empty where it can.
        root: the node of YAML that holds all others, with their lines.
        content: what it holds.
    """

    path: Path
    fault: str = ""
    root: Any = None
    content: dict[Any, Any] = field(default_factory=dict)


def read_config(path: Path) -> ConfigFile:
    """Read a config file; what is wrong with it is said in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return ConfigFile(path, f"{path}: byte {error.start} is no UTF-8. Save it as text in UTF-8")
    except OSError as error:
        return ConfigFile(path, f"{path}: it cannot be read: {error.strerror}")
    try:
        return _parsed(path, text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except RecursionError:
        return ConfigFile(path, f"{path}: it is nested too deeply")
    except (ValueError, yaml.YAMLError):  # the other one is faster, this one speaks plainly
        return _read_plainly(path, text)


def _read_plainly(path: Path, text: str) -> ConfigFile:
    try:
        return _parsed(path, text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        fault, mark = error.problem or "it cannot be read", error.problem_mark or error.context_mark
    except (ValueError, yaml.YAMLError) as error:
        fault, mark = " ".join(str(error).split()), None
    line = "" if mark is None else f", line {mark.line + 1}"
    return ConfigFile(path, f"{path}{line}: {fault}. Nothing but plain YAML may stand in a config")


def _parsed(path: Path, text: str, loader_class: Any) -> ConfigFile:
    loader = loader_class(text)
    try:
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            return ConfigFile(path, f"{path}: it holds no keys. Write some, as model and trainer")
        if fault := _too_large(root) or _written_twice(root, set()):
            return ConfigFile(path, f"{path}{fault}")
        return ConfigFile(path, "", root, loader.construct_document(root))
    finally:
        loader.dispose()


def _too_large(root: Any) -> str:
    size = _size(root, {})
    if size == math.inf:
        return ": an alias in it stands for what it is itself a part of. Leave it out"
    return f": its aliases come to {size} values. Leave some out" if size > _MOST else ""


def _size(node: Any, known: dict[int, float]) -> float:
    """Return how many values a node holds, those behind aliases each time; endless is inf."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = math.inf  # until it is done: what it meets in itself is endless
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


def _written_twice(node: Any, seen: set[int]) -> str:
    """Return line and name of the first key that a mapping holds twice; the parser drops one."""
    if isinstance(node, yaml.ScalarNode) or id(node) in seen:
        return ""
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        return next(filter(None, (_written_twice(item, seen) for item in node.value)), "")
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode) and key.value in lines and key.value != "<<":
            first = lines[key.value]
            return f", line {line}: {key.value}: it stands in line {first} already. Leave one out"
        lines[str(key.value)] = line
        if fault := _written_twice(value, seen):
            return fault
    return ""
