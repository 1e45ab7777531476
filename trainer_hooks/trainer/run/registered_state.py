"""The state registry of a run: every entry that checkpoints save and a resume restores.

Everything that changes in a training and that a resume must restore has one entry here. The
weights, the hyperparameters and the data module's state have none: every file holds them, even one
that no run can resume from.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks._log import warn
from trainer_hooks.context.state_registry import REFUSE, RegisteredState, StateRegistry
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.data.generators import generator_states, generators_in, restore_generators
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.metrics.metric_objects import load_metric_states, metric_parts, metric_states
from trainer_hooks.module.module import Module
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from torch import nn

    from trainer_hooks.callbacks import Checkpoint
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.context.training import TrainingState
    from trainer_hooks.trainer.run.trainer_core import TrainerCore

__all__ = ["ModuleModes", "build_state_registry", "kept_metrics", "modes_of"]


_UNOPENED: dict[str, Any] = {
    "opened_with": {},
    "generators": [],
    "loader": None,
    "num_batches": math.inf,
}


def build_state_registry(
    core: TrainerCore, module: Module, context: RunContext | None
) -> StateRegistry:
    """Return the state registry of a running run, or of the training between two runs.

    Args:
        core: the trainer's core.
        module: the module that is trained.
        context: the run; None between two runs, when the last fit's loader positions are known as
            plain data.
    """
    registry = StateRegistry()
    training = core.training
    # in the order of loading: counters first, because other entries read them, and random states
    # last, because loading the others may draw random numbers
    _add_counters(registry, training)
    _add_optimization(registry, core, context)
    _add_metrics(registry, core, module)
    _add_loggers(registry, core)
    _add_callbacks(registry, core)
    _add_loop(registry, training.left, context)
    _add_loaders(registry, training, context)
    if core.processes.is_distributed:
        _add_own_buffers(registry, core, module)
    _add_module(registry, core, module)
    return registry


def _add_counters(registry: StateRegistry, training: TrainingState) -> None:
    progress, keeper = training.progress, training.timekeeper
    registry.register(
        RegisteredState(
            "progress",
            progress.state_dict,
            progress.load_state_dict,
            missing=REFUSE,
            only_training_changes=True,
        )
    )
    registry.register(
        RegisteredState(
            "wall_times", keeper.wall_times, keeper.load_wall_times, only_training_changes=True
        )
    )
    registry.register(
        RegisteredState(
            "clock",
            keeper.state_dict,
            lambda s: keeper.load_state_dict(s, progress),
            only_training_changes=True,
        )
    )


def _add_optimization(
    registry: StateRegistry, core: TrainerCore, context: RunContext | None
) -> None:
    """Register the optimizers and the loss scaler, which an evaluation does not change."""
    training = core.training
    precision = core.precision if context is None else context.precision

    def optimization() -> dict[str, Any]:
        return training.optimization.state_dict() if training.is_configured else {}

    def scaler() -> dict[str, Any] | None:
        return (training.scaler if context is None else precision.state_dict()) or None

    registry.register(
        RegisteredState(
            "optimization",
            optimization,
            lambda s: training.optimization.load_state_dict(s),
            path=(),
            only_training_changes=True,
        )
    )
    registry.register(
        RegisteredState(
            "scaler",
            scaler,
            precision.load_state_dict,
            path=("MixedPrecision",),
            only_training_changes=True,
        )
    )


def _add_metrics(registry: StateRegistry, core: TrainerCore, module: Module) -> None:
    training, device = core.training, core.device
    metrics, history = training.metrics, training.history

    def load_metrics(state: dict[str, Any]) -> None:
        metrics.load_state_dict(state, kept_metrics(core, module), device)

    def load_evaluated(state: dict[str, int]) -> None:
        metrics.evaluated = dict(state)

    registry.register(
        RegisteredState(
            "metrics",
            lambda: metrics.state_dict(kept_metrics(core, module)),
            load_metrics,
            is_per_rank=True,
            is_rolled_back=False,  # `MetricStore.isolated` does that for what an evaluation shows
        )
    )
    registry.register(
        RegisteredState(
            "evaluated",
            lambda: dict(metrics.evaluated),
            load_evaluated,
            is_rolled_back=False,
        )
    )
    registry.register(
        RegisteredState(
            "history", history.state_dict, history.load_state_dict, is_rolled_back=False
        )
    )
    registry.register(
        RegisteredState(
            "metric_objects",
            lambda: metric_states(kept_metrics(core, module)),
            lambda s: load_metric_states(kept_metrics(core, module), s, device),
            is_per_rank=True,
        )
    )


def _add_loggers(registry: StateRegistry, core: TrainerCore) -> None:
    """Register the loggers' progress, so that a repeated validation is logged once."""

    def load(states: Any) -> None:
        """Do nothing: loggers resume before all else, before their folders are first used."""

    registry.register(RegisteredState("loggers", core.guards.state, load, is_rolled_back=False))


def _add_callbacks(registry: StateRegistry, core: TrainerCore) -> None:
    """Register the callbacks' states.

    A checkpoint saved inside a validation holds them as they were when it began, but savers' states
    as they are now.
    """

    def states_without_savers() -> dict[str, Any]:
        saver = class_if_loaded("trainer_hooks.callbacks.saving.checkpoint", "Checkpoint")
        callbacks = core.connector.callbacks
        savers = {cast("Checkpoint", c).state_key for c in callbacks if isinstance(c, saver)}
        states = core.connector.state_dict()
        return {key: state for key, state in states.items() if key not in savers}

    def load(states: dict[str, Any]) -> None:
        core.start.load_report = core.connector.load_state_dict(states)

    registry.register(
        RegisteredState(
            "callbacks",
            core.connector.state_dict,
            load,
            path=("callbacks",),
            is_rolled_back=False,  # a callback keeps what it did in a sanity check
            snapshot=states_without_savers,
        )
    )


def _add_loop(registry: StateRegistry, left: dict[str, Any], context: RunContext | None) -> None:
    """Register the state of the training loop; between two runs, as the last fit left it."""

    def loop() -> dict[str, Any]:
        if context is None:
            return dict(left.get("loop", {}))
        return context.loop_state()

    def load_loop(state: dict[str, Any]) -> None:
        assert context is not None
        context.batch.is_last = state.get("is_last_batch", False)
        context.cycle.is_open = state.get("is_in_cycle")
        context.batch.has_scheduled = state.get("has_scheduled", False)

    def evaluators() -> dict[str, Any]:
        known = left.get("evaluators", {}) if context is None else context.validation.evaluators
        return dict(known)

    def load_evaluators(state: dict[str, Any]) -> None:
        assert context is not None
        context.validation.evaluators = dict(state)

    registry.register(RegisteredState("loop", loop, load_loop, only_training_changes=True))
    registry.register(
        RegisteredState("evaluators", evaluators, load_evaluators, only_training_changes=True)
    )


def _add_loaders(
    registry: StateRegistry, training: TrainingState, context: RunContext | None
) -> None:
    """Register the loader positions and generators; between two runs, as the last fit left them."""
    left = training.left

    def stream() -> dict[str, Any]:
        source = None if context is None else context.data.stream
        if context is None or source is None:
            return left.get("stream") or dict(_UNOPENED)
        return source.state_dict(inside_batch=context.batch.is_taken)

    def restore_position(state: dict[str, Any]) -> None:
        assert context is not None
        context.data.restore_position(state, training.progress)

    def val_generators() -> dict[str, Any]:
        data = None if context is None else context.data.evaluation.get("validate")
        return left.get("val_generators", {}) if data is None else data.generator_states()

    def renewed() -> dict[str, Any] | None:
        return (left.get("renewed") if context is None else context.data.renewed) or None

    def load_renewed(state: dict[str, Any]) -> None:
        if context is not None and context.data.renewed and state:
            context.data.renewed = state

    def load_val_generators(states: Any) -> None:
        if context is not None and "validate" in context.data.evaluation:
            context.data.evaluation["validate"].set_generator_states(states)

    registry.register(
        RegisteredState(
            "stream",
            stream,
            restore_position,
            is_loop_position=True,
            missing=REFUSE,
            only_training_changes=True,
            is_per_rank=True,
        )
    )
    registry.register(
        RegisteredState(
            "renewed",
            renewed,
            load_renewed,
            only_training_changes=True,
            is_per_rank=True,
        )
    )
    registry.register(
        RegisteredState(
            "val_generators",
            val_generators,
            load_val_generators,
            is_loop_position=True,
            is_per_rank=True,
        )
    )


def _add_own_buffers(registry: StateRegistry, core: TrainerCore, module: Module) -> None:
    """Register buffers that differ between ranks, as they do inside an accumulation window."""
    progress, processes = core.training.progress, core.processes

    def buffers() -> dict[str, Any]:
        is_one = processes.has_common_buffers and not progress.batches_in_window
        return {} if is_one else dict(module.named_buffers())

    registry.register(
        RegisteredState(
            "own_buffers",
            buffers,
            lambda s: _load_buffers(module, s),
            is_loop_position=True,
            only_training_changes=True,
            is_per_rank=True,
        )
    )


def _add_module(registry: StateRegistry, core: TrainerCore, module: Module) -> None:
    """Register buffers, gradients, modes and random states; the global generators come last."""
    training = core.training
    modes = ModuleModes(module, training)

    def load_gradients(states: dict[str, Any]) -> None:
        core.processes.load_gradients(
            module, states, is_window_open=training.progress.batches_in_window > 0
        )

    def kept() -> dict[str, Any]:
        return generators_in({"module": module, **_owners(core)})

    registry.register(
        RegisteredState(
            "buffers",
            lambda: dict(module.named_buffers()),
            lambda s: _load_buffers(module, s),
            only_from_snapshot=True,  # as they are now they stand among the weights
        )
    )
    registry.register(
        RegisteredState(
            "gradients",
            lambda: _gradients(core, module),
            load_gradients,
            is_loop_position=True,
            only_training_changes=True,
            is_per_rank=True,
        )
    )
    registry.register(
        RegisteredState("modes", modes.state_dict, modes.load_state_dict, is_loop_position=True)
    )
    registry.register(
        RegisteredState(
            "generators",
            lambda: generator_states(kept()),
            lambda s: restore_generators(kept(), s),
            is_loop_position=True,
            is_per_rank=True,
        )
    )
    registry.register(
        RegisteredState(
            "rng", rng.capture, rng.restore, is_loop_position=True, missing=REFUSE, is_per_rank=True
        )
    )


def kept_metrics(core: TrainerCore, module: Module) -> dict[str, Any]:
    """Return the metric objects of the module, the callbacks and the data module, by name."""
    return metric_parts(module, _owners(core))


def _owners(core: TrainerCore) -> dict[str, object]:
    """Return the callbacks and the data module, which may hold metrics or generators, by name."""
    owners: dict[str, object] = {
        f"callback {entry.callback.state_key}": entry.callback for entry in core.connector.entries
    }
    return {**owners, "datamodule": core.datamodule}


def _gradients(core: TrainerCore, module: Module) -> dict[str, Any]:
    """Return the gradients that must survive: those accumulated inside a window."""
    # a module that clears its gradients itself may keep them beyond an optimizer step
    clears_itself = not module.automatic_optimization or defines(
        module, "optimizer_zero_grad", Module
    )
    if not core.training.progress.batches_in_window and not clears_itself:
        return {}
    return dict(core.processes.gradients(module))


def _load_buffers(module: Module, states: dict[str, Any]) -> None:
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            # in place: other objects may hold the buffer
            if name in states and states[name] is not buffer:
                buffer.copy_(states[name])


class ModuleModes:
    """The train and eval modes of a module's parts, and `requires_grad` of its parameters, by name.

    Hooks that freeze, unfreeze or set a mode at the start of an epoch are not called again by a
    resume inside that epoch, so a checkpoint keeps their effect. If the module is built otherwise
    than when the training began, the difference is intended, and the present modes stay.

    Args:
        module: the module.
        training: its training, which knows the modes at its beginning.
    """

    def __init__(self, module: nn.Module, training: TrainingState) -> None:
        self._module = module
        self._training = training

    def state_dict(self) -> dict[str, Any]:
        """Return the names of the parts in eval mode and of the frozen parameters."""
        return {**modes_of(self._module), "began": self._training.began}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the modes, if the module was built as when the training began."""
        if not state:
            return  # a file of format 2, which has no modes
        before, now = state["began"], self._training.began
        if before and now and before != now:
            warn(
                f"{type(self._module).__qualname__} is built with other parts in eval mode, or "
                "with other parameters that require gradients, than when the training in the "
                "checkpoint began: as it is built now it goes on. Build it as it was to resume "
                "exactly.",
                TrainerHooksWarning,
            )
            return
        evaluates, frozen = set(state["evaluates"]), set(state["frozen"])
        for name, part in self._module.named_modules():
            part.training = name not in evaluates  # not train(), which would set all submodules
        for name, parameter in self._module.named_parameters():
            wanted = name not in frozen
            if parameter.requires_grad is not wanted and _may_require(parameter):
                parameter.requires_grad_(wanted)


def modes_of(module: nn.Module) -> dict[str, list[str]]:
    """Return the names of a module's parts in eval mode, and of its frozen parameters."""
    return {
        "evaluates": [name for name, part in module.named_modules() if not part.training],
        "frozen": [name for name, p in module.named_parameters() if not p.requires_grad],
    }


def _may_require(parameter: nn.Parameter) -> bool:
    return parameter.is_floating_point() or parameter.is_complex()
