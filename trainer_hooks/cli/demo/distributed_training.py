"""The training script of the demo of several processes, which runs it three times.

`python -m trainer_hooks.cli.demo.distributed_training FOLDER PROCESSES EPOCHS [KILL_EPOCH]` trains
the digits in that many processes, which its Trainer starts. It resumes where an earlier run was
interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
from trainer_hooks.cli.demo.digits import DigitsData, DigitsNet
from trainer_hooks.cli.demo.training import FINAL, REPORT, SmoothedLoss, single_threaded
from trainer_hooks.runtime.rng import seed_everything
from trainer_hooks.trainer.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.trainer import Trainer as AnyTrainer

__all__ = ["train"]

_BATCH = 32


class _KillLastRank(Callback):
    """Kill the last rank with SIGKILL in the middle of an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_batch_start(
        self, trainer: AnyTrainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Send the signal at the batch in the middle of the epoch."""
        half = trainer.num_training_batches // 2
        if (trainer.current_epoch, batch_idx) != (self.epoch, half):
            return
        if trainer.global_rank == trainer.world_size - 1:
            print(
                f"[demo] SIGKILL to rank {trainer.global_rank}, process {os.getpid()}, in batch "
                f"{batch_idx + 1} of {trainer.num_training_batches} of epoch {self.epoch}",
                flush=True,
            )
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, processes: int, epochs: int, kill_epoch: int | None = None) -> None:
    """Train to the end, or until the kill, and write the results to a file for the demo."""
    seed_everything(0, verbose=False)
    saver = ModelCheckpoint(
        dirpath=folder / "checkpoints",
        filename="{epoch}-{val_loss:.4f}",
        monitor="val_loss",
        save_top_k=-1,
    )
    killers = [] if kill_epoch is None else [_KillLastRank(kill_epoch)]
    trainer = Trainer(
        accelerator="cpu",
        devices=processes,
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=[SmoothedLoss(), saver, *killers],
        plugins=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    data = DigitsData(folder.parent, _BATCH // processes)
    with trainer, single_threaded():
        trainer.fit(DigitsNet(), datamodule=data, ckpt_path="auto")
        trainer.save_checkpoint(folder / FINAL)
        [metrics] = trainer.test(datamodule=data, ckpt_path="best", verbose=False)
    if trainer.is_global_zero:
        torch.save({"test": metrics, "best": saver.best_model_path}, folder / REPORT)


def _main(arguments: Sequence[str]) -> int:
    folder, *numbers = arguments
    try:
        train(Path(folder), *map(int, numbers))
    except KeyboardInterrupt:  # a terminal sends it to the demo too, which says so
        return 130
    except RuntimeError as error:
        if len(numbers) < 3:
            raise
        print(f"[demo] rank 0: {error.__notes__[-1]}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
