# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.context.run_state import RunState as TrainerState
from trainer_hooks.context.run_state import RunningStage
from trainer_hooks.context.run_state import TrainerFn
from trainer_hooks.context.run_state import TrainerStatus

__all__ = [
    "RunningStage",
    "TrainerFn",
    "TrainerState",
    "TrainerStatus",
]
