# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.library_helpers import has_iterable_dataset
from trainer_hooks.compat.lightning.library_helpers import has_len
from trainer_hooks.compat.lightning.library_helpers import has_len_all_ranks
from trainer_hooks.data.batch_counts import count_samples as extract_batch_size

__all__ = [
    "extract_batch_size",
    "has_iterable_dataset",
    "has_len",
    "has_len_all_ranks",
]
