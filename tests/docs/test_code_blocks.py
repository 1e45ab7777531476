from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import warm_python
from samples import one_in

pytestmark = pytest.mark.slow  # each page trains in a process of its own

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[str]:
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


HOSTS = {
    "in-lightning.md": "pytorch_lightning",
    "in-transformers.md": "transformers",
    "in-composer.md": "composer",
    "in-pytorch-accelerated.md": "pytorch_accelerated",
    "in-ignite.md": "ignite",
}
"""The frameworks that pages about other trainers need."""

_SLOW_TO_IMPORT = re.compile(r"^from transformers import", re.MULTILINE)
"""A block with this needs seconds for its imports, and nothing after it needs the block."""

STAND_INS = ROOT / "tests" / "adapters" / "composer" / "stand_ins"
"""Modules that Composer imports, and that nothing here uses."""

_RUN_PAGE = """
import runpy, sys, warnings
from trainer_hooks.errors import TrainerHooksAdvice
warnings.simplefilter("ignore", TrainerHooksAdvice)  # given to runs as short as those of the pages
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
"""`-W ignore::` cannot name the category: an editable install is not importable that early."""


def is_long(page: Path) -> bool:
    """Whether a page starts many processes, or imports another framework, which takes seconds."""
    return "sweeps" in page.name or page.name in HOSTS


WITH_CODE = list(filter(blocks, PAGES))
LONG = list(filter(is_long, WITH_CODE))
SHORT = [page for page in WITH_CODE if page not in LONG]
"""The pages whose code does not take long; README.md is the first."""


@pytest.mark.parametrize(
    "page",
    [*one_in(3, SHORT), *(pytest.param(page, marks=pytest.mark.exhaustive) for page in LONG)],
    ids=lambda page: str(page.name),
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """The Python blocks of a page run one after another, as a reader would run them."""
    code = blocks(page)
    if page.name not in HOSTS:
        code = [block for block in code if not _SLOW_TO_IMPORT.search(block)]
    run(page, code, tmp_path)


@pytest.mark.exhaustive
def test_the_recipes_with_slow_imports_run(tmp_path: Path) -> None:
    """With the page's first block alone."""
    pytest.importorskip("transformers")
    setup, *recipes = blocks(ROOT / "docs" / "recipes.md")
    slow = [block for block in recipes if _SLOW_TO_IMPORT.search(block)]
    assert slow
    run(ROOT / "docs" / "recipes.md", [setup, *slow], tmp_path)


def run(page: Path, code: list[str], tmp_path: Path) -> None:
    """Run blocks of a page as a script."""
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(code), encoding="utf-8")
    framework = HOSTS.get(page.name)
    if framework is not None and find_spec(framework) is None:
        pytest.skip(f"needs {framework}")
    # the other frameworks warn a lot, of their own doing
    action = "error" if framework is None else "ignore"
    done = warm_python.run(
        [sys.executable, "-W", action, "-c", _RUN_PAGE, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(STAND_INS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_has_code_to_run() -> None:
    """The README shows code, so that the test above is about something."""
    assert blocks(ROOT / "README.md")


def test_no_code_finds_a_callback_by_its_place() -> None:
    """With plugins installed, as by the README's first command, another one may stand there."""
    by_place = re.compile(r"\.callbacks\[-?\d")
    found = [page.name for page in PAGES for block in blocks(page) if by_place.search(block)]
    assert found == [], "keep the callback in a variable"
