"""Search for the largest size that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["largest_fitting"]


def largest_fitting(
    fits: Callable[[int], bool], *, mode: str, start: int, largest: int, max_trials: int
) -> int:
    """Return the largest size that was tried and fits.

    Args:
        fits: tries a size.
        mode: `"power"`: sizes are doubled until one does not fit; `"binsearch"`: and from there on
            the middle is tried, until it is known to one.
        start: the first size.
        largest: no size over it is tried.
        max_trials: how many sizes are tried.

    Raises:
        UsageError: not even a size of 1 fits, or none that was tried.
    """
    best, failed, size = 0, largest + 1, min(start, largest)
    for _ in range(max_trials):
        if fits(size):
            best = size
        else:
            failed = size
        if failed - best <= 1 or (mode == "power" and best and failed <= largest):
            break
        if failed > largest:
            size = min(2 * best, largest)
        elif best:
            size = (best + failed) // 2
        else:
            size = failed // 2
    if not best:
        smallest = "of 1" if failed == 1 else f"down to {failed}"
        raise UsageError(
            f"batch sizes {smallest}: none fits into memory. Use a smaller model or precision, or "
            "more trials (max_trials) or a smaller init_val."
        )
    return best
