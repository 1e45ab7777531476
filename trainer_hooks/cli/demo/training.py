"""The training runs of the demo: the trainer, the callbacks, and the process that resumes.

`python -m trainer_hooks.cli.demo.training CHECKPOINT RUN_FOLDER EPOCHS` resumes an interrupted run;
the demo starts it in a new process.
"""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
from trainer_hooks.cli.demo.digits import DigitsData, DigitsNet
from trainer_hooks.trainer.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.trainer import Trainer as AnyTrainer

__all__ = [
    "FINAL",
    "REPORT",
    "CtrlC",
    "RecordRestoredStates",
    "SmoothedLoss",
    "make_trainer",
    "resume",
    "single_threaded",
]

FINAL = "final.ckpt"
REPORT = "resumed.pt"


class SmoothedLoss(Callback):
    """Keep a moving average of the training loss: a state that any lost batch would change.

    State: the average as a tensor, and the number of batches in it.
    """

    def __init__(self) -> None:
        self.value = torch.zeros(())
        self.batches = 0

    def on_train_batch_end(
        self,
        trainer: AnyTrainer,
        module: Module,
        outputs: dict[str, Any],
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Add the batch's loss to the average."""
        self.value = torch.lerp(self.value, outputs["loss"].detach(), 0.05)
        self.batches += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the average and its number of batches."""
        return {"value": self.value, "batches": self.batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the average and the number of batches."""
        self.value, self.batches = state_dict["value"], state_dict["batches"]


class CtrlC(Callback):
    """Send SIGINT to this process during a training batch, as Ctrl-C on a terminal does.

    Args:
        epoch: the index of the epoch.

    Attributes:
        has_fired: whether the signal was sent.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.has_fired = False

    def on_train_batch_start(
        self,
        trainer: AnyTrainer,
        module: Module,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Send the signal at the batch in the middle of the epoch."""
        batches = trainer.num_training_batches
        if self.has_fired or (trainer.current_epoch, batch_idx) != (self.epoch, batches // 2):
            return
        self.has_fired = True
        trainer.print(
            f"[demo] Ctrl-C: SIGINT to this very process, in batch {batch_idx + 1} of {batches} "
            f"of epoch {self.epoch}"
        )
        sys.stdout.flush()  # the framework answers on stderr, and that should come after this
        signal.raise_signal(signal.SIGINT)


class RecordRestoredStates(Callback):
    """Record the states of all callbacks when training starts, just after they were restored.

    Attributes:
        states: the states by `state_key`.
    """

    def __init__(self) -> None:
        self.states: dict[str, dict[str, Any]] = {}

    def on_train_start(
        self,
        trainer: AnyTrainer,
        module: Module,
    ) -> None:
        """Record the states."""
        self.states = {c.state_key: c.state_dict() for c in trainer.callbacks if c.is_stateful}


def make_trainer(folder: Path, epochs: int, *more: Callback, summary: bool = False) -> Trainer:
    """Return the demo's trainer, which writes logs and checkpoints to `folder`.

    It keeps one checkpoint an epoch, and one of the interruption.
    """
    saver = ModelCheckpoint(
        dirpath=folder / "checkpoints",
        filename="{epoch}-{val_loss:.4f}",
        monitor="val_loss",
        save_top_k=-1,
        save_on_exception=True,
    )
    return Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        log_every_n_steps=20,
        default_root_dir=folder,
        callbacks=[SmoothedLoss(), saver, *more],
        enable_model_summary=summary,
    )


def resume(checkpoint: str, folder: Path, epochs: int) -> None:
    """Resume from a checkpoint, train to the end, test the best checkpoint, and write the results.

    Nothing is seeded here: the random states come from the checkpoint too.
    """
    witness = RecordRestoredStates()
    data = DigitsData(folder.parent)
    trainer = make_trainer(folder, epochs, witness)
    with trainer, single_threaded():
        trainer.fit(DigitsNet(), datamodule=data, ckpt_path=checkpoint)
        trainer.save_checkpoint(folder / FINAL)
        [metrics] = trainer.test(datamodule=data, ckpt_path="best", verbose=False)
    best = trainer.checkpoint_callback
    assert isinstance(best, ModelCheckpoint)
    report = {"states": witness.states, "test": metrics, "best": best.best_model_path}
    torch.save(report, folder / REPORT)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Limit torch to one thread inside the context.

    A net this small trains no faster with more threads, and much slower on busy cores. Also, sums
    are bit-identical only where the same number of threads added them up.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _main(arguments: Sequence[str]) -> int:
    checkpoint, folder, epochs = arguments
    try:
        resume(checkpoint, Path(folder), int(epochs))
    except KeyboardInterrupt:  # a terminal sends it to the demo too, which says so
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
