# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import AttributeDict
from trainer_hooks.compat.lightning.helpers import sized_len
from trainer_hooks.compat.lightning.helpers import suggested_max_num_workers
from trainer_hooks.compat.lightning.library_helpers import has_iterable_dataset
from trainer_hooks.compat.lightning.library_helpers import has_len

__all__ = [
    "AttributeDict",
    "has_iterable_dataset",
    "has_len",
    "sized_len",
    "suggested_max_num_workers",
]
