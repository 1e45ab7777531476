"""Hyperparameters, where Lightning has them."""

from __future__ import annotations

from trainer_hooks.compat.refusing import refusing
from trainer_hooks.utilities import AttributeDict

__all__ = ["AttributeDict"]

_OWN = "call self.save_hyperparameters() in __init__"

__getattr__ = refusing(
    __name__,
    {
        "clean_namespace": _OWN,
        "collect_init_args": _OWN,
        "get_init_args": _OWN,
        "is_picklable": "import it from trainer_hooks.compat.lightning.utilities",
        "lightning_getattr": "read the attribute",
        "lightning_hasattr": "use hasattr",
        "lightning_setattr": "set the attribute",
        "parse_class_init_keys": "use inspect.signature",
        "save_hyperparameters": _OWN,
    },
)
