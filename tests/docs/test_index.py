from __future__ import annotations

import re
from pathlib import Path

import pytest

import trainer_hooks
from trainer_hooks import DataModule, Module, Trainer, Tuner
from trainer_hooks.hooks.spec import HOOKS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)")


def test_the_index_has_every_page() -> None:
    """docs/README.md links to each page of docs/."""
    linked = set(_LINK.findall((DOCS / "README.md").read_text(encoding="utf-8")))
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_somewhere(page: Path) -> None:
    """No page links to a file that is not there."""
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    gone = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert gone == []


def test_every_public_name_is_on_a_page() -> None:
    """What users may import, call or override is named in the docs."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    words = set(re.findall(r"\w+", text))
    own = {"attach", "attach_manual"}  # the trainer's business, not the user's
    torch_module = set(dir(Module.__mro__[1]))
    members = {n for owner in (Module, DataModule, Trainer, Tuner) for n in dir(owner)}
    names = {n for n in members if n[0] != "_"} - torch_module - own - set(HOOKS)
    assert sorted((names | set(trainer_hooks.__all__)) - words) == []
