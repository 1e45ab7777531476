"""Check on resume that a loader yields the batches that the interrupted epoch would have had."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler, IterableDataset

from trainer_hooks._log import warn
from trainer_hooks.data.fingerprint import differing_part, fingerprint
from trainer_hooks.data.loader_inspection import describe_loader, number_of_batches
from trainer_hooks.data.loaders import individual_loaders
from trainer_hooks.errors import DataError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = [
    "compare_last",
    "describe_structure",
    "require_same",
    "warn_of_changes",
    "warn_of_workers",
]

_WORKERS = "num_workers"
_IS_STREAM = "is a stream"


def describe_structure(loader: Any) -> list[dict[str, int | float | str | None]]:
    """Return the known sizes and the order of a loader, or of each loader in a CombinedLoader."""
    structures = []
    for individual in individual_loaders(loader):
        size = number_of_batches(individual)
        batch_size = getattr(individual, "batch_size", None)
        if batch_size is None:
            batch_size = getattr(getattr(individual, "batch_sampler", None), "batch_size", None)
        dataset = getattr(individual, "dataset", None)
        samples = number_of_batches(dataset)
        workers = getattr(individual, _WORKERS, None)
        structures.append(
            {
                "number of batches": None if size == math.inf else size,
                "batch_size": batch_size if isinstance(batch_size, int) else None,
                "number of samples": None if samples == math.inf else samples,
                _WORKERS: workers if isinstance(workers, int) else None,
                "sampler": _sampler_name(individual),
                _IS_STREAM: isinstance(dataset, IterableDataset),
            }
        )
    return structures


def _sampler_name(loader: Any) -> str | None:
    """Return the name of the class that decides the order of a loader's samples."""
    batches = getattr(loader, "batch_sampler", None)
    order_source = getattr(loader, "sampler", None)
    if batches is not None and type(batches) is not BatchSampler:
        order_source = batches
    return None if order_source is None else type(order_source).__qualname__


def require_same(loader: Any, state: dict[str, Any], generators: Collection[str]) -> None:
    """Check that a loader can yield the batches of an interrupted epoch again.

    Args:
        loader: the training loader.
        state: state of the data stream that was saved in that epoch.
        generators: paths of the random generators that the loader holds.

    Raises:
        DataError: the loader differs; the message says how.
    """
    changes = _list_changes(
        state["shape"], describe_structure(loader), state.get("workers_have_drawn", True)
    )
    changes += _list_generator_changes(state["generators"], generators)
    if changes:
        raise DataError(
            "the training loader is not the one of the epoch that was cut, so its batches cannot "
            f"be found again: {'; '.join(changes)}. Build it as it was, or resume from a "
            "checkpoint that was saved at the end of an epoch."
        )


def _list_generator_changes(saved: Collection[Any], present: Collection[str]) -> list[str]:
    """Return how the random generators differ; older checkpoints only have their number."""
    if len(saved) <= len(present) if isinstance(saved, list) else set(saved) == set(present):
        return []
    saved_paths, present_paths = (f" ({', '.join(map(str, paths))})" for paths in (saved, present))
    if isinstance(saved, list) or not saved:
        saved_paths = ""
    counts = (
        f"was {len(saved)}{saved_paths} and is {len(present)}{present_paths if present else ''}"
    )
    return [f"the number of random generators of its own (generator=) {counts}"]


def warn_of_changes(loader: Any, saved: list[dict[str, Any]]) -> None:
    """Warn that further epochs differ from those of the interrupted run, if the loader changed."""
    changes = _list_changes(saved, describe_structure(loader), False) if saved else []
    if changes:
        warn(
            f"the training loader is not as it was: {'; '.join(changes)}. The run goes on with it "
            "from the epoch that begins, and is not the one that was saved any more.",
            TrainerHooksWarning,
        )


def warn_of_workers(loader: Any, saved: list[dict[str, Any]]) -> None:
    """Warn that the rest of an epoch may differ, if it began without workers and now has some."""
    for old, new in zip(saved, describe_structure(loader), strict=False):
        if old.get(_WORKERS) == 0 and new[_WORKERS]:
            warn(
                f"num_workers was 0 and is {new[_WORKERS]}: if the data set draws random numbers, "
                "the batches that are left of this epoch differ from those of the run that was "
                "cut. Resume with num_workers=0 to have the same.",
                TrainerHooksWarning,
            )
    for individual in individual_loaders(loader):
        if getattr(individual, _WORKERS, 0) and not getattr(individual, "in_order", True):
            warn(
                f"the training loader {individual!r} has in_order=False: its batches come in the "
                "order in which its workers are done, so that those that are left of this epoch "
                "need not be those of the run that was cut. Use in_order=True for an exact resume.",
                TrainerHooksWarning,
            )


def compare_last(loader: Any, last: Any, state: dict[str, Any]) -> None:
    """Warn if the last batch before the interruption, loaded again, is different.

    Args:
        loader: the training loader.
        last: the batch.
        state: state of the data stream that was saved in that epoch; older ones have no
            fingerprint.
    """
    if not all(getattr(individual, "in_order", True) for individual in individual_loaders(loader)):
        # `warn_of_workers` has warned already that batches come in any order.
        return
    part = differing_part(state.get("last_print", {}), fingerprint(last))
    if not part:
        return
    warn(
        "this run does not go on exactly where the one that was cut would have: the last batch "
        f"before the cut was loaded again from {describe_loader(loader)}, and its {part} is "
        "another one. The data changed, or what makes batches of it draws random numbers that no "
        "checkpoint holds, such as those of a generator in a global variable. Let it draw from the "
        "global ones of torch, Python or NumPy, or from a generator that is an attribute of it, "
        "its data set or its sampler; or give it state_dict and load_state_dict.",
        TrainerHooksWarning,
    )


def _list_changes(
    saved: list[dict[str, Any]], current: list[dict[str, Any]], workers_have_drawn: bool
) -> list[str]:
    """Return how loaders differ, as far as that changes their batches.

    The number of workers matters if they draw random numbers, and for how they split a stream.
    """
    changes: list[str] = []
    # A difference in the number of loaders is reported below.
    for old, new in zip(saved, current, strict=False):
        number_matters = workers_have_drawn or bool(old.get(_IS_STREAM))
        changes += [
            f"{name} was {old_value} and is {new_value}"
            for name, old_value, new_value in _differences(old, new)
            if name != _WORKERS or number_matters
        ]
    if len(saved) != len(current):
        changes.append(f"the number of loaders was {len(saved)} and is {len(current)}")
    return changes


def _differences(saved: dict[str, Any], current: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name and both values of each property that is known of both loaders and differs."""
    for name, old in saved.items():
        new = current.get(name)
        if name != _IS_STREAM and old is not None and new is not None and old != new:
            yield name, old, new
