"""LightningModules in a Trainer, as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.lightning.data_and_logs import overridden
from trainer_hooks.adapters.lightning.home import told_stage
from trainer_hooks.adapters.lightning.views import trainer_view
from trainer_hooks.adapters.modules import HostedModule
from trainer_hooks.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


__all__ = ["ModuleGuest", "adapt_module"]

_BOUND = (
    "log", "log_dict", "optimizers", "lr_schedulers", "manual_backward", "toggle_optimizer",
    "untoggle_optimizer", "toggled_optimizer", "clip_gradients", "all_gather", "print",
)  # fmt: skip
"""Methods that a module calls, which are ours while it is run."""

_OWN = frozenset(
    {*_BOUND, "attach", "attach_manual", "train", "to", "forward", "load_from_checkpoint"}
)


def adapt_module(guest: Any) -> Module:
    """Return what stands for a LightningModule."""
    return ModuleGuest(guest)


class ModuleGuest(HostedModule):
    """Stand for a LightningModule: its steps, hooks and tensors are the guest's own.

    Args:
        guest: the LightningModule. Its parameters, buffers and parts are shared, so that the names
            in a checkpoint are the same.
    """

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        for name in overridden(guest, Module):
            if name == "teardown":
                vars(self)[name] = self._end_guest
            elif name == "setup":
                vars(self)[name] = told_stage(guest.setup, guest)
            elif name not in _OWN:
                vars(self)[name] = getattr(guest, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(ModuleGuest, name):
            super().__setattr__(name, value)
        else:
            setattr(self.lightning_guest, name, value)

    @property
    def lightning_guest(self) -> Any:
        """The LightningModule."""
        return vars(self)["module_guest"]

    @property
    def automatic_optimization(self) -> bool:  # type: ignore[override]
        """What the guest says."""
        return bool(self.lightning_guest.automatic_optimization)

    @property
    def example_input_array(self) -> Any:
        """What the guest says."""
        return self.lightning_guest.example_input_array

    @property
    def strict_loading(self) -> bool:  # type: ignore[override]
        """What the guest says."""
        return bool(self.lightning_guest.strict_loading)

    @property
    def saved_hparams(self) -> Mapping[str, Any] | None:
        """The guest's hyperparameters, or None."""
        return dict(self.lightning_guest.hparams) or None

    @property
    def logged_hparams(self) -> Mapping[str, Any] | None:
        """The same, unless the guest keeps them from the loggers."""
        is_logged = getattr(self.lightning_guest, "_log_hyperparams", True)
        return self.saved_hparams if is_logged else None

    @property
    def hparams(self) -> Any:
        """The guest's hyperparameters."""
        return self.lightning_guest.hparams

    @property
    def hparams_name(self) -> str | None:
        """The argument that was all of them, if it was one."""
        name: str | None = getattr(self.lightning_guest, "_hparams_name", None)
        return None if name == "kwargs" else name

    def _end_guest(self, stage: str) -> None:
        """Let the guest clean up; not after an exception, as there."""
        if not self.trainer.interrupted:
            told_stage(self.lightning_guest.teardown, self.lightning_guest)(stage)

    def attach(self, trainer: Any, metrics: Any) -> None:
        """Let the guest know its trainer, and log, optimize and print through it."""
        super().attach(trainer, metrics)
        guest = self.lightning_guest
        guest.trainer = trainer_view(trainer, guest)
        own = frozenset(overridden(guest, Module))
        for name in _BOUND:
            if metrics is None:
                vars(guest).pop(name, None)
            elif name not in own:
                vars(guest)[name] = _Bound(getattr(self, name))

    def all_gather(self, data: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Return tensors of all processes; in one process the data as they are, as there."""
        if self.trainer.world_size == 1:
            return data
        return super().all_gather(data, group, sync_grads)

    def __reduce__(self) -> Any:
        """Copy and pickle the guest."""
        return adapt_module, (self.lightning_guest,)


class _Bound:
    """A method that a guest calls, and that a copy of the guest calls too.

    Args:
        method: the method.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Bound:
        return self

    def __reduce__(self) -> Any:
        """Leave the run out of pickles."""
        return _Bound, (_dropped,)


def _dropped(*args: Any, **kwargs: Any) -> None:
    """Do nothing: the module takes part in no run."""
