# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.base_classes import Logger
from trainer_hooks.compat.lightning.helpers import rank_zero_experiment
from trainer_hooks.compat.lightning.library_helpers import merge_dicts
from trainer_hooks.loggers import DummyLogger
from trainer_hooks.loggers.dummy import DummyExperiment

__all__ = [
    "DummyExperiment",
    "DummyLogger",
    "Logger",
    "merge_dicts",
    "rank_zero_experiment",
]
