"""docs/stability.md says what the code does."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import trainer_hooks
from trainer_hooks.checkpoint.parts import FORMAT
from trainer_hooks.connector import adapter_lookup
from trainer_hooks.hooks.plugin import GROUPS, HOOKS_GROUP, LIGHTNING_GROUPS
from trainer_hooks.hooks.spec import ALIASES
from trainer_hooks.loggers import registry

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
VERSION = trainer_hooks.__version__


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def deprecated() -> dict[str, list[str]]:
    """Return the rows of the table of deprecated names, by the name."""
    rows = [line.strip("| ").split(" | ") for line in section("Deprecated names").splitlines()]
    return {row[0].strip("`"): row[1:] for row in rows if row[0].startswith("`")}


def test_the_version_and_the_format_are_the_present_ones() -> None:
    """The numbers in the text are those of the code."""
    assert f"The version is {VERSION}." in PAGE
    assert f"writes format {FORMAT}." in PAGE


def test_the_changelog_begins_with_the_present_version() -> None:
    """What comes next is on top, then this version; each line is one thing, and the page short."""
    head, *versions = CHANGELOG.split("\n## ")
    assert head.startswith("# Changelog")
    assert [part.partition("\n")[0] for part in versions] == ["Unreleased", VERSION]
    for part in versions:
        lines = [line for line in part.splitlines()[1:] if line and not line.startswith("### ")]
        assert [line for line in lines if not line.startswith("- ")] in ([], ["The first version."])
    assert len(versions[1].split()) < 2_500


def test_the_packages_with_public_names_list_them() -> None:
    """Each package of the table has names in `__all__`."""
    table, _, _ = section("Public names").partition("\nEverything else")
    packages = re.findall(r"`(trainer_hooks[\w.]*)`", table)
    packages += ["trainer_hooks.compat.composer", "trainer_hooks.compat.accelerated"]
    assert len(packages) == 10
    assert [name for name in packages if not import_module(name).__all__] == []


def test_the_groups_of_entry_points_are_those_that_are_read() -> None:
    """No group is left out, and none is made up."""
    told = set(re.findall(r"`((?:\w+\.)*\w+_factory|trainer_hooks\.\w+)`", section("Entry points")))
    read = {*GROUPS, *LIGHTNING_GROUPS, HOOKS_GROUP, registry.GROUP, adapter_lookup.ADAPTER_GROUP}
    assert told == read


def test_no_deprecated_name_has_outlived_its_version() -> None:
    """A name is taken out in the version that the page announces."""
    present = tuple(map(int, trainer_hooks.__version__.split(".")[:2]))
    ends = [row[2] for row in deprecated().values()]
    assert ends
    overdue = [end for end in ends if end != "never" and present >= tuple(map(int, end.split(".")))]
    assert overdue == []


def test_the_deprecated_names_are_the_aliases_of_hooks() -> None:
    """Whatever is deprecated stands in the table, and nothing else."""
    assert set(deprecated()) == {*ALIASES}
