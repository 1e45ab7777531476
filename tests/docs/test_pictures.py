"""The pictures of the pages come from real runs, in two themes, with alternative texts."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FILES = {file.name: file for file in (DOCS / "static" / "pictures").glob("*.svg")}
_IMAGE = re.compile(
    r"^```\{image\} (?:\.\./)?static/pictures/(\S+)-(light|dark)\.svg\n"
    r":alt: (.+)\n:class: only-(.+)\n```$",
    re.MULTILINE,
)


def uses() -> dict[tuple[str, str], str]:
    """Return the alternative text of each use of a picture, by its name and theme."""
    texts = {}
    for page in DOCS.rglob("*.md"):
        for name, theme, words, shown in _IMAGE.findall(page.read_text(encoding="utf-8")):
            assert theme == shown, page
            texts[name, theme] = words
    return texts


def test_each_picture_is_on_a_page_in_both_themes_with_a_text() -> None:
    """No file is left over, and none is missing."""
    texts = uses()
    assert {f"{name}-{theme}.svg" for name, theme in texts} == set(FILES)
    assert len(texts) >= 10
    for (name, _), words in texts.items():
        assert texts[name, "light"] == texts[name, "dark"] == words
        assert len(words) > 40


@pytest.mark.parametrize("name", FILES)
def test_a_picture_asks_for_nothing_elsewhere(name: str) -> None:
    """It is well-formed, and fetches no font."""
    text = FILES[name].read_text(encoding="utf-8")
    ET.fromstring(text)
    assert "url(http" not in text.replace('"', "").replace("'", "")
    assert "Traceback" not in text
    assert "Error" not in text


@pytest.mark.slow
def test_the_pictures_show_what_the_programs_print(generator) -> None:
    """But for numbers, which differ from run to run."""
    pictures = importlib.import_module("pictures")
    made = pictures.pictures()
    assert set(made) == set(FILES)
    stale = [
        name
        for name, svg in made.items()
        if pictures.words_of(FILES[name].read_text(encoding="utf-8")) != pictures.words_of(svg)
    ]
    assert stale == [], "run: python docs/generate.py"
    assert "trainer" in pictures.words_of(made["describe-hooks-light.svg"])
