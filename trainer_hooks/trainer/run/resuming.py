"""What `ckpt_path="last"`, `"best"` and `"auto"` stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.callbacks.saving.saved_files import earlier_folders
from trainer_hooks.callbacks.saving.saver import Saver
from trainer_hooks.checkpoint import Search, Summary, exists, files_in, summarize, verify_checkpoint
from trainer_hooks.connector import adopted
from trainer_hooks.errors import CheckpointNotFoundError, OptionError, TrainerHooksWarning
from trainer_hooks.module import Module, own_class
from trainer_hooks.trainer.run.origin import is_at_work_elsewhere, origin_of

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.trainer.run.session import Session

__all__ = ["best_of_fit", "find_checkpoint"]


def find_checkpoint(trainer: Trainer, asked: str, fn: str, module: Module) -> str | None:
    """Return the path of a checkpoint, or None where `"auto"` finds none.

    Args:
        trainer: its checkpoint callbacks say where to look.
        asked: `"last"`, `"best"` or `"auto"`.
        fn: the entry point: fit needs more than weights.
        module: what is to be loaded, of another framework too.

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
    search = _search(trainer, asked, fn, adopted(module, Module))
    if asked == "best":
        saver = next(iter(_with_books(trainer)), None)
        if saver is not None and saver.best_model_path and exists(saver.best_model_path):
            verify_checkpoint(saver.best_model_path)
            return str(saver.best_model_path)
        found: str | None = search.best("" if saver is None else saver.state_key)
    else:
        found = search.newest()
    if found is None and asked == "last":
        raise CheckpointNotFoundError(
            "ckpt_path='last': no checkpoint callback of this trainer has saved one"
            f"{'' if fn != 'fit' else ' that a training can go on from'}. Train first, give a "
            "path, or let fit start anew where there is none: ckpt_path='auto'."
        )
    _tell_of_others(trainer, search)
    return found


def best_of_fit(trainer: Trainer, session: Session, fn: str) -> str | None:
    """Return `"best"` for an evaluation that is given neither a module nor a checkpoint.

    It is None where the last run's module was not trained, or its fit saved nothing: then it is
    evaluated as it is. Of a best that is not the end of the training one warning tells.
    """
    training = session.training
    if session.module is not training.module or training.progress.is_fresh:
        return None
    savers = _with_books(trainer)
    best = next((saver.best_model_path for saver in savers if saver.best_model_path), "")
    if not best or not exists(best):
        return None
    if summarize(best).batches != training.progress.batches_completed:
        warn(
            f"{fn} was given neither a model nor a ckpt_path: it takes the best checkpoint of the "
            f"last fit, {best!r}, and the module has its weights from here on. Pass "
            "ckpt_path='best' to say so, or the model to take the weights that it has.",
            TrainerHooksWarning,
        )
    return "best"


def _with_books(trainer: Trainer) -> list[Any]:
    """Return the savers that know which checkpoint is the best, of other frameworks too."""
    return [one for one in trainer.checkpoint_callbacks if hasattr(one, "best_model_path")]


def _search(trainer: Trainer, asked: str, fn: str, module: Module) -> Search:
    """Return a search of what the trainer's savers, and those of its earlier runs, have saved.

    In a folder that the user named all is this run's. In the others, which runs have in common,
    what tells a run apart is its origin; and a fit leaves alone what is still going elsewhere.
    """
    savers = trainer.checkpoint_callbacks
    named = [path for one in savers if one.has_named_folder for path in one.candidates(trainer)]
    shared = {
        path for one in savers if not one.has_named_folder for path in one.candidates(trainer)
    }
    if asked == "auto" and not savers:
        folders = earlier_folders(trainer)
        shared = {path for folder in folders for path in files_in(folder, Saver.FILE_EXTENSION)}
    origin, is_resume = origin_of(module.saved_hparams, trainer.callbacks), fn == "fit"

    def is_own(path: str, summary: Summary) -> bool:
        if path not in shared:
            return True
        return summary.origin in ("", origin) and not (is_resume and is_at_work_elsewhere(summary))

    return Search(asked, [*named, *shared], own_class(module).__name__, is_resume, is_own)


def _tell_of_others(trainer: Trainer, search: Search) -> None:
    """Say so where there are checkpoints of other runs alone."""
    if not search.of_others:
        return
    whose = "another command line, other hyperparameters, or still going"
    if search.taken is None:
        newest = max(search.of_others, key=search.of_others.__getitem__)
        trainer.print(
            f"ckpt_path={search.asked!r}: a new training. All checkpoints here "
            f"({len(search.of_others)}) are of other runs ({whose}); the newest is {newest!r}."
        )
    elif search.taken in search.of_others:
        warn(
            f"ckpt_path={search.asked!r} took {search.taken!r}, which another run has saved "
            f"({whose}): this one has saved none. Give the path of the one that is meant.",
            TrainerHooksWarning,
        )
