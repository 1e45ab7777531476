"""Read what a class or function says of itself: its docstring in parts, and its arguments."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Argument", "Docstring", "read_attributes", "read_class", "read_function"]

_HEADER = re.compile(r"(Args|Attributes|Returns|Raises|State|Example|Examples)(::?)\s*(.*)")
_ITEM = re.compile(r"(\*{0,2}[\w.`{}, ]+?)(?: \([^)]*\))?:\s+(.*)")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its name, its default as text (or ""), its meaning."""

    name: str
    default: str
    meaning: str


@dataclass(slots=True)
class Docstring:
    """The parts of a class's or function's docstring.

    Attributes:
        summary: the first sentence.
        body: the paragraphs after it.
        arguments: in their order, each with what `Args:` says of it; a class's are those of its
            constructor.
        attributes: names and meanings.
        errors: exceptions and when they are raised.
        state: what is kept in checkpoints.
        example: code.
    """

    summary: str
    body: str = ""
    arguments: list[Argument] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    state: str = ""
    example: str = ""


def read_class(described: type) -> Docstring:
    """Return the parts of a class's own docstring.

    Raises:
        ValueError: it has none, or says nothing of an argument.
    """
    own_init = described.__init__ is not object.__init__
    return _read(described, described.__init__ if own_init else None)


def read_function(described: Callable[..., Any]) -> Docstring:
    """Return the parts of a function's or method's docstring.

    Raises:
        ValueError: it has none, or says nothing of an argument.
    """
    return _read(described, described)


def read_attributes(described: type) -> dict[str, str]:
    """Return what a class's docstring says of its attributes."""
    return _read(described, None).attributes


def _read(described: Any, called: Callable[..., Any] | None) -> Docstring:
    if not described.__doc__:
        raise ValueError(f"{described.__qualname__} has no docstring.")
    sections = _sections(inspect.cleandoc(described.__doc__))
    summary, _, body = sections.pop("", "").partition("\n")
    found = Docstring(summary.strip(), body.strip())
    found.attributes = _items(sections.get("Attributes", ""))
    found.errors = _items(sections.get("Raises", ""))
    found.state = _joined(sections.get("State", ""))
    found.example = textwrap.dedent(sections.get("Example", "")).strip("\n")
    if called is not None:
        found.arguments = _arguments(described, called, _items(sections.get("Args", "")))
    return found


def _sections(text: str) -> dict[str, str]:
    """Return the text before the first header under "", and what stands below each header."""
    sections: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        header = _HEADER.fullmatch(line)
        if header:
            current = header[1].removesuffix("s") if header[1] == "Examples" else header[1]
            sections[current] = [header[3]] if header[3] else []
        else:
            if current and line and not line.startswith(" ") and current != "State":
                current = ""  # a paragraph after a section
            sections[current].append(line)
    return {name: "\n".join(lines).strip("\n") for name, lines in sections.items()}


def _items(text: str) -> dict[str, str]:
    """Return `name: meaning` items; lines that are indented further go on with the one before."""
    items: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent(text).splitlines():
        match = None if line.startswith(" ") else _ITEM.fullmatch(line)
        if match:
            name = match[1].strip("`")
            items[name] = match[2]
        elif name and line.strip():
            items[name] += " " + line.strip()
    return items


def _arguments(
    described: Any, called: Callable[..., Any], meanings: dict[str, str]
) -> list[Argument]:
    arguments = []
    for parameter in inspect.signature(called).parameters.values():
        if parameter.name == "self":
            continue
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        name = stars.get(parameter.kind, "") + parameter.name
        meaning = meanings.get(name) or meanings.get(parameter.name)
        if meaning is None:
            raise ValueError(f"the docstring of {described.__qualname__} says nothing of {name}.")
        default = parameter.default
        shown = "" if default is parameter.empty else _shown(default)
        arguments.append(Argument(name, shown, meaning))
    return arguments


def _shown(default: object) -> str:
    """Return a default as one would write it; a class or function by its name."""
    return getattr(default, "__qualname__", None) or str.strip(repr(default))


def _joined(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines() if line.strip())
