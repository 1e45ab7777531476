"""Who imports whom."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
TORCH_FREE = [
    "trainer_hooks.errors",
    "trainer_hooks._log",
    "trainer_hooks.hooks",
    "trainer_hooks.callback",
    "trainer_hooks.connector.connector",
    "trainer_hooks.clock.progress",
    "trainer_hooks.connector.registration",
]


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, at the root of the project."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_import_contracts_hold() -> None:
    """import-linter finds every contract of setup.cfg kept: the layers, and hooks without torch."""
    pytest.importorskip("importlinter")
    done = run(
        "from importlinter.cli import lint_imports_command\n"
        "lint_imports_command(['--config', 'setup.cfg', '--no-cache'])"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


LOOKING_UP = [
    ("trainer_hooks.hooks.catalogue", "trainer_hooks.trainer"),
    ("trainer_hooks.hooks.catalogue", "trainer_hooks.module"),
    ("trainer_hooks.context.context", "trainer_hooks.trainer"),
]
"""The only imports that run up, and for annotations alone: `Trainer` and `Module`."""

ROOMS_WITH_A_FACE = {
    f"trainer_hooks.{room}"
    for room in (
        "hooks", "clock", "connector", "runtime", "data", "metrics", "checkpoint", "module",
        "context", "loops", "trainer", "trainer.options", "trainer.run",
    )
}  # fmt: skip
"""Rooms whose `__init__` hands out what other rooms may use."""


def test_no_modules_import_each_other_in_a_circle() -> None:
    """With annotations counted there is no circle of imports, but for the two names of above."""
    found = grimp.build_graph("trainer_hooks", cache_dir=None)
    graph = {name: found.find_modules_directly_imported_by(name) for name in found.modules}
    del graph["trainer_hooks"]  # its face names everything, and nobody imports it for a name
    for importer, imported in LOOKING_UP:
        graph[importer].remove(imported)
    while ends := {name for name, imported in graph.items() if not imported & graph.keys()}:
        graph = {name: imported for name, imported in graph.items() if name not in ends}
    assert sorted(graph) == []


def test_rooms_meet_at_their_faces() -> None:
    """What one room uses of another is what the other's `__init__` hands out."""
    found = []
    for path in sorted((ROOT / "trainer_hooks").rglob("*.py")):
        room = ".".join(path.relative_to(ROOT).parent.parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and path.name != "__init__.py":
                other, _, file = (node.module or "").rpartition(".")
                has_file_name = any(alias.name == file for alias in node.names)
                if other in ROOMS_WITH_A_FACE and other != room and not has_file_name:
                    is_own_house = room.startswith(f"{other}.") or other.startswith(f"{room}.")
                    if f"{other}.{file}" not in ROOMS_WITH_A_FACE and not is_own_house:
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.module}")
    assert found == []


@pytest.mark.parametrize("room", sorted(ROOMS_WITH_A_FACE))
def test_a_face_hands_out_what_it_lists(room: str) -> None:
    """Each name of a room's face can be had, and is that of the file it lives in."""
    face = importlib.import_module(room)
    tree = ast.parse(Path(str(face.__file__)).read_text())
    homes = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{room}.")
        for alias in node.names
        if alias.asname is None  # one that is named again is there for annotations alone
    }
    assert sorted(homes) == sorted(face.__all__)
    for name, home in homes.items():
        assert getattr(face, name) is getattr(importlib.import_module(str(home)), name)


def test_few_files_lie_loose() -> None:
    """A file directly in the package is one that all rooms use; what has a room stands there."""
    package = ROOT / "trainer_hooks"
    assert sorted(path.name for path in package.glob("*.py")) == [
        "__init__.py", "__main__.py", "_files.py", "_lazy.py", "_log.py", "_text.py",
        "_version.py", "callback.py", "errors.py",
    ]  # fmt: skip


def test_importing_the_package_is_light() -> None:
    """`import trainer_hooks` and its hook layers load neither torch nor any other dependency."""
    done = run(
        "import sys, trainer_hooks, trainer_hooks.hooks, trainer_hooks.callback\n"
        "import trainer_hooks.connector.connector, trainer_hooks.clock.progress\n"
        "heavy = {'torch', 'numpy', 'tqdm', 'rich', 'importlib_metadata', 'sklearn'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


@pytest.mark.parametrize("module", TORCH_FREE)
def test_the_hook_layers_import_without_torch(module: str) -> None:
    """With torch out of reach the hook layers still import: they name it in annotations only."""
    package = ROOT / "trainer_hooks"
    done = run(
        "import sys, types\n"
        "sys.modules['torch'] = None\n"
        "package = types.ModuleType('trainer_hooks')\n"  # its __init__ may import everything
        f"package.__path__ = [{str(package)!r}]\n"
        "sys.modules['trainer_hooks'] = package\n"
        f"import {module}\n"
    )
    assert done.returncode == 0, done.stderr
