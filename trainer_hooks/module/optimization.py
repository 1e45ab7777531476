"""Optimizers and learning rate schedulers: every form that `configure_optimizers` may return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainer_hooks.errors import OptimizationError, UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch

__all__ = [
    "LRSchedulerConfig",
    "ManualOptimizer",
    "Optimization",
    "keep_dtypes",
    "needs_closure",
    "parse_optimizers",
    "takes_closure",
    "without_step",
]

_OPTIMIZER_KEYS = frozenset({"optimizer", "lr_scheduler", "monitor"})


@dataclass(slots=True)
class LRSchedulerConfig:
    """One learning rate scheduler and when it steps.

    Attributes:
        scheduler: the scheduler.
        name: its name for LearningRateMonitor.
        interval: `"epoch"` or `"step"` (optimizer steps).
        frequency: the number of intervals between two of its steps.
        reduce_on_plateau: whether `step` gets the monitored value.
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
        """Restore the states of optimizers and schedulers, each tensor as it was saved.

        Args:
            state_dict: the return value of `state_dict`, with the weights under their key. If those
                had another dtype than the parameters have now, the optimizer states keep torch's
                cast.
        """
        for key, owners in self._owners():
            for owner, state in zip(owners, state_dict[key], strict=True):
                owner.load_state_dict(state)
        weights = state_dict.get("state_dict", {}).values()
        dtypes = {value.dtype for value in weights if isinstance(value, Tensor)}
        for optimizer, state in zip(self.optimizers, state_dict["optimizer_states"], strict=True):
            keep_dtypes(optimizer, state, dtypes)
        for optimizer in self.optimizers:
            # torch's schedulers warn if they step before the optimizer, which stepped before
            optimizer.__dict__["_opt_called"] = True

    def require_same(self, state_dict: Mapping[str, Any]) -> None:
        """Require the saved states to fit, before any of them is restored.

        Raises:
            OptimizationError: the number of optimizers or schedulers differs, or that of an
                optimizer's groups or parameters.
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
        """Copy the learning rates of other optimizers and schedulers that the same module has made.

        Args:
            fresh: the others.
            is_new: whether the present ones have not stepped yet, so that all of the state is
                copied.
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
    """The loop of manual optimization, which steps an optimizer and clears gradients."""

    def step_manually(self, optimizer: Optimizer, closure: Callable[[], Any] | None) -> Any: ...

    def zero_grad_manually(self, optimizer: Optimizer, set_to_none: bool) -> None: ...


class ManualOptimizer:
    """An optimizer in manual optimization: its `step` is counted and fires the hooks.

    Everything else is delegated to the wrapped optimizer.

    Attributes:
        optimizer: the wrapped optimizer.
    """

    def __init__(self, optimizer: Optimizer, stepper: _Stepper) -> None:
        self.optimizer = optimizer
        self._stepper = stepper

    @property  # type: ignore[misc]
    def __class__(self) -> type[Optimizer]:  # type: ignore[override]
        """Return the wrapped optimizer's class, so that `isinstance` works as for the optimizer."""
        return type(self.optimizer)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step the optimizer with the run's precision, count the step and fire the hooks."""
        return self._stepper.step_manually(self.optimizer, closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients and fire the hook."""
        self._stepper.zero_grad_manually(self.optimizer, set_to_none)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)


def needs_closure(optimizer: Optimizer) -> bool:
    """Return whether the optimizer cannot step without a closure, as LBFGS."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def takes_closure(optimizer: Optimizer) -> bool:
    """Return whether an optimizer of another library takes a closure that computes the loss.

    Such an optimizer may evaluate the loss again, as sharpness-aware ones do. Those of torch that
    have the argument step alike without it, and return False here.
    """
    # torch's own evaluate a closure once before they step, which the loop has done already
    kind = type(optimizer)
    is_torchs = kind.step.__module__.partition(".")[0] == "torch"
    return not is_torchs and "closure" in inspect.signature(kind.step).parameters


def parse_optimizers(returned: Any, owner: str) -> Optimization:
    """Return an `Optimization` from any form that `configure_optimizers` may return.

    The forms are: one optimizer; a list or tuple of them; a tuple of a list of optimizers and a
    list of schedulers (or scheduler dicts); a dict with `optimizer` and optionally `lr_scheduler`
    (a scheduler or a dict) and `monitor`; a list or tuple of such dicts; None for no optimizer.

    Args:
        returned: the return value of `configure_optimizers`.
        owner: the module's name, for messages.

    Raises:
        OptimizationError: the value has none of these forms.
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
                f"are {', '.join(sorted(_OPTIMIZER_KEYS))}.{did_you_mean(key, _OPTIMIZER_KEYS)}"
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
                    f"{', '.join(sorted(known))}.{did_you_mean(key, known)}"
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
    """Require each scheduler to drive an optimizer that was returned too."""
    for config in result.schedulers:
        driven = getattr(config.scheduler, "optimizer", None)
        if driven is not None and not any(driven is optimizer for optimizer in result.optimizers):
            raise OptimizationError(
                f"{owner}.configure_optimizers returned the scheduler "
                f"{type(config.scheduler).__qualname__}, which drives an optimizer that was not "
                "returned: return that optimizer too."
            )


class _Refusal:
    """Takes the place of the loop of manual optimization, and refuses to step."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def step_manually(self, optimizer: Optimizer, closure: Any) -> NoReturn:
        raise UsageError(
            f"{self._owner}.optimizers() gave {type(optimizer).__qualname__}, whose step() was "
            "called with automatic optimization: the trainer steps it after training_step. Leave "
            "the call out, or set self.automatic_optimization = False in __init__."
        )

    def zero_grad_manually(self, optimizer: Optimizer, set_to_none: bool) -> None:
        optimizer.zero_grad(set_to_none=set_to_none)


def without_step(optimizer: Optimizer, owner: str) -> ManualOptimizer:
    """Return an optimizer wrapped so that its `step` raises, for automatic optimization.

    Args:
        optimizer: the optimizer.
        owner: the module's name, for the message.
    """
    return ManualOptimizer(optimizer, _Refusal(owner))


def keep_dtypes(
    optimizer: Optimizer, saved: Mapping[str, Any], dtypes: Collection[torch.dtype]
) -> None:
    """Restore the dtypes of optimizer state that torch has cast to the parameter's dtype.

    `load_state_dict` of torch casts each floating-point tensor of a state to its parameter's dtype.
    For tensors such as the product of NAdam's momenta that loses precision.

    Args:
        optimizer: an optimizer that has loaded `saved`.
        saved: the state.
        dtypes: the dtypes of the weights when it was saved; empty if unknown.
    """
    indices = [index for group in saved["param_groups"] for index in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states = saved.get("state", {})  # a custom optimizer may keep its states elsewhere
    for index, parameter in zip(indices, parameters, strict=True):
        if index in states and (not dtypes or parameter.dtype in dtypes):
            _as_saved(optimizer.state.get(parameter), states[index])


def _as_saved(loaded: Any, saved: Any) -> Any:
    """Return a loaded state, changed in place, whose tensors have the dtypes of `saved`."""
    if isinstance(loaded, Tensor) and isinstance(saved, Tensor):
        return loaded if loaded.dtype is saved.dtype else saved.to(loaded.device)
    if isinstance(loaded, dict) and isinstance(saved, dict):
        for key in loaded.keys() & saved.keys():
            loaded[key] = _as_saved(loaded[key], saved[key])
        return loaded
    is_sequence = isinstance(loaded, list | tuple) and type(loaded) is type(saved)
    if is_sequence and len(loaded) == len(saved):
        return type(loaded)(map(_as_saved, loaded, saved))
    return loaded
