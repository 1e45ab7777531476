from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from trainer_hooks.callbacks.monitors.memory_files import flame_graph

SVG = "{http://www.w3.org/2000/svg}"


def boxes(drawn):
    """Return (left, top, width) by what is told of a frame."""
    root = ET.fromstring(drawn)
    found = {}
    for group in root.iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        found[group.find(f"{SVG}title").text] = tuple(
            float(box.get(name)) for name in ("x", "y", "width")
        )
    return found


def test_frames_stand_on_those_that_called_them():
    """A frame is as wide as its share, over its caller, beside the other calls of that."""
    found = boxes(flame_graph("a;b 30\na;c 10\na;b;d 20\n", "Held"))
    assert found == {
        "all (60 bytes, 100.0%)": (0, 72, 1200),
        "a (60 bytes, 100.0%)": (0, 56, 1200),
        "b (50 bytes, 83.3%)": (0, 40, 1000),
        "c (10 bytes, 16.7%)": (1000, 40, 200),
        "d (20 bytes, 33.3%)": (0, 24, 400),
    }


@pytest.mark.parametrize("stacks", ["", "\n", "a;b 0\n"])
def test_nothing(stacks):
    """Without anything there is a picture all the same."""
    assert boxes(flame_graph(stacks, "Held")) == {"all (0 bytes, 0.0%)": (0, 24, 0)}


def test_names_are_escaped():
    """Names with signs of XML come through."""
    assert "<a> & b (5 bytes, 100.0%)" in boxes(flame_graph("<a> & b 5", "<T>"))


def test_deep_stacks_and_thin_frames():
    """Stacks may be deeper than Python's, and what is too thin to be seen is left out."""
    deep = ";".join(f"f{number}" for number in range(3000))
    found = boxes(flame_graph(f"{deep} 100000\nthin 1\n", "Held"))
    assert len(found) == 3001
    assert not any(name.startswith("thin") for name in found)
