"""Resume from a checkpoint that Lightning 2.x saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.checkpoint.lightning import is_lightning, lightning_progress
from trainer_hooks.checkpoint.parts import FORMAT
from trainer_hooks.clock.progress import EpochStage, Progress
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.metrics.store import MetricStore
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.data.stream import TrainStream


def convert_lightning_checkpoint(
    checkpoint: dict[str, Any], context: RunContext, source: str
) -> dict[str, Any]:
    """Return a Lightning checkpoint converted to our format, and any other unchanged.

    Lightning saves neither random states nor the loader position. A checkpoint from the end of an
    epoch resumes at the next epoch; one from inside an epoch at the epoch's next batch, in a new
    order where the loader shuffles.

    Args:
        checkpoint: the loaded checkpoint.
        context: the run that resumes from it.
        source: the file, for messages.

    Raises:
        CheckpointError: no fit can resume from it, because it is of a version before 2.0.
    """
    if not is_lightning(checkpoint):
        return checkpoint
    stream = context.data.stream
    if stream is None or "optimizer_states" not in checkpoint:
        return checkpoint
    place = lightning_progress(checkpoint, source)
    progress = Progress(
        epochs_completed=place.epochs,
        batches_completed=place.batches,
        batches_in_epoch=place.batches_in_epoch,
        # Lightning's windows begin anew with each epoch
        batches_in_window=place.batches_in_epoch % context.plan.accumulate_grad_batches,
        steps_completed=place.steps,
        batches_stepped=place.batches_stepped,
    )
    # the epoch's new order is drawn from the present random state, and the training goes on with
    # another, so that the two do not repeat each other
    with rng.isolated():
        rng.reseed(int(torch.randint(2**31, ())))
        later = rng.capture()
    position = stream.state_dict()
    if place.batches_in_epoch:
        progress.stage = EpochStage.BATCHES
        position = _position(stream, later)
        warn(
            f"checkpoint {source!r} of Lightning was saved inside epoch {place.epochs}, after "
            f"{place.batches_in_epoch} batches: it does not say which samples those were, what was "
            "logged in the epoch, nor holds the random numbers or gradients of that moment. The "
            "epoch goes on with its next batch; where the loader shuffles, the order is a new one.",
            TrainerHooksWarning,
        )
    cycle = context.plan.iteration_length or 1
    entries = {
        "format": FORMAT,
        "version": f"Lightning {checkpoint['pytorch-lightning_version']}",
        "progress": progress.state_dict(),
        "state_versions": {},
        "plugins": [],
        "rng": later if place.batches_in_epoch else rng.capture(),
        "stream": position,
        "val_generators": {},
        "gradients": {},
        "metrics": MetricStore().state_dict(dict),
        "metric_objects": {},
        "clock": {},
        "wall_times": {},
        "loop": {
            "is_last_batch": False,
            "has_scheduled": False,
            # a run that resumes inside a cycle has opened it
            "is_in_cycle": place.batches_in_epoch > 0 or place.epochs % cycle != 0,
        },
    }
    return {**checkpoint, "trainer_hooks": entries}


def _position(stream: TrainStream, later: dict[str, Any]) -> dict[str, Any]:
    """Return a loader position in an epoch that is opened with the present random state.

    The loader's own generators are reseeded for later, so that the next epoch has another order.
    """
    state, now = stream.state_dict(), rng.capture()
    # any number that the later random state determines
    seed = int(later["torch"][:8].sum())
    return {
        **state,
        "opened_with": {
            "rng": now,
            "generators": state["generators"],
            "attributes": state["attributes"],
        },
        "generators": {
            # generators of Python and NumPy have states of other types, and keep them
            place: torch.Generator().manual_seed(seed + number).get_state()
            if isinstance(saved, torch.Tensor)
            else saved
            for number, (place, saved) in enumerate(state["generators"].items())
        },
        "position": None,
    }
