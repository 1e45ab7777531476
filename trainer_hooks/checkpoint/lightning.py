"""The checkpoint layout of Lightning 2.x: read its position, and write ours under its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_hooks.errors import CheckpointError

VERSION = "2.6.0"
"""The version of Lightning whose layout our files have in the keys that Lightning knows."""

DATA_HPARAMS = "datamodule_hyper_parameters"
"""The key under which a checkpoint holds the hyperparameters of the data module."""


@dataclass(frozen=True, slots=True)
class LightningProgress:
    """The training position that a Lightning checkpoint holds.

    Attributes:
        epochs: epochs completed; the index of the running one.
        batches: batches of all epochs.
        batches_in_epoch: batches of the running epoch, 0 between two epochs.
        steps: optimizer steps.
        batches_stepped: batches that ended an accumulation window.
    """

    epochs: int
    batches: int
    batches_in_epoch: int
    steps: int
    batches_stepped: int


def is_lightning(checkpoint: dict[str, Any]) -> bool:
    """Return whether Lightning wrote a checkpoint."""
    return "pytorch-lightning_version" in checkpoint and "trainer_hooks" not in checkpoint


def lightning_progress(checkpoint: dict[str, Any], source: str) -> LightningProgress:
    """Return the training position in a Lightning checkpoint.

    Batches count as done when their step is: a checkpoint saved after a batch is written before
    Lightning counts that batch as completed.

    Args:
        checkpoint: the checkpoint.
        source: the file, for messages.

    Raises:
        CheckpointError: it holds no position, as those of versions before 2.0.
    """
    try:
        loop = checkpoint["loops"]["fit_loop"]
        batches = loop["epoch_loop.batch_progress"]
        begun = loop["epoch_progress"]["current"]["started"]
        is_over = batches["is_last_batch"]
        return LightningProgress(
            # `started` counts the running epoch, which is not completed
            epochs=begun if is_over else max(0, begun - 1),
            batches=batches["total"]["processed"],
            batches_in_epoch=0 if is_over else batches["current"]["processed"],
            steps=checkpoint["global_step"],
            batches_stepped=loop["epoch_loop.state_dict"].get("_batches_that_stepped", 0),
        )
    except (KeyError, TypeError) as error:
        version = checkpoint.get("pytorch-lightning_version")
        raise CheckpointError(
            f"checkpoint {source!r} of Lightning {version} does not say where its training stood "
            f"({type(error).__name__}: {error}): only those of Lightning 2.x can be resumed from. "
            "To start anew from its weights, use Module.load_from_checkpoint."
        ) from error


def loops_of(progress: dict[str, Any]) -> dict[str, Any]:
    """Return our counters in the layout of Lightning's loops, so that it can read our checkpoints.

    Args:
        progress: the state of `trainer_hooks.clock.progress.Progress`.
    """
    epochs, in_epoch = progress["epochs_completed"], progress["batches_in_epoch"]
    epoch_stage, steps = progress["stage"], progress["steps_completed"]
    is_over = epoch_stage not in ("between", "batches")
    # in Lightning's counters a running epoch is started, and after its last batch processed
    begun = epochs + (epoch_stage != "between")
    epoch = {"ready": begun, "started": begun, "processed": epochs + is_over, "completed": epochs}
    done = dict.fromkeys(("ready", "started", "processed", "completed"), in_epoch)
    total = dict.fromkeys(done, progress["batches_completed"])
    nothing = dict.fromkeys(done, 0)
    stepped = {
        "total": {"ready": steps, "completed": steps},
        "current": {"ready": 0, "completed": 0},
    }
    # Lightning counts the calls of zero_grad too, one for each step
    cleared = {kind: {**counts, "started": counts["ready"]} for kind, counts in stepped.items()}
    fit_loop = {
        "state_dict": {},
        "epoch_loop.state_dict": {"_batches_that_stepped": progress["batches_stepped"]},
        "epoch_loop.batch_progress": {
            "total": total,
            "current": done,
            "is_last_batch": is_over or epoch_stage == "between",
        },
        "epoch_loop.scheduler_progress": stepped,
        "epoch_loop.automatic_optimization.state_dict": {},
        "epoch_loop.automatic_optimization.optim_progress": {
            "optimizer": {"step": stepped, "zero_grad": cleared}
        },
        "epoch_loop.manual_optimization.state_dict": {},
        "epoch_loop.manual_optimization.optim_step_progress": stepped,
        # a validation is never continued: it is run again from its first batch
        "epoch_loop.val_loop.state_dict": {},
        "epoch_loop.val_loop.batch_progress": {
            "total": nothing,
            "current": nothing,
            "is_last_batch": False,
        },
        "epoch_progress": {"total": epoch, "current": epoch},
    }
    return {"fit_loop": fit_loop}
