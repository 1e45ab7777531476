"""CONTRIBUTING.md names files, commands and checks that are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_each_file_and_folder_that_it_names_is_there() -> None:
    """Paths are told from the checkout, or from the package."""
    quoted = set(re.findall(r"`([\w./]+(?:\.py|\.md|\.toml|/))`", PAGE))
    made = {"src/my_monitor/callback.py"}  # by `trainer-hooks plugins new`
    assert len(quoted) > 25
    gone = [
        path
        for path in quoted - made
        if not any((folder / path).exists() for folder in (ROOT, ROOT / "trainer_hooks"))
    ]
    assert gone == []


def test_each_test_folder_that_it_runs_is_there() -> None:
    """`pytest tests/ROOM` runs the tests of a room."""
    folders = set(re.findall(r"tests/\w+(?:/\w+)?(?=[` ,])", PAGE))
    assert {"tests/hooks", "tests/checkpoint"} <= folders
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_its_links_lead_somewhere(page) -> None:
    """No link is dead."""
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_checks_before_a_commit_are_those_of_ci() -> None:
    """Each linter that CI runs is a hook of pre-commit."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    entries = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    checks = re.findall(r"^(ruff format|ruff check|mypy|lint-imports)", ci, re.MULTILINE)
    assert len(checks) == 4
    assert [check for check in checks if not any(e.startswith(check) for e in entries)] == []


def test_the_extras_that_it_installs_are_there() -> None:
    """`.[dev]` and `.[demo]` are extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"dev", "demo", "docs"} <= set(project["optional-dependencies"])
