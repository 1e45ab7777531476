"""Restore a checkpoint into a run, after checking that it fits."""

from __future__ import annotations

from reprlib import Repr
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.checkpoint.weights import load_weights, require_fitting
from trainer_hooks.connector.callback_state import LoadReport
from trainer_hooks.errors import (
    CheckpointError,
    DataError,
    OptimizationError,
    TrainerHooksWarning,
)
from trainer_hooks.metrics.metric_objects import lost_metrics, metric_parts
from trainer_hooks.module.optimization import (
    apply_options,
    changed_options,
    require_same_classes,
)
from trainer_hooks.trainer.run.console_summary import log_resume
from trainer_hooks.trainer.run.registered_state import owners_of
from trainer_hooks.trainer.run.run_inputs import restore_datamodule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.trainer.run.run_inputs import RunInputs
    from trainer_hooks.trainer.run.trainer_core import TrainerCore

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def restore_checkpoint(
    core: TrainerCore,
    context: RunContext,
    inputs: RunInputs,
    checkpoint: dict[str, Any],
    path: str,
    *,
    read_shards: Callable[[Any], object] | None,
) -> None:
    """Restore a checkpoint into a run: all of it into a fit, else weights and data module.

    Args:
        core: the trainer's core.
        context: the run.
        inputs: the inputs of the run.
        checkpoint: the checkpoint, with this rank's own state.
        path: where it was read, for messages.
        read_shards: fills tensors that the checkpoint has on the meta device; None if it has none.

    Raises:
        CheckpointError: it does not fit. Until then nothing of the run is changed, but for its
            loaders where `reload_dataloaders_every_n_epochs` makes those of the saved epoch.
        DataError: it was saved inside an epoch of another loader.
        OptionError: an override names no option.
    """
    start, is_fit = core.start, inputs.fn == "fit"
    if is_fit:
        if context.data.reload_as_saved is not None:
            # first: the checks compare the checkpoint with the loaders of its epoch
            context.data.reload_as_saved(checkpoint)
        if checkpoint.get("trainer_hooks", {}).get("world_size", 1) != context.processes.world_size:
            from trainer_hooks.trainer.run.elastic_resume import fit_to_world_size

            checkpoint = fit_to_world_size(context, checkpoint, path)
        _require_resumable(context, checkpoint, path)
    # an evaluation without a fit before it takes the callbacks' states, too; after a fit they
    # would be overwritten by older ones
    takes_callbacks = is_fit or (
        core.training.progress.is_new_training and "callbacks" in checkpoint
    )
    upgraded: tuple[str, ...] = ()
    if takes_callbacks:
        versions = checkpoint.get("trainer_hooks", {}).get("state_versions", {})
        checkpoint["callbacks"], upgraded = core.connector.upgrade_states(
            checkpoint.get("callbacks", {}), versions
        )
    checkpoint = context.processes.shard_checkpoint(
        checkpoint,
        context.module,
        context.training.optimization.optimizers if is_fit else (),
        read_shards,
    )
    # a fit has refused a checkpoint that does not fit; in an evaluation `load_weights` raises
    is_strict = context.module.strict_loading
    load_weights(context.module, checkpoint["state_dict"], path, strict=is_strict)
    restore_datamodule(context, checkpoint)
    if is_fit:
        # before the registry loads the optimizers, whose options an override replaces in the file
        _reconcile_settings(core, checkpoint, path, inputs.overrides)
        # the entry `callbacks` is among them; it leaves its report in `start.connector_report`
        context.state_registry.load(checkpoint, by_loop=False)
        # not in `load_state_dict`, which a trial run calls too, to undo what it counted
        core.training.progress.is_restored = True
        parts = metric_parts(context.module, owners_of(core))
        _warn_of_gaps(context, checkpoint["trainer_hooks"], parts)
        context.resumed = checkpoint  # the loop restores the rest, when it gets there
        # later saves must count as newer than this one, wherever it was saved
        core.training.saved_at = max(core.training.saved_at, summarize(path).saved_at)
    elif takes_callbacks:
        start.connector_report = core.connector.load_state_dict(checkpoint["callbacks"])
    if start.connector_report is not None:
        # given up, so that it is not taken for that of a later run
        report, start.connector_report = start.connector_report, None
        start.report = _report_callbacks(core, checkpoint, report, upgraded)
    if is_fit:
        core.training.newest_path = path
        core.training.newest_batches = core.training.progress.batches_completed
        assert start.report is not None
        log_resume(core.training, start.report, path)


def _reconcile_settings(
    core: TrainerCore, checkpoint: dict[str, Any], source: str, overrides: frozenset[str]
) -> None:
    """Warn once of settings that differ between a checkpoint and this run, and which side counts.

    The optimizer states of the checkpoint get the options that this run overrides.

    Raises:
        OptionError: an override names no option.
    """
    training = core.training
    noted = checkpoint["trainer_hooks"].get("setup", {})
    # an older file holds no settings, but the optimizers' states hold the learning rates
    saved = noted if "optimizers" in noted else {"optimizers": _rates_in(checkpoint)}
    theirs, ours = [], []
    advice = ""
    for kind, option, before, now in changed_options(saved, training.setup):
        # it is "lr", or of several optimizers "lr of SGD"
        if kind == "optimizers" and option.partition(" ")[0] in overrides:
            continue  # changed on purpose
        theirs.append(_told(option, before, now))
        if kind == "optimizers" and not advice:
            name = option.partition(" ")[0]
            advice = f" (fit(..., overrides=[{name!r}]) takes this run's)"
    was = noted.get("precision", core.precision.name)
    if was != core.precision.name:
        ours.append(f"precision {was} -> {core.precision.name}")
    known = noted.get("hparams", checkpoint.get("hyper_parameters")) or {}
    ours += [
        f"hyperparameter {_told(name, before, now)}"
        for name, before, now in _changes(known, training.setup["hparams"])
    ]
    if overrides:
        apply_options(checkpoint, training.optimization, training.setup, overrides)
    # what the next checkpoint holds: the values with which the training goes on
    training.setup = _in_effect(training.setup, saved, overrides)
    # each change once: all parameter groups often change alike
    sides = [
        f"{side}: {', '.join(dict.fromkeys(changes))}{more}"
        for side, changes, more in (
            ("The checkpoint's counts for", theirs, advice), ("This run's counts for", ours, ""),
        )
        if changes
    ]  # fmt: skip
    if sides:
        warn(
            f"checkpoint {source!r} was saved with other settings than this run has. "
            f"{'. '.join(sides)}.",
            TrainerHooksWarning,
        )


def _in_effect(
    setup: dict[str, Any], saved: Mapping[str, Any], overrides: frozenset[str]
) -> dict[str, Any]:
    """Return this run's settings with the options that the checkpoint decides."""
    result = {**setup, "optimizers": []}
    pairs = zip(setup.get("optimizers", ()), saved.get("optimizers", ()), strict=False)
    for now, before in pairs:
        groups = [
            {name: old.get(name, value) if name not in overrides else value
             for name, value in new.items()}
            for new, old in zip(now["groups"], before["groups"], strict=False)
        ]  # fmt: skip
        result["optimizers"].append({**now, "groups": groups})
    if "schedulers" in saved:
        result["schedulers"] = saved["schedulers"]
    return result


def _rates_in(checkpoint: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the configured learning rates, as far as an older file holds them."""
    # a scheduler changes `lr`; without `initial_lr` the configured value is then unknown
    is_scheduled = bool(checkpoint["lr_schedulers"])
    return [
        {
            "groups": [
                {"lr": group.get("initial_lr", group.get("lr"))}
                if "initial_lr" in group or not is_scheduled
                else {}
                for group in state["param_groups"]
            ]
        }
        for state in checkpoint["optimizer_states"]
    ]


def _changes(
    before: Mapping[Any, Any], now: Mapping[Any, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the plain values that differ, those in nested dicts under dotted names."""
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name, _ABSENT), now.get(name, _ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new, f"{prefix}{name}.")
        # by repr too: NaN differs from itself
        elif _is_plain(old) and _is_plain(new) and old != new and repr(old) != repr(new):
            yield f"{prefix}{name}", old, new


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or value is _ABSENT or isinstance(value, bool | int | float | str)


class _Absent:  # not None, which an option may have as its value
    def __repr__(self) -> str:
        return "(none)"


_ABSENT = _Absent()


def _told(name: str, before: Any, now: Any) -> str:
    return f"{name} {_SHORT.repr(before)} -> {_SHORT.repr(now)}"


def _report_callbacks(
    core: TrainerCore, checkpoint: dict[str, Any], loaded: LoadReport, upgraded: tuple[str, ...]
) -> LoadReport:
    """Return the load report of the callbacks, and warn of states that did not match.

    Args:
        core: the trainer's core.
        checkpoint: the checkpoint that the states came from.
        loaded: the connector's load report.
        upgraded: descriptions of the states that were of another version.
    """
    saved = checkpoint.get("trainer_hooks", {}).get("plugins", [])
    present = {
        record["distribution"]: record["version"] for record in core.connector.plugin_records()
    }
    changes = []
    for record in saved:
        name, version = record["distribution"], record["version"]
        if name not in present:
            changes.append(f"plugin {name} {version} does not take part now")
        elif present[name] != version:
            changes.append(f"plugin {name} is {present[name]} now and was {version}")
    # each change once: a plugin may supply several callbacks
    report = LoadReport(
        loaded.restored, loaded.missing, loaded.unexpected, tuple(dict.fromkeys(changes)), upgraded
    )
    if report.summary:
        warn(
            f"the checkpoint and this run's callbacks differ: {report.summary}.",
            TrainerHooksWarning,
        )
    return report


def _require_resumable(context: RunContext, checkpoint: dict[str, Any], source: str) -> None:
    """Raise unless a training can resume from a checkpoint, before anything is changed.

    Raises:
        CheckpointError: it holds weights alone, is of another module, or was saved under other
            conditions.
        DataError: it was saved inside an epoch of another loader.
    """
    own = checkpoint.get("trainer_hooks", {})
    module = type(context.module).__qualname__
    # a file of weights alone has no optimizers, and that of another tool no random states
    if "optimizer_states" not in checkpoint or "rng" not in own:
        raise CheckpointError(
            f"checkpoint {source!r} cannot be resumed from: it holds weights alone, or was saved "
            "neither by trainer_hooks nor by Lightning. To start anew from its weights, use "
            f"{module}.load_from_checkpoint."
        )
    # all checks before any change: a refused resume leaves the run as it was, but for loaders that
    # `reload_as_saved` has made
    context.state_registry.require(checkpoint, source)
    accumulated = own.get("accumulate_grad_batches", context.plan.accumulate_grad_batches)
    is_same_window = accumulated == context.plan.accumulate_grad_batches
    # between two windows another number may be taken, with the warning below
    if own["progress"]["batches_in_window"] and not is_same_window:
        raise CheckpointError(
            f"checkpoint {source!r} was saved inside a window of {accumulated} batches, but this "
            f"run has accumulate_grad_batches={context.plan.accumulate_grad_batches}: the "
            "gradients saved with it cannot be used. Resume with the same number, or from a "
            "checkpoint that was saved at the end of an epoch."
        )
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
    if not is_same_window:
        warn(
            f"checkpoint {source!r} was saved with accumulate_grad_batches={accumulated}, and this "
            f"run has {context.plan.accumulate_grad_batches}: from here on as many batches make a "
            "step, so it is not the run that was cut, whose steps were of another size.",
            TrainerHooksWarning,
        )


def _warn_of_gaps(context: RunContext, own: dict[str, Any], parts: dict[str, Any]) -> None:
    """Warn of state that the checkpoint lacks, so that the resume is not exact."""
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
