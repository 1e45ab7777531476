"""Optimizers and learning rate schedulers: every form that `configure_optimizers` may return.

And their classes and options, which are saved, and compared on a resume.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields
from math import isclose
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    LambdaLR,
    LRScheduler,
    MultiplicativeLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)
from torch.optim.swa_utils import SWALR

from trainer_hooks._annotations import signature_of
from trainer_hooks._log import warn
from trainer_hooks._options import is_int
from trainer_hooks.errors import (
    OptimizationError,
    OptionError,
    TrainerHooksWarning,
    UsageError,
    did_you_mean,
)
from trainer_hooks.module.loaded_states import (
    keep_capturable_to_devices,
    require_usable_schedule,
    require_usable_state,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from contextlib import AbstractContextManager

    from torch import nn

_OF_FIXED_GROUPS = (CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR)
"""Schedulers of torch that cannot take a group of parameters that is added later."""

_OPTIMIZER_KEYS = frozenset({"optimizer", "lr_scheduler", "monitor"})


def import_compiler() -> None:
    """Import `torch._dynamo`, which torch imports for the first optimizer of a process."""
    if "torch._dynamo" in sys.modules:
        return
    # in a thread: a function of torch that runs during this import leaves its frame in a reference
    # cycle. In the main thread that would keep the frames of all callers, and with them the
    # loaders and their workers, until a garbage collection; the frames of a thread end in it
    thread = Thread(target=_import_compiler, name="import of torch._dynamo", daemon=True)
    # no thread can be started where processes are limited: torch then imports it here
    with suppress(RuntimeError):
        thread.start()
        thread.join()


def _import_compiler() -> None:
    # its eight hundred modules make a million objects that stay: looking through them for cycles,
    # over and over, takes a fifth of the time from the start of the process to its first step
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        # an error is raised again where the optimizer is made, whose import it then is
        with suppress(Exception):
            importlib.import_module("torch._dynamo")
    finally:
        if is_collecting:
            gc.enable()


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
        awaited: the states of a checkpoint that is being resumed from, until they are restored;
            empty if they are shards that are not read yet.
        has_groups_again: whether a resume has added groups that a hook had added before.
        is_none: whether `configure_optimizers` returned None.
    """

    optimizers: list[Optimizer] = field(default_factory=list)
    schedulers: list[LRSchedulerConfig] = field(default_factory=list)
    awaited: dict[str, list[Any]] | None = None
    has_groups_again: bool = False
    is_none: bool = False

    @property
    def num_groups(self) -> int:
        """The number of groups of parameters in all optimizers."""
        return sum(len(optimizer.param_groups) for optimizer in self.optimizers)

    def state_dict(self) -> dict[str, list[Any]]:
        """Return the states under Lightning's keys.

        Raises:
            UsageError: they are shards of a checkpoint that are not read yet.
        """
        if self.awaited is not None:
            if not self.awaited:
                raise UsageError(
                    "a checkpoint was to be saved in a resumed run with FSDP, before its "
                    "optimizers were restored, which they are after on_fit_start. Save in "
                    "on_train_start or later."
                )
            return dict(self.awaited)
        return {
            "optimizer_states": [optimizer.state_dict() for optimizer in self.optimizers],
            "lr_schedulers": [scheduler_state(config.scheduler) for config in self.schedulers],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the states of optimizers and schedulers, each tensor as it was saved.

        Args:
            state_dict: the return value of `state_dict`, with the weights under their key. If those
                had another dtype than the parameters have now, the optimizer states keep torch's
                cast.

        Raises:
            OptimizationError: an optimizer or scheduler raises an error as it loads its state.
        """
        for kind, owners, states in (
            ("optimizer", self.optimizers, state_dict["optimizer_states"]),
            ("scheduler", self._bare_schedulers(), state_dict["lr_schedulers"]),
        ):
            if kind == "scheduler":
                # LambdaLR's functions are in no checkpoint, so those for added groups are set
                # again; before it loads the attributes of each function that has some
                fit_schedulers_to_groups(self.schedulers)
            for number, (owner, state) in enumerate(zip(owners, states, strict=True)):
                made = [dict(group) for group in getattr(owner, "param_groups", ())]
                try:
                    if kind == "scheduler":
                        require_usable_schedule(owner, state)
                    # copied: some schedulers, such as CyclicLR, take entries out of the state
                    owner.load_state_dict(deepcopy(state) if kind == "scheduler" else state)
                    if kind == "optimizer":
                        keep_capturable_to_devices(owner.param_groups, made)
                        require_usable_state(owner, made)
                except Exception as error:  # of any class: it is code of others
                    raise OptimizationError(
                        f"{kind} {number}, {_class_of(owner)}, cannot load the saved state, "
                        f"{_shape_of(state)}: {type(error).__name__}: {error}. If a callback put "
                        f"another in its place when it was saved, or does so now, let it do the "
                        "same in both runs, in on_fit_start."
                    ) from error
        self._undo_casts(state_dict)
        # torch's schedulers warn if they step before the optimizer, which stepped before. One may
        # drive an optimizer that a wrapper took the place of
        driven = (getattr(scheduler, "optimizer", None) for scheduler in self._bare_schedulers())
        for stepped in (*self.optimizers, *driven):
            getattr(stepped, "__dict__", {})["_opt_called"] = True

    def _undo_casts(self, state_dict: Mapping[str, Any]) -> None:
        """Give the tensors of loaded states their saved dtypes, unless the weights had another.

        Torch casts each floating-point tensor of a state to its parameter's dtype, which for some
        loses precision, such as the product of NAdam's momenta.
        """
        weights = state_dict.get("state_dict", {}).values()
        dtypes = {value.dtype for value in weights if isinstance(value, Tensor)}
        for optimizer, state in zip(self.optimizers, state_dict["optimizer_states"], strict=True):
            if not isinstance(state, Mapping) or "param_groups" not in state:
                continue  # of a wrapper, whose state has a form of its own
            indices = [index for group in state["param_groups"] for index in group["params"]]
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            states = state.get("state", {})  # a custom optimizer may keep its states elsewhere
            for index, parameter in zip(indices, parameters, strict=True):
                if index in states:
                    # the weights in the file may be an average of another dtype
                    before = dtypes | _dtypes_alike(states[index], parameter)
                    if not dtypes or parameter.dtype in before:
                        _as_saved(optimizer.state.get(parameter), states[index])

    def load_options(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the options of the groups, such as `lr`, and the schedulers, of a loaded state.

        Args:
            state_dict: the argument with which `load_state_dict` was called.

        Raises:
            TypeError: an option is of another type than the optimizer's.
        """
        for optimizer, state in zip(self.optimizers, state_dict["optimizer_states"], strict=True):
            if not isinstance(state, Mapping) or "param_groups" not in state:
                continue  # of a wrapper, whose state has a form of its own
            made = [dict(group) for group in optimizer.param_groups]
            for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
                # copied: an option may be a list or a tensor, which is changed in place
                options = {name: value for name, value in saved.items() if name != "params"}
                group.update(deepcopy(options))
            keep_capturable_to_devices(optimizer.param_groups, made)
            # again: AdamW puts its own `decoupled_weight_decay` for the saved one as it loads
            require_usable_state(optimizer, made)
        for scheduler, state in zip(
            self._bare_schedulers(), state_dict["lr_schedulers"], strict=True
        ):
            scheduler.load_state_dict(deepcopy(state))

    def _bare_schedulers(self) -> list[Any]:
        return [config.scheduler for config in self.schedulers]

    def require_same(self, state_dict: Mapping[str, Any]) -> None:
        """Require the saved states to fit, before any of them is restored.

        Raises:
            OptimizationError: the number of optimizers or schedulers differs, or that of an
                optimizer's groups or parameters.
        """
        self.require_same_numbers(state_dict)
        self.require_same_groups(state_dict)

    def require_same_numbers(self, state_dict: Mapping[str, Any]) -> None:
        """Require as many saved states as there are optimizers and schedulers.

        Raises:
            OptimizationError: there are more or fewer.
        """
        for key, owners in (
            ("optimizer_states", self.optimizers),
            ("lr_schedulers", self.schedulers),
        ):
            saved = state_dict.get(key, [])
            if len(saved) != len(owners):
                raise OptimizationError(
                    f"the checkpoint holds {len(saved)} entries under {key!r}, but "
                    f"configure_optimizers returned {len(owners)}: {_SAME_HINT} To take this run's "
                    f"on purpose, resume with overrides=[{key.replace('_states', 's')!r}]."
                )

    def require_same_groups(self, state_dict: Mapping[str, Any]) -> None:
        """Require each optimizer to have the groups with which it was saved.

        A state without groups is a wrapper's own business: its `load_state_dict` has to judge.

        Raises:
            OptimizationError: the number of groups differs, or that of their parameters; or the
                state has no groups, and the optimizer is one of torch.
        """
        for optimizer, state in zip(self.optimizers, state_dict["optimizer_states"], strict=True):
            if not isinstance(state, Mapping) or "param_groups" not in state:
                if type(optimizer).load_state_dict is Optimizer.load_state_dict:
                    raise OptimizationError(
                        f"{type(optimizer).__qualname__} cannot load the saved state, "
                        f"{_shape_of(state)}: it has no param_groups, so another optimizer saved "
                        "it. If a callback had put one in the place of this, let it do so in "
                        "on_fit_start of this run, too."
                    )
                continue
            before = [len(group["params"]) for group in state["param_groups"]]
            now = [len(group["params"]) for group in optimizer.param_groups]
            if before != now:
                raise OptimizationError(
                    f"{type(optimizer).__qualname__} had parameter groups of {before} parameters "
                    f"when it was saved, and has groups of {now} now: {_SAME_HINT}"
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
                # initial_lr, too: a scheduler that is made later computes its rates from it
                group.update({name: new[name] for name in ("lr", "initial_lr") if name in new})
        for config, others in zip(self.schedulers, fresh.schedulers, strict=True):
            # torch's schedulers copied these from initial_lr when they were made
            if hasattr(config.scheduler, "base_lrs"):
                config.scheduler.base_lrs = list(others.scheduler.base_lrs)


_SAME_HINT = (
    "they must be the same to go on. Return the same optimizers and schedulers, or load the "
    "weights alone with Module.load_from_checkpoint."
)


def _shape_of(state: Any) -> str:
    """Return the form of a saved state in words."""
    if isinstance(state, Mapping):
        return f"a dict with the keys {', '.join(map(repr, state)) or '(none)'}"
    return f"of type {type(state).__qualname__}"


class _Stepper(Protocol):
    """The loop of manual optimization, which steps an optimizer and clears gradients."""

    def step_manually(
        self, optimizer: Optimizer, closure: Callable[[], Any] | None, **kwargs: Any
    ) -> Any: ...

    def zero_grad_manually(self, optimizer: Optimizer, set_to_none: bool) -> None: ...

    def toggle_manually(
        self, optimizer: Optimizer, *, sync_grad: bool
    ) -> AbstractContextManager[None]: ...


class ManualOptimizer:
    """An optimizer in manual optimization: its `step` is counted and fires the hooks.

    Everything else is delegated to the wrapped optimizer.

    Attributes:
        optimizer: the wrapped optimizer.
    """

    def __init__(self, optimizer: Optimizer, stepper: _Stepper | None = None) -> None:
        self.optimizer = optimizer
        self._stepper_of_run = stepper

    @property
    def _stepper(self) -> _Stepper:
        if self._stepper_of_run is None:
            raise UsageError(
                f"LightningOptimizer({type(self.optimizer).__qualname__}): no run has made it, so "
                "it counts no step. Step self.optimizers(), or the optimizer itself."
            )
        return self._stepper_of_run

    @property  # type: ignore[misc]
    def __class__(self) -> type[Optimizer]:  # type: ignore[override]
        """Return the wrapped optimizer's class, so that `isinstance` works as for the optimizer."""
        return type(self.optimizer)

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Step the optimizer with the run's precision, count the step and fire the hooks.

        Args:
            closure: computes the loss, as for the optimizer's own `step`.
            kwargs: further arguments of the optimizer's own `step`.
        """
        return self._stepper.step_manually(self.optimizer, closure, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients and fire the hook."""
        self._stepper.zero_grad_manually(self.optimizer, set_to_none)

    def toggle_model(self, sync_grad: bool = True) -> AbstractContextManager[None]:
        """Return a context in which only this optimizer's parameters require gradients.

        Args:
            sync_grad: whether ranks average the gradients of a backward in it, which they always
                do; False is an error in several processes.
        """
        return self._stepper.toggle_manually(self.optimizer, sync_grad=sync_grad)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return f"<manual {self.optimizer!r}>"


_OPTIMIZER_METHODS = ("step", "zero_grad", "state_dict", "load_state_dict")


def require_optimizers(optimizers: Sequence[Any]) -> None:
    """Require objects in the place of optimizers to have the methods and groups of one.

    Raises:
        OptimizationError: one lacks a method, or the list `param_groups`.
    """
    for optimizer in optimizers:
        lacking = [n for n in _OPTIMIZER_METHODS if not callable(getattr(optimizer, n, None))]
        if not isinstance(getattr(optimizer, "param_groups", None), list):
            lacking.append("param_groups")
        if lacking:
            raise OptimizationError(
                f"trainer.optimizers was set to {type(optimizer).__qualname__}, which has no "
                f"{', '.join(lacking)}: a run needs {', '.join(_OPTIMIZER_METHODS)}, and the list "
                "param_groups, of which a wrapper may return those of the optimizer in it."
            )


def needs_closure(optimizer: Optimizer) -> bool:
    """Return whether the optimizer cannot step without a closure, as LBFGS."""
    # of the class: a scheduler of torch replaces `step` on the instance by a wrapper
    closure = signature_of(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def takes_closure(optimizer: Optimizer) -> bool:
    """Return whether an optimizer of another library takes a closure that computes the loss.

    Such an optimizer may evaluate the loss again, as sharpness-aware ones do. Those of torch that
    have the argument step alike without it, and return False here.
    """
    # torch's own evaluate a closure once before they step, which the loop has done already
    kind = type(optimizer)
    is_torchs = kind.step.__module__.partition(".")[0] == "torch"
    return not is_torchs and "closure" in signature_of(kind.step).parameters


def parse_optimizers(returned: Any, source: str, *, is_manual: bool = False) -> Optimization:
    """Return an `Optimization` from any form that `configure_optimizers` may return.

    The forms are: one optimizer; a list or tuple of them; a tuple of a list of optimizers and a
    list of schedulers (or scheduler dicts); a dict with `optimizer` and optionally `lr_scheduler`
    (a scheduler or a dict) and `monitor`; a list or tuple of such dicts; None for no optimizer.

    Args:
        returned: the return value of `configure_optimizers`.
        source: who gave the value, for messages, as "Net.configure_optimizers returned".
        is_manual: whether the module steps its optimizers and schedulers itself.

    Raises:
        OptimizationError: the value has none of these forms.
    """
    if returned is None:
        return Optimization(is_none=True)
    result = Optimization()
    if isinstance(returned, Optimizer | Mapping):
        returned = [returned]
    if (
        # a list in the first place is of optimizers; two optimizers are no lists
        isinstance(returned, list | tuple)
        and len(returned) == 2
        and isinstance(returned[0], list | tuple)
    ):
        optimizers, schedulers = returned
        # one scheduler, as Lightning takes it too
        if not isinstance(schedulers, list | tuple):
            schedulers = [schedulers]
        result.optimizers += [_checked_optimizer(optimizer, source) for optimizer in optimizers]
        result.schedulers += [_scheduler_config(scheduler, source) for scheduler in schedulers]
    elif isinstance(returned, Sequence) and not isinstance(returned, str):
        for item in returned:
            if isinstance(item, Mapping):
                _add_dict(result, item, source)
            else:
                result.optimizers.append(_checked_optimizer(item, source))
    else:
        raise OptimizationError(
            f"{source} {returned!r} of type "
            f"{type(returned).__qualname__}: it must return an optimizer, a list of them, a dict "
            "with the key 'optimizer', ([optimizers], [schedulers]), or None."
        )
    for config in result.schedulers:
        # in manual optimization the module steps it with a value of its own
        if config.reduce_on_plateau and config.monitor is None and not is_manual:
            raise OptimizationError(
                f"{source} a ReduceLROnPlateau without a monitor: "
                "name the logged value that it watches, as in {'scheduler': plateau, 'monitor': "
                "'val_loss'} in its place."
            )
        driven = getattr(config.scheduler, "optimizer", None)
        if driven is not None and not any(driven is optimizer for optimizer in result.optimizers):
            raise OptimizationError(
                f"{source} the scheduler "
                f"{type(config.scheduler).__qualname__}, which drives an optimizer that is not "
                "among them: give that optimizer too."
            )
    return result


def _add_dict(result: Optimization, given: Mapping[str, Any], source: str) -> None:
    for key in given:
        if key not in _OPTIMIZER_KEYS:
            raise OptimizationError(
                f"{source} a dict with the key {key!r}: known keys "
                f"are {', '.join(sorted(_OPTIMIZER_KEYS))}.{did_you_mean(key, _OPTIMIZER_KEYS)}"
            )
    result.optimizers.append(_checked_optimizer(given.get("optimizer"), source))
    scheduler = given.get("lr_scheduler")
    if scheduler is None:
        return
    monitor = given.get("monitor")
    if isinstance(scheduler, Mapping) and monitor is not None:
        # the monitor in the scheduler's own dict wins
        scheduler = {"monitor": monitor, **scheduler}
    result.schedulers.append(_scheduler_config(scheduler, source, monitor))


def _checked_optimizer(optimizer: Any, source: str) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        is_scheduler = isinstance(optimizer, LRScheduler)
        hint = " With schedulers, return ([optimizer], [scheduler])." if is_scheduler else ""
        raise OptimizationError(
            f"{source} {optimizer!r} of type "
            f"{type(optimizer).__qualname__} where an optimizer was expected: it must be a "
            f"torch.optim.Optimizer.{hint}"
        )
    return optimizer


def _scheduler_config(given: Any, source: str, monitor: str | None = None) -> LRSchedulerConfig:
    if isinstance(given, Mapping):
        keys = {item.name for item in fields(LRSchedulerConfig)}
        for key in given:
            if key not in keys:
                raise OptimizationError(
                    f"{source} a scheduler dict with the key {key!r}: known keys are "
                    f"{', '.join(sorted(keys))}.{did_you_mean(key, keys)}"
                )
        if "scheduler" not in given:
            raise OptimizationError(
                f"{source} the scheduler dict {dict(given)!r} without the key 'scheduler'."
            )
        config = LRSchedulerConfig(**given)
    else:
        config = LRSchedulerConfig(given, monitor=monitor)
    # a class has these methods, too
    if isinstance(config.scheduler, type) or not all(
        callable(getattr(config.scheduler, name, None))
        for name in ("step", "state_dict", "load_state_dict")
    ):
        raise OptimizationError(
            f"{source} {config.scheduler!r} as a scheduler: it must be a torch scheduler, "
            "or have step(), state_dict() and load_state_dict()."
        )
    config.reduce_on_plateau |= isinstance(config.scheduler, ReduceLROnPlateau)
    if config.interval not in {"epoch", "step"}:
        raise OptimizationError(
            f"{source} a scheduler with interval={config.interval!r}: it must be 'epoch' or 'step'."
        )
    if not is_int(config.frequency, 1):
        raise OptimizationError(
            f"{source} a scheduler with frequency={config.frequency!r}: it must be an integer of "
            "at least 1."
        )
    return config


def fit_schedulers_to_groups(
    configs: Sequence[LRSchedulerConfig], name_adder: Callable[[], str] | None = None
) -> None:
    """Let schedulers go on from the rates that a hook set in groups which it has added.

    Torch's schedulers have a rate, and some a function, for each group that was there when they
    were made, and many stop with an error of their own at another group. It gets the function of
    the first group, and keeps its present proportion to the rate of that group.

    Args:
        configs: the schedulers.
        name_adder: a function that returns who added the groups, for the message; None if unknown.

    Raises:
        OptimizationError: a scheduler cannot take a new group.
    """
    for config in configs:
        for scheduler in _without_wrappers(config.scheduler):
            base_lrs = getattr(scheduler, "base_lrs", None)
            groups = getattr(getattr(scheduler, "optimizer", None), "param_groups", ())
            if not isinstance(base_lrs, list) or not base_lrs:
                continue
            # kept with the scheduler's state: a resumed one has the rates of added groups already
            made = vars(scheduler).get("trainer_hooks_groups", len(base_lrs))
            if len(groups) <= made:
                continue
            if isinstance(scheduler, _OF_FIXED_GROUPS):
                added = (
                    "a group of parameters was added to the optimizer after the scheduler was made"
                    if name_adder is None
                    else f"{name_adder()} has added a group of parameters to the optimizer"
                )
                raise OptimizationError(
                    f"{added}, and {type(scheduler).__qualname__} cannot drive it: it is made for "
                    "a number of groups. Use LambdaLR, or a scheduler that changes each rate by a "
                    "factor, such as StepLR or CosineAnnealingLR."
                )
            vars(scheduler)["trainer_hooks_groups"] = made
            _fit_to_groups(scheduler, groups, made)


def _without_wrappers(scheduler: Any) -> Iterator[Any]:
    """Return the schedulers that set rates: those in a sequence or a chain of schedulers."""
    scheduler = getattr(scheduler, "proxy_target", scheduler)
    if isinstance(scheduler, SequentialLR | ChainedScheduler):
        for member in scheduler._schedulers:  # noqa: SLF001 - torch has no public name
            yield from _without_wrappers(member)
    else:
        yield scheduler


def _fit_to_groups(scheduler: Any, groups: Sequence[Mapping[str, Any]], made: int) -> None:
    """Set the initial rates and the functions of groups that were added."""
    base_lrs = scheduler.base_lrs
    share = float(groups[0]["lr"]) / float(base_lrs[0]) if base_lrs[0] else 0.0
    for index, group in enumerate(groups[made:], start=made):
        rate = float(group["lr"])
        # a resumed scheduler has the rate from its checkpoint, which holds no functions
        if index == len(base_lrs):
            base_lrs.append(rate)
        if isinstance(scheduler, LambdaLR | MultiplicativeLR):
            functions = scheduler.lr_lambdas
            functions.extend(functions[:1] * (index + 1 - len(functions)))
        # not where it is the scheduler's own: a division would change its last bits
        if share and not isclose(rate, base_lrs[index] * share):
            base_lrs[index] = rate / share


class _Refusal:
    """Takes the place of the loop of manual optimization, and refuses to step."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def step_manually(self, optimizer: Optimizer, closure: Any, **kwargs: Any) -> NoReturn:
        raise UsageError(
            f"{self._owner}.optimizers() gave {type(optimizer).__qualname__}, whose step() was "
            "called with automatic optimization: the trainer steps it after training_step. Leave "
            "the call out, or set self.automatic_optimization = False in __init__."
        )

    def zero_grad_manually(self, optimizer: Optimizer, set_to_none: bool) -> None:
        # not refused: it counts nothing, and scripts call it out of habit
        optimizer.zero_grad(set_to_none=set_to_none)

    def toggle_manually(self, optimizer: Optimizer, *, sync_grad: bool) -> NoReturn:
        raise UsageError(
            f"{self._owner}.optimizers() gave {type(optimizer).__qualname__}, whose toggle_model() "
            "was called with automatic optimization: call it with manual optimization, where you "
            "choose the optimizer of a backward."
        )


def without_step(optimizer: Optimizer, owner: str) -> ManualOptimizer:
    """Return an optimizer wrapped so that its `step` raises, for automatic optimization.

    Args:
        optimizer: the optimizer.
        owner: the module's name, for the message.
    """
    return ManualOptimizer(optimizer, _Refusal(owner))


def _dtypes_alike(state: Any, parameter: Tensor) -> set[torch.dtype]:
    """Return the dtypes of the tensors in a parameter's state that are as large as it is.

    Most optimizers keep such a tensor in the parameter's dtype. Of one number a tensor may be a
    count.
    """
    if not isinstance(state, Mapping) or parameter.ndim == 0:
        return set()
    tensors = (value for value in state.values() if isinstance(value, Tensor))
    return {tensor.dtype for tensor in tensors if tensor.shape == parameter.shape}


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


def scheduler_state(scheduler: Any) -> dict[str, Any]:
    """Return the state of a scheduler, without the function that SWALR had in it before torch 2.9.

    A new scheduler of the same arguments has that function already.
    """
    state: dict[str, Any] = scheduler.state_dict()
    if isinstance(scheduler, SWALR):
        state.pop("anneal_func", None)
    return state


_RATES = ("initial_lr", "max_lr", "min_lr")
"""The learning rates that schedulers store in an optimizer's groups beside the present one."""

_NOT_OPTIONS = frozenset({"params", *_RATES})
_ADDED_BY_TORCH = frozenset(
    {"capturable", "decoupled_weight_decay", "differentiable", "foreach", "fused", "maximize"}
)
"""Options that later versions of torch add to states that lack them."""


def describe_setup(
    optimization: Optimization, hparams: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the classes and options of newly made optimizers and schedulers as plain data.

    Args:
        optimization: the optimizers and schedulers.
        hparams: the hyperparameters at this moment; callbacks may change them later.
    """
    return {
        "hparams": _plain_items(hparams or {}),
        "optimizers": [
            {
                "class": _class_of(optimizer),
                "groups": [_initial_options(group) for group in optimizer.param_groups],
            }
            for optimizer in optimization.optimizers
        ],
        "schedulers": [
            {"class": _class_of(config.scheduler), "options": _plain(config.scheduler.state_dict())}
            for config in optimization.schedulers
        ],
        "rates": [
            [{name: _number(group[name]) for name in _RATES if name in group} for group in groups]
            for groups in (optimizer.param_groups for optimizer in optimization.optimizers)
        ],
    }


def warn_of_foreign_parameters(optimization: Optimization, module: nn.Module) -> None:
    """Warn if an optimizer trains parameters that belong to no part of the module."""
    ids_in_module = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    for optimizer in optimization.optimizers:
        given = [p for group in optimizer.param_groups for p in group["params"]]
        count = sum(id(parameter) not in ids_in_module for parameter in given)
        if count:
            name = type(module).__qualname__
            effect = "it trains nothing of the module, " if count == len(given) else ""
            warn(
                f"{count} of {len(given)} parameters of {type(optimizer).__qualname__} belong to "
                f"no part of {name}: {effect}no checkpoint holds them, and they are "
                "not moved to the device. Make what they are of an attribute of the module, or "
                "leave them out of configure_optimizers.",
                TrainerHooksWarning,
            )


def require_same_classes(
    optimization: Optimization,
    checkpoint: Mapping[str, Any],
    saved: Mapping[str, Any],
    setup: Mapping[str, Any],
) -> None:
    """Require saved states to match the classes of optimizers and schedulers.

    The classes compared are those that `configure_optimizers` made; callbacks may have replaced
    them, when saving as now.

    Args:
        optimization: the optimizers and schedulers that will load the states.
        checkpoint: the checkpoint with the states.
        saved: the return value of `describe_setup` in the checkpoint; files of Lightning have none.
        setup: its return value in this run.

    Raises:
        OptimizationError: a class differs.
    """
    for kind, key, owners in (
        ("optimizer", "optimizer_states", list(optimization.optimizers)),
        ("scheduler", "lr_schedulers", [config.scheduler for config in optimization.schedulers]),
    ):
        # a file of Lightning names no classes: there the options in the state have to tell
        before, now = (
            [entry["class"] for entry in made.get(f"{kind}s", [])] for made in (saved, setup)
        )
        for number, (owner, state) in enumerate(zip(owners, checkpoint[key], strict=True)):
            if number < min(len(before), len(now)):
                # a class of the script itself is in `__main__` in one run, in a module in another
                if before[number].rpartition(".")[2] == now[number].rpartition(".")[2]:
                    continue
                difference = f"was {before[number]} when it was saved, and is {now[number]} now"
            else:
                missing = _missing_options(owner, state, kind)
                if not missing:
                    continue
                name = _class_of(owner)
                difference = f"is {name}, and its saved state holds no {', '.join(missing)}"
            word = "optimizers" if kind == "optimizer" else key
            raise OptimizationError(
                f"{kind} {number} {difference}: the state of one is of no use to another. Return "
                f"what it was saved with, or take this run's with overrides=[{word!r}]."
            )


def changed_options(
    saved: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield each option that differs: the kind of its owner, its name, the old and the new value.

    Args:
        saved: a setup.
        now: another setup of the same classes.
    """
    for kind, parts in (("optimizers", "groups"), ("schedulers", "options")):
        pairs = list(zip(saved.get(kind, ()), now.get(kind, ()), strict=False))
        for before, after in pairs:
            several = kind == "schedulers" or len(pairs) > 1
            owner = f" of {after['class'].rpartition('.')[2]}" if several else ""
            groups = (before[parts], after[parts]) if parts == "groups" else None
            both = zip(*groups, strict=False) if groups else [(before[parts], after[parts])]
            for old, new in both:
                for name in old:
                    # an option that only one side has comes with another version of torch
                    if name in new and not _is_same(old[name], new[name]):
                        yield kind, f"{name}{owner}", old[name], new[name]


def apply_options(
    checkpoint: dict[str, Any],
    optimization: Optimization,
    setup: Mapping[str, Any],
    names: Collection[str],
) -> None:
    """Replace options in a checkpoint's optimizer states by those of this run.

    A learning rate that a schedule has changed is scaled by the same factor as the initial one.

    Args:
        checkpoint: the checkpoint to change.
        optimization: the optimizers and schedulers that will load the states.
        setup: their setup in this run.
        names: the options to replace.

    Raises:
        OptionError: no optimizer has an option of that name.
    """
    groups = [group for entry in setup["optimizers"] for group in entry["groups"]]
    available = {name for group in groups for name in group}
    for name in sorted(set(names) - available):
        raise OptionError(
            f"overrides=[...] names {name!r}: it must be an option of the optimizers, which "
            f"have {', '.join(sorted(available))}; schedulers go on with the checkpoint's options."
            f"{did_you_mean(name, available)}"
        )
    for entry, rates, state in zip(
        setup["optimizers"], setup["rates"], checkpoint["optimizer_states"], strict=True
    ):
        for group, rate, saved in zip(entry["groups"], rates, state["param_groups"], strict=False):
            for name in set(names) & set(group):
                if name == "lr":
                    _set_scaled_rate(saved, group["lr"], rate)
                else:
                    saved[name] = _like(saved.get(name), group[name])
    if "lr" in names:
        _set_base_rates(checkpoint, optimization)


def _set_scaled_rate(saved: dict[str, Any], rate: float, rates: Mapping[str, Any]) -> None:
    """Set the learning rate of a saved group, scaled as the schedule has scaled the old one."""
    before = saved.get("initial_lr")
    # without a scheduler there is no initial rate, and from 0 no factor leads anywhere
    share = saved["lr"] / before if before else None
    now = rates.get("initial_lr", rate)
    saved["lr"] = _like(saved["lr"], rate if share is None else float(share) * now)
    # OneCycleLR keeps its bounds in the groups, and reads them at each step
    for name, value in rates.items():
        if name in saved:
            saved[name] = _like(saved[name], value)


def _set_base_rates(checkpoint: dict[str, Any], optimization: Optimization) -> None:
    """Set the base learning rates in saved scheduler states to those of the saved groups."""
    numbers = {id(optimizer): number for number, optimizer in enumerate(optimization.optimizers)}
    for config, state in zip(optimization.schedulers, checkpoint["lr_schedulers"], strict=True):
        number = numbers.get(id(getattr(config.scheduler, "optimizer", None)))
        if number is None:
            continue
        groups = checkpoint["optimizer_states"][number]["param_groups"]
        for part in _nested(state):
            if "base_lrs" in part and all("initial_lr" in group for group in groups):
                part["base_lrs"] = [group["initial_lr"] for group in groups]
            if "_last_lr" in part:
                part["_last_lr"] = [group["lr"] for group in groups]


def _nested(state: Any) -> Iterator[dict[str, Any]]:
    """Yield a scheduler's state, and the states of the schedulers that it consists of."""
    if isinstance(state, dict):
        yield state
        for inner in state.get("_schedulers", ()):
            yield from _nested(inner)


def _initial_options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a group as the user set them, before a scheduler's first step."""
    # a scheduler may change lr as soon as it is made, and keeps the user's value in initial_lr
    asked = {**group, "lr": group.get("initial_lr", group.get("lr"))}
    return {name: value for name, value in _plain(asked).items() if name not in _NOT_OPTIONS}


def _plain(options: Any) -> dict[str, Any]:
    """Return the options that are plain values; none of a scheduler's state that is no dict."""
    if not isinstance(options, Mapping):
        return {}
    numbers = {name: _number(value) for name, value in options.items() if not name.startswith("_")}
    # base_lrs repeats the groups' rates; not every version of torch has verbose
    hidden = ("base_lrs", "verbose")
    return {k: v for k, v in numbers.items() if _is_plain(v) and k not in hidden}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _plain_items(items: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the plain values of a dict, and of the dicts in it."""
    return {
        name: _plain_items(value) if isinstance(value, dict) else value
        for name, value in items.items()
        if isinstance(value, dict) or _is_plain(value)
    }


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def _like(saved: Any, value: Any) -> Any:
    """Return a number as a tensor if the saved one is a tensor."""
    # torch's optimizers also take a learning rate that is a tensor
    return torch.full_like(saved, value) if isinstance(saved, Tensor) else value


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal; NaN equals NaN, and a list a tuple."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    return bool(one == other) or (one != one and other != other)


def _class_of(owner: object) -> str:
    return f"{type(owner).__module__}.{type(owner).__qualname__}"


def _missing_options(owner: Any, state: Any, kind: str) -> list[str]:
    """Return the options that a saved state lacks and its owner needs, if its class is unknown."""
    if kind == "optimizer":
        if not isinstance(state, Mapping) or "param_groups" not in state:
            return []  # of a wrapper, whose own load_state_dict has to judge
        needed = set(owner.defaults) - _ADDED_BY_TORCH
        return sorted(needed.difference(*state["param_groups"])) if state["param_groups"] else []
    saved, now = _plain(state), _plain(owner.state_dict())
    # each lacks an option of the other: another class. One torch version only adds options
    return sorted(set(now) - set(saved)) if set(saved) - set(now) else []
