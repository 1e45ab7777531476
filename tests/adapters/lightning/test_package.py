"""Guests of the package `lightning` do what those of `pytorch_lightning` do."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from pathlib import Path

import pytest
import warm_python
from lightning_package import copy_renamed, stand_in

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SCRIPT = HERE / "as_lightning.py"
CHECKS = HERE / "isolated_checks.py"

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> list[Path]:
    """Where the package `lightning` is to be looked for first."""
    if importlib.util.find_spec("lightning") is not None:
        return []
    return [stand_in(tmp_path_factory.mktemp("package"))]


@pytest.mark.exhaustive
def test_callbacks_do_what_they_do_at_home(results_of, package) -> None:
    """Calls, states, logged values, files and weights are the same, also resumed."""
    results = results_of(SCRIPT, *package)
    assert results
    for name, found in results.items():
        assert "raised" not in found["there"], name
        if name != "LearningRateFinder resumed":  # which trains all epochs anew there
            assert found["here"] == found["there"], name


@pytest.mark.exhaustive
def test_what_guests_are_handed(package, tmp_path) -> None:
    """Each test of `isolated_checks.py` passes, where the other package cannot be imported."""
    hidden = "import sys; sys.modules.update(pytorch_lightning=None, lightning_fabric=None)"
    tmp_path.joinpath("conftest.py").write_text(hidden, encoding="utf-8")
    tests = copy_renamed(str(CHECKS), str(tmp_path / "test_checks.py"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = warm_python.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path,
         "--import-mode=importlib", tests],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**environment, "PYTHONPATH": os.pathsep.join(map(str, (*package, ROOT)))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    functions = [one.name for one in ast.parse(CHECKS.read_text("utf-8")).body if _is_test(one)]
    assert f"\n{len(functions)} passed" in done.stdout


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
