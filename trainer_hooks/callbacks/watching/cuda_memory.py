"""What torch's CUDA allocator tells of itself: its statistics, its history, and when it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.errors import OptionError, TrainerHooksWarning, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    OutOfMemory = Callable[[int, int, int, int], None]

__all__ = ["HISTORY", "named_statistics", "observe_out_of_memory", "tells"]

_DIGITS = 5
_GIGABYTE = 1e9


def tells(
    device: torch.device, where: str, *, history: bool = True, is_quiet: bool = False
) -> bool:
    """Return whether there is an allocator that can be asked; if not, warn.

    Args:
        device: where the run is.
        where: who asks, for the warning.
        history: whether the history is asked for, which only torch's own allocator keeps.
        is_quiet: whether the warning was given before.
    """
    if device.type != "cuda":
        lacks = f"it needs a CUDA device, and the run is on {str(device)!r}"
        advice = "Pass Trainer(accelerator='cuda') where there is one"
    elif history and (backend := torch.cuda.get_allocator_backend()) != "native":
        lacks = f"the allocator {backend!r}, which PYTORCH_ALLOC_CONF chose, keeps no history"
        advice = "Choose backend:native there"
    else:
        return True
    if not is_quiet:
        warn(f"{where} does nothing: {lacks}. {advice}, or leave it out.", TrainerHooksWarning)
    return False


def named_statistics(
    stats: Mapping[str, Any], names: Mapping[str, str], where: str
) -> dict[str, float]:
    """Return some statistics under other names, bytes as gigabytes of five significant digits.

    Args:
        stats: what `torch.cuda.memory_stats()` returned.
        names: which of them, by torch's name, and how they are to be called.
        where: whose names they are, for messages.

    Raises:
        OptionError: there is no statistic of that name.
    """
    found = {}
    for name, own in names.items():
        if name not in stats:
            raise OptionError(
                f"memory_keys {name!r} of {where}: it must be a statistic of "
                f"torch.cuda.memory_stats().{nearest(name, list(stats))} Pass a name that it "
                "returns, such as 'allocated_bytes.all.current'."
            )
        value = stats[name]
        found[own] = float(f"{value / _GIGABYTE:.{_DIGITS}g}") if "bytes" in name else value
    return found


class _History:
    """The allocator's history, one for the whole process, and who wants it recorded."""

    def __init__(self) -> None:
        self._entries: dict[int, int] = {}
        self._size = 0

    def record(self, owner: object, max_entries: int, *, clears: bool = False) -> None:
        """Record for somebody.

        Args:
            owner: who wants it.
            max_entries: how many of the last events to keep; the most that anybody wants counts.
            clears: whether what was recorded before is forgotten.
        """
        torch.cuda.init()  # type: ignore[no-untyped-call]
        self._entries[id(owner)] = max_entries
        if max_entries <= self._size and not clears:
            return
        # a ring of another size holds its events in disorder: it begins anew, and never shrinks
        self._size = max(max_entries, self._size)
        _record_history(
            enabled="all",
            context="all",
            stacks="python",  # frames of C++ say little here, and each has to be looked up
            max_entries=self._size,
            clear_history=True,
        )

    def stop(self, owner: object) -> None:
        """Go on for others alone, if there are any."""
        if self._entries.pop(id(owner), None) is not None and not self._entries:
            self._size = 0
            _record_history(enabled=None)

    def snapshot(self) -> dict[str, Any]:
        """Return what is allocated, and the history."""
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()  # noqa: SLF001 - documented
        return snapshot


def _record_history(**options: Any) -> None:
    # torch documents it, but has no public name for it
    torch.cuda.memory._record_memory_history(**options)  # noqa: SLF001


HISTORY = _History()
"""There is one allocator, so there is one history."""


class _Observers:
    """Who is told that memory ran out. Torch lets nobody be taken off, so it knows this alone."""

    def __init__(self) -> None:
        self._observers: list[OutOfMemory] = []
        self._is_attached = False
        self._is_telling = False

    def add(self, observer: OutOfMemory) -> Callable[[], None]:
        """Tell somebody; return what takes them off again."""
        self._observers.append(observer)
        if not self._is_attached:
            torch.cuda.init()  # type: ignore[no-untyped-call]
            attach: Any = torch._C._cuda_attach_out_of_memory_observer  # type: ignore[attr-defined] # noqa: SLF001
            attach(self._tell)
            self._is_attached = True

        def leave() -> None:
            if observer in self._observers:
                self._observers.remove(observer)

        return leave

    def _tell(self, device: int, requested: int, allocated: int, free: int) -> None:
        if self._is_telling:  # an observer that itself asks for memory is told of no second failure
            return
        self._is_telling = True
        try:
            for observer in list(self._observers):
                observer(device, requested, allocated, free)
        finally:
            self._is_telling = False


observe_out_of_memory = _Observers().add
"""Have a function called whenever an allocation fails, before anything is freed.

It is given the device, the bytes asked for, the bytes that the allocator holds, and the free ones.
What it raises takes the place of the OutOfMemoryError, so it must raise nothing.
"""
