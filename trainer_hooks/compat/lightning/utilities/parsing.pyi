# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.checkpoint.hparams import HyperParameters as AttributeDict
from trainer_hooks.compat.lightning.helpers import get_init_args
from trainer_hooks.compat.lightning.helpers import is_picklable

__all__ = [
    "AttributeDict",
    "get_init_args",
    "is_picklable",
]
