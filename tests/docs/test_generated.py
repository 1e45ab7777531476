from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_a_made_page_says_what_the_code_says(generator) -> None:
    """No page that is made from the code is stale: `python docs/generate.py` changes nothing."""
    made = generator.pages()
    stale = [
        name
        for name, text in made.items()
        if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run: python docs/generate.py"


def test_no_page_is_left_of_a_callback_that_is_gone(generator) -> None:
    """Each page below docs/callbacks is made."""
    made = set(generator.pages())
    assert {f"callbacks/{page.name}" for page in (DOCS / "callbacks").glob("*.md")} <= made


def test_the_stubs_of_lightnings_modules_are_those_of_the_table(generator) -> None:
    """Type checkers know the modules that are no files: `python docs/generate.py` writes them."""
    made = generator.lightning_stubs()
    there = {stub.relative_to(generator.STUBS) for stub in generator.STUBS.rglob("*.pyi")}
    stale = [
        str(stub)
        for stub, text in made.items()
        if stub in there and (generator.STUBS / stub).read_text(encoding="utf-8") != text
    ]
    assert there == set(made), "run: python docs/generate.py"
    assert stale == [], "run: python docs/generate.py"
