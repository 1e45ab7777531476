"""The package `lightning`, made of `pytorch_lightning` and `lightning_fabric`."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

__all__ = ["copy_renamed", "stand_in"]

_FACE = """
from lightning.fabric import Fabric
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch import __version__, seed_everything
"""


def copy_renamed(source: str, target: str) -> str:
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
    """Make the package `lightning` in a folder, of the two that it is made of."""
    for name, place in (("pytorch_lightning", "pytorch"), ("lightning_fabric", "fabric")):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(
            Path(spec.origin).parent, folder / "lightning" / place, copy_function=copy_renamed,
            ignore=shutil.ignore_patterns("__pycache__"),
        )  # fmt: skip
    folder.joinpath("lightning", "__init__.py").write_text(_FACE, encoding="utf-8")
    return folder
