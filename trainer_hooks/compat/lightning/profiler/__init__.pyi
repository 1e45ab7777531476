# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import advanced as advanced
from . import base as base
from . import profiler as profiler
from . import pytorch as pytorch
from . import simple as simple
from trainer_hooks.profilers import AdvancedProfiler
from trainer_hooks.profilers import PassThroughProfiler
from trainer_hooks.profilers import Profiler
from trainer_hooks.profilers import Profiler as BaseProfiler
from trainer_hooks.profilers import PyTorchProfiler
from trainer_hooks.profilers import SimpleProfiler

__all__ = [
    "AdvancedProfiler",
    "BaseProfiler",
    "PassThroughProfiler",
    "Profiler",
    "PyTorchProfiler",
    "SimpleProfiler",
]
