# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.checkpoint.hparams import HyperParameters as AttributeDict
from trainer_hooks.compat.lightning.helpers import get_init_args
from trainer_hooks.compat.lightning.helpers import is_picklable
from trainer_hooks.compat.lightning.library_helpers import clean_namespace
from trainer_hooks.compat.lightning.library_helpers import collect_init_args
from trainer_hooks.compat.lightning.library_helpers import lightning_getattr
from trainer_hooks.compat.lightning.library_helpers import lightning_hasattr
from trainer_hooks.compat.lightning.library_helpers import lightning_setattr
from trainer_hooks.compat.lightning.library_helpers import save_hyperparameters

__all__ = [
    "AttributeDict",
    "clean_namespace",
    "collect_init_args",
    "get_init_args",
    "is_picklable",
    "lightning_getattr",
    "lightning_hasattr",
    "lightning_setattr",
    "save_hyperparameters",
]
