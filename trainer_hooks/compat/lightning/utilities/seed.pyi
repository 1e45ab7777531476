# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks import seed_everything
from trainer_hooks.compat.lightning.helpers import isolate_rng
from trainer_hooks.compat.lightning.helpers import pl_worker_init_function

__all__ = [
    "isolate_rng",
    "pl_worker_init_function",
    "seed_everything",
]
