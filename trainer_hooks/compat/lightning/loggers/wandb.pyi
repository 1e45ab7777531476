# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning._service_logger_classes import WandbLogger

__all__ = [
    "WandbLogger",
]
