# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import AttributeDict
from trainer_hooks.compat.lightning.helpers import sized_len
from trainer_hooks.compat.lightning.helpers import suggested_max_num_workers

__all__ = [
    "AttributeDict",
    "sized_len",
    "suggested_max_num_workers",
]
