"""The training runs of the demo: the trainer, the callbacks, and the processes that train.

The demo starts two programs in new processes, after `python -m trainer_hooks.cli.demo.training`:

    resume CHECKPOINT FOLDER EPOCHS               resume an interrupted run
    train FOLDER PROCESSES EPOCHS [KILL_EPOCH]    train in several processes; resume what was killed
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._names import ours
from trainer_hooks._system import kill_process
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
from trainer_hooks.cli.demo.digits import DigitsData, DigitsNet
from trainer_hooks.runtime.rng import seed_everything
from trainer_hooks.trainer.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.trainer import Trainer as AnyTrainer

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
        # not in place: a state that was handed out keeps its value
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
        # through the handlers, as from a terminal: a bare KeyboardInterrupt would pass them by
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
        self.states = {
            c.state_key: c.state_dict() for c in trainer.callbacks if ours(c).is_stateful
        }


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
            # no handler and no `finally` runs, as when the system kills for want of memory
            kill_process(os.getpid())


def make_trainer(
    folder: Path, epochs: int, *more: Callback, save_on_exception: bool = True, **options: Any
) -> Trainer:
    """Return the demo's trainer, which writes logs and checkpoints to `folder`.

    It keeps one checkpoint an epoch, and one of the interruption.
    """
    saver = ModelCheckpoint(
        dirpath=folder / "checkpoints",
        filename="{epoch}-{val_loss:.4f}",
        monitor="val_loss",
        save_top_k=-1,
        save_on_exception=save_on_exception,
    )
    defaults = {"log_every_n_steps": 20, "enable_model_summary": False}
    return Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=[SmoothedLoss(), saver, *more],
        **{**defaults, **options},
    )


def resume(checkpoint: str, folder: Path, epochs: int) -> None:
    """Resume from a checkpoint, train to the end, test the best checkpoint, and write the results.

    Nothing is seeded here: the random states come from the checkpoint too.
    """
    witness = RecordRestoredStates()
    trainer = make_trainer(folder, epochs, witness)
    _train_and_test(trainer, folder, DigitsData(folder.parent), checkpoint, witness)


def train(folder: Path, processes: int, epochs: int, kill_epoch: int | None = None) -> None:
    """Train to the end, or until the kill, and write the results to a file for the demo."""
    seed_everything(0, verbose=False)
    trainer = make_trainer(
        folder,
        epochs,
        *([] if kill_epoch is None else [_KillLastRank(kill_epoch)]),
        save_on_exception=False,  # `fit` resumes from the last epoch: a killed rank saves nothing
        devices=processes,
        log_every_n_steps=50,
        plugins=False,
        enable_progress_bar=False,
    )
    # each rank has its share, so that an epoch has as many steps as in one process
    data = DigitsData(folder.parent, 32 // processes)
    _train_and_test(trainer, folder, data, "auto", RecordRestoredStates())


def _train_and_test(
    trainer: Trainer,
    folder: Path,
    data: DigitsData,
    checkpoint: str,
    witness: RecordRestoredStates,
) -> None:
    with trainer, single_threaded():
        trainer.fit(DigitsNet(), datamodule=data, ckpt_path=checkpoint)
        trainer.save_checkpoint(folder / FINAL)
        [metrics] = trainer.test(datamodule=data, ckpt_path="best", verbose=False)
    saver = trainer.checkpoint_callback
    assert isinstance(saver, ModelCheckpoint)
    if trainer.is_global_zero:
        report = {"states": witness.states, "test": metrics, "best": saver.best_model_path}
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
    program, *values = arguments
    try:
        if program == "resume":
            checkpoint, folder, epochs = values
            resume(checkpoint, Path(folder), int(epochs))
        else:
            folder, *numbers = values
            train(Path(folder), *map(int, numbers))
    except KeyboardInterrupt:  # a terminal sends it to the demo too, which says so
        return 130
    except RuntimeError as error:
        if program == "resume" or len(numbers) < 3:
            raise
        print(f"[demo] rank 0: {error.__notes__[-1]}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
