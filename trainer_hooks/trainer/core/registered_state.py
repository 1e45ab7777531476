"""The state registry of a run: every entry that checkpoints save and a resume restores.

Everything that changes in a training and that a resume must restore has one entry here. The
weights, the hyperparameters and the data module's state have none: every file holds them, even one
that no run can resume from.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks._log import warn
from trainer_hooks.context.position import SavedRequests
from trainer_hooks.context.state_registry import RegisteredState, StateRegistry
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.data.generators import generator_states, generators_in, restore_generators
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.metrics.metric_objects import load_metric_states, metric_parts, metric_states
from trainer_hooks.module.added_groups import added_groups
from trainer_hooks.module.module import Module
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.buffers import buffers_of, load_buffers
from trainer_hooks.runtime.parameter_names import plain_name

if TYPE_CHECKING:
    from torch import nn

    from trainer_hooks.callbacks import Checkpoint
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.context.training import TrainingState
    from trainer_hooks.trainer.core.trainer_core import TrainerCore


def build_state_registry(
    core: TrainerCore, module: Module, context: RunContext | None
) -> StateRegistry:
    """Return the state registry of a running run, or of the training between two runs.

    Args:
        core: the trainer's core.
        module: the module that is trained.
        context: the run; None between two, when the last fit's end has the states of a run.
    """
    training, connector, processes, device = (
        core.training, core.connector, core.processes, core.device,
    )  # fmt: skip
    progress, keeper = training.progress, training.timekeeper
    metrics, history = training.metrics, training.history
    run = cast("RunContext", context)  # None only where nothing below reads it
    requests = SavedRequests(run)
    entry = RegisteredState

    def parts() -> dict[str, Any]:
        return metric_parts(module, owners_of(core))

    def generators() -> Any:
        return generators_in({"module": module, **owners_of(core)})

    # in the order of loading: counters first, because other entries read them, and random states
    # last, because loading the others may draw random numbers.
    # looked up at each call, not once: `training.optimization` and `stream`, which a run makes anew
    entries = [
        entry("progress", progress.state_dict, progress.load_state_dict,
              is_required=True, only_training_changes=True),
        entry("wall_times", keeper.wall_times, keeper.load_wall_times, only_training_changes=True),
        entry("clock", keeper.state_dict, lambda s: keeper.load_state_dict(s, progress),
              only_training_changes=True),
        # at the top level, where Lightning has optimizer_states and lr_schedulers too
        entry("optimization",
              lambda: training.optimization.state_dict() if training.is_configured else {},
              lambda s: training.optimization.load_state_dict(s),
              path=(), only_training_changes=True),
        # nothing is loaded here: a resume adds the groups before it compares the optimizers
        entry("added_groups",
              lambda: added_groups(training.optimization, module, training.setup) or None,
              lambda _: None, only_training_changes=True),
        # under Lightning's key for it, the name of its precision plugin
        entry("scaler",
              lambda: core.precision.state_dict() or None,
              core.precision.load_state_dict, path=("MixedPrecision",),
              only_training_changes=True, is_of_run=True),
        # not rolled back: `MetricStore.isolated` does that for what an evaluation shows
        entry("metrics", lambda: metrics.state_dict(parts),
              lambda s: metrics.load_state_dict(s, parts(), device),
              is_per_rank=True, is_rolled_back=False),
        entry("evaluated", lambda: dict(metrics.evaluated),
              lambda s: setattr(metrics, "evaluated", {k: int(v) for k, v in s.items()}),
              is_rolled_back=False),
        entry("history", history.state_dict, history.load_state_dict, is_rolled_back=False),
        entry("metric_objects", lambda: metric_states(parts()),
              lambda s: load_metric_states(parts(), s, device),
              is_per_rank=True),
        # saved so that a repeated validation is logged once. Nothing is loaded here: loggers resume
        # before all else, before their folders are first used
        entry("loggers", core.guards.state, lambda _: None, is_rolled_back=False),
        # not rolled back: a callback keeps what it did in a sanity check
        entry("callbacks", connector.state_dict, connector.load_state_dict, path=("callbacks",),
              is_rolled_back=False, snapshot=lambda: _states_without_savers(core)),
        *core.extra_states,
        entry("loop", lambda: _loop(run), lambda s: _load_loop(run, s),
              only_training_changes=True, is_of_run=True),
        # as it was when a validation began, which a resume repeats and which may request it again
        entry("stop", requests.stop, requests.load_stop,
              is_rolled_back=False, is_of_run=True, is_request=True),
        # by the loop: the ranks agree at the fit's start, and had not agreed on this one yet
        entry("own_stop", requests.own_stop, requests.load_own_stop,
              is_restored_by_loop=True, is_rolled_back=False, is_per_rank=True, is_of_run=True,
              is_request=True),
        entry("own_requests", requests.own_requests, requests.load_own_requests,
              is_restored_by_loop=True, is_rolled_back=False, is_per_rank=True, is_of_run=True,
              is_request=True),
        entry("evaluators", lambda: dict(run.validation.evaluators),
              lambda s: setattr(run.validation, "evaluators", dict(s)),
              only_training_changes=True, is_of_run=True),
        # before the loaders are made, the position at which the last fit ended
        entry("stream",
              lambda: (training.ended.states["stream"] if run.data.stream is None
                       else run.data.stream.state_dict(inside_batch=run.batch.is_taken)),
              lambda s: run.data.restore_position(s, progress),
              is_required=True, is_restored_by_loop=True, only_training_changes=True,
              is_per_rank=True, is_of_run=True),
        # restored if this run makes its loaders anew, too
        entry("renewed", lambda: dict(run.data.renewed) or None,
              lambda s: setattr(run.data, "renewed", s if run.data.renewed else {}),
              only_training_changes=True, is_per_rank=True, is_of_run=True),
        # loaders that are made later, as by `reload_dataloaders_every_n_epochs`, are sharded by it
        entry("sharding_seed",
              lambda: run.data.sharding_seed, lambda s: setattr(run.data, "sharding_seed", s),
              only_training_changes=True, is_of_run=True),
        # by the loop: hooks that open a training may fill them, in a resume once more
        entry("extra_buffers", lambda: training.buffers.state_dict(module) or None,
              lambda s: training.buffers.load_state_dict(
                  module, s, warns=processes.is_global_zero),
              is_restored_by_loop=True, is_rolled_back=False),
        # buffers that differ between ranks, as they do inside an accumulation window
        *([entry("own_buffers",
                 lambda: ({} if processes.has_common_buffers and not progress.batches_in_window
                          else buffers_of(module)),
                 lambda s: load_buffers(module, s),
                 is_restored_by_loop=True, only_training_changes=True, is_per_rank=True)]
          if processes.is_distributed else []),
        # only from a snapshot: as they are now, they stand among the weights or above. By the loop:
        # an average copies the module in `on_after_load`, with the buffers that it was built with
        entry("buffers", lambda: buffers_of(module), lambda s: load_buffers(module, s),
              only_from_snapshot=True, is_restored_by_loop=True),
        entry("gradients", lambda: _gradients(core, module),
              lambda s: processes.load_gradients(
                  module, s, is_window_open=progress.batches_in_window > 0),
              is_restored_by_loop=True, only_training_changes=True, is_per_rank=True),
        # by the loop: Lightning's own callback refuses another number in `on_train_start`
        entry("set_window", lambda: _set_window(run), core.change_window,
              is_restored_by_loop=True, is_rolled_back=False, is_of_run=True),
        entry("modes", lambda: {**modes_of(module), "began": training.began},
              lambda s: _load_modes(module, training, s), is_restored_by_loop=True,
              is_of_run=True),
        entry("generators",
              lambda: generator_states(generators()), lambda s: restore_generators(generators(), s),
              is_restored_by_loop=True, is_per_rank=True),
        # after those of callbacks, which may still hold loaders that others have replaced since
        entry("val_generators",
              lambda: (run.data.evaluation["validate"].generator_states()
                       if "validate" in run.data.evaluation
                       else training.ended.states.get("val_generators", {})),
              lambda s: _load_val_generators(run, s),
              is_restored_by_loop=True, is_per_rank=True, is_of_run=True),
        entry("rng", rng.capture, rng.restore,
              is_required=True, is_restored_by_loop=True, is_per_rank=True),
    ]  # fmt: skip
    if context is None:
        entries = [
            replace(entry, state_dict=partial(training.ended.states.get, entry.name))
            if entry.is_of_run
            else entry
            for entry in entries
        ]
    return StateRegistry(entries)


def owners_of(core: TrainerCore) -> dict[str, object]:
    """Return the callbacks and the data module, which may hold metrics or generators, by name."""
    owners: dict[str, object] = {
        f"callback {entry.callback.state_key}": entry.callback for entry in core.connector.entries
    }
    return {**owners, "datamodule": core.datamodule}


def _states_without_savers(core: TrainerCore) -> dict[str, Any]:
    """Return the callbacks' states but those of savers.

    A checkpoint saved inside a validation holds the former as they were when it began, and those of
    savers as they are now: the files that they name are there.
    """
    saver = class_if_loaded("trainer_hooks.callbacks.saving.checkpoint", "Checkpoint")
    callbacks = core.connector.callbacks
    savers = {cast("Checkpoint", c).state_key for c in callbacks if isinstance(c, saver)}
    states = core.connector.state_dict()
    return {key: state for key, state in states.items() if key not in savers}


def _loop(context: RunContext) -> dict[str, Any]:
    """Return the training loop's flags, which no counter holds."""
    return {
        "is_last_batch": context.batch.is_last,
        "is_in_cycle": context.is_in_cycle,
        "has_scheduled": context.batch.has_scheduled,
    }


def _load_loop(context: RunContext, state: dict[str, Any]) -> None:
    context.batch.is_last = state["is_last_batch"]
    context.is_in_cycle = state["is_in_cycle"]
    context.batch.has_scheduled = state["has_scheduled"]


def _load_val_generators(context: RunContext, states: dict[str, Any]) -> None:
    """Restore the random states of the validation loaders that are there."""
    if "validate" in context.data.evaluation:
        context.data.evaluation["validate"].set_generator_states(states)


def _set_window(context: RunContext) -> dict[str, int] | None:
    """Return the batches of a window that a hook set, those as the fit began, and the epoch's.

    A hook that sets them as an epoch begins is not called again by a resume inside that epoch. What
    a hook sets inside an epoch counts from the next one on.

    Returns:
        None if no hook set another number.
    """
    before = context.plan_at_start.accumulate_grad_batches
    now = context.plan.accumulate_grad_batches
    in_epoch = context.batch.window
    if now == before and in_epoch in (0, now):
        return None
    return {"before": before, "now": now, "epoch": in_epoch}


def _gradients(core: TrainerCore, module: Module) -> dict[str, Any]:
    """Return the gradients that must survive: those accumulated inside a window."""
    # after a step the next window clears them. A module that clears its gradients itself may keep
    # them beyond a step
    clears_itself = not module.automatic_optimization or defines(
        module, "optimizer_zero_grad", Module
    )
    if not core.training.progress.batches_in_window and not clears_itself:
        return {}
    return dict(core.processes.gradients(module))


def modes_of(module: nn.Module) -> dict[str, list[str]]:
    """Return the plain names of a module's parts and parameters that a hook may have switched.

    They are the parts in eval mode, the frozen parameters, and the parts with running statistics
    that are not tracked, as those of a frozen BatchNorm.
    """
    frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
    modes = {
        "evaluates": [name for name, part in module.named_modules() if not part.training],
        # sorted: pruning and its end register parameters in another order
        "frozen": sorted(frozen),
        "untracked": [name for name, part in module.named_modules() if _tracks(part) is False],
    }
    # each once: a wrapper has the name of the layer inside it
    return {key: list(dict.fromkeys(map(plain_name, names))) for key, names in modes.items()}


def _tracks(part: nn.Module) -> bool | None:
    """Return whether a part updates its running statistics; None if it has none."""
    if getattr(part, "running_mean", None) is None:
        return None
    return getattr(part, "track_running_stats", None)


def _load_modes(module: nn.Module, training: TrainingState, state: dict[str, Any]) -> None:
    """Restore the modes of a module's parts and `requires_grad` of its parameters, by name.

    Hooks that freeze, unfreeze or set a mode at the start of an epoch are not called again by a
    resume inside that epoch, so a checkpoint keeps their effect. If the module is built otherwise
    than when the training began, the difference is intended, and the present modes stay.
    """
    before, now = state["began"] or {}, training.began
    # a file of an earlier version has fewer kinds
    if before and now and any(now.get(kind) != before[kind] for kind in before):
        warn(
            f"{type(module).__qualname__} is built with other parts in eval mode, or "
            "with other parameters that require gradients, than when the training in the "
            "checkpoint began: as it is built now it goes on. Build it as it was to resume "
            "exactly.",
            TrainerHooksWarning,
        )
        return
    evaluates, frozen = (set(state[key]) for key in ("evaluates", "frozen"))
    for name, part in module.named_modules():
        # not train(), which would set all submodules
        part.training = plain_name(name) not in evaluates
        if "untracked" in state and _tracks(part) is not None:
            part.track_running_stats = plain_name(name) not in state["untracked"]
    for name, parameter in module.named_parameters():
        wanted = plain_name(name) not in frozen
        # torch raises for a parameter of integers, which cannot require gradients
        can_require = parameter.is_floating_point() or parameter.is_complex()
        if parameter.requires_grad is not wanted and can_require:
            parameter.requires_grad_(wanted)
