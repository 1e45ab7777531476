# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning._logger_classes import CSVLogger

__all__ = [
    "CSVLogger",
]
