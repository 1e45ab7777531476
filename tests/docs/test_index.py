from __future__ import annotations

import re
from pathlib import Path

import pytest
from for_each import for_each

import trainer_hooks
from trainer_hooks import DataModule, Module, Trainer, Tuner
from trainer_hooks.hooks.spec import HOOKS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
OF_THE_SITE = {"README.md", "index.md", "changelog.md"}
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)")


def test_the_index_has_every_page() -> None:
    """docs/README.md links to each page of docs/."""
    linked = set(_LINK.findall((DOCS / "README.md").read_text(encoding="utf-8")))
    assert {page.name for page in DOCS.glob("*.md")} - OF_THE_SITE <= linked


@for_each(PAGES)
def test_a_link_leads_somewhere(page: Path) -> None:
    """No page links to a file that is not there."""
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    gone = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert gone == []


def test_a_search_word_leads_to_one_section() -> None:
    """Each comment with search words stands below a heading, and no word is in two of them."""
    comment = re.compile(r"<!-- search: ([^>]*) -->")
    places: dict[str, list[str]] = {}
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        below = re.findall(r"^#+ [^\n]*\n\n<!-- search: [^>]* -->$", text, re.MULTILINE)
        assert len(below) == len(comment.findall(text)), page
        for words in comment.findall(text):
            for word in re.split(r",\s*", words):
                places.setdefault(word, []).append(page.name)
    assert len(places) > 100
    assert {word: pages for word, pages in places.items() if len(pages) > 1} == {}


def test_every_public_name_is_on_a_page() -> None:
    """What users may import, call or override is named in the docs."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    words = set(re.findall(r"\w+", text))
    own = {"attach", "attach_manual"}  # the trainer's business, not the user's
    torch_module = set(dir(Module.__mro__[1]))
    members = {n for owner in (Module, DataModule, Trainer, Tuner) for n in dir(owner)}
    names = {n for n in members if n[0] != "_"} - torch_module - own - set(HOOKS)
    assert sorted((names | set(trainer_hooks.__all__)) - words) == []


@pytest.mark.slow
def test_the_architecture_names_files_and_names_that_exist() -> None:
    """Each file in backticks on the page is in the package, and each name in its code."""
    package = Path(trainer_hooks.__file__).parent
    files = {str(file.relative_to(package)) for file in package.rglob("*.py")}
    known = set(re.findall(r"\w+", "\n".join((package / file).read_text() for file in files)))
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    quoted = set(re.findall(r"`([\w./]+)`", page))
    paths = {path for path in quoted if path.endswith(".py")}
    assert len(paths) > 50
    gone = [path for path in paths if not any(f"/{file}".endswith(f"/{path}") for file in files)]
    assert gone == []
    names = {part for name in quoted - paths for part in re.findall(r"\w+", name)}
    assert sorted(names - known - {"setup", "cfg"}) == []
