# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks import seed_everything
from trainer_hooks.runtime.rng import isolated as isolate_rng

__all__ = [
    "isolate_rng",
    "seed_everything",
]
