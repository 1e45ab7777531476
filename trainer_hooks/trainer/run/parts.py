"""What moves in a run: the list that checkpoints, restores and all that is undone go by.

Whatever a training changes and a resume must find again has one entry here. The weights, the
hyperparameters and the state of the data module are no part of the list: they are in every file,
also in one that nobody can resume from.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks.context import REFUSE, MovingParts, Part
from trainer_hooks.data import generator_states, generators_in, restore_generators
from trainer_hooks.loops import overrides
from trainer_hooks.metrics import load_metric_states, metric_parts, metric_states
from trainer_hooks.runtime import rng
from trainer_hooks.trainer.run.modes import Modes

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext, Training
    from trainer_hooks.module import Module
    from trainer_hooks.trainer.run.session import Session

__all__ = ["kept_metrics", "moving_parts"]

_UNOPENED: dict[str, Any] = {
    "opened_with": {},
    "generators": [],
    "loader": None,
    "num_batches": math.inf,
}


def moving_parts(session: Session, module: Module, context: RunContext | None) -> MovingParts:
    """Return the parts of the run under way, or of the training between two runs.

    Args:
        session: whose run it is.
        module: what is trained.
        context: the run; None between two, when the last fit's places are known as plain data.
    """
    parts = MovingParts()
    training = session.training
    _add_counters(parts, training)
    _add_optimization(parts, session, context)
    _add_metrics(parts, session, module)
    _add_loggers(parts, session)
    _add_callbacks(parts, session)
    _add_loop(parts, training.left, context)
    _add_loaders(parts, training, context)
    if session.processes.is_several:
        _add_own_buffers(parts, session, module)
    _add_module(parts, session, module)
    return parts


def _add_counters(parts: MovingParts, training: Training) -> None:
    progress, keeper = training.progress, training.timekeeper
    parts.register(
        Part(
            "progress",
            progress.state_dict,
            progress.load_state_dict,
            missing=REFUSE,
            by_training_alone=True,
        )
    )
    parts.register(
        Part("wall_times", keeper.wall_times, keeper.load_wall_times, by_training_alone=True)
    )
    parts.register(
        Part(
            "clock",
            keeper.state_dict,
            lambda s: keeper.load_state_dict(s, progress),
            by_training_alone=True,
        )
    )


def _add_optimization(parts: MovingParts, session: Session, context: RunContext | None) -> None:
    """Add the optimizers and the loss scaler, which an evaluation does not move."""
    training = session.training
    precision = session.precision if context is None else context.precision

    def optimization() -> dict[str, Any]:
        return training.optimization.state_dict() if training.is_configured else {}

    def scaler() -> dict[str, Any] | None:
        return (training.scaler if context is None else precision.state_dict()) or None

    parts.register(
        Part(
            "optimization",
            optimization,
            lambda s: training.optimization.load_state_dict(s),
            path=(),
            by_training_alone=True,
        )
    )
    parts.register(
        Part(
            "scaler",
            scaler,
            precision.load_state_dict,
            path=("MixedPrecision",),
            by_training_alone=True,
        )
    )


def _add_metrics(parts: MovingParts, session: Session, module: Module) -> None:
    training, device = session.training, session.device
    metrics, history = training.metrics, training.history

    def load_metrics(state: dict[str, Any]) -> None:
        metrics.load_state_dict(state, kept_metrics(session, module), device)

    def load_evaluated(state: dict[str, int]) -> None:
        metrics.evaluated = dict(state)

    parts.register(
        Part(
            "metrics",
            lambda: metrics.state_dict(kept_metrics(session, module)),
            load_metrics,
            is_of_process=True,
            is_put_back=False,  # `MetricStore.isolated` does that for what an evaluation shows
        )
    )
    parts.register(
        Part(
            "evaluated",
            lambda: dict(metrics.evaluated),
            load_evaluated,
            is_put_back=False,
        )
    )
    parts.register(Part("history", history.state_dict, history.load_state_dict, is_put_back=False))
    parts.register(
        Part(
            "metric_objects",
            lambda: metric_states(kept_metrics(session, module)),
            lambda s: load_metric_states(kept_metrics(session, module), s, device),
            is_of_process=True,
        )
    )


def _add_loggers(parts: MovingParts, session: Session) -> None:
    """Add how far the loggers have written: what a validation logs again is logged once."""

    def load(states: Any) -> None:
        """Do nothing: they went on with their runs before anybody asked for their folders."""

    parts.register(Part("loggers", session.guards.state, load, is_put_back=False))


def _add_callbacks(parts: MovingParts, session: Session) -> None:
    """Add the callbacks; savers tell what they saved, whatever is under way."""

    def aside() -> dict[str, Any]:
        saver = class_if_loaded("trainer_hooks.callbacks.saving.checkpoint", "Checkpoint")
        savers = {c.state_key for c in session.connector.callbacks if isinstance(c, saver)}
        states = session.connector.state_dict()
        return {key: state for key, state in states.items() if key not in savers}

    def load(states: dict[str, Any]) -> None:
        session.start.found = session.connector.load_state_dict(states)

    parts.register(
        Part(
            "callbacks",
            session.connector.state_dict,
            load,
            path=("callbacks",),
            is_put_back=False,  # what they do in a sanity check is theirs to know
            put_aside=aside,
        )
    )


def _add_loop(parts: MovingParts, left: dict[str, Any], context: RunContext | None) -> None:
    """Add what the training loop knows; between two runs, as the last fit left it."""

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

    parts.register(Part("loop", loop, load_loop, by_training_alone=True))
    parts.register(Part("evaluators", evaluators, load_evaluators, by_training_alone=True))


def _add_loaders(parts: MovingParts, training: Training, context: RunContext | None) -> None:
    """Add the places of the loaders and their generators; between two runs, likewise."""
    left = training.left

    def stream() -> dict[str, Any]:
        source = None if context is None else context.data.stream
        if context is None or source is None:
            return left.get("stream") or dict(_UNOPENED)
        return source.state_dict(inside_batch=context.batch.is_taken)

    def take_up(state: dict[str, Any]) -> None:
        assert context is not None
        context.data.take_up(state, training.progress)

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

    parts.register(
        Part(
            "stream",
            stream,
            take_up,
            is_place=True,
            missing=REFUSE,
            by_training_alone=True,
            is_of_process=True,
        )
    )
    parts.register(
        Part(
            "renewed",
            renewed,
            load_renewed,
            by_training_alone=True,
            is_of_process=True,
        )
    )
    parts.register(
        Part(
            "val_generators",
            val_generators,
            load_val_generators,
            is_place=True,
            is_of_process=True,
        )
    )


def _add_own_buffers(parts: MovingParts, session: Session, module: Module) -> None:
    """Add the buffers where each process has its own: until the next window makes them one."""
    progress, processes = session.training.progress, session.processes

    def buffers() -> dict[str, Any]:
        is_one = processes.has_common_buffers and not progress.batches_in_window
        return {} if is_one else dict(module.named_buffers())

    parts.register(
        Part(
            "own_buffers",
            buffers,
            lambda s: _load_buffers(module, s),
            is_place=True,
            by_training_alone=True,
            is_of_process=True,
        )
    )


def _add_module(parts: MovingParts, session: Session, module: Module) -> None:
    """Add what of the module is no weight, and what is random; the global numbers come last."""
    training = session.training
    modes = Modes(module, training)

    def load_gradients(states: dict[str, Any]) -> None:
        session.processes.load_gradients(
            module, states, is_window_open=training.progress.batches_in_window > 0
        )

    def kept() -> dict[str, Any]:
        return generators_in({"module": module, **_owners(session)})

    parts.register(
        Part(
            "buffers",
            lambda: dict(module.named_buffers()),
            lambda s: _load_buffers(module, s),
            is_only_aside=True,  # as they are now they stand among the weights
        )
    )
    parts.register(
        Part(
            "gradients",
            lambda: _gradients(session, module),
            load_gradients,
            is_place=True,
            by_training_alone=True,
            is_of_process=True,
        )
    )
    parts.register(Part("modes", modes.state_dict, modes.load_state_dict, is_place=True))
    parts.register(
        Part(
            "generators",
            lambda: generator_states(kept()),
            lambda s: restore_generators(kept(), s),
            is_place=True,
            is_of_process=True,
        )
    )
    parts.register(
        Part("rng", rng.capture, rng.restore, is_place=True, missing=REFUSE, is_of_process=True)
    )


def kept_metrics(session: Session, module: Module) -> dict[str, Any]:
    """Return the module's parts, and the metric objects that are kept elsewhere, by name."""
    return metric_parts(module, _owners(session))


def _owners(session: Session) -> dict[str, object]:
    """Return what else than the module may keep what moves, by name."""
    owners: dict[str, object] = {
        f"callback {entry.callback.state_key}": entry.callback
        for entry in session.connector.entries
    }
    return {**owners, "datamodule": session.datamodule}


def _gradients(session: Session, module: Module) -> dict[str, Any]:
    """Return the gradients that outlive this moment: those inside a window."""
    # where the module itself says when they are cleared, they may outlive a step
    clears_itself = not module.automatic_optimization or overrides(module, "optimizer_zero_grad")
    if not session.training.progress.batches_in_window and not clears_itself:
        return {}
    return dict(session.processes.gradients(module))


def _load_buffers(module: Module, states: dict[str, Any]) -> None:
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if name in states and states[name] is not buffer:
                buffer.copy_(states[name])
