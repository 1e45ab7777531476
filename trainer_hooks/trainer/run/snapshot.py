"""Snapshot: build a checkpoint of a session, and write it."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks._version import __version__
from trainer_hooks.checkpoint import (
    FORMAT,
    Encoder,
    dump_safetensors,
    encode_state,
    is_safetensors,
    lightning,
    located,
    require_writable,
    write_checkpoint,
)
from trainer_hooks.errors import TrainerHooksWarning, UsageError
from trainer_hooks.hooks import hook_in_work
from trainer_hooks.module import own_class
from trainer_hooks.trainer.run.conditions import conditions_of
from trainer_hooks.trainer.run.origin import origin_of, this_process
from trainer_hooks.trainer.run.parts import moving_parts

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from trainer_hooks.checkpoint import BackgroundSave
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module
    from trainer_hooks.trainer.run.session import Session

__all__ = ["build", "keep", "save", "save_in_background", "tell_saved"]

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


def build(
    session: Session, trainer: Trainer, weights_only: bool, *, in_parts: bool = False
) -> dict[str, Any]:
    """Return a checkpoint of the session as plain data and tensors.

    Args:
        session: whose it is.
        trainer: what hooks are given.
        weights_only: whether it is to hold weights alone.
        in_parts: whether each of several processes has its part of it, as `write_parts` takes it.
    """
    module = session.module
    if module is None:
        raise UsageError(
            "there is nothing to save yet: call fit, validate, test or predict with a module first."
        )
    checkpoint: dict[str, Any] = {
        "epoch": session.training.progress.epochs_completed,
        "global_step": session.training.progress.steps_completed,
        "pytorch-lightning_version": lightning.VERSION,
        "state_dict": module.state_dict(),
        "loops": {},
        "trainer_hooks": {"format": FORMAT, "version": __version__},
    }
    if module.saved_hparams is not None:
        checkpoint["hparams_name"] = module.hparams_name or "kwargs"
        checkpoint["hyper_parameters"] = dict(module.saved_hparams)
    with session.training.metrics.closed():
        datamodule = session.datamodule
        if datamodule is not None:
            if datamodule.saved_hparams is not None:
                checkpoint["datamodule_hparams_name"] = datamodule.hparams_name or "kwargs"
                checkpoint[lightning.DATA_HPARAMS] = dict(datamodule.saved_hparams)
            state = datamodule.state_dict()
            if state:
                checkpoint[type(datamodule).__qualname__] = state
        if not weights_only and module is session.training.module:
            _add_training(checkpoint, session, module)
        session.connector.relay.on_save_checkpoint(trainer, module, checkpoint)
    shards: dict[str, Any] = {}
    processes = session.processes
    if in_parts:
        from trainer_hooks.trainer.run.parted import take_apart

        checkpoint, shards = take_apart(checkpoint, processes)
    else:
        checkpoint = processes.gathered(checkpoint, keeps=processes.is_global_zero)
    encoded = _encoded(checkpoint, session)
    if session.processes.is_several:
        from trainer_hooks.trainer.run.together import add_others, require_all

        is_whole = "world_size" in checkpoint["trainer_hooks"]
        context = session.context
        parts = moving_parts(session, module, None) if context is None else context.parts
        names = parts.names_of_process() if is_whole else []
        if in_parts:  # what the others have of their own is brought together as it is written
            require_all(session)
            return {"run": encoded, "shards": shards, "names": names}
        add_others(encoded, session, names)
        if not processes.is_global_zero:
            return {}
    return encoded


def _add_training(checkpoint: dict[str, Any], session: Session, module: Module) -> None:
    """Add what a resumed run needs beyond the weights: all that moves, and what it is to fit."""
    context = session.context if session.fn == "fit" else None
    checkpoint["loops"] = lightning.loops_of(session.training.progress.state_dict())
    own = checkpoint["trainer_hooks"]
    own["state_versions"] = session.connector.state_versions()
    own["plugins"] = session.connector.plugin_records()
    own["world_size"] = session.processes.world_size
    own["setup"] = conditions_of(session)
    if context is None:
        moving_parts(session, module, None).write(checkpoint, {})
        left = session.training.left
        own["inside_batch"] = left.get("inside_batch", False)
        if "accumulate_grad_batches" in left:
            own["accumulate_grad_batches"] = left["accumulate_grad_batches"]
        return
    context.parts.write(checkpoint, context.validation.aside)
    own["inside_batch"] = context.batch.is_taken
    if context.data.stream is not None:
        own["accumulate_grad_batches"] = context.plan.accumulate_grad_batches


def _encoded(checkpoint: dict[str, Any], session: Session) -> dict[str, Any]:
    """Return a checkpoint whose every value can be opened without running code."""
    encoder = Encoder(checkpoint)
    labels = {entry.callback.state_key: entry.label for entry in session.connector.entries}
    encoded = {
        key: encode_state(value, f"checkpoint[{key!r}]", encoder)
        for key, value in checkpoint.items()
        if key != "callbacks"
    }
    if "callbacks" in checkpoint:
        encoded["callbacks"] = {
            key: encode_state(state, labels.get(key, f"callback {key!r}"), encoder)
            for key, state in checkpoint["callbacks"].items()
        }
    return encoded
