"""Flame graphs: where amounts come from, by call stack, as a picture that browsers show."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["flame_graph"]

_WIDTH = 1200.0
_ROW = 16
_THINNEST = 0.3
_CHARACTER = 6.6
_HEAD = 24


@dataclass(slots=True)
class _Frame:
    """A frame of stacks: its amount, and the frames that it called."""

    name: str
    amount: int = 0
    calls: dict[str, _Frame] = field(default_factory=dict)


def flame_graph(stacks: str, title: str, unit: str = "bytes") -> str:
    """Return an SVG of stacks: each a line of frames joined by `;`, from the outermost, an amount.

    A frame is as wide as its amount and stands on the frame that called it. Pointing at one shows
    its name, its amount and its share. Frames too thin to be seen are left out.
    """
    root = _Frame("all")
    for line in stacks.splitlines():
        names, _, amount = line.rpartition(" ")
        if names:
            _add(root, names.split(";"), int(amount))
    boxes = list(_boxes(root, 0.0, 0, _WIDTH / root.amount if root.amount else 0.0))
    deepest = max(depth for _, _, depth, _ in boxes)
    height = _HEAD + (deepest + 1) * _ROW
    drawn = [
        _drawn(frame, left, height - (depth + 1) * _ROW, width, f"{frame.amount} {unit}", root)
        for frame, left, depth, width in boxes
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:.0f}" height="{height}" '
        f'viewBox="0 0 {_WIDTH:.0f} {height}" font-family="monospace" font-size="11">'
    )
    caption = f'<text x="4" y="15" font-size="13">{escape(title)}: {root.amount} {unit}</text>'
    return "\n".join([head, caption, *drawn, "</svg>", ""])


def _add(root: _Frame, names: list[str], amount: int) -> None:
    frame = root
    frame.amount += amount
    for name in names:
        frame = frame.calls.setdefault(name, _Frame(name))
        frame.amount += amount


def _boxes(
    root: _Frame, left: float, depth: int, scale: float
) -> Iterator[tuple[_Frame, float, int, float]]:
    """Yield the frames that can be seen: with the left edge, the depth and the width of each."""
    waiting = [(root, left, depth)]  # stacks may be deeper than Python calls can be
    while waiting:
        frame, left, depth = waiting.pop()
        width = frame.amount * scale
        yield frame, left, depth, width
        for call in sorted(frame.calls.values(), key=lambda one: one.name):
            if call.amount * scale >= _THINNEST:
                waiting.append((call, left, depth + 1))
            left += call.amount * scale


def _drawn(frame: _Frame, left: float, top: int, width: float, told: str, root: _Frame) -> str:
    """Return a frame as a box with its name, as far as there is room for it."""
    share = frame.amount / root.amount if root.amount else 0.0
    shade = zlib.crc32(frame.name.encode())
    colour = f"rgb({205 + shade % 50},{90 + shade // 50 % 120},{shade // 6000 % 60})"
    room = int((width - 4) / _CHARACTER)
    label = frame.name if len(frame.name) <= room else f"{frame.name[: max(0, room - 2)]}.."
    text = f'<text x="{left + 2:.1f}" y="{top + 12}">{escape(label)}</text>' if room > 3 else ""
    return (
        f"<g><title>{escape(frame.name)} ({told}, {share:.1%})</title>"
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_ROW - 1}" fill="{colour}"/>'
        f"{text}</g>"
    )
