# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.helpers import get_filesystem
from trainer_hooks.compat.lightning.hparams_files import convert
from trainer_hooks.compat.lightning.hparams_files import load_hparams_from_tags_csv
from trainer_hooks.compat.lightning.hparams_files import load_hparams_from_yaml
from trainer_hooks.compat.lightning.hparams_files import save_hparams_to_tags_csv
from trainer_hooks.compat.lightning.hparams_files import save_hparams_to_yaml
from trainer_hooks.compat.lightning.hparams_files import update_hparams

__all__ = [
    "convert",
    "get_filesystem",
    "load_hparams_from_tags_csv",
    "load_hparams_from_yaml",
    "save_hparams_to_tags_csv",
    "save_hparams_to_yaml",
    "update_hparams",
]
