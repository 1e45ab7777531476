"""Adoption: go on from a checkpoint that Lightning 2.x has saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.checkpoint import FORMAT, is_lightning, place_of
from trainer_hooks.clock import EpochStage, Progress
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.metrics import MetricStore
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.data import TrainStream

__all__ = ["adopted"]


def adopted(checkpoint: dict[str, Any], context: RunContext, source: str) -> dict[str, Any]:
    """Return a checkpoint of Lightning as one of ours; any other as it is.

    Lightning saves no random numbers and no place in the training data. One that was saved at the
    end of an epoch goes on with the next; one from inside an epoch with its next batch, of a new
    order where the loader shuffles.

    Args:
        checkpoint: what was read.
        context: the run that is to go on from it.
        source: where it comes from, for messages.

    Raises:
        CheckpointError: a fit cannot go on from it, as it is of a version before 2.0.
    """
    if not is_lightning(checkpoint):
        return checkpoint
    stream = context.data.stream
    if stream is None or "optimizer_states" not in checkpoint:
        return checkpoint
    place = place_of(checkpoint, source)
    progress = Progress(
        epochs_completed=place.epochs,
        batches_completed=place.batches,
        batches_in_epoch=place.batches_in_epoch,
        batches_in_window=place.batches_in_epoch % context.plan.accumulate_grad_batches,
        steps_completed=place.steps,
        batches_stepped=place.batches_stepped,
    )
    later = _numbers_after()
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
    own = {
        "format": FORMAT,
        "version": f"Lightning {checkpoint['pytorch-lightning_version']}",
        "progress": progress.state_dict(),
        "state_versions": {},
        "plugins": [],
        "rng": later if place.batches_in_epoch else rng.capture(),
        "stream": position,
        "val_generators": {},
        "gradients": {},
        "metrics": MetricStore().state_dict({}),
        "metric_objects": {},
        "clock": {},
        "wall_times": {},
    }
    return {**checkpoint, "trainer_hooks": own}


def _numbers_after() -> dict[str, Any]:
    """Return random numbers that follow from the present ones and are others."""
    with rng.isolated():
        rng.reseed(int(torch.randint(2**31, ())))
        return rng.capture()


def _position(stream: TrainStream, later: dict[str, Any]) -> dict[str, Any]:
    """Return a place in an epoch that is opened with the present random numbers.

    Its loader's own generators are given others afterwards, so that the next epoch has another
    order.
    """
    state, now = stream.state_dict(), rng.capture()
    seed = int(later["torch"][:8].sum())
    return {
        **state,
        "opened_with": {"rng": now, "generators": state["generators"]},
        "generators": {
            # those of Python and NumPy have states of their own kinds, and go on as they are
            place: torch.Generator().manual_seed(seed + number).get_state()
            if isinstance(kept, torch.Tensor)
            else kept
            for number, (place, kept) in enumerate(state["generators"].items())
        },
        "loader": None,
    }
