from __future__ import annotations

import importlib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_a_made_page_says_what_the_code_says(generator) -> None:
    """No page that is made from the code is stale: `python docs/generate.py` changes nothing."""
    made = generator.pages()
    stale = [
        name
        for name, text in made.items()
        if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run: python docs/generate.py"


@pytest.mark.exhaustive
def test_no_page_is_left_of_a_callback_that_is_gone(generator) -> None:
    """Each page below docs/callbacks is made."""
    made = set(generator.pages())
    assert {f"callbacks/{page.name}" for page in (DOCS / "callbacks").glob("*.md")} <= made


@pytest.mark.parametrize(
    ("package", "name", "page"),
    [
        ("trainer_hooks", "Module", "module.md"),
        ("trainer_hooks", "DataModule", "data.md"),
        ("trainer_hooks", "Trainer", "trainer.md"),
        ("trainer_hooks", "Callback", "writing-a-callback.md"),
        ("trainer_hooks", "Hooks", "hooks.md"),
        ("trainer_hooks", "TrainerCLI", "command-line.md"),
        ("trainer_hooks.callbacks", "EarlyStopping", "callbacks/EarlyStopping.md"),
        ("trainer_hooks.callbacks", "RichProgressBarTheme", "callbacks/RichProgressBar.md"),
        ("trainer_hooks.callbacks", "WriteInterval", None),
        ("trainer_hooks.errors", "DataError", None),
        ("trainer_hooks.compat.lightning", "LightningModule", "coming-from-lightning.md"),
        ("trainer_hooks.compat.composer.callbacks", "ThresholdStopper",
         "callbacks/ThresholdStopper.md"),
        ("trainer_hooks.compat.composer", "Trainer", "coming-from-composer.md"),
    ],
)  # fmt: skip
def test_the_reference_names_the_page_that_explains_a_name(generator, package, name, page) -> None:
    """It is not one that lists the name in passing, as the comparisons with other trainers do."""
    api = importlib.import_module("api_pages")
    assert api._explained_in(package, name, api._hand_pages()) == page


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
