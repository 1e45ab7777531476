"""Pieces of HTML. What is not `Html` already is text, and is escaped."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from trainer_hooks._text import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = ["Html", "as_json", "element", "escaped", "facts", "joined", "section", "table"]


_LONG = 40
"""Characters of a value that has a line of its own."""


class Html(str):
    """A text that is HTML."""

    __slots__ = ()


def escaped(value: object) -> Html:
    """Return a value as HTML: itself if it is that, else its text, all of which stays text."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(printable(value)))


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Return parts one after another."""
    return Html(between.join(map(escaped, parts)))


def element(name: str, *content: object, **attributes: object) -> Html:
    """Return an element; `class_` stands for `class`, an underscore for a dash, None for nothing.

    An attribute that is True has no value.
    """
    told = ""
    for key, value in attributes.items():
        label = key.rstrip("_").replace("_", "-")
        if value is True:
            told += f" {label}"
        elif value is not None and value is not False:
            told += f' {label}="{html.escape(printable(value), quote=True)}"'
    return Html(f"<{name}{told}>{joined(content)}</{name}>")


def section(name: str, title: str, *content: object) -> Html:
    """Return a part of the page with a heading."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *content, id=name, aria_labelledby=f"{name}-title")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    label: str,
    right: Collection[int] = (),
    marked: Collection[int] = (),
) -> Html:
    """Return a table that scrolls by itself where the window is narrow.

    Args:
        head: the columns' names.
        rows: cells; the first of each is the row's heading.
        label: what the table is, for who cannot see it.
        right: the columns that hold numbers.
        marked: the rows that stand out.
    """
    kinds = ["number" if index in right else None for index in range(len(head))]
    cells = [element("th", name, scope="col", class_=kinds[i]) for i, name in enumerate(head)]
    lines = []
    for number, row in enumerate(rows):
        first = element("th", row[0], scope="row", class_=kinds[0])
        others = [element("td", cell, class_=kinds[i]) for i, cell in enumerate(row[1:], 1)]
        is_marked = "marked" if number in marked else None
        lines.append(element("tr", first, *others, class_=is_marked))
    body = element("table", element("thead", element("tr", *cells)), element("tbody", *lines))
    return element("div", body, class_="scroll", tabindex=0, role="region", aria_label=label)


def facts(values: Mapping[str, object]) -> Html:
    """Return names and what they stand for, of those that stand for something."""
    pairs = [
        element(
            "div",
            element("dt", name),
            element("dd", value),
            class_="long" if len(str(value)) > _LONG else None,
        )
        for name, value in values.items()
        if value not in ("", None)
    ]
    return element("dl", *pairs) if pairs else Html("")


def as_json(value: Any) -> Html:
    """Return data for a script element; no text in it can end that."""
    told = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Html(told.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
