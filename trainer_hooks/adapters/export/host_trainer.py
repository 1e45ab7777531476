"""Parts that the exports to all frameworks share: hooks, the host's trainer, logging."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.adapters.proxy import Proxy
from trainer_hooks.context.run_state import RunState, TrainerFn
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks.relay import RelayMember
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from trainer_hooks.callback import Callback


def overridden_hooks(
    callback: Callback, framework: str, hooks: Collection[str], function: str
) -> dict[str, Callable[..., object]]:
    """Return the hooks that a callback overrides, with the function to call for each.

    Args:
        callback: one of our callbacks.
        framework: the host framework, for the error.
        hooks: the hooks that can be called there.
        function: the function that the user called, for the error.

    Raises:
        CallbackError: it overrides a hook that cannot be called there.
    """
    member = RelayMember(callback, type(callback).__qualname__)
    calls = {
        hook: call
        for hook in HOOKS
        if (call := member.listener(hook)) is not None
        and (hook in hooks or not getattr(call, "serves_resumes_here", False))
    }
    missing = [hook for hook in calls if hook not in hooks]
    if missing:
        raise CallbackError(
            f"{function}({type(callback).__qualname__}): {framework} has no hook "
            f"{', '.join(map(repr, missing))}. Run the callback in trainer_hooks.Trainer, or do "
            "what it does there in a hook that both have."
        )
    return calls


def import_host_framework(module: str, framework: str, function: str, install: str) -> Any:
    """Return a module of a host framework.

    Args:
        module: the module's name.
        framework: the host framework, for the error.
        function: the function that the user called, for the error.
        install: the argument of `pip install`, for the error.

    Raises:
        CallbackError: the framework is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CallbackError(
            f"{function}: {framework} is not installed. Install it: pip install {install}."
        ) from error


def missing_host_attribute(name: str, framework: str, callback: Callback) -> AttributeError:
    """Return the error for an attribute of our Trainer that the host's trainer does not have.

    Args:
        name: the attribute.
        framework: the host framework.
        callback: the callback that read it.
    """
    return AttributeError(
        f"{name!r} of trainer_hooks' Trainer, which {type(callback).__qualname__} looked for, has "
        f"no counterpart in {framework}'s. Run the callback in trainer_hooks.Trainer.",
        name=name,
    )


class HostTrainerProxy(Proxy):
    """Proxy of a host framework's trainer, which subclasses give the names of ours.

    Args:
        target: the host's trainer.
        callback: the callback that it is handed to, for errors.
    """

    __slots__ = ("_callback",)

    def __init__(self, target: Any, callback: Callback) -> None:
        super().__init__(target)
        self._callback = callback

    def _proxy_error(self, name: str) -> AttributeError:
        return missing_host_attribute(name, self._framework, self._callback)


class FitOptions:
    """The Trainer's options that callbacks with a monitor read, as they are in a fit elsewhere."""

    __slots__ = ()

    state: Any = RunState(fn=TrainerFn.FITTING)
    fast_dev_run = False
    sanity_checking = False
    min_epochs = min_steps = 0
    check_val_every_n_epoch = 1


class HostProgress:
    """`trainer.progress` in a host framework: the counters that can be known there.

    Args:
        epochs_completed: number of whole epochs.
        is_untrained: whether nothing was trained yet.
        is_resumed: whether the training goes on from a checkpoint.
        framework: the host framework, for errors.
        callback: the callback that reads it, for errors.
    """

    def __init__(
        self,
        epochs_completed: int,
        *,
        is_untrained: bool,
        is_resumed: bool = False,
        framework: str,
        callback: Callback,
    ) -> None:
        self.epochs_completed = epochs_completed
        self.is_untrained = is_untrained
        self.is_new_training = is_untrained and not is_resumed
        self._reader = framework, callback

    @property
    def is_fresh(self) -> bool:
        """The older name of `is_new_training`."""
        return self.is_new_training

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # such as `__deepcopy__`, which Python itself looks for
            raise AttributeError(name)
        raise missing_host_attribute(f"progress.{name}", *self._reader)


class LogForwarder:
    """The module that a callback's `self.log` goes to in a host framework.

    Args:
        record: takes the name of each value and the value, a float.
    """

    def __init__(self, record: Callable[[str, float], None]) -> None:
        self._record = record

    def log(self, name: str, value: Any, *_: Any, **__: Any) -> None:
        """Record a value as it is now; the framework decides how values are reduced."""
        self._record(name, float(value))

    def log_dict(self, dictionary: Mapping[str, Any], *_: Any, **__: Any) -> None:
        """Record several values."""
        for name, value in dictionary.items():
            self._record(name, float(value))


def numbers_as_tensors(values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the numbers among some values as 0-dim tensors, as in `trainer.callback_metrics`."""
    return {
        name: torch.as_tensor(value, dtype=torch.float32)
        for name, value in values.items()
        # a bool is an int to Python
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
