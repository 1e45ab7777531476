# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.profilers import PassThroughProfiler
from trainer_hooks.profilers import Profiler as BaseProfiler

__all__ = [
    "BaseProfiler",
    "PassThroughProfiler",
]
