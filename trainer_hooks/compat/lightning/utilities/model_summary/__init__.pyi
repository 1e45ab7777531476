# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import model_summary as model_summary
from trainer_hooks.callbacks.model_table import LayerSummary
from trainer_hooks.compat.lightning.helpers import get_human_readable_count
from trainer_hooks.compat.lightning.model_summary import ModelSummary
from trainer_hooks.compat.lightning.model_summary import UNKNOWN_SIZE
from trainer_hooks.compat.lightning.model_summary import parse_batch_shape
from trainer_hooks.compat.lightning.model_summary import summarize

__all__ = [
    "LayerSummary",
    "ModelSummary",
    "UNKNOWN_SIZE",
    "get_human_readable_count",
    "parse_batch_shape",
    "summarize",
]
