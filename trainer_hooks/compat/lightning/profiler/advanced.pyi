# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.profilers import AdvancedProfiler

__all__ = [
    "AdvancedProfiler",
]
