from __future__ import annotations

import copy
import inspect

import pytest
import torch

from trainer_hooks.callbacks.monitors import cuda_memory, memory_snapshot
from trainer_hooks.callbacks.monitors import oom_observer as oom_module


def frame(name, line=1):
    return {"filename": "/run/net.py", "line": line, "name": name}


def block(address, size, state="active_allocated", *names):
    return {
        "address": address,
        "size": size,
        "requested_size": size - 12,
        "state": state,
        "frames": [frame(name) for name in names],
    }


SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "address": 4096,
            "total_size": 2048,
            "allocated_size": 1024,
            "active_size": 1024,
            "stream": 0,
            "segment_type": "small",
            "segment_pool_id": (0, 0),
            "frames": [],
            "blocks": [
                block(4096, 512, "active_allocated", "forward", "fit"),
                block(4608, 512, "active_allocated", "<lambda>", "fit"),
                block(5120, 1024, "inactive"),
            ],
        }
    ],
    "device_traces": [
        [
            {"action": "segment_alloc", "addr": 4096, "size": 2048, "stream": 0, "frames": []},
            {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": [frame("fit")]},
            {"action": "oom", "size": 9999, "device_free": 5, "stream": 0, "frames": []},
        ]
    ],
    "allocator_settings": {},
}
"""As torch.cuda.memory._snapshot() describes it."""


class Allocator:
    """Stands for the CUDA allocator, with the signatures that torch has here."""

    record_of_torch = staticmethod(torch.cuda.memory._record_memory_history)
    snapshot_of_torch = staticmethod(torch.cuda.memory._snapshot)

    def __init__(self):
        self.calls = []
        self.observers = []

    @property
    def recording(self):
        """The events that it keeps, or None."""
        return self.calls[-1].get("max_entries") if self.calls and self.calls[-1] else None

    def record(self, *args, **options):
        given = inspect.signature(self.record_of_torch).bind(*args, **options).arguments
        assert given["enabled"] in ("all", None)
        self.calls.append(dict(given) if given["enabled"] else None)

    def snapshot(self, *args, **options):
        inspect.signature(self.snapshot_of_torch).bind(*args, **options)
        return copy.deepcopy(SNAPSHOT)

    def runs_out(self):
        """Fail as torch does: tell the observers, then raise."""
        for observer in self.observers:
            observer(0, 9999, 2048, 5)
        raise torch.OutOfMemoryError("CUDA out of memory.")


@pytest.fixture
def allocator(monkeypatch):
    """A CUDA allocator for callbacks of a run that is on the CPU."""
    allocator = Allocator()
    for module in (memory_snapshot, oom_module):
        monkeypatch.setattr(module, "is_allocator_readable", lambda *args, **options: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", allocator.record)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", allocator.snapshot)
    attach = allocator.observers.append
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", attach, raising=False)
    history, observers = cuda_memory._AllocatorHistory(), cuda_memory._OutOfMemoryObservers()
    for module in (memory_snapshot, oom_module):
        monkeypatch.setattr(module, "HISTORY", history)
    monkeypatch.setattr(oom_module, "observe_out_of_memory", observers.add)
    return allocator
