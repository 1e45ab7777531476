"""This framework: bare, with callbacks that listen to nothing or to one hook, and as usual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _workload import BATCH_SIZE, LOG_EVERY, METRICS, TimedBatches, make_model, make_optimizer
from torch.nn import functional as F  # noqa: N812 - its usual name

from trainer_hooks import Callback, Module, Run, Trainer

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import nn

__all__ = ["bare", "one", "own_loop", "rich", "unused", "usual"]


class _Plain(Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimizer(self)


class _Logging(_Plain):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        first, second, third = METRICS
        self.log(first, loss, prog_bar=True, on_step=True, on_epoch=True, batch_size=BATCH_SIZE)
        self.log(second, loss, on_step=True, on_epoch=True, batch_size=BATCH_SIZE)
        self.log(third, loss, on_step=True, on_epoch=True, batch_size=BATCH_SIZE)
        return loss


class _Unused(Callback):
    def __init__(self, number: int) -> None:
        self.number = number

    @property
    def state_key(self) -> str:
        return f"unused {self.number}"


class _Listener(Callback):
    def on_train_batch_end(self, *args: Any) -> None:
        pass


def _fit(
    module: _Plain, batches: TimedBatches, epochs: int, folder: Path, **options: Any
) -> nn.Module:
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir=str(folder),
        enable_model_summary=False,
        **options,
    )
    trainer.fit(module, batches)
    return module.net


def bare(
    batches: TimedBatches, epochs: int, folder: Path, callbacks: list[Callback] | None = None
) -> nn.Module:
    """Train with no logger, bar, checkpoint or summary."""
    off = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return _fit(_Plain(), batches, epochs, folder, callbacks=callbacks or [], **off)


def unused(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train with 100 callbacks that listen to nothing."""
    return bare(batches, epochs, folder, [_Unused(number) for number in range(100)])


def one(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train with one callback that listens to the end of each batch."""
    return bare(batches, epochs, folder, [_Listener()])


def usual(
    batches: TimedBatches, epochs: int, folder: Path, bar: Callback | None = None
) -> nn.Module:
    """Train with three logged metrics, bar, CSV, rate monitor, early stopping and checkpoints."""
    from trainer_hooks.callbacks import (
        EarlyStopping,
        LearningRateMonitor,
        ModelCheckpoint,
        TQDMProgressBar,
    )
    from trainer_hooks.loggers import CSVLogger

    callbacks = [
        bar or TQDMProgressBar(),
        LearningRateMonitor(logging_interval="step"),
        EarlyStopping("loss_epoch", patience=1000, check_on_train_epoch_end=True),
        ModelCheckpoint(folder / "checkpoints", save_on_train_epoch_end=True),
    ]
    return _fit(
        _Logging(),
        batches,
        epochs,
        folder,
        callbacks=callbacks,
        logger=CSVLogger(folder),
        log_every_n_steps=LOG_EVERY,
    )


def rich(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train as `usual` does, with a bar drawn by rich."""
    from trainer_hooks.callbacks import RichProgressBar

    return usual(batches, epochs, folder, RichProgressBar())


def own_loop(batches: TimedBatches, epochs: int, folder: Path) -> nn.Module:
    """Train in the hand-written loop, with Run between its lines and nothing else."""
    model = make_model()
    run = Run(
        model,
        make_optimizer(model),
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir=str(folder),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_run_manifest=False,
        plugins=False,
    )
    with run:
        for _ in run.epochs():
            for x, y in run.batches(batches):
                run.backward(F.cross_entropy(model(x), y))
                run.step()
    return model
