"""Snapshot: a checkpoint of a session is written, and told of."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.checkpoint import (
    dump_safetensors,
    is_safetensors,
    located,
    require_writable,
    write_checkpoint,
)
from trainer_hooks.errors import TrainerHooksWarning, UsageError
from trainer_hooks.hooks import hook_in_work
from trainer_hooks.module import own_class
from trainer_hooks.trainer.run.contents import build
from trainer_hooks.trainer.run.origin import origin_of, this_process

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from trainer_hooks.checkpoint import BackgroundSave
    from trainer_hooks.context import Trainer
    from trainer_hooks.trainer.run.session import Session

__all__ = ["keep", "save", "save_in_background", "tell_saved"]

_EXACT = frozenset(
    {
        "on_batch_checkpoint", "on_epoch_checkpoint", "on_iteration_checkpoint", "on_fit_start",
        "on_train_start", "on_train_batches_end", "on_validation_run_start", "on_train_end",
        "on_fit_end", "teardown", "on_close", "on_post_close", "on_checkpoint_saved",
        # what is saved as a run breaks off is marked, and warned of when it is resumed from
        "on_exception", "on_keyboard_interrupt", "on_stop_training_error",
    }
)  # fmt: skip
"""Hooks at whose moment a run can be cut and resumed, whoever has had a turn in them."""


def save(
    session: Session, trainer: Trainer, path: str | os.PathLike[str], weights_only: bool
) -> str:
    """Write a checkpoint of the session and return its absolute path.

    What is being written in the background comes first; if that failed, it is said after this one
    is written.

    Raises:
        UsageError: there is no module to save yet, or more than weights for a safetensors file.
        CheckpointStateError: a state cannot be loaded back safely; it is named.
        CheckpointError: the file cannot be written, or the one in the background was not.
    """
    session.background.catch_up()
    _require_writable([path], weights_only)
    _warn_of_place(session, weights_only)
    written = _written(session, trainer, path, weights_only)
    _note_saved(session, weights_only, written)
    tell_saved(session, trainer, written)
    session.background.finish()
    return written


def keep(session: Session, trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Write a checkpoint of several processes to go on from, of which nobody is told."""
    _written(session, trainer, path, weights_only=False)


def _written(
    session: Session, trainer: Trainer, path: str | os.PathLike[str], weights_only: bool
) -> str:
    """Write a checkpoint, each process its part of it or the first all; return its path."""
    in_parts = session.processes.saves_parts and not is_safetensors(path)
    checkpoint = build(session, trainer, weights_only, in_parts=in_parts)
    write = partial(_writer(session, in_parts=in_parts), checkpoint, path)
    if in_parts:
        from trainer_hooks.trainer.run.parted import waiting_for_all

        with waiting_for_all(session.processes):
            written: str = write()
        return written
    if session.processes.is_several:
        from trainer_hooks.trainer.run.together import decided_by_zero

        decided: str = decided_by_zero(session.processes, write)
        return decided
    return write()


def tell_saved(session: Session, trainer: Trainer, path: str) -> None:
    """Tell the callbacks that a checkpoint is durable, and then the loggers of those that save."""
    session.connector.relay.on_checkpoint_saved(trainer, session.module, path)  # type: ignore[arg-type]
    for logger in session.loggers:
        for saver in trainer.checkpoint_callbacks:
            logger.after_save_checkpoint(saver)


def save_in_background(
    session: Session,
    trainer: Trainer,
    paths: Sequence[str | os.PathLike[str]],
    weights_only: bool,
) -> BackgroundSave:
    """Copy the session's state, and let other hands write it to each of `paths`.

    Raises:
        UsageError: there is no module to save yet, no path, or more than weights for a safetensors
            file.
        CheckpointStateError: a state cannot be loaded back safely; it is named.
        CheckpointError: the save in the background before this one failed.
    """
    if not paths:
        raise UsageError("save_in_background() was given no path: pass at least one.")
    session.background.finish()
    _require_writable(paths, weights_only)
    _warn_of_place(session, weights_only)
    in_parts = session.processes.saves_parts and not any(map(is_safetensors, paths))
    checkpoint = build(session, trainer, weights_only, in_parts=in_parts)
    files = tuple(located(path) for path in paths)
    save = session.background.start(checkpoint, files, _writer(session, in_parts=in_parts))
    _note_saved(session, weights_only, files[0])
    return save


def _warn_of_place(session: Session, weights_only: bool) -> None:
    """Say once of each hook that what is saved in it cannot be resumed from exactly."""
    if weights_only or session.fn != "fit":
        return
    hook = hook_in_work()
    if hook and hook not in _EXACT and hook not in session.told_hooks:
        session.told_hooks.add(hook)
        warn(
            f"a checkpoint was saved in the hook {hook}: a run that is resumed from it fires the "
            "hooks of that moment once more, or leaves out those whose turn was still to come. "
            "Save in on_batch_checkpoint or on_epoch_checkpoint, or call "
            f"trainer.request_checkpoint() in {hook}, which saves at the next such moment.",
            TrainerHooksWarning,
        )


def _note_saved(session: Session, weights_only: bool, path: str) -> None:
    training = session.training
    if not weights_only:
        training.saved_batches = training.newest_batches = training.progress.batches_completed
        training.newest_path = path


def _require_writable(paths: Sequence[str | os.PathLike[str]], weights_only: bool) -> None:
    for path in paths:
        if is_safetensors(path):
            require_writable(path, weights_only=weights_only)


def _writer(
    session: Session, *, in_parts: bool
) -> Callable[[dict[str, Any], str | os.PathLike[str]], str]:
    """Return what writes a checkpoint of this moment, in the format that a file's name says."""
    # later than the one before even where the clock was set back, as on another machine
    session.training.saved_at = max(time.time_ns(), session.training.saved_at + 1)
    write: Callable[..., str] = _write
    if in_parts:
        from trainer_hooks.trainer.run.parted import group_of_saves, write_parts

        write = partial(
            write_parts, group=group_of_saves(session.processes), process=this_process()
        )
    return partial(
        write,
        module=own_class(session.module).__name__,
        saved_at=session.training.saved_at,
        origin=origin_of(session.training.hparams, session.connector.callbacks),
    )


def _write(
    checkpoint: dict[str, Any],
    path: str | os.PathLike[str],
    module: str,
    saved_at: int,
    origin: str,
) -> str:
    if not checkpoint:
        return located(path)  # of several processes the first writes
    dump = dump_safetensors if is_safetensors(path) else None
    return write_checkpoint(
        checkpoint,
        path,
        dump=dump,
        module=module,
        saved_at=saved_at,
        origin=origin,
        process=this_process(),
    )
