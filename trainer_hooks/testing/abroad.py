"""A tiny fit in the trainers of other frameworks, for a callback of theirs that stands for ours.

Each function trains an epoch and saves, or goes on from what was saved with a second one. The
frameworks are imported when one is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["in_accelerated", "in_composer", "in_lightning", "in_transformers"]

_BATCHES = 3


class _Points(Dataset[Any]):
    """Six points and their classes, as tuples or with names."""

    def __init__(self, is_named: bool = False) -> None:
        self._is_named = is_named

    def __len__(self) -> int:
        return 2 * _BATCHES

    def __getitem__(self, index: int) -> Any:
        point = torch.tensor([index, index + 1.0]).sin()
        label = (point.sum() > 0).long()
        return {"points": point, "labels": label} if self._is_named else (point, label)


class _Named(nn.Module):
    """A model as transformers has them: it takes names and returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, points: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the loss and the scores."""
        scores = self.layer(points)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def in_lightning(
    make: Callable[[], Any], folder: Path, look: Callable[[], None], *, resumes: bool
) -> None:
    """Fit in Lightning's Trainer.

    Args:
        make: returns the callback, once Lightning is imported.
        folder: where to save, or what to go on from.
        look: is called when the training begins, after the callback.
        resumes: whether to go on.
    """
    guest = make()
    base = next(kind for kind in type(guest).__mro__ if kind.__name__ == "Callback")
    pl: Any = importlib.import_module(base.__module__.partition(".callbacks")[0])

    class Net(pl.LightningModule):  # type: ignore[misc]  # not known before
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def _loss(self, batch: tuple[Tensor, Tensor], name: str) -> Tensor:
            loss = nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
            self.log(name, loss)
            return loss

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self._loss(batch, "train_loss")

        def validation_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self._loss(batch, "val_loss")

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1 + resumes,
        callbacks=[guest, type("Look", (base,), {"on_train_start": lambda *_: look()})()],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader: DataLoader[Any] = DataLoader(_Points(), batch_size=2)
    path = folder / "cut.ckpt"
    trainer.fit(Net(), loader, loader, ckpt_path=path if resumes else None)
    trainer.save_checkpoint(path)


def in_accelerated(
    make: Callable[[], Any], folder: Path, look: Callable[[], None], *, resumes: bool
) -> None:
    """Train in pytorch-accelerated's Trainer; the arguments are those of `in_lightning`."""
    pa: Any = importlib.import_module("pytorch_accelerated")
    base = importlib.import_module("pytorch_accelerated.callbacks").TrainerCallback
    looking = type("Look", (base,), {"on_training_run_start": lambda *_, **__: look()})
    model = nn.Linear(2, 2)
    trainer = pa.Trainer(
        model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1), [make(), looking()]
    )
    trainer.train(
        _Points(),
        1 + resumes,
        _Points(),
        per_device_batch_size=2,
        max_num_train_steps=_BATCHES * (1 + resumes),
        train_dataloader_kwargs={"num_workers": 0, "pin_memory": False},
        eval_dataloader_kwargs={"num_workers": 0, "pin_memory": False},
        resume_from=str(folder / "state") if resumes else None,
    )
    trainer.save_training_state(folder / "state")


def in_composer(
    make: Callable[[], Any], folder: Path, look: Callable[[], None], *, resumes: bool
) -> None:
    """Train in Composer's Trainer; the arguments are those of `in_lightning`."""
    composer: Any = importlib.import_module("composer")
    base: Any = composer.ComposerModel

    class Net(base):  # type: ignore[misc]  # not known before
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, batch: Any) -> Any:
            return self.layer(batch[0])

        def loss(self, outputs: Any, batch: Any) -> Tensor:
            return nn.functional.cross_entropy(outputs, batch[1])

    model = Net()
    looking = type("Look", (composer.Callback,), {"fit_start": lambda *_: look()})
    loader: DataLoader[Any] = DataLoader(_Points(), batch_size=2)
    path = folder / "cut.pt"
    trainer = composer.Trainer(
        model=model,
        train_dataloader=loader,
        eval_dataloader=loader,
        optimizers=torch.optim.SGD(model.parameters(), 0.1),
        max_duration=f"{1 + resumes}ep",
        callbacks=[make(), looking()],
        device="cpu",
        progress_bar=False,
        load_path=str(path) if resumes else None,
    )
    trainer.fit()
    trainer.save_checkpoint(str(path))
    trainer.close()


def in_transformers(
    make: Callable[[], Any], folder: Path, look: Callable[[], None], *, resumes: bool
) -> None:
    """Train in Hugging Face's Trainer; the arguments are those of `in_lightning`."""
    hf: Any = importlib.import_module("transformers")
    callbacks: Any = importlib.import_module("transformers.trainer_callback")
    # there, a callback that is loaded is put at the end of the list
    looking = type(
        "Look", (callbacks.TrainerCallback,), {"on_epoch_begin": lambda *_, **__: look()}
    )
    arguments = hf.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=1 + resumes,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        restore_callback_states_from_checkpoint=True,
    )
    trainer = hf.Trainer(
        _Named(),
        arguments,
        train_dataset=_Points(is_named=True),
        eval_dataset=_Points(is_named=True),
        callbacks=[make(), looking()],
    )
    trainer.remove_callback(callbacks.PrinterCallback)
    trainer.train(
        resume_from_checkpoint=str(folder / f"checkpoint-{_BATCHES}") if resumes else None
    )
