"""What a model is made of, where Lightning has it."""

from __future__ import annotations

from trainer_hooks.callbacks.summary.table import LayerSummary, summarize
from trainer_hooks.callbacks.summary.table import ModelSummaryTable as ModelSummary
from trainer_hooks.compat.refusing import refusing

__all__ = ["LayerSummary", "ModelSummary", "summarize"]

__getattr__ = refusing(
    __name__,
    {
        "DeepSpeedSummary": "summarize(module) counts whole parameters",
        "get_formatted_model_size": "print summarize(module)",
        "get_human_readable_count": "print summarize(module)",
        "parse_batch_shape": "print summarize(module)",
    },
)
