"""Who imports whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
TORCH_FREE = [
    "trainer_hooks.errors",
    "trainer_hooks._log",
    "trainer_hooks._output",
    "trainer_hooks.hooks",
    "trainer_hooks.callback",
    "trainer_hooks.connector.connector",
    "trainer_hooks.clock.progress",
    "trainer_hooks.connector.registry",
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


@pytest.mark.slow
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
    ("trainer_hooks.hooks.catalogue", "trainer_hooks.trainer.trainer"),
    ("trainer_hooks.hooks.catalogue", "trainer_hooks.module.module"),
    ("trainer_hooks.context.context", "trainer_hooks.trainer.trainer"),
]
"""The only imports that run up, and for annotations alone: `Trainer` and `Module`."""

INNER_ROOMS = [
    "hooks", "clock", "connector", "runtime", "data", "metrics", "checkpoint", "module", "context",
    "loops", "trainer", "trainer/options", "trainer/identity", "trainer/core", "trainer/messages",
    "trainer/ranks", "trainer/restoring", "trainer/run",
]  # fmt: skip
"""Rooms that users do not import from: other rooms import from their files."""


def test_no_modules_import_each_other_in_a_circle() -> None:
    """With annotations counted there is no circle of imports, but for the two names of above."""
    found = grimp.build_graph("trainer_hooks", cache_dir=None)
    graph = {
        # a package whose modules have stubs alone seems to import itself
        name: found.find_modules_directly_imported_by(name) - {name}
        for name in found.modules
    }
    del graph["trainer_hooks"]  # its face names everything, and nobody imports it for a name
    for importer, imported in LOOKING_UP:
        graph[importer].remove(imported)
    while ends := {name for name, imported in graph.items() if not imported & graph.keys()}:
        graph = {name: imported for name, imported in graph.items() if name not in ends}
    assert sorted(graph) == []


@pytest.mark.parametrize("room", INNER_ROOMS)
def test_an_inner_room_only_says_what_it_is_for(room: str) -> None:
    """Its `__init__` is a docstring: a name has one place, the file that defines it."""
    body = ast.parse((ROOT / "trainer_hooks" / room / "__init__.py").read_text()).body
    assert len(body) == 1
    assert isinstance(body[0], ast.Expr)


def _named_modules(path: Path, modules: set[str]) -> set[str]:
    """Return the modules that a file names in pairs of strings, a module and a class of it."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        items = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
        texts = [item.value for item in items if isinstance(item, ast.Constant)]
        if len(texts) == len(items) == 2 and all(isinstance(text, str) for text in texts):
            named |= {texts[0], f"trainer_hooks.callbacks.{texts[0]}"} & modules
    return named


@pytest.mark.slow
def test_classes_that_are_only_named_are_imported_for_the_contracts() -> None:
    """A file that looks a class up by `class_if_loaded` also imports it, under TYPE_CHECKING.

    So the layers' contracts see the import, and no module is loaded for it.
    """
    graph = grimp.build_graph("trainer_hooks", cache_dir=None)
    hidden, users = [], 0
    for path in sorted((ROOT / "trainer_hooks").rglob("*.py")):
        if "class_if_loaded(" in path.read_text(encoding="utf-8") and path.name != "_lazy.py":
            importer = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            named = _named_modules(path, graph.modules)
            users += bool(named)
            imported = graph.find_modules_directly_imported_by(importer)
            for module in sorted(named):
                parts = module.split(".")
                # a class may be imported from the face of its package, as `trainer_hooks.callbacks`
                homes = {".".join(parts[:n]) for n in range(2, len(parts) + 1)}
                if not homes & imported:
                    hidden.append(f"{importer} names {module}")
    assert users >= 6
    assert hidden == []


def test_few_files_lie_loose() -> None:
    """A file directly in the package is one that all rooms use; what has a room stands there."""
    package = ROOT / "trainer_hooks"
    assert sorted(path.name for path in package.glob("*.py")) == [
        "__init__.py", "__main__.py", "_annotations.py", "_files.py", "_lazy.py", "_log.py",
        "_names.py", "_options.py", "_output.py", "_system.py", "_text.py", "_version.py",
        "_words.py",
        "callback.py", "errors.py",
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
