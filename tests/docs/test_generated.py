from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["hooks.md", "trainer.md"])
def test_a_made_page_says_what_the_code_says(page: str) -> None:
    """A page that is made from the code is not stale: `python docs/generate.py` changes nothing."""
    made = generator().PAGES[page]()
    assert (DOCS / page).read_text(encoding="utf-8") == made, "run: python docs/generate.py"


def test_every_made_page_is_checked() -> None:
    """The test above covers every page that the generator makes."""
    assert set(generator().PAGES) == {"hooks.md", "trainer.md"}
