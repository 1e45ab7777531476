"""The Trainer of transformers, with nothing reported, drawn, clipped or saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _workload import BATCH_SIZE, TimedBatches, make_model, make_optimizer
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its usual name
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

if TYPE_CHECKING:
    from pathlib import Path

    import torch

__all__ = ["bare"]


class _Model(nn.Module):
    """Its models compute their loss themselves, from named inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": F.cross_entropy(self.net(x), labels)}


class _Trainer(Trainer):  # type: ignore[misc]
    def get_train_dataloader(self) -> TimedBatches:
        return self.train_dataset


def bare(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train with its default step."""
    batches.batches = [{"x": x, "labels": y} for x, y in batches.batches]
    model = _Model()
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=BATCH_SIZE,
        use_cpu=True,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = _Trainer(
        model, arguments, train_dataset=batches, optimizers=(make_optimizer(model), None)
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return model.net
