"""Names of pytorch-accelerated for our classes; each is loaded when it is first used."""

from __future__ import annotations

from trainer_hooks._lazy import attach_stub
from trainer_hooks.compat.not_offered import refusing_getattr

NOT_OFFERED = {
    "TrainerWithTimmScheduler": "override Trainer.scheduler_step",
}
"""What to write in place of a name that is not offered."""

_load, __dir__, __all__ = attach_stub(__name__)
__getattr__ = refusing_getattr(__name__, NOT_OFFERED, _load)
