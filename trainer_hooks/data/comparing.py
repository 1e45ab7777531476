"""What a loader must be like for the batches of an epoch that was cut to be found again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler, IterableDataset

from trainer_hooks._log import warn
from trainer_hooks.data.fingerprint import differing_part, fingerprint
from trainer_hooks.data.loaders import singles_of
from trainer_hooks.data.showing import shown
from trainer_hooks.data.sizes import number_of_batches
from trainer_hooks.errors import DataError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["compare_last", "require_same", "shape_of", "warn_of_changes", "warn_of_workers"]

_WORKERS = "num_workers"
_IS_STREAM = "is a stream"


def shape_of(loader: Any) -> list[dict[str, int | float | str | None]]:
    """Return what is known of the size and order of a loader, or of each of several."""
    found = []
    for single in singles_of(loader):
        size = number_of_batches(single)
        batch_size = getattr(single, "batch_size", None)
        if batch_size is None:
            batch_size = getattr(getattr(single, "batch_sampler", None), "batch_size", None)
        dataset = getattr(single, "dataset", None)
        samples = number_of_batches(dataset)
        workers = getattr(single, _WORKERS, None)
        found.append(
            {
                "number of batches": None if size == math.inf else size,
                "batch_size": batch_size if isinstance(batch_size, int) else None,
                "number of samples": None if samples == math.inf else samples,
                _WORKERS: workers if isinstance(workers, int) else None,
                "sampler": _sampler_of(single),
                _IS_STREAM: isinstance(dataset, IterableDataset),
            }
        )
    return found


def _sampler_of(loader: Any) -> str | None:
    """Return the name of the class that decides on the order of a loader's samples."""
    batches = getattr(loader, "batch_sampler", None)
    decides = getattr(loader, "sampler", None)
    if batches is not None and type(batches) is not BatchSampler:
        decides = batches
    return None if decides is None else type(decides).__qualname__


def require_same(loader: Any, state: dict[str, Any], generators: Collection[str]) -> None:
    """Make sure that the batches of an epoch that was cut can be found again.

    Args:
        loader: the training loader.
        state: what the stream saved inside that epoch.
        generators: where the loader and its parts keep random generators.

    Raises:
        DataError: the loader is not built as it was; the message says what differs.
    """
    changes = _changes(state["shape"], shape_of(loader), state.get("workers_have_drawn", True))
    changes += _other_generators(state["generators"], generators)
    if changes:
        raise DataError(
            "the training loader is not the one of the epoch that was cut, so its batches cannot "
            f"be found again: {'; '.join(changes)}. Build it as it was, or resume from a "
            "checkpoint that was saved at the end of an epoch."
        )


def _other_generators(saved: Collection[Any], present: Collection[str]) -> list[str]:
    """Return how the random generators differ; older checkpoints do not say where they were."""
    if len(saved) <= len(present) if isinstance(saved, list) else set(saved) == set(present):
        return []
    was, now = (f" ({', '.join(map(str, places))})" for places in (saved, present))
    if isinstance(saved, list) or not saved:
        was = ""
    counts = f"was {len(saved)}{was} and is {len(present)}{now if present else ''}"
    return [f"the number of random generators of its own (generator=) {counts}"]


def warn_of_changes(loader: Any, before: list[dict[str, Any]]) -> None:
    """Say what is different in the epochs to come, where a loader was built otherwise."""
    changes = _changes(before, shape_of(loader), False) if before else []
    if changes:
        warn(
            f"the training loader is not as it was: {'; '.join(changes)}. The run goes on with it "
            "from the epoch that begins, and is not the one that was saved any more.",
            TrainerHooksWarning,
        )


def warn_of_workers(loader: Any, before: list[dict[str, Any]]) -> None:
    """Say what may be different in an epoch that is taken up by workers, and was begun without."""
    for old, new in zip(before, shape_of(loader), strict=False):
        if old.get(_WORKERS) == 0 and new[_WORKERS]:
            warn(
                f"num_workers was 0 and is {new[_WORKERS]}: if the data set draws random numbers, "
                "the batches that are left of this epoch differ from those of the run that was "
                "cut. Resume with num_workers=0 to have the same.",
                TrainerHooksWarning,
            )
    for single in singles_of(loader):
        if getattr(single, _WORKERS, 0) and not getattr(single, "in_order", True):
            warn(
                f"the training loader {single!r} has in_order=False: its batches come in the order "
                "in which its workers are done, so that those that are left of this epoch need not "
                "be those of the run that was cut. Use in_order=True for an exact resume.",
                TrainerHooksWarning,
            )


def compare_last(loader: Any, last: Any, state: dict[str, Any]) -> None:
    """Warn if the last batch before the cut, loaded again, is not what it was.

    Args:
        loader: the training loader.
        last: the batch.
        state: what the stream saved inside that epoch; older ones do not say what the batch was.
    """
    if not all(getattr(single, "in_order", True) for single in singles_of(loader)):
        return  # its batches come in any order, which is said in any case
    part = differing_part(state.get("last_print", {}), fingerprint(last))
    if not part:
        return
    warn(
        "this run does not go on exactly where the one that was cut would have: the last batch "
        f"before the cut was loaded again from {shown(loader)}, and its {part} is another one. "
        "The data changed, or what makes batches of it draws random numbers that no checkpoint "
        "holds, such as those of a generator in a global variable. Let it draw from the global "
        "ones of torch, Python or NumPy, or from a generator that is an attribute of it, its data "
        "set or its sampler; or give it state_dict and load_state_dict.",
        TrainerHooksWarning,
    )


def _changes(
    before: list[dict[str, Any]], now: list[dict[str, Any]], workers_have_drawn: bool
) -> list[str]:
    """Return how loaders differ, as far as it matters to what they give.

    The number of workers matters to what they draw at random, and to how they share a stream.
    """
    changes: list[str] = []
    for old, new in zip(before, now, strict=False):
        number_matters = workers_have_drawn or bool(old.get(_IS_STREAM))
        changes += [
            f"{what} was {was} and is {new_value}"
            for what, was, new_value in _differences(old, new)
            if what != _WORKERS or number_matters
        ]
    if len(before) != len(now):
        changes.append(f"the number of loaders was {len(before)} and is {len(now)}")
    return changes


def _differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Return what is known of both loaders and differs, with both values."""
    for what, old in before.items():
        new = now.get(what)
        if what != _IS_STREAM and old is not None and new is not None and old != new:
            yield what, old, new
