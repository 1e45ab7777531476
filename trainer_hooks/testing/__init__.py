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
    from trainer_hooks.testing.contract_report import (
        ContractError,
        ContractReport,
        ContractResult,
        Defect,
    )
    from trainer_hooks.testing.hook_recording import HookCall, RecordingCallback, run_hooks
    from trainer_hooks.testing.tiny_module import TinyModule

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
        "ContractError": "contract_report",
        "ContractReport": "contract_report",
        "ContractResult": "contract_report",
        "Defect": "contract_report",
        "HookCall": "hook_recording",
        "RecordingCallback": "hook_recording",
        "TinyModule": "tiny_module",
        "check_callback": "contract",
        "examine_callback": "contract",
        "run_hooks": "hook_recording",
    },
)


def __dir__() -> list[str]:
    return __all__
