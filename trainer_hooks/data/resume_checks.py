"""Checks on resume that a loader yields the batches that the interrupted epoch would have had."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch
from torch.utils.data import BatchSampler, IterableDataset

from trainer_hooks._log import warn
from trainer_hooks.data.loaders import describe_loader, individual_loaders, number_of_batches
from trainer_hooks.errors import DataError, TrainerHooksWarning
from trainer_hooks.runtime.nested_tensors import bytes_of, field_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_WORKERS = "num_workers"
_IS_STREAM = "is a stream"
_MAX_PARTS = 64
_MAX_NUMBERS = 2**14
_ROW = 1024
_LARGE = 2**15
_MAX_DEPTH = 4

LAST_DIGESTS = "last_digests"
"""The key of the last batch's fingerprint in a checkpoint."""

LAST_INDICES = "last_indices"
"""The key of the fingerprint of the last batch's indices, as a sampler gave them."""


class LastBatch:
    """The last batch that was fetched, so that a checkpoint can hold its fingerprint.

    Many training steps remove labels from the batch or add inputs to it. So a dict or list is
    copied, one level deep.
    """

    def __init__(self) -> None:
        self._batch: Any = None
        self._restored_fingerprint: dict[str, list[int]] = {}

    def keep(self, batch: Any) -> None:
        """Keep a batch in place of the previous one."""
        self._batch = batch.copy() if type(batch) is dict or type(batch) is list else batch

    def forget(self, restored_fingerprint: dict[str, list[int]] | None = None) -> None:
        """Drop the batch; after a resume only its fingerprint is known."""
        self._batch, self._restored_fingerprint = None, restored_fingerprint or {}

    @property
    def fingerprint(self) -> dict[str, list[int]]:
        """Fingerprint of the batch; empty without one."""
        return self._restored_fingerprint if self._batch is None else fingerprint(self._batch)


def fingerprint(batch: Any) -> dict[str, list[int]]:
    """Return, by path, a version and a digest of each tensor, number and string in a nested batch.

    The version is the number of in-place changes of a tensor: after different changes by a training
    step, digests tell nothing about the data. Of a large tensor, at most 16,384 numbers are read.
    """
    digests: dict[str, list[int]] = {}
    for path, part in islice(_parts(batch, "batch", _MAX_DEPTH), _MAX_PARTS):
        version, text = 0, ""
        if isinstance(part, torch.Tensor):
            # inference tensors have no version counter
            version = 0 if part.is_inference() else part._version  # noqa: SLF001 - torch's name
            flat = part.reshape(-1)
            # every n-th number, before the copy to the host; so few cannot overflow the sum
            checksum = _weighted_sum(bytes_of(flat[:: flat.numel() // _MAX_NUMBERS + 1].cpu()))
            text = f"{part.dtype} {tuple(part.shape)} {checksum}"
        # not `hash`: for a text it differs from process to process
        digests[path] = [version, crc32((text or repr(part)).encode())]
    return digests


def _weighted_sum(content: torch.Tensor) -> int:
    """Return the sum of bytes, each times its position from 1.

    By the positions, the same values in another order give another sum.
    """
    # the large part as a table: only its sums of rows and columns are multiplied. Each is below
    # 2**24, which float32 holds exactly, and takes a fifth of the time of products in int64
    rows = len(content) // _ROW if len(content) >= _LARGE else 0
    rest = content[rows * _ROW :].long()
    total = (rest * torch.arange(rows * _ROW + 1, len(content) + 1)).sum()
    if rows:
        table = content[: rows * _ROW].view(rows, _ROW).float()
        by_row, by_column = table.sum(dim=1).long(), table.sum(dim=0).long()
        total += (by_row * torch.arange(rows)).sum() * _ROW
        total += (by_column * torch.arange(1, _ROW + 1)).sum()
    return int(total)


def differing_part(saved: dict[str, list[int]], present: dict[str, list[int]]) -> str:
    """Return the path at which two batches differ, or an empty string if no difference shows.

    A part that only one of them has, or whose versions differ, is ignored.
    """
    for path, (version, digest) in saved.items():
        now = present.get(path)
        if now is not None and now[0] == version and now[1] != digest:
            return path
    return ""


def _parts(item: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the tensors, numbers and strings in a nested batch, with their paths."""
    if isinstance(item, torch.Tensor):
        # others have no plain bytes to read
        if item.layout is torch.strided and not (
            item.is_meta or item.is_quantized or item.is_nested
        ):
            yield path, item.detach()
    elif isinstance(item, int | float | str):
        yield path, item
    elif isinstance(item, Mapping | list | tuple) and depth:
        items = item.items() if isinstance(item, Mapping) else enumerate(item)
        for key, part in items:
            yield from _parts(part, f"{path}[{key!r}]", depth - 1)
    elif depth:
        for name in field_names(item):
            yield from _parts(getattr(item, name), f"{path}.{name}", depth - 1)


def describe_structure(loader: Any) -> list[dict[str, int | float | str | None]]:
    """Return the known sizes and the order of a loader, or of each loader in a CombinedLoader."""
    structures = []
    for individual in individual_loaders(loader):
        size = number_of_batches(individual)
        batch_size = getattr(individual, "batch_size", None)
        batch_sampler = getattr(individual, "batch_sampler", None)
        if batch_size is None:
            batch_size = getattr(batch_sampler, "batch_size", None)
        dataset = getattr(individual, "dataset", None)
        samples = number_of_batches(dataset)
        workers = getattr(individual, _WORKERS, None)
        # the class that decides the order: a plain BatchSampler takes it from the sampler inside
        sampler = getattr(individual, "sampler", None)
        if batch_sampler is not None and type(batch_sampler) is not BatchSampler:
            sampler = batch_sampler
        structures.append(
            {
                "number of batches": None if size == math.inf else size,
                "batch_size": batch_size if isinstance(batch_size, int) else None,
                "number of samples": None if samples == math.inf else samples,
                _WORKERS: workers if isinstance(workers, int) else None,
                "sampler": None if sampler is None else type(sampler).__qualname__,
                _IS_STREAM: isinstance(dataset, IterableDataset),
            }
        )
    return structures


def require_same(loader: Any, state: dict[str, Any], generators: Collection[str]) -> None:
    """Check that a loader can yield the batches of an interrupted epoch again.

    Args:
        loader: the training loader.
        state: state of the data stream that was saved in that epoch.
        generators: paths of the random generators that the loader holds.

    Raises:
        DataError: the loader differs; the message says how.
    """
    changes = _list_changes(loader, state["shape"], state.get("workers_have_drawn", True))
    saved = state["generators"]
    if set(saved) != set(generators):
        before, after = (f" ({', '.join(map(str, paths))})" for paths in (saved, generators))
        changes.append(
            "the number of random generators of its own (generator=) "
            f"was {len(saved)}{before if saved else ''} and is "
            f"{len(generators)}{after if generators else ''}"
        )
    if changes:
        raise DataError(
            "the training loader is not the one of the epoch that was cut, so its batches cannot "
            f"be found again: {'; '.join(changes)}. Build it as it was, or resume from a "
            "checkpoint that was saved at the end of an epoch."
        )


def warn_of_changes(loader: Any, saved: list[dict[str, Any]]) -> bool:
    """Warn that further epochs differ from those of the interrupted run, if the loader changed.

    Returns:
        Whether it changed.
    """
    changes = _list_changes(loader, saved, False) if saved else []
    if changes:
        warn(
            f"the training loader is not as it was: {'; '.join(changes)}. The run goes on with it "
            "from the epoch that begins, and is not the one that was saved any more.",
            TrainerHooksWarning,
        )
    return bool(changes)


def warn_of_lost_position(loader: Any) -> None:
    """Warn that a loader that keeps its own position has restored another one."""
    warn(
        f"the training loader {describe_loader(loader)} was not led back to its position by its "
        "own load_state_dict: the last batch before the cut, loaded again, is another one. So the "
        "batches of the epoch up to there are loaded and dropped, which takes longer. Mend "
        "state_dict and load_state_dict of the loader, or of its sampler or data set.",
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


def compare_last(
    loader: Any, last: Any, state: dict[str, Any], restored_loaders: Sequence[Any] = ()
) -> None:
    """Warn if the last batch before the interruption, loaded again, is different.

    Args:
        loader: the training loader.
        last: the batch.
        state: state of the data stream that was saved in that epoch; older ones have no
            fingerprint.
        restored_loaders: the loaders that have restored their own state to open the epoch.

    Raises:
        DataError: it is different, and a loader has restored its own state.
    """
    if not all(getattr(individual, "in_order", True) for individual in individual_loaders(loader)):
        # `warn_of_workers` has warned already that batches come in any order.
        return
    part = differing_part(state.get(LAST_DIGESTS, {}), fingerprint(last))
    if not part:
        return
    if restored_loaders:
        names = ", ".join(map(describe_loader, restored_loaders))
        raise DataError(
            f"the training loader {names} was not led back to its position by its own "
            "load_state_dict: the last batch before the cut was loaded again, from the beginning "
            f"of its epoch, and its {part} is another one. The state must lead to the same epoch "
            "and batch, and the data must not change or draw random numbers that no checkpoint "
            "holds. Mend state_dict and load_state_dict of the loader, or of its sampler or data "
            "set, or do without them: the trainer then counts the batches."
        )
    warn(
        "this run does not go on exactly where the one that was cut would have: the last batch "
        f"before the cut was loaded again from {describe_loader(loader)}, and its {part} is "
        "another one. The data changed, or what makes batches of it draws random numbers that no "
        "checkpoint holds, such as those of a generator in a global variable. Let it draw from the "
        "global ones of torch, Python or NumPy, or from a generator that is an attribute of it, "
        "its data set or its sampler; or give it state_dict and load_state_dict.",
        TrainerHooksWarning,
    )


def compare_indices(loader: Any, indices: Any, state: dict[str, Any]) -> None:
    """Warn if the sampler gave other indices for the last batch before the interruption.

    Args:
        loader: the training loader.
        indices: the indices, as the sampler gives them now.
        state: state of the data stream that was saved in that epoch.
    """
    if differing_part(state.get(LAST_INDICES, {}), fingerprint(indices)):
        warn(
            "this run does not go on exactly where the one that was cut would have: the sampler of "
            f"{describe_loader(loader)} gives other samples for the last batch before the cut. It "
            "depends on a state that no checkpoint holds. Keep that in plain attributes of the "
            "sampler (numbers, lists, tensors, generators), or draw the order from the global "
            "random numbers in __iter__.",
            TrainerHooksWarning,
        )


def _list_changes(loader: Any, saved: list[dict[str, Any]], workers_have_drawn: bool) -> list[str]:
    """Return how a loader differs from a saved structure, as far as that changes its batches.

    The number of workers matters if they draw random numbers, and for how they split a stream.
    """
    current = describe_structure(loader)
    changes = [
        f"{name} was {value} and is {new[name]}"
        # a difference in the number of loaders is reported below
        for old, new in zip(saved, current, strict=False)
        for name, value in old.items()
        if name != _IS_STREAM
        and value is not None
        # None stands for unknown, which is no difference.
        and new.get(name) not in (None, value)
        and (name != _WORKERS or workers_have_drawn or old.get(_IS_STREAM))
    ]
    if len(saved) != len(current):
        changes.append(f"the number of loaders was {len(saved)} and is {len(current)}")
    return changes
