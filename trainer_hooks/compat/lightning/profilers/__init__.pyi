# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.profilers import AdvancedProfiler
from trainer_hooks.profilers import PassThroughProfiler
from trainer_hooks.profilers import Profiler
from trainer_hooks.profilers import PyTorchProfiler
from trainer_hooks.profilers import SimpleProfiler

__all__ = [
    "AdvancedProfiler",
    "PassThroughProfiler",
    "Profiler",
    "PyTorchProfiler",
    "SimpleProfiler",
]
