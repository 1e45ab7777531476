"""Passing over batches that an earlier run has done, with progress where it takes long."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from trainer_hooks._log import log
from trainer_hooks.data.combined import CombinedLoader
from trainer_hooks.data.loaders import has_indices
from trainer_hooks.data.workers import has_state
from trainer_hooks.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["pass_over", "why_loading"]

_END = object()
_FIRST_LINE = 3.0
_NEXT_LINE = 10.0
"""Seconds until the first line on how far it is, and between two of them."""


def pass_over(items: Iterator[Any], count: int, why: str = "") -> Any:
    """Take so many items of an iterator and return the last.

    Args:
        items: batches, or the indices of batches.
        count: how many.
        why: why batches must be loaded for it; empty where they are passed over by index.

    Raises:
        DataError: there are fewer.
    """
    what = "loading and dropping" if why else "passing over"
    reason = f", because {why}" if why else ""
    log.debug("resuming: %s %s batches%s", what, f"{count:,}", reason)
    is_each_slow = bool(why)
    began = monotonic()
    due = began + _FIRST_LINE
    item: Any = None
    for number in range(count):
        item = next(items, _END)
        if item is _END:
            raise DataError(
                f"the training loader ended after {number} batches, but {count} of this epoch were "
                "done when the checkpoint was saved: it must give the same batches as then."
            )
        if (is_each_slow or number % 1024 == 0) and monotonic() > due:
            line = "resuming: %s batches, %s of %s done in %.0f s%s"
            log.warning(line, what, f"{number + 1:,}", f"{count:,}", monotonic() - began, reason)
            due = monotonic() + _NEXT_LINE
    return item


def why_loading(loader: Any) -> str:
    """Return why the batches of a loader must be loaded to be passed over."""
    if has_indices(loader) or has_state(loader):
        return "its workers draw random numbers, which depend on what they loaded before"
    if isinstance(loader, CombinedLoader):
        return "several loaders are combined"
    if isinstance(loader, DataLoader) and type(loader) is not DataLoader:
        return f"a {type(loader).__qualname__} may do anything in its iterator"
    return "only by going through an iterable a place in it is found"
