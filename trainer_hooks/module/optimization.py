"""Optimizers and learning rate schedulers: what `configure_optimizers` may return, made uniform."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainer_hooks.errors import OptimizationError, nearest
from trainer_hooks.module.optimizer_states import keep_dtypes

__all__ = [
    "LRSchedulerConfig",
    "ManualOptimizer",
    "Optimization",
    "needs_closure",
    "parse",
    "takes_closure",
]

_OPTIMIZER_KEYS = frozenset({"optimizer", "lr_scheduler", "monitor"})


@dataclass(slots=True)
class LRSchedulerConfig:
    """One scheduler and when it steps.

    Attributes:
        scheduler: the scheduler.
        name: what LearningRateMonitor calls it.
        interval: `"epoch"` or `"step"` (optimizer steps).
        frequency: how many intervals between two of its steps.
        reduce_on_plateau: whether `step` is given the monitored value.
        monitor: the name of that value in `trainer.callback_metrics`.
        strict: whether it is an error if that value was not logged.
    """

    scheduler: Any
    name: str | None = None
    interval: str = "epoch"
    frequency: int = 1
    reduce_on_plateau: bool = False
    monitor: str | None = None
    strict: bool = True


@dataclass(slots=True)
class Optimization:
    """All optimizers and schedulers of a module.

    Attributes:
        optimizers: the optimizers.
        schedulers: the schedulers with their configuration.
    """

    optimizers: list[Optimizer] = field(default_factory=list)
    schedulers: list[LRSchedulerConfig] = field(default_factory=list)

    def state_dict(self) -> dict[str, list[Any]]:
        """Return the states under Lightning's keys."""
        return {
            "optimizer_states": [optimizer.state_dict() for optimizer in self.optimizers],
            "lr_schedulers": [config.scheduler.state_dict() for config in self.schedulers],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the states back, each tensor as it was saved.

        Args:
            state_dict: what `state_dict` returned, and the weights under their key. Where those
                have been of another dtype than the parameters are now, so are the states.
        """
        for key, owners in self._owners():
            for owner, state in zip(owners, state_dict[key], strict=True):
                owner.load_state_dict(state)
        weights = state_dict.get("state_dict", {}).values()
        dtypes = {value.dtype for value in weights if isinstance(value, Tensor)}
        for optimizer, state in zip(self.optimizers, state_dict["optimizer_states"], strict=True):
            keep_dtypes(optimizer, state, dtypes)
        for optimizer in self.optimizers:
            # it has stepped, in the run that is resumed; torch's schedulers would warn otherwise
            optimizer.__dict__["_opt_called"] = True

    def require_same(self, state_dict: Mapping[str, Any]) -> None:
        """Make sure that the states fit, before any is taken back.

        Raises:
            OptimizationError: the number of optimizers, schedulers, or of an optimizer's groups or
                parameters is another one.
        """
        hint = (
            "they must be the same to go on. Return the same optimizers and schedulers, or load "
            "the weights alone with Module.load_from_checkpoint."
        )
        for key, owners in self._owners():
            saved = state_dict.get(key, [])
            if len(saved) != len(owners):
                raise OptimizationError(
                    f"the checkpoint holds {len(saved)} entries under {key!r}, but "
                    f"configure_optimizers returned {len(owners)}: {hint}"
                )
        for optimizer, state in zip(self.optimizers, state_dict["optimizer_states"], strict=True):
            before = [len(group["params"]) for group in state["param_groups"]]
            now = [len(group["params"]) for group in optimizer.param_groups]
            if before != now:
                raise OptimizationError(
                    f"{type(optimizer).__qualname__} had parameter groups of {before} parameters "
                    f"when it was saved, and has groups of {now} now: {hint}"
                )

    def take_rates(self, fresh: Optimization, *, is_new: bool) -> None:
        """Take over the learning rates of others that were made by the same module.

        Args:
            fresh: the others.
            is_new: whether these have not stepped yet, so that everything else is taken over too.
        """
        state = fresh.state_dict()
        self.require_same(state)
        if is_new:
            self.load_state_dict(state)
            return
        for optimizer, other in zip(self.optimizers, fresh.optimizers, strict=True):
            for group, new in zip(optimizer.param_groups, other.param_groups, strict=True):
                group.update({name: new[name] for name in ("lr", "initial_lr") if name in new})
        for config, others in zip(self.schedulers, fresh.schedulers, strict=True):
            if hasattr(config.scheduler, "base_lrs"):
                config.scheduler.base_lrs = list(others.scheduler.base_lrs)

    def _owners(self) -> tuple[tuple[str, list[Any]], ...]:
        return (
            ("optimizer_states", list(self.optimizers)),
            ("lr_schedulers", [config.scheduler for config in self.schedulers]),
        )


class _Stepper(Protocol):
    """What a loop does around the step of one optimizer in manual optimization."""

    def step_manually(self, optimizer: Optimizer, closure: Callable[[], Any] | None) -> Any: ...

    def zero_grad_manually(self, optimizer: Optimizer, set_to_none: bool) -> None: ...


class ManualOptimizer:
    """An optimizer in manual optimization: its `step` counts and fires the hooks.

    Everything else is the wrapped optimizer's.

    Attributes:
        optimizer: the wrapped optimizer.
    """

    def __init__(self, optimizer: Optimizer, stepper: _Stepper) -> None:
        self.optimizer = optimizer
        self._stepper = stepper

    @property  # type: ignore[misc]
    def __class__(self) -> type[Optimizer]:  # type: ignore[override]
        """Return the wrapped optimizer's class, so that `isinstance` takes this for it."""
        return type(self.optimizer)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Let the optimizer step, with the run's precision; count it and fire the hooks."""
        return self._stepper.step_manually(self.optimizer, closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients and fire the hook."""
        self._stepper.zero_grad_manually(self.optimizer, set_to_none)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)


def needs_closure(optimizer: Optimizer) -> bool:
    """Return whether the optimizer evaluates the loss itself, as LBFGS does."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def takes_closure(optimizer: Optimizer) -> bool:
    """Return whether an optimizer of another library is given what computes the loss.

    It may evaluate it, as those that look at the weights nearby do; torch's own with such an
    argument step alike without it.
    """
    kind = type(optimizer)
    is_torchs = kind.step.__module__.partition(".")[0] == "torch"
    return not is_torchs and "closure" in inspect.signature(kind.step).parameters


def parse(returned: Any, owner: str) -> Optimization:
    """Make what `configure_optimizers` returned uniform.

    It may be: one optimizer; a list or tuple of them; a tuple of a list of optimizers and a list of
    schedulers (or scheduler dicts); a dict with `optimizer` and optionally `lr_scheduler` (a
    scheduler or a dict) and `monitor`; a list or tuple of such dicts; None for no optimizer.

    Args:
        returned: the value.
        owner: the module's name, for messages.

    Raises:
        OptimizationError: it is none of these; the message says what was found.
    """
    result = Optimization()
    if returned is None:
        return result
    if isinstance(returned, Optimizer):
        result.optimizers.append(returned)
    elif isinstance(returned, Mapping):
        _add_dict(result, returned, owner)
    elif _is_pair_of_lists(returned):
        optimizers, schedulers = returned
        for optimizer in optimizers:
            result.optimizers.append(_checked_optimizer(optimizer, owner))
        for scheduler in schedulers:
            result.schedulers.append(_scheduler_config(scheduler, owner))
    elif isinstance(returned, Sequence) and not isinstance(returned, str):
        for item in returned:
            if isinstance(item, Mapping):
                _add_dict(result, item, owner)
            else:
                result.optimizers.append(_checked_optimizer(item, owner))
    else:
        raise OptimizationError(
            f"{owner}.configure_optimizers returned {returned!r} of type "
            f"{type(returned).__qualname__}: it must return an optimizer, a list of them, a dict "
            "with the key 'optimizer', ([optimizers], [schedulers]), or None."
        )
    _check_belonging(result, owner)
    return result


def _is_pair_of_lists(returned: Any) -> bool:
    return (
        isinstance(returned, list | tuple)
        and len(returned) == 2
        and isinstance(returned[0], list | tuple)
        and isinstance(returned[1], list | tuple)
    )


def _add_dict(result: Optimization, given: Mapping[str, Any], owner: str) -> None:
    for key in given:
        if key not in _OPTIMIZER_KEYS:
            raise OptimizationError(
                f"{owner}.configure_optimizers returned a dict with the key {key!r}: known keys "
                f"are {', '.join(sorted(_OPTIMIZER_KEYS))}.{nearest(key, _OPTIMIZER_KEYS)}"
            )
    result.optimizers.append(_checked_optimizer(given.get("optimizer"), owner))
    scheduler = given.get("lr_scheduler")
    if scheduler is None:
        return
    monitor = given.get("monitor")
    if isinstance(scheduler, Mapping) and monitor is not None:
        scheduler = {"monitor": monitor, **scheduler}
    result.schedulers.append(_scheduler_config(scheduler, owner, monitor))


def _checked_optimizer(optimizer: Any, owner: str) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        is_scheduler = isinstance(optimizer, LRScheduler)
        hint = " With schedulers, return ([optimizer], [scheduler])." if is_scheduler else ""
        raise OptimizationError(
            f"{owner}.configure_optimizers returned {optimizer!r} of type "
            f"{type(optimizer).__qualname__} where an optimizer was expected: it must be a "
            f"torch.optim.Optimizer.{hint}"
        )
    return optimizer


def _scheduler_config(given: Any, owner: str, monitor: str | None = None) -> LRSchedulerConfig:
    where = f"{owner}.configure_optimizers"
    if isinstance(given, Mapping):
        known = {item.name for item in fields(LRSchedulerConfig)}
        for key in given:
            if key not in known:
                raise OptimizationError(
                    f"{where} returned a scheduler dict with the key {key!r}: known keys are "
                    f"{', '.join(sorted(known))}.{nearest(key, known)}"
                )
        if "scheduler" not in given:
            raise OptimizationError(
                f"{where} returned the scheduler dict {dict(given)!r} without the key 'scheduler'."
            )
        config = LRSchedulerConfig(**given)
    else:
        config = LRSchedulerConfig(given, monitor=monitor)
    if isinstance(config.scheduler, type) or not all(
        callable(getattr(config.scheduler, name, None))
        for name in ("step", "state_dict", "load_state_dict")
    ):
        raise OptimizationError(
            f"{where} returned {config.scheduler!r} as a scheduler: it must be a torch scheduler, "
            "or have step(), state_dict() and load_state_dict()."
        )
    config.reduce_on_plateau |= isinstance(config.scheduler, ReduceLROnPlateau)
    if config.interval not in {"epoch", "step"}:
        raise OptimizationError(
            f"{where}: interval={config.interval!r} of a scheduler must be 'epoch' or 'step'."
        )
    if (
        isinstance(config.frequency, bool)
        or not isinstance(config.frequency, int)
        or config.frequency < 1
    ):
        raise OptimizationError(
            f"{where}: frequency={config.frequency!r} of a scheduler must be an integer of at "
            "least 1."
        )
    if config.reduce_on_plateau and config.monitor is None:
        raise OptimizationError(
            f"{where} returned a ReduceLROnPlateau without a monitor: name the logged value that "
            "it watches, as in {'optimizer': opt, 'lr_scheduler': {'scheduler': plateau, "
            "'monitor': 'val_loss'}}."
        )
    return config


def _check_belonging(result: Optimization, owner: str) -> None:
    """Make sure that each scheduler drives an optimizer that was returned too."""
    for config in result.schedulers:
        driven = getattr(config.scheduler, "optimizer", None)
        if driven is not None and not any(driven is optimizer for optimizer in result.optimizers):
            raise OptimizationError(
                f"{owner}.configure_optimizers returned the scheduler "
                f"{type(config.scheduler).__qualname__}, which drives an optimizer that was not "
                "returned: return that optimizer too."
            )
