"""What a program is given: the names of one framework, and a few things to see what it does."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch
from plain_values import plain
from recording import shown
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["PACKAGES", "Rows", "Side"]

PACKAGES = {
    "lightning": "pytorch_lightning",
    "here": "trainer_hooks",
    "ported": "trainer_hooks.compat.lightning",
}
"""What programs take their names from."""


class Rows(Dataset):
    """So many samples of two numbers, all different."""

    def __init__(self, count: int, shift: float = 0.0) -> None:
        self.count = count
        self.shift = shift

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index / 10 + self.shift, (index % 3) / 4 - self.shift])


class Side:
    """The names of Lightning, or of trainer_hooks, or Lightning's from trainer_hooks.

    Attributes:
        package: where the names come from.
        folder: a new folder for this program's files.
        utilities: the name of the package of Lightning's utilities; ours is with Lightning's names.
    """

    def __init__(self, framework: str, folder: Path) -> None:
        package = PACKAGES[framework]
        has_its_names = framework != "here"
        self.folder = folder
        self.package = importlib.import_module(package)
        self.callbacks: Any = importlib.import_module(f"{package}.callbacks")
        self.loggers: Any = importlib.import_module(f"{package}.loggers")
        self.Trainer: Any = self.package.Trainer
        self.Module: Any = self.package.LightningModule if has_its_names else self.package.Module
        self.DataModule: Any = (
            self.package.LightningDataModule if has_its_names else self.package.DataModule
        )
        self.Callback: Any = self.package.Callback
        names = package if has_its_names else PACKAGES["ported"]
        self.utilities = f"{names}.utilities"
        combined = importlib.import_module(f"{self.utilities}.combined_loader")
        self.CombinedLoader: Any = combined.CombinedLoader
        self.Net = self._make_net()

    def trainer(self, *callbacks: Any, **options: Any) -> Any:
        """Make a trainer of one epoch that prints, logs, saves and checks nothing by itself."""
        quiet = {
            "accelerator": "cpu", "devices": 1, "logger": False, "enable_checkpointing": False,
            "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 1,
            "num_sanity_val_steps": 0, "default_root_dir": self.folder,
        }  # fmt: skip
        return self.Trainer(**{**quiet, "callbacks": list(callbacks), **options})

    def loader(self, batches: int = 4, size: int = 2, shift: float = 0.0, **options: Any) -> Any:
        """Make a loader of so many batches of `size` samples."""
        return DataLoader(Rows(batches * size, shift), batch_size=size, **options)

    def hooks(self, *names: str, into: list[str] | None = None) -> Any:
        """Make a callback that writes down its calls of these hooks, in `calls`."""
        return self._recorder("", names, (self.Callback,), into)()

    def recorded(self, module: type, *names: str, into: list[str], prefix: str = "module.") -> Any:
        """Return a subclass of a module that writes down its calls of these hooks, and calls it."""
        return self._recorder(prefix, names, (module,), into)

    def _recorder(
        self, prefix: str, names: tuple[str, ...], bases: tuple[type, ...], into: list[str] | None
    ) -> Any:
        calls: list[str] = [] if into is None else into

        def hook(name: str) -> Callable:
            def call(this: Any, *args: Any, **kwargs: Any) -> Any:
                calls.append(prefix + shown(name, args, kwargs))
                return getattr(super(made, this), name)(*args, **kwargs)

            return call

        body = {name: hook(name) for name in names} | {"calls": calls}
        made = type(f"Recorded{bases[0].__name__}", bases, body)
        return made

    def journal(self) -> Any:
        """Make a logger that keeps what it is given: `rows` of (step, metrics), `hparams`."""

        class Journal(self.loggers.Logger):
            def __init__(self) -> None:
                super().__init__()
                self.rows: list[Any] = []
                self.hparams: list[Any] = []
                self.ended: list[str] = []

            name = "journal"
            version = 0

            def log_metrics(self, metrics: Any, step: Any = None) -> None:
                self.rows.append([step, plain(dict(metrics))])

            def log_hyperparams(self, params: Any, *args: Any) -> None:
                self.hparams.append(plain(dict(params)))

            def finalize(self, status: str) -> None:
                self.ended.append(status)

        return Journal()

    def metrics(self, trainer: Any) -> dict[str, Any]:
        """Return what can be read of the metrics."""
        return {
            "callback": plain(dict(trainer.callback_metrics)),
            "logged": plain(dict(trainer.logged_metrics)),
            "bar": plain(dict(trainer.progress_bar_metrics)),
        }

    def counters(self, trainer: Any) -> dict[str, Any]:
        """Return how far a trainer is."""
        loop = trainer.fit_loop
        batches = loop.epoch_loop.batch_progress.total
        return {
            "global_step": trainer.global_step,
            "current_epoch": trainer.current_epoch,
            "batches": [batches.ready, batches.completed],
            "epochs": [loop.epoch_progress.current.ready, loop.epoch_progress.current.completed],
        }

    def weights(self, module: Any) -> Any:
        """Return the weights, bit for bit."""
        return plain(dict(module.state_dict()))

    def error(self, act: Callable[[], Any]) -> Any:
        """Return what kind of error a call raises, or "none"."""
        try:
            act()
        except BaseException as error:
            return self.kind(error)
        return "none"

    def kind(self, error: BaseException) -> dict[str, list[str]]:
        """Return what an error is: the names of its classes, but for those that all have.

        What a framework raises to say that it was misused is a `misuse` too.
        """
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & {"MisconfigurationException", "TrainerHooksError"}:
            names.add("misuse")
        return {"kinds": sorted(names - {"object", "Exception", "BaseException"})}

    def files(self, pattern: str = "**/*") -> list[str]:
        """Return the files below the program's folder, in order."""
        found = (path for path in self.folder.glob(pattern) if path.is_file())
        return sorted(str(path.relative_to(self.folder)) for path in found)

    def _make_net(self) -> type:
        class Net(self.Module):
            """A layer with known weights, of which the square is made small."""

            def __init__(self, lr: float = 0.1) -> None:
                super().__init__()
                self.lr = lr
                self.layer = torch.nn.Linear(2, 1)
                with torch.no_grad():
                    self.layer.weight.copy_(torch.tensor([[0.5, -0.25]]))
                    self.layer.bias.fill_(0.1)

            def forward(self, batch: torch.Tensor) -> torch.Tensor:
                return self.layer(batch)

            def cost(self, batch: torch.Tensor) -> torch.Tensor:
                return self(batch).square().mean()

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                return self.cost(batch)

            def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
                self.log("val", self.cost(batch))

            def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
                self.log("test", self.cost(batch))

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=self.lr)

        return Net
