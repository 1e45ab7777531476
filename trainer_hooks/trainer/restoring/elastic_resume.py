"""Elastic resume: continue a training with another number of ranks than it was saved with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.data.resume_checks import LAST_DIGESTS, LAST_INDICES
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext

_BETWEEN_EPOCHS = (EpochStage.BETWEEN, EpochStage.ENDED)
_OF_OTHERS = ("number of batches", "sampler")
"""The facts about a loader that depend on the number of ranks."""


def fit_to_world_size(
    context: RunContext, checkpoint: dict[str, Any], source: str
) -> dict[str, Any]:
    """Return a checkpoint converted to the present number of ranks.

    Weights, optimizers and counters stay. An epoch that was cut continues after as many samples as
    all ranks together had processed, rounded down to whole batches of all ranks.

    Args:
        context: the run.
        checkpoint: the loaded checkpoint.
        source: the file, for messages.
    """
    entries = checkpoint.get("trainer_hooks", {})
    saved, present = entries.get("world_size", 1), context.processes.world_size
    if saved == present or "progress" not in entries or "stream" not in entries:
        return checkpoint
    begin = f"checkpoint {source!r} was saved by {saved} processes, and this run has {present}: "
    if EpochStage(entries["progress"].get("stage", EpochStage.BETWEEN)) in _BETWEEN_EPOCHS:
        warn(
            f"{begin}weights, optimizers and counters are as they were; the next epoch begins with "
            "other shares of the data and other random numbers, so it is not the run that was cut.",
            TrainerHooksWarning,
        )
        return checkpoint
    progress = _progress(context, entries, saved)
    warn(
        f"{begin}weights, optimizers and counters are as they were. The epoch goes on at batch "
        f"{progress['batches_in_epoch']} of each process, where each of the {saved} had come to "
        f"batch {entries['progress']['batches_in_epoch']}, with other shares of the data and other "
        "random numbers, and what was logged in it so far counts with the share of rank 0; so it "
        "is not the run that was cut.",
        TrainerHooksWarning,
    )
    # the loader position without what each rank had of its own
    shape = [{**loader, **dict.fromkeys(_OF_OTHERS)} for loader in entries["stream"]["shape"]]
    dropped: dict[str, Any] = {
        "loader": None,
        "position": None,
        LAST_DIGESTS: {},
        LAST_INDICES: {},
        "rng_ahead": None,
        "draws": {},
    }
    stream = {**entries["stream"], "shape": shape, **dropped}
    converted = {**entries, "progress": progress, "stream": stream}
    # gradients of a window that is repeated, and buffers of ranks that no longer exist
    converted.update(gradients={}, own_buffers={})
    return {**checkpoint, "trainer_hooks": converted}


def _progress(context: RunContext, entries: dict[str, Any], saved: int) -> dict[str, Any]:
    """Return the counters of a cut epoch whose data was divided among `saved` ranks.

    The batches of an open accumulation window are repeated: their gradients cannot be used.
    """
    progress = entries["progress"]
    window = progress["batches_in_window"]
    done = progress["batches_in_epoch"] - window
    assert context.data.stream is not None
    batches = context.data.stream.num_batches
    if not window and done >= entries["stream"]["num_batches"] and batches < math.inf:
        done = int(batches)  # the epoch was complete, however many batches it has now
    else:
        # batches of one rank; `saved` ranks together have trained `done * saved`
        done = int(min(done * saved // context.processes.world_size, batches))
    return {
        **progress,
        "batches_in_epoch": done,
        "batches_completed": progress["batches_completed"] - window,
        "batches_in_window": 0,
        "has_gradients": False,
        "is_batch_open": progress.get("is_batch_open", False) and not window,
    }
