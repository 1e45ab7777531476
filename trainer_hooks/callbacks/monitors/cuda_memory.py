"""Read torch's CUDA allocator: its statistics, its history, and its out-of-memory errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable

    OutOfMemory = Callable[[int, int, int, int], None]


def is_allocator_readable(
    device: torch.device, where: str, *, history: bool = True, is_quiet: bool = False
) -> bool:
    """Return whether the run's allocator can be read; warn if not.

    Args:
        device: the device of the run.
        where: the callback that reads it, for the warning.
        history: whether the history is needed, which only torch's own allocator keeps.
        is_quiet: whether to give no warning, as it was given before.
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


class _AllocatorHistory:
    """The allocator's one history of the process, shared by all callbacks that record it."""

    def __init__(self) -> None:
        # by id, so that the table keeps no callback alive
        self._entries: dict[int, int] = {}
        self._size = 0

    def record(self, owner: object, max_entries: int, *, clears: bool = False) -> None:
        """Start to record for a callback.

        Args:
            owner: the callback.
            max_entries: the number of latest events to keep; the largest of all owners counts.
            clears: whether to delete the events recorded before.
        """
        # before CUDA is initialized there is no allocator to record
        torch.cuda.init()  # type: ignore[no-untyped-call]
        self._entries[id(owner)] = max_entries
        if max_entries <= self._size and not clears:
            return
        # torch keeps the events in a ring buffer, which is in disorder after a change of its size:
        # so the history is cleared then, and the buffer never shrinks
        self._size = max(max_entries, self._size)
        _record_history(
            enabled="all",
            context="all",
            stacks="python",  # C++ frames say little here, and their symbols take long to look up
            max_entries=self._size,
            clear_history=True,
        )

    def stop(self, owner: object) -> None:
        """Stop to record for a callback; the last one switches the recording off."""
        if self._entries.pop(id(owner), None) is not None and not self._entries:
            self._size = 0
            _record_history(enabled=None)

    def snapshot(self) -> dict[str, Any]:
        """Return the current allocations and the history, as torch's viewer reads them."""
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()  # noqa: SLF001 - documented
        return snapshot


def _record_history(**options: Any) -> None:
    # torch documents this function, but has no public name for it
    torch.cuda.memory._record_memory_history(**options)  # noqa: SLF001


HISTORY = _AllocatorHistory()
"""The history of the process's one allocator."""


class _OutOfMemoryObservers:
    """The functions to call when an allocation fails.

    torch cannot remove an observer, so it gets one for the whole process, which calls these.
    """

    def __init__(self) -> None:
        self._observers: list[OutOfMemory] = []
        self._is_attached = False
        self._is_calling = False

    def add(self, observer: OutOfMemory) -> Callable[[], None]:
        """Register an observer; return a function that removes it."""
        self._observers.append(observer)
        if not self._is_attached:
            torch.cuda.init()  # type: ignore[no-untyped-call]
            # torch has no function that would detach it again: one for all observers, for good
            attach: Any = torch._C._cuda_attach_out_of_memory_observer  # type: ignore[attr-defined] # noqa: SLF001
            attach(self._call_observers)
            self._is_attached = True

        def remove() -> None:
            if observer in self._observers:
                self._observers.remove(observer)

        return remove

    def _call_observers(self, device: int, requested: int, allocated: int, free: int) -> None:
        if self._is_calling:  # an observer that allocates memory must not call itself
            return
        self._is_calling = True
        try:
            # a copy, as an observer may remove itself
            for observer in list(self._observers):
                observer(device, requested, allocated, free)
        finally:
            self._is_calling = False


observe_out_of_memory = _OutOfMemoryObservers().add
"""Register a function to call when an allocation fails, before anything is freed.

Its arguments are the device's index, the bytes requested, the bytes that the allocator holds, and
the free bytes. An error that it raises would replace the OutOfMemoryError: it must raise nothing.
"""
