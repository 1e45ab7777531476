"""The tutorial: the files and commands of each step, in the order of its page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from samples import one_in

pytestmark = pytest.mark.slow  # each step trains in processes of its own

FOLDER = Path(__file__).parents[2] / "docs" / "learn"
STEPS = sorted(FOLDER.glob("[1-9]-*.md"))
_FILE = re.compile(r"# (\S+\.py)\n")
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", one_in(len(STEPS), STEPS), ids=lambda page: page.stem)
def test_a_step_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    """Its files are written and its commands run, beside the module of the first step."""
    for _, text in blocks(STEPS[0]):
        if text.startswith("# digits.py\n"):
            (tmp_path / "digits.py").write_text(text, encoding="utf-8")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("TRAINER_HOOKS_")}
    # what this environment installed comes first, as in an activated one
    environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    for language, text in blocks(page):
        if language == "python":
            match = _FILE.match(text)
            assert match is not None, f"a block names no file: {text}"
            (tmp_path / match[1]).write_text(text, encoding="utf-8")
            continue
        done = subprocess.run(
            ["bash", "-e", "-c", text], cwd=tmp_path, env=environ,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (text, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr
        assert "Advice" not in done.stderr, done.stderr
        if page.stem.startswith("4-") and "KILL_AT" in text:
            assert "it was killed" in done.stdout
            assert "resuming" in done.stderr, done.stderr
            assert "a new training" not in done.stderr, done.stderr


def test_the_steps_are_six_and_lead_on() -> None:
    """The index lists each, and each leads to the next."""
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in STEPS] == re.findall(r"\]\((\d-[\w-]+\.md)\)", index)
    assert len(STEPS) == 6
    for page, following in pairwise(STEPS):
        assert f"]({following.name})" in page.read_text(encoding="utf-8")
