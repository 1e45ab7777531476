"""Restoring: put a checkpoint back into a session, once it is known to fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.checkpoint import load_weights, require_fitting
from trainer_hooks.connector import LoadReport
from trainer_hooks.errors import (
    CheckpointError,
    DataError,
    OptimizationError,
    TrainerHooksWarning,
)
from trainer_hooks.metrics import lost_metrics
from trainer_hooks.module import require_same_classes
from trainer_hooks.trainer.run.conditions import settle_conditions
from trainer_hooks.trainer.run.parts import kept_metrics

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.trainer.run.session import Session

__all__ = [
    "report_callbacks",
    "require_resumable",
    "restore_datamodule",
    "restore_module",
    "restore_training",
    "settle_conditions",
    "upgrade_callbacks",
]


def restore_module(context: RunContext, checkpoint: dict[str, Any], source: str) -> None:
    """Put the weights back, and the data module's state."""
    module = context.module
    load_weights(module, checkpoint["state_dict"], source, strict=module.strict_loading)
    restore_datamodule(context, checkpoint)


def restore_datamodule(context: RunContext, checkpoint: dict[str, Any]) -> None:
    """Put the data module's state back, if there is one."""
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


def report_callbacks(
    session: Session, checkpoint: dict[str, Any], found: LoadReport, upgraded: tuple[str, ...]
) -> LoadReport:
    """Return what restoring the callbacks found, and say what did not match.

    Args:
        session: whose callbacks.
        checkpoint: what their states came from.
        found: what the connector said.
        upgraded: what `upgrade_callbacks` returned.
    """
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
    context.parts.require(checkpoint, source)
    _require_same_conditions(context, checkpoint, source)
    is_strict = context.module.strict_loading
    require_fitting(context.module, checkpoint["state_dict"], source, strict=is_strict)
    try:
        context.training.optimization.require_same(checkpoint)
        training = context.training
        require_same_classes(
            training.optimization, checkpoint, own.get("setup", {}), training.setup
        )
    except OptimizationError as error:
        raise CheckpointError(f"checkpoint {source!r} cannot be resumed from: {error}") from error
    if context.data.stream is not None:
        try:
            context.data.stream.require_same(own["stream"])
        except DataError as error:
            raise DataError(f"checkpoint {source!r} cannot be resumed from: {error}") from error
    accumulated = own.get("accumulate_grad_batches", context.plan.accumulate_grad_batches)
    if accumulated != context.plan.accumulate_grad_batches:
        warn(
            f"checkpoint {source!r} was saved with accumulate_grad_batches={accumulated}, and this "
            f"run has {context.plan.accumulate_grad_batches}: from here on as many batches make a "
            "step, so it is not the run that was cut, whose steps were of another size.",
            TrainerHooksWarning,
        )


def _require_same_conditions(context: RunContext, checkpoint: dict[str, Any], source: str) -> None:
    """Make sure that gradients are of use to this run."""
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


def restore_training(session: Session, context: RunContext, checkpoint: dict[str, Any]) -> None:
    """Put back all that moves, but for what the loop takes up as it enters its place."""
    context.parts.load(checkpoint, places=False)
    _warn_of_gaps(context, checkpoint["trainer_hooks"], kept_metrics(session, context.module))
    context.resumed = checkpoint


def _warn_of_gaps(context: RunContext, own: dict[str, Any], parts: dict[str, Any]) -> None:
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
        progress = context.training.progress
        warn(
            f"the checkpoint was saved inside batch {progress.batches_in_epoch} of epoch "
            f"{progress.epochs_completed}, before that was done. It is trained again from "
            "its start, but random numbers, gradients, metrics and perhaps weights had moved on "
            "by then, so that this run is not exactly the one that was cut. Resume from a "
            "checkpoint that was saved between two batches to have that.",
            TrainerHooksWarning,
        )
