"""Who imports whom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TORCH_FREE = [
    "trainer_hooks.errors",
    "trainer_hooks._log",
    "trainer_hooks.hooks",
    "trainer_hooks.callback",
    "trainer_hooks.connector",
    "trainer_hooks.progress",
    "trainer_hooks.registration",
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


def test_every_module_has_a_layer() -> None:
    """Each module and folder directly under the package stands in the contract, or is private."""
    contract = (ROOT / "setup.cfg").read_text().partition("layers =")[2].partition("ignore_")[0]
    listed = {word.strip("()") for word in contract.split()}
    package = ROOT / "trainer_hooks"
    found = {path.stem for path in package.iterdir() if path.suffix == ".py" or is_package(path)}
    assert found - {"__init__", "__main__"} <= listed


def is_package(path: Path) -> bool:
    return (path / "__init__.py").exists()


def test_importing_the_package_is_light() -> None:
    """`import trainer_hooks` and its hook layers load neither torch nor any other dependency."""
    done = run(
        "import sys, trainer_hooks, trainer_hooks.hooks, trainer_hooks.callback\n"
        "import trainer_hooks.connector, trainer_hooks.progress\n"
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
