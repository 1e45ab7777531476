"""Snapshot: build a checkpoint of a session, and put one back."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks._version import __version__
from trainer_hooks.checkpoint import lightning
from trainer_hooks.checkpoint.encoding import Encoder
from trainer_hooks.checkpoint.file import write_checkpoint
from trainer_hooks.checkpoint.migrations import FORMAT
from trainer_hooks.checkpoint.plain import encode_state
from trainer_hooks.checkpoint.safetensors_file import (
    dump_safetensors,
    is_safetensors,
    require_writable,
)
from trainer_hooks.checkpoint.target import located
from trainer_hooks.checkpoint.weights import load_weights, require_fitting
from trainer_hooks.errors import (
    CheckpointError,
    DataError,
    OptimizationError,
    TrainerHooksWarning,
    UsageError,
)
from trainer_hooks.loops.steps import overrides
from trainer_hooks.metrics.objects import (
    load_metric_states,
    lost_metrics,
    metric_parts,
    metric_states,
)
from trainer_hooks.reports import LoadReport
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from trainer_hooks.checkpoint.background import BackgroundSave
    from trainer_hooks.context import RunContext
    from trainer_hooks.module import Module
    from trainer_hooks.session import Session
    from trainer_hooks.trainer import Trainer

__all__ = [
    "build",
    "require_resumable",
    "restore_callbacks",
    "restore_module",
    "restore_training",
    "save",
    "save_in_background",
    "upgrade_callbacks",
]


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
    session.connector.relay.on_checkpoint_saved(trainer, session.module, written)  # type: ignore[arg-type]
    session.background.finish()
    return written


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
    session.saved_at = max(time.time_ns(), session.saved_at + 1)
    return partial(_write, module=type(session.module).__name__, saved_at=session.saved_at)


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
        "epoch": session.progress.epochs_completed,
        "global_step": session.progress.steps_completed,
        "pytorch-lightning_version": lightning.VERSION,
        "state_dict": module.state_dict(),
        "loops": {},
        "trainer_hooks": {"format": FORMAT, "version": __version__},
    }
    if module.saved_hparams is not None:
        checkpoint["hparams_name"] = "kwargs"
        checkpoint["hyper_parameters"] = dict(module.saved_hparams)
    datamodule = session.datamodule
    if datamodule is not None:
        state = datamodule.state_dict()
        if state:
            checkpoint[type(datamodule).__qualname__] = state
    if not weights_only and module is session.trained:
        _add_training(checkpoint, session)
    session.connector.relay.on_save_checkpoint(trainer, module, checkpoint)
    return _encoded(checkpoint, session)


def _add_training(checkpoint: dict[str, Any], session: Session) -> None:
    """Add what a resumed run needs beyond the weights."""
    context = session.fit_context
    checkpoint["callbacks"] = session.connector.state_dict()
    optimization = session.optimization
    if optimization is not None:
        checkpoint.update(optimization.state_dict())
    progress = session.progress.state_dict()
    checkpoint["loops"] = lightning.loops_of(progress)
    scaler = session.precision.state_dict()
    if scaler:
        checkpoint["MixedPrecision"] = scaler
    own = checkpoint["trainer_hooks"]
    own["progress"] = progress
    own["state_versions"] = session.connector.state_versions()
    own["rng"] = rng.capture()
    own["plugins"] = session.connector.plugin_records()
    own["stream"] = {"opened_with": {}, "generators": [], "loader": None, "num_batches": math.inf}
    own["val_generators"] = []
    own["gradients"] = {}
    own["inside_batch"] = context is not None and context.is_in_batch
    own["world_size"] = 1
    module = session.module
    if module is None:
        return
    parts = _parts(session, module)
    own["metrics"] = session.metrics.state_dict(parts)
    own["metric_objects"] = metric_states(parts)
    if context is not None and context.stream is not None:
        own["stream"] = context.stream.state_dict(session.progress.batches_in_epoch)
        own["accumulate_grad_batches"] = context.plan.accumulate_grad_batches
        own.update(context.before_validation or context.random_states())
    if session.progress.batches_in_window or _keeps_gradients(module):
        own["gradients"] = {
            name: parameter.grad
            for name, parameter in module.named_parameters()
            if parameter.grad is not None
        }


def _parts(session: Session, module: Module) -> dict[str, Any]:
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


def restore_module(context: RunContext, checkpoint: dict[str, Any], source: str) -> None:
    """Put the weights back, and the data module's state."""
    load_weights(context.module, checkpoint["state_dict"], source)
    datamodule = context.datamodule
    if datamodule is not None:
        state = checkpoint.get(type(datamodule).__qualname__)
        if state:
            datamodule.load_state_dict(state)


def upgrade_callbacks(session: Session, checkpoint: dict[str, Any]) -> tuple[str, ...]:
    """Bring the callbacks' states in a checkpoint to their present versions.

    Returns:
        Which were of another version, in words.

    Raises:
        CheckpointError: one is newer than its callback, or cannot be upgraded.
    """
    versions = checkpoint.get("trainer_hooks", {}).get("state_versions", {})
    states, upgraded = session.connector.upgrade_states(checkpoint.get("callbacks", {}), versions)
    checkpoint["callbacks"] = states
    return upgraded


def restore_callbacks(
    session: Session, checkpoint: dict[str, Any], upgraded: tuple[str, ...]
) -> LoadReport:
    """Put the callbacks' states back, and say what did not match.

    Args:
        session: whose callbacks.
        checkpoint: one whose states `upgrade_callbacks` has brought to their present versions.
        upgraded: what it returned.
    """
    found = session.connector.load_state_dict(checkpoint.get("callbacks", {}))
    saved = checkpoint.get("trainer_hooks", {}).get("plugins", [])
    present = {
        record["distribution"]: record["version"] for record in session.connector.plugin_records()
    }
    changes = []
    for record in saved:
        name, version = record["distribution"], record["version"]
        if name not in present:
            changes.append(f"plugin {name} {version} does not take part now")
        elif present[name] != version:
            changes.append(f"plugin {name} is {present[name]} now and was {version}")
    report = LoadReport(
        found.restored, found.missing, found.unexpected, tuple(dict.fromkeys(changes)), upgraded
    )
    if report.summary:
        warn(
            f"the checkpoint and this run's callbacks differ: {report.summary}.",
            TrainerHooksWarning,
        )
    return report


def require_resumable(context: RunContext, checkpoint: dict[str, Any], source: str) -> None:
    """Make sure that a training can go on from a checkpoint, before anything is changed.

    Raises:
        CheckpointError: it holds weights alone, is another module's, or was saved under other
            conditions.
        DataError: it was saved inside an epoch of another loader.
    """
    own = checkpoint.get("trainer_hooks", {})
    module = type(context.module).__qualname__
    if "optimizer_states" not in checkpoint or "rng" not in own:
        raise CheckpointError(
            f"checkpoint {source!r} cannot be resumed from: it holds weights alone, or was saved "
            "neither by trainer_hooks nor by Lightning. To start anew from its weights, use "
            f"{module}.load_from_checkpoint."
        )
    _require_same_conditions(context, checkpoint, source)
    require_fitting(context.module, checkpoint["state_dict"], source)
    try:
        context.optimization.require_same(checkpoint)
    except OptimizationError as error:
        raise CheckpointError(f"checkpoint {source!r} cannot be resumed from: {error}") from error
    if context.stream is not None:
        try:
            context.stream.require_same(own["stream"])
        except DataError as error:
            raise DataError(f"checkpoint {source!r} cannot be resumed from: {error}") from error


def _require_same_conditions(context: RunContext, checkpoint: dict[str, Any], source: str) -> None:
    """Make sure that gradients and shares of the data are of use to this run."""
    own = checkpoint["trainer_hooks"]
    progress = own["progress"]
    accumulated = own.get("accumulate_grad_batches", context.plan.accumulate_grad_batches)
    if progress["batches_in_window"] and accumulated != context.plan.accumulate_grad_batches:
        raise CheckpointError(
            f"checkpoint {source!r} was saved inside a window of {accumulated} batches, but this "
            f"run has accumulate_grad_batches={context.plan.accumulate_grad_batches}: the "
            "gradients saved with it cannot be used. Resume with the same number, or from a "
            "checkpoint that was saved at the end of an epoch."
        )
    if own.get("world_size", 1) != 1:
        raise CheckpointError(
            f"checkpoint {source!r} was saved by {own['world_size']} processes, and this run has "
            "1: each had a share of the data and random numbers of its own. Resume with as many."
        )


def restore_training(session: Session, context: RunContext, checkpoint: dict[str, Any]) -> None:
    """Put back what a training needs to go on: counters, optimizers, metrics, random numbers."""
    own = checkpoint["trainer_hooks"]
    session.progress.load_state_dict(own["progress"])
    context.optimization.load_state_dict(checkpoint)
    if "MixedPrecision" in checkpoint:
        session.precision.load_state_dict(checkpoint["MixedPrecision"])
    parts = _parts(session, context.module)
    session.metrics.load_state_dict(own["metrics"], parts, session.device)
    load_metric_states(parts, own["metric_objects"], session.device)
    _warn_of_gaps(session, own, parts)
    context.resumed = {name: own[name] for name in ("rng", "stream", "gradients", "val_generators")}


def _warn_of_gaps(session: Session, own: dict[str, Any], parts: dict[str, Any]) -> None:
    """Say what of a checkpoint cannot be gone on from exactly."""
    lost = lost_metrics(own["metrics"]["epoch"], parts)
    if lost:
        warn(
            f"the metric objects logged as {', '.join(map(repr, lost))} were not found, so what "
            "they held of the epoch under way is left out: keep each as an attribute of the "
            "module, or in a list or dict that is one.",
            TrainerHooksWarning,
        )
    if own.get("inside_batch"):
        warn(
            f"the checkpoint was saved inside batch {session.progress.batches_in_epoch} of epoch "
            f"{session.progress.epochs_completed}, before that was done. It is trained again from "
            "its start, but random numbers, gradients, metrics and perhaps weights had moved on "
            "by then, so that this run is not exactly the one that was cut. Resume from a "
            "checkpoint that was saved between two batches to have that.",
            TrainerHooksWarning,
        )
