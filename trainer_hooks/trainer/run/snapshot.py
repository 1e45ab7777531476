"""Snapshot: build a checkpoint of a session, and write it."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

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
from trainer_hooks.errors import (
    UsageError,
)
from trainer_hooks.loops import overrides
from trainer_hooks.metrics import metric_parts, metric_states
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from trainer_hooks.checkpoint import BackgroundSave
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module
    from trainer_hooks.trainer.run.session import Session

__all__ = ["build", "parts_of", "save", "save_in_background", "tell_saved"]


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
    checkpoint = build(session, trainer, weights_only)
    written = _writer(session)(checkpoint, path)
    tell_saved(session, trainer, written)
    session.background.finish()
    return written


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
    checkpoint = build(session, trainer, weights_only)
    files = tuple(located(path) for path in paths)
    return session.background.start(checkpoint, files, _writer(session))


def _require_writable(paths: Sequence[str | os.PathLike[str]], weights_only: bool) -> None:
    for path in paths:
        if is_safetensors(path):
            require_writable(path, weights_only=weights_only)


def _writer(session: Session) -> Callable[[dict[str, Any], str | os.PathLike[str]], str]:
    """Return what writes a checkpoint of this moment, in the format that a file's name says."""
    # later than the one before even where the clock was set back, as on another machine
    session.training.saved_at = max(time.time_ns(), session.training.saved_at + 1)
    return partial(_write, module=type(session.module).__name__, saved_at=session.training.saved_at)


def _write(
    checkpoint: dict[str, Any], path: str | os.PathLike[str], module: str, saved_at: int
) -> str:
    dump = dump_safetensors if is_safetensors(path) else None
    return write_checkpoint(checkpoint, path, dump=dump, module=module, saved_at=saved_at)


def build(session: Session, trainer: Trainer, weights_only: bool) -> dict[str, Any]:
    """Return a checkpoint of the session as plain data and tensors."""
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
        checkpoint["hparams_name"] = "kwargs"
        checkpoint["hyper_parameters"] = dict(module.saved_hparams)
    with session.training.metrics.closed():
        datamodule = session.datamodule
        if datamodule is not None:
            state = datamodule.state_dict()
            if state:
                checkpoint[type(datamodule).__qualname__] = state
        if not weights_only and module is session.training.module:
            _add_training(checkpoint, session)
        session.connector.relay.on_save_checkpoint(trainer, module, checkpoint)
    return _encoded(checkpoint, session)


def _add_training(checkpoint: dict[str, Any], session: Session) -> None:
    """Add what a resumed run needs beyond the weights."""
    context = session.context if session.state.fn == "fit" else None
    training = session.training
    checkpoint["callbacks"] = session.connector.state_dict()
    if training.is_configured:
        checkpoint.update(training.optimization.state_dict())
    progress = training.progress.state_dict()
    checkpoint["loops"] = lightning.loops_of(progress)
    scaler = training.scaler if context is None else context.precision.state_dict()
    if scaler:
        checkpoint["MixedPrecision"] = scaler
    own = checkpoint["trainer_hooks"]
    own["progress"] = progress
    own["clock"] = training.timekeeper.state_dict()
    own["wall_times"] = training.timekeeper.wall_times()
    own["state_versions"] = session.connector.state_versions()
    own["plugins"] = session.connector.plugin_records()
    own["loggers"] = session.guards.state()
    own["stream"] = {"opened_with": {}, "generators": {}, "loader": None, "num_batches": math.inf}
    own["val_generators"] = {}
    own["evaluators"] = {}
    own["gradients"] = {}
    own["inside_batch"] = False
    own["world_size"] = 1
    own.update(training.left if context is None else context.places())
    module = session.module
    if module is None:
        return
    parts = parts_of(session, module)
    own["metrics"] = training.metrics.state_dict(parts)
    own["metric_objects"] = metric_states(parts)
    own["history"] = training.history.state_dict()
    own["evaluated"] = dict(training.metrics.evaluated)
    own["rng"] = rng.capture()
    if context is not None:
        own.update(context.validation.before)
    if training.progress.batches_in_window or _keeps_gradients(module):
        own["gradients"] = {
            name: parameter.grad
            for name, parameter in module.named_parameters()
            if parameter.grad is not None
        }


def parts_of(session: Session, module: Module) -> dict[str, Any]:
    """Return the module's parts, and the metric objects that are kept elsewhere, by name."""
    owners = {
        f"callback {entry.callback.state_key}": entry.callback
        for entry in session.connector.entries
    }
    return metric_parts(module, {**owners, "datamodule": session.datamodule})


def _keeps_gradients(module: Module) -> bool:
    """Return whether gradients may outlive a step: the module itself says when they are cleared."""
    return not module.automatic_optimization or overrides(module, "optimizer_zero_grad")


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
