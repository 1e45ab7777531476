"""The author's test kit: does a callback keep the contract of callbacks?

Example::

    from trainer_hooks.testing import check_callback

    def test_the_contract():
        check_callback(MyCallback)

Importing it does not import torch: each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer_hooks.testing.contract import check_callback, examine_callback
    from trainer_hooks.testing.driving import run_hooks
    from trainer_hooks.testing.recording import HookCall, RecordingCallback
    from trainer_hooks.testing.report import ContractError, ContractReport, ContractResult, Defect
    from trainer_hooks.testing.tiny import TinyModule

__all__ = [
    "ContractError",
    "ContractReport",
    "ContractResult",
    "Defect",
    "HookCall",
    "RecordingCallback",
    "TinyModule",
    "check_callback",
    "examine_callback",
    "run_hooks",
]

_HOMES = {
    "ContractError": "trainer_hooks.testing.report",
    "ContractReport": "trainer_hooks.testing.report",
    "ContractResult": "trainer_hooks.testing.report",
    "Defect": "trainer_hooks.testing.report",
    "HookCall": "trainer_hooks.testing.recording",
    "RecordingCallback": "trainer_hooks.testing.recording",
    "TinyModule": "trainer_hooks.testing.tiny",
    "check_callback": "trainer_hooks.testing.contract",
    "examine_callback": "trainer_hooks.testing.contract",
    "run_hooks": "trainer_hooks.testing.driving",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainer_hooks.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
