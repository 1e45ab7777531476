"""Which plugins are installed, read from real folders of metadata; and how little is read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from trainer_hooks.hooks.discovery import installed_plugins

ROOT = Path(__file__).parents[2]
OURS = "trainer_hooks.callbacks_factory"


class Environment:
    """A folder of installed distributions, the only one in which they are looked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, entry_points: str | None = None, version: str = "1.0") -> None:
        place = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nWhat it is.\n"
        )
        if entry_points is not None:
            (place / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment without a distribution but those that a test adds."""
    import importlib_metadata

    look = partial(importlib_metadata.distributions, path=[str(tmp_path)])
    monkeypatch.setattr(importlib_metadata, "distributions", look)
    return Environment(tmp_path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often each file of each distribution was read."""
    from importlib_metadata import PathDistribution

    counted: Counter[tuple[str, str]] = Counter()
    read_text = PathDistribution.read_text

    def counting(self, filename):
        counted[self._path.name, filename] += 1
        return read_text(self, filename)

    monkeypatch.setattr(PathDistribution, "read_text", counting)
    return counted


def test_of_what_is_no_plugin_one_file_is_read_once(environment, reads) -> None:
    """Of 400 distributions, those with entry points have them read once, a plugin its metadata."""
    for number in range(400):
        kind = OURS if number % 40 == 0 else "console_scripts"
        text = f"[{kind}]\nname = package_{number}:make\n" if number % 4 == 0 else None
        environment.add(f"package-{number}", text)
    assert len(installed_plugins()) == 10
    by_file: dict[str, list[int]] = {}
    for (_, filename), count in reads.items():
        by_file.setdefault(filename, []).append(count)
    assert by_file == {"entry_points.txt": [1] * 100, "METADATA": [1] * 10}


def test_nothing_is_read_again_that_did_not_change(environment, reads) -> None:
    """The next trainer of a process reads no file, with and without plugins."""
    environment.add("plugin", f"[{OURS}]\nname = package:make\n")
    environment.add("other", "[console_scripts]\nname = package:make\n")
    environment.add("plain")
    first = installed_plugins()
    reads.clear()
    assert installed_plugins() == first
    assert not reads


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        ("entry_points.txt", "make", "another", ("plugin", "1.0", "package:another")),
        ("entry_points.txt", f"[{OURS}]", "[console_scripts]", None),
        ("METADATA", "Version: 1.0", "Version: 1.1", ("plugin", "1.1", "package:make")),
    ],
)
def test_what_changed_in_a_running_process_is_read(environment, file, old, new, found) -> None:
    """As in a notebook in which a package is installed again."""
    environment.add("plugin", f"[{OURS}]\nname = package:make\n")
    assert len(installed_plugins()) == 1
    place = environment.folder / "plugin-1.0.dist-info" / file
    place.write_text(place.read_text().replace(old, new))
    os.utime(place, ns=(1, 1))  # a clock may be too coarse for the test
    plugins = [(one.distribution, one.version, one.value) for one in installed_plugins()]
    assert plugins == ([] if found is None else [found])


def test_an_entry_point_that_comes_or_goes_is_seen(environment) -> None:
    """A distribution without entry points may get some, and lose them."""
    environment.add("plugin")
    assert installed_plugins() == ()
    place = environment.folder / "plugin-1.0.dist-info" / "entry_points.txt"
    place.write_text(f"[{OURS}]\nname = package:make\n")
    assert len(installed_plugins()) == 1
    place.unlink()
    assert installed_plugins() == ()


@pytest.mark.parametrize("off", ["discover=False", "discover=[]"])
def test_where_plugins_are_off_nothing_is_looked_up(off: str) -> None:
    """Without plugins not even the library that looks for them is imported."""
    code = (
        "import sys\n"
        "from trainer_hooks.connector.connector import CallbackConnector\n"
        f"CallbackConnector({off})\n"
        "assert 'importlib_metadata' not in sys.modules\n"
        "CallbackConnector()\n"
        "assert 'importlib_metadata' in sys.modules\n"
    )
    environ = {"PYTHONPATH": str(ROOT), "TRAINER_HOOKS_ALLOW_PLUGINS": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_environments_switch_spares_the_look_up_too() -> None:
    """`TRAINER_HOOKS_DISABLE_PLUGINS=1` costs as little as `plugins=False`."""
    code = (
        "import sys\n"
        "from trainer_hooks.connector.connector import CallbackConnector\n"
        "CallbackConnector()\n"
        "assert 'importlib_metadata' not in sys.modules\n"
    )
    environ = {"PYTHONPATH": str(ROOT), "TRAINER_HOOKS_DISABLE_PLUGINS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_file_is_read_as_installers_write_it(environment) -> None:
    """Groups in any order, comments, blank lines, spaces or none, and extras."""
    environment.add(
        "dist",
        "\n# a comment\n[callbacks_factory]\n"
        "bare=package.bare:make\n"
        "\n[console_scripts]\n  tool = package:main\n"
        f"; another\n[{OURS}]\n"
        "  spaced   =   package.ours:make  \n"
        "extra = package.extra:make [fast]\n",
    )
    found = [(p.name, p.group, p.value) for p in installed_plugins()]
    assert found == [
        ("bare", "callbacks_factory", "package.bare:make"),
        ("extra", OURS, "package.extra:make [fast]"),
        ("spaced", OURS, "package.ours:make"),
    ]


def test_a_damaged_line_hides_no_other(environment) -> None:
    """A line without a value is a plugin that leads nowhere; those around it are found."""
    environment.add("dist", f"[{OURS}]\nbefore = a:make\nstray\nbehind = b:make\n")
    assert [(p.name, p.value) for p in installed_plugins()] == [
        ("before", "a:make"),
        ("behind", "b:make"),
        ("stray", ""),
    ]


def test_a_group_that_only_begins_like_ours_is_none(environment, reads) -> None:
    """Our groups' names are taken whole."""
    environment.add("dist", f"[{OURS}.more]\nname = a:make\n[not_{OURS}]\nname = b:make\n")
    assert installed_plugins() == ()


def test_a_file_that_is_no_utf8_is_listed_as_failed(environment) -> None:
    """It says which byte is wrong, and keeps no other distribution's plugin from being found."""
    for name, content in (
        ("damaged", b"[callbacks_factory]\nname = \xff\xfe:make\n"),
        ("other", b"[console_scripts]\nname = \xff\xfe:make\n"),
    ):
        environment.add(name, "")
        (environment.folder / f"{name}-1.0.dist-info" / "entry_points.txt").write_bytes(content)
    environment.add("fine", f"[{OURS}]\nname = a:make\n")
    damaged, fine = installed_plugins()
    assert (fine.distribution, fine.status) == ("fine", "found")
    assert (damaged.distribution, damaged.name, damaged.status) == ("damaged", "name", "failed")
    assert damaged.reason == (
        f"its entry_points.txt in {environment.folder} is not UTF-8 (byte 0xff at position 27)"
    )
    # read from the cache, it is the same
    assert installed_plugins() == (damaged, fine)
