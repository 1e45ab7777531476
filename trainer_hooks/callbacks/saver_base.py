"""The parts of savers that `compat` and `adapters` build on.

A saver of another framework's manner subclasses `Saver`, or `ModelCheckpoint` if it ranks
checkpoints by a metric, and combines these parts: the plan of a save, templates of file names, and
checks of its options. Code outside `trainer_hooks.callbacks` imports them from here, so that the
files in `saving` can change freely.
"""

from __future__ import annotations

from trainer_hooks.callbacks.saving.file_names import (
    FixedSavePath,
    check_template,
    fill_template,
    read_template,
    template_names,
    template_values,
)
from trainer_hooks.callbacks.saving.load_checkpoint import restore_weights_and_optimizers
from trainer_hooks.callbacks.saving.saver import SavePlan, Saver
from trainer_hooks.callbacks.saving.saver_options import (
    check_dirpath,
    check_filename,
    check_flags,
    check_kept,
    require_usable_path,
)

__all__ = [
    "FixedSavePath",
    "SavePlan",
    "Saver",
    "check_dirpath",
    "check_filename",
    "check_flags",
    "check_kept",
    "check_template",
    "fill_template",
    "read_template",
    "require_usable_path",
    "restore_weights_and_optimizers",
    "template_names",
    "template_values",
]
