"""What the cases of published callbacks share: a list of them, a module, and a fit."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

import trainer_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

CASES: list[Case] = []
"""All cases, in the order in which they are defined."""


@dataclass(frozen=True)
class Case:
    """A callback or logger that somebody published, and how it is tried.

    Attributes:
        package: the distribution that brings it.
        what: its class, and of which framework it is.
        run: tries it in an empty folder, which is the current one, and asserts what came of it.
        fails: part of the error that it ends with, empty if it runs.
        why: why it does not run, for readers.
        by: the distribution that brings what writes for the package, if it is another.
        compared: whether it is run in its own trainer, too, whole and killed, and compared.
    """

    package: str
    what: str
    run: Callable[[], None]
    fails: str = ""
    why: str = ""
    by: str = ""
    compared: bool = False

    @property
    def name(self) -> str:
        """A name for it that is no other's."""
        return f"{self.package} {self.what}"


def case(
    package: str, what: str, *, by: str = "", fails: str = "", why: str = "", compared: bool = False
) -> Any:
    """Add a function to the list; the arguments are those of `Case`."""

    def add(run: Callable[[], None]) -> Callable[[], None]:
        CASES.append(Case(package, what, run, fails, why, by, compared))
        return run

    return add


class _Placeholder(ModuleType):
    """A module of which only names in annotations are used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"Type": None})


def alone(name: str, *placeholders: str) -> Any:
    """Return a module of an installed package, of which the packages around it are not run.

    Those import much that the callback does not need.

    Args:
        name: the module's full name.
        placeholders: modules that it names in annotations alone.
    """
    for placeholder in placeholders:
        sys.modules.setdefault(placeholder, _Placeholder(placeholder))
    top, *rest = name.split(".")
    place = next(Path(path, top) for path in sys.path if Path(path, top).is_dir())
    for depth in range(len(rest)):
        package = ".".join([top, *rest[:depth]])
        if package not in sys.modules:
            module = sys.modules[package] = ModuleType(package)
            module.__path__ = [str(place.joinpath(*rest[:depth]))]
    return importlib.import_module(name)


class Net(trainer_hooks.Module):
    """A module that logs `loss` and `val_loss`."""

    def __init__(self, rate: float = 0.1):
        super().__init__()
        self.save_hyperparameters()
        self.backbone = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch, batch_idx):
        loss = self(batch).pow(2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self(batch).pow(2).mean())

    def predict_step(self, batch, batch_idx):
        return self(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.rate)


def loader() -> DataLoader:
    return DataLoader(torch.arange(32.0).reshape(8, 4) / 32, batch_size=2)


def fit(*callbacks: Any, module: Any = None, **options: Any) -> trainer_hooks.Trainer:
    """Fit two epochs of four batches; return the trainer."""
    torch.manual_seed(1)
    quiet = {
        "accelerator": "cpu", "max_epochs": 2, "default_root_dir": "runs", "logger": False,
        "enable_progress_bar": None, "enable_model_summary": False, "enable_checkpointing": None,
        "num_sanity_val_steps": 0, "log_every_n_steps": 1, "plugins": False,
    }  # fmt: skip
    trainer = trainer_hooks.Trainer(**{**quiet, **options}, callbacks=list(callbacks))
    trainer.fit(Net() if module is None else module, loader(), loader())
    assert trainer.global_step == 8 or trainer.should_stop
    return trainer


def written(pattern: str) -> list[Path]:
    """Return the files below the current folder whose names match; there must be some."""
    found = [path for path in Path().rglob(pattern) if path.is_file() and path.stat().st_size]
    assert found, f"nothing was written that matches {pattern!r}"
    return sorted(found)


def tracked_by_aim() -> list[str]:
    """Return a list that fills with the names of what runs of aim track from now on."""
    import aim

    names: list[str] = []
    track = aim.Run.track

    def noting(self, value, name=None, *rest, **named):
        names.append(name)
        return track(self, value, name, *rest, **named)

    aim.Run.track = noting
    return names
