# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.errors import TrainerHooksError as MisconfigurationException

__all__ = [
    "MisconfigurationException",
]
