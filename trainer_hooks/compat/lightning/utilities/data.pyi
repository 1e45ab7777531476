# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.data.batch_counts import count_samples as extract_batch_size

__all__ = [
    "extract_batch_size",
]
