"""Guests of the package `lightning` do what those of `pytorch_lightning` do."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = HERE / "as_lightning.py"

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.slow,
]


def copy(source: str, target: str) -> str:
    """Copy a file of one package into the other, which differ in their names alone."""
    if source.endswith(".py"):
        text = Path(source).read_text(encoding="utf-8")
        text = text.replace("pytorch_lightning", "lightning.pytorch")
        text = text.replace("lightning_fabric", "lightning.fabric")
        Path(target).write_text(text, encoding="utf-8")
    else:
        shutil.copy(source, target)
    return target


def stand_in(folder: Path) -> Path:
    """Make the package `lightning` of the two that it is made of."""
    for name, place in (("pytorch_lightning", "pytorch"), ("lightning_fabric", "fabric")):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(
            Path(spec.origin).parent, folder / "lightning" / place, copy_function=copy,
            ignore=shutil.ignore_patterns("__pycache__"),
        )  # fmt: skip
    folder.joinpath("lightning", "__init__.py").touch()
    return folder


@pytest.fixture(scope="module")
def results(results_of, tmp_path_factory) -> dict:
    """What the callbacks did there and here, and what each check said."""
    if importlib.util.find_spec("lightning") is not None:
        return results_of(SCRIPT)
    return results_of(SCRIPT, stand_in(tmp_path_factory.mktemp("package")))


def test_callbacks_do_what_they_do_at_home(results) -> None:
    """Calls, states, logged values, files and weights are the same, also resumed."""
    assert results["cases"]
    for name, found in results["cases"].items():
        assert "raised" not in found["there"], name
        if name != "LearningRateFinder resumed":  # which trains all epochs anew there
            assert found["here"] == found["there"], name


def test_what_guests_are_handed(results) -> None:
    """Each check in `checks.py` holds."""
    assert results["checks"]
    for name, said in results["checks"].items():
        assert said == "", (name, said)
