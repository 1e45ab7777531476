"""The pictures of the pages come from real runs, in two themes, with alternative texts."""

from __future__ import annotations

import importlib
import io
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
import warm_python

if TYPE_CHECKING:
    from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"
FILES = {file.name: file for file in (DOCS / "static" / "pictures").iterdir()}
SVGS = [name for name in FILES if name.endswith(".svg")]
PNGS = [name for name in FILES if name.endswith(".png")]
SHOWN_WORDS = {
    "run-report": ("starts", "finished", "train_loss", "val_acc", "smoothing"),
    "runs-compared": ("finished", "val_acc", "lr", "width", "Differenceoftwoconfigs"),
}
_IMAGE = re.compile(
    r"^```\{image\} (?:\.\./)?static/pictures/(\S+)-(light|dark)\.(svg|png)\n"
    r":alt: (.+)\n:class: only-(.+)\n```$",
    re.MULTILINE,
)


def uses() -> dict[tuple[str, str, str], str]:
    """Return the alternative text of each use of a picture, by its name, theme and format."""
    texts = {}
    for page in DOCS.rglob("*.md"):
        for name, theme, ending, words, shown in _IMAGE.findall(page.read_text(encoding="utf-8")):
            assert theme == shown, page
            texts[name, theme, ending] = words
    return texts


def test_each_picture_is_on_a_page_in_both_themes_with_a_text() -> None:
    """No file is left over, and none is missing."""
    texts = uses()
    assert {f"{name}-{theme}.{ending}" for name, theme, ending in texts} == set(FILES)
    assert len(texts) >= 12
    for (name, _, ending), words in texts.items():
        assert texts[name, "light", ending] == texts[name, "dark", ending] == words
        assert len(words) > 40


@pytest.mark.parametrize("name", SVGS)
def test_a_picture_asks_for_nothing_elsewhere(name: str) -> None:
    """It is well-formed, and fetches no font."""
    text = FILES[name].read_text(encoding="utf-8")
    ET.fromstring(text)
    assert "url(http" not in text.replace('"', "").replace("'", "")
    assert "Traceback" not in text
    assert "Error" not in text


@pytest.mark.parametrize("name", PNGS)
def test_a_picture_of_the_report_is_small_and_in_its_theme(name: str) -> None:
    """It is light or dark, as its name says, and no burden on the page."""
    image = pytest.importorskip("PIL.Image")
    data = FILES[name].read_bytes()
    assert len(data) < 150_000
    with image.open(io.BytesIO(data)) as picture:
        brightness = sum(picture.convert("RGB").getpixel((2, 2)))
    assert (brightness > 600) if "-light" in name else (brightness < 150)


@pytest.fixture
def drawing(generator, monkeypatch) -> ModuleType:
    """The module that draws the pictures, whose programs are forked from one that has torch."""
    pictures = importlib.import_module("pictures")
    monkeypatch.setattr(pictures, "subprocess", warm_python)
    return pictures


def stale(pictures: ModuleType, made: dict[str, str | bytes]) -> list[str]:
    """Return the names of pictures with other words than those on the pages."""
    return [
        name
        for name, picture in made.items()
        if pictures.words_of(pictures.read_picture(FILES[name])) != pictures.words_of(picture)
    ]


@pytest.mark.exhaustive
def test_the_pictures_show_what_the_programs_print(drawing) -> None:
    """But for numbers, which differ from run to run."""
    made = drawing.terminal_pictures()
    assert set(made) == set(SVGS)
    assert stale(drawing, made) == [], "run: python docs/generate.py"
    assert "trainer" in drawing.words_of(made["describe-hooks-light.svg"])


@pytest.mark.exhaustive
def test_the_picture_of_the_report_shows_what_a_browser_draws(drawing) -> None:
    """The report of a run that was killed and resumed, but for numbers, in the same size."""
    pytest.importorskip("playwright.sync_api")
    image = pytest.importorskip("PIL.Image")
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        pytest.skip("chromium is not installed")
    made = drawing.report_pictures()
    assert set(made) == set(PNGS)
    assert stale(drawing, made) == [], "run: python docs/generate.py"
    for name, picture in made.items():
        words = drawing.words_of(picture)
        for shown in SHOWN_WORDS[name.rpartition("-")[0]]:
            assert shown in words
        with image.open(io.BytesIO(picture)) as new, image.open(FILES[name]) as old:
            assert new.size[0] == old.size[0] == drawing.REPORT_WIDTH
            # machines differ in their fonts
            assert abs(new.size[1] - old.size[1]) < 100


@pytest.mark.parametrize("missing", ["playwright", "chromium"])
def test_what_the_picture_of_the_report_needs_is_named(generator, missing, monkeypatch) -> None:
    """Before any program runs, with the option that goes without."""
    pictures = importlib.import_module("pictures")
    if missing == "playwright":
        monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    else:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"chromium and playwright.*--no-pictures"):
        pictures.pictures()
