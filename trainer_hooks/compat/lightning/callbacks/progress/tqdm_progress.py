"""`TQDMProgressBar`, where Lightning has it."""

from __future__ import annotations

from tqdm.auto import tqdm as Tqdm  # noqa: N812 - Lightning's name

from trainer_hooks.callbacks import TQDMProgressBar
from trainer_hooks.compat.refusing import refusing

__all__ = ["TQDMProgressBar", "Tqdm"]

__getattr__ = refusing(__name__, {"convert_inf": "use math.isinf"})
