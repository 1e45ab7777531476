from .advanced import AdvancedProfiler as AdvancedProfiler
from .profiler import PassThroughProfiler as PassThroughProfiler
from .profiler import Profiler as Profiler
from .profiler import SimpleProfiler as SimpleProfiler
from .pytorch import PyTorchProfiler as PyTorchProfiler
