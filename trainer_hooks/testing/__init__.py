"""The author's test kit: does a callback keep the contract of callbacks?

Example::

    from trainer_hooks.testing import check_callback

    def test_the_contract():
        check_callback(MyCallback)

Importing it does not import torch: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

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

__getattr__ = loader_of(
    __name__,
    {
        "ContractError": "report",
        "ContractReport": "report",
        "ContractResult": "report",
        "Defect": "report",
        "HookCall": "recording",
        "RecordingCallback": "recording",
        "TinyModule": "tiny",
        "check_callback": "contract",
        "examine_callback": "contract",
        "run_hooks": "driving",
    },
)


def __dir__() -> list[str]:
    return __all__
