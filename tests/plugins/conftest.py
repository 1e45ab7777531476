"""Real plugins: packages that are built into wheels and installed, without network."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import warm_python

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
EXAMPLES = {"example": "monitoring", "vision": "vision"}  # the groups they are installed in
OURS = "trainer_hooks.callbacks_factory"
BARE = "callbacks_factory"

FAULTY = """
    from trainer_hooks.callback import Callback

    class Fine(Callback):
        pass

    def fine():
        return Fine()

    def pair():
        return (Fine(), Fine())

    def raises():
        raise LookupError("no licence key in the vault")

    def returns_none():
        Fine()

    def returns_class():
        return Fine

    def returns_string():
        return "a callback"

    def returns_generator():
        yield Fine()
"""

JOURNAL = """
    from trainer_hooks.callback import Callback

    class {cls}(Callback):
        def state_dict(self):
            return {{"seen": 1}}

        def load_state_dict(self, state_dict):
            pass

    def make():
        print("{cls} made")
        return [{cls}()]
"""

FAILING = """
    from trainer_hooks.callback import Callback

    class Failing(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            raise ZeroDivisionError("the plugin's own fault")

    def make():
        return Failing()
"""


def write_project(
    folder: Path, name: str, version: str, modules: dict[str, str], entry_points: dict[str, dict]
) -> Path:
    """Write a setuptools project with one package; `modules` maps a name to its source."""
    package = name.replace("-", "_")
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("")
    for module, source in modules.items():
        (folder / package / f"{module}.py").write_text(textwrap.dedent(source))
    lines = [
        "[build-system]",
        'requires = ["setuptools"]',
        'build-backend = "setuptools.build_meta"',
        "[project]",
        f'name = "{name}"',
        f'version = "{version}"',
        "[tool.setuptools]",
        f'packages = ["{package}"]',
    ]
    for group, entries in entry_points.items():
        lines.append(f'[project.entry-points."{group}"]')
        lines.extend(f'{entry} = "{package}.{value}"' for entry, value in entries.items())
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n")
    return folder


def write_projects(folder: Path) -> dict[str, list[Path]]:
    """Write every package that the tests need; return those that are installed together."""
    leftovers = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "tests")
    for name in EXAMPLES.values():
        shutil.copytree(ROOT / "plugins_example" / name, folder / name, ignore=leftovers)

    faulty = write_project(
        folder / "faulty",
        "faulty-callbacks",
        "2.3.4",
        {"factories": FAULTY, "broken": "import a_package_that_is_not_there\n"},
        {
            OURS: {
                "import-error": "broken:make",
                "no-such-name": "factories:absent",
                "raises": "factories:raises",
                "returns-none": "factories:returns_none",
                "returns-class": "factories:returns_class",
                "returns-string": "factories:returns_string",
                "returns-generator": "factories:returns_generator",
                "works": "factories:fine",
                "works-with-a-tuple": "factories:pair",
            }
        },
    )

    def journal(name: str, version: str, cls: str, *groups: str) -> Path:
        entry_points = {group: {"monitor": "factories:make"} for group in groups}
        modules = {"factories": JOURNAL.format(cls=cls)}
        return write_project(folder / name, name, version, modules, entry_points)

    fleet = [
        journal("acme-alpha", "1.0", "Alpha", OURS),
        journal("acme-beta", "0.9", "Beta", BARE),
        journal("acme-both", "3.0", "Both", OURS, BARE),
        journal("acme-bolt", "4.0", "Bolt", "lightning.pytorch.callbacks_factory"),
    ]
    rival = journal("a-rival", "5.0", "EventLog", OURS)
    failing = write_project(
        folder / "failing",
        "failing-callbacks",
        "6.1",
        {"factories": FAILING},
        {OURS: {"failing": "factories:make"}},
    )
    return {
        **{group: [folder / name] for group, name in EXAMPLES.items()},
        "faulty": [faulty],
        "fleet": fleet,
        "rival": [rival],
        "failing": [failing],
    }


BUILD = """
import os, sys
from setuptools import build_meta

wheels, *projects = sys.argv[1:]
os.makedirs(wheels)
for project in projects:
    os.chdir(project)
    build_meta.build_wheel(wheels)
"""


def run_python(*arguments: object) -> None:
    """Run Python, without network; fail with what it said."""
    command = [sys.executable, *map(str, arguments)]
    done = warm_python.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Sites(dict[str, Path]):
    """The folders into which groups of packages are installed; each is filled when first used."""

    def __init__(self, folder: Path, projects: dict[str, list[Path]]) -> None:
        super().__init__()
        self.folder = folder
        self.projects = projects

    def declare(self, group: str, *packages: tuple[str, str, dict, dict]) -> None:
        """Write a group of packages: name, version, modules, entry points."""
        folder = self.folder / "projects" / group
        self.projects[group] = [
            write_project(folder / str(number), *package) for number, package in enumerate(packages)
        ]

    def __missing__(self, group: str) -> Path:
        wheels, target = self.folder / "wheels" / group, self.folder / "site" / group
        # as `pip wheel --no-build-isolation` does, but in one process, which takes a fifth of it
        run_python("-c", BUILD, wheels, *self.projects[group])
        for wheel in wheels.glob("*.whl"):  # pip does no more with pure Python: see `test_new.py`
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target)
        self[group] = target
        return target


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """The folder of each group of installed packages, by name; built when it is first asked for."""
    folder = tmp_path_factory.mktemp("plugins")
    return Sites(folder, write_projects(folder / "projects"))


PROBE = Path(__file__).with_name("probe.py").read_text()


@dataclass(frozen=True)
class Probed:
    """What a fresh interpreter, in which plugins are installed, said of them."""

    callbacks: list[str]
    plugins: dict[str, tuple[str, str, str]]
    warnings: list[str]
    records: list[dict[str, Any]]
    error: str | None
    cause: str | None
    stdout: str

    def with_status(self, status: str) -> list[str]:
        """Return `distribution:entry point` of the plugins with that status."""
        return [name for name, (found, *_) in self.plugins.items() if found == status]


@pytest.fixture(scope="session")
def run_with_plugins(
    installed: Sites,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs code in an interpreter in which groups are installed."""

    def run(
        code: str, *groups: str, arguments: tuple[str, ...] = (), **environ: str
    ) -> subprocess.CompletedProcess[str]:
        path = [str(installed[group]) for group in groups]
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TRAINER_HOOKS_")
        }
        return warm_python.run(
            [sys.executable, "-c", code, *arguments],
            env={**inherited, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)]), **environ},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def not_asked_for(groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return the distributions of those examples whose groups are not wanted."""
    return tuple(f"trainer-hooks-{name}" for g, name in EXAMPLES.items() if g not in groups)


@pytest.fixture(scope="session")
def examples_not_asked_for() -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """Return the function that tells which distributions a test is to block."""
    return not_asked_for


@pytest.fixture(scope="session")
def probe(run_with_plugins: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., Any]:
    """Return a function that connects callbacks in an interpreter in which groups are installed.

    Its keywords are options of the connector (lower case) and environment variables (upper case,
    without `TRAINER_HOOKS_`). The examples may be installed for good beside trainer_hooks; each is
    blocked then, and left out of what is returned, unless its group is asked for.
    """

    def run(*groups: str, **options: Any) -> Probed:
        others = not_asked_for(groups)
        options["BLOCK_PLUGINS"] = ",".join([options.get("BLOCK_PLUGINS", ""), *others])
        environ = {f"TRAINER_HOOKS_{k}": options.pop(k) for k in list(options) if k.isupper()}
        done = run_with_plugins(PROBE, *groups, arguments=(json.dumps(options),), **environ)
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads(done.stderr)
        assert {kind for kind, _ in result["warnings"]} <= {"TrainerHooksWarning"}
        return Probed(
            callbacks=result.get("callbacks", []),
            plugins={
                name: tuple(plugin)
                for name, plugin in result.get("plugins", {}).items()
                if not name.startswith(others)
            },
            warnings=[message for _, message in result["warnings"]],
            records=result.get("records", []),
            error=result["error"],
            cause=result.get("cause"),
            stdout=done.stdout,
        )

    return run
