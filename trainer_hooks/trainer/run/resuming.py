"""What `ckpt_path="last"`, `"best"` and `"auto"` stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.callbacks.saving.saved_files import default_folder, earlier_folders
from trainer_hooks.callbacks.saving.saver import Saver
from trainer_hooks.checkpoint import Search, exists, files_in, verify_checkpoint
from trainer_hooks.errors import CheckpointNotFoundError, OptionError

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = ["find_checkpoint"]


def find_checkpoint(trainer: Trainer, asked: str, fn: str, module: str) -> str | None:
    """Return the path of a checkpoint, or None where `"auto"` finds none.

    Args:
        trainer: its checkpoint callbacks say where to look.
        asked: `"last"`, `"best"` or `"auto"`.
        fn: the entry point: fit needs more than weights.
        module: the name of the class of the module that is to be loaded.

    Raises:
        OptionError: `"auto"` was given to another entry point than fit.
        CheckpointNotFoundError: there is none.
        CheckpointError: the best one is damaged.
    """
    if asked == "auto" and fn != "fit":
        raise OptionError(
            f"ckpt_path='auto' of {fn}: starting anew makes sense for fit alone. Give a path, "
            "'last' or 'best'."
        )
    savers = trainer.checkpoint_callbacks
    files = [path for saver in savers for path in saver.candidates(trainer)]
    if asked == "auto" and not savers:
        folders = [default_folder(trainer), *earlier_folders(trainer)]
        files = [path for folder in folders for path in files_in(folder, Saver.FILE_EXTENSION)]
    search = Search(asked, files, module, is_resume=fn == "fit")
    if asked == "best":
        saver = next((saver for saver in savers if isinstance(saver, Saver)), None)
        if saver is not None and saver.best_model_path and exists(saver.best_model_path):
            verify_checkpoint(saver.best_model_path)
            return saver.best_model_path
        return search.best("" if saver is None else saver.state_key)
    found = search.newest()
    if found is None and asked == "last":
        raise CheckpointNotFoundError(
            "ckpt_path='last': no checkpoint callback of this trainer has saved one"
            f"{'' if fn != 'fit' else ' that a training can go on from'}. Train first, give a "
            "path, or let fit start anew where there is none: ckpt_path='auto'."
        )
    return found
