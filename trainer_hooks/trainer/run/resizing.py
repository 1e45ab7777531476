"""A training that goes on in another number of processes than it was saved by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.clock import EpochStage
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext

__all__ = ["fitted_to_processes"]

_BETWEEN_EPOCHS = (EpochStage.BETWEEN, EpochStage.ENDED)
_OF_OTHERS = ("number of batches", "sampler")
"""What a loader's share is that depends on how many processes there are."""


def fitted_to_processes(
    context: RunContext, checkpoint: dict[str, Any], source: str
) -> dict[str, Any]:
    """Return a checkpoint as one that as many processes have saved as there are now.

    Weights, optimizers and counters are as they were. An epoch that was cut goes on after as many
    samples as all processes together had trained with, rounded down to whole batches of all.

    Args:
        context: the run.
        checkpoint: what was saved.
        source: where it comes from.
    """
    own = checkpoint.get("trainer_hooks", {})
    saved, present = own.get("world_size", 1), context.processes.world_size
    if saved == present or "progress" not in own or "stream" not in own:
        return checkpoint
    begin = f"checkpoint {source!r} was saved by {saved} processes, and this run has {present}: "
    if EpochStage(own["progress"].get("stage", EpochStage.BETWEEN)) in _BETWEEN_EPOCHS:
        warn(
            f"{begin}weights, optimizers and counters are as they were; the next epoch begins with "
            "other shares of the data and other random numbers, so it is not the run that was cut.",
            TrainerHooksWarning,
        )
        return checkpoint
    progress = _progress(context, own, saved)
    warn(
        f"{begin}weights, optimizers and counters are as they were. The epoch goes on at batch "
        f"{progress['batches_in_epoch']} of each process, where all together had come to batch "
        f"{own['progress']['batches_in_epoch']}, with other shares of the data and other random "
        "numbers, and what was logged in it so far counts with the share of rank 0; so it is not "
        "the run that was cut.",
        TrainerHooksWarning,
    )
    found = {**own, "progress": progress, "stream": _stream(own["stream"])}
    found.update(gradients={}, own_buffers={})
    return {**checkpoint, "trainer_hooks": found}


def _progress(context: RunContext, own: dict[str, Any], saved: int) -> dict[str, Any]:
    """Return the counters of an epoch of which each of `saved` processes had another share.

    The batches of a window that was open are trained with again: its gradients are of no use.
    """
    progress = own["progress"]
    window = progress["batches_in_window"]
    done = progress["batches_in_epoch"] - window
    assert context.data.stream is not None
    batches = context.data.stream.num_batches
    if not window and done >= own["stream"]["num_batches"] and batches < math.inf:
        done = int(batches)  # there is nothing left of it
    else:
        done = int(min(done * saved // context.processes.world_size, batches))
    return {
        **progress,
        "batches_in_epoch": done,
        "batches_completed": progress["batches_completed"] - window,
        "batches_in_window": 0,
        "has_gradients": False,
        "is_batch_open": progress.get("is_batch_open", False) and not window,
    }


def _stream(state: dict[str, Any]) -> dict[str, Any]:
    """Return the place in the data without what each process had of its own."""
    shape = [{**one, **dict.fromkeys(_OF_OTHERS)} for one in state["shape"]]
    return {**state, "shape": shape, "loader": None, "last_print": {}, "rng_ahead": None}
