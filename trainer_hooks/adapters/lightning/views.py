"""What a callback of Lightning is handed: a Trainer and a module under Lightning's names.

`isinstance` takes the views for Lightning's own classes, where the package is imported. A module
that is a LightningModule itself is handed over as it is.
"""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from trainer_hooks.adapters.hosted import HostedCallback
from trainer_hooks.adapters.lightning.loops import (
    CheckpointConnector,
    EvaluationLoop,
    FitLoop,
    LoggerConnector,
    PredictionLoop,
    StateView,
    StrategyView,
    precision_plugin,
)
from trainer_hooks.adapters.views import View, lacking
from trainer_hooks.loops import overrides

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ModuleView", "TrainerView", "home_of", "module_view", "trainer_view", "unwrapped"]

_TRAINERS: WeakValueDictionary[tuple[int, str], TrainerView] = WeakValueDictionary()
_MODULES: WeakValueDictionary[tuple[int, str], ModuleView] = WeakValueDictionary()
"""The views, by what they stand for and for whom; a view keeps what it stands for."""

_KINDS: WeakKeyDictionary[type, dict[type, type]] = WeakKeyDictionary()
"""What a module's view says that its class is, by the module's class and Lightning's."""


def home_of(guest: object) -> str:
    """Return in which of its two packages Lightning is that a callback, say, derives from."""
    for kind in reversed(type(guest).__mro__):
        for package in ("lightning.pytorch", "pytorch_lightning"):
            if kind.__module__.startswith(f"{package}."):
                return package
    return "lightning.pytorch"


def trainer_view(trainer: Any, guest: object) -> TrainerView:
    """Return the view of a trainer, which is one for all callbacks of a package."""
    home = home_of(guest)
    found = _TRAINERS.get((id(trainer), home))
    if found is None:
        found = _TRAINERS[id(trainer), home] = TrainerView(trainer, home)
    return found


def module_view(module: Any, trainer: Any, guest: object) -> Any:
    """Return the view of a module, or the module itself where it is Lightning's."""
    if module is None:
        return None
    own = getattr(module, "lightning_guest", None)
    if own is not None:
        return own
    home = home_of(guest)
    found = _MODULES.get((id(module), home))
    if found is None or found.view_trainer.view_target is not trainer:
        found = ModuleView(module, trainer_view(trainer, guest))
        _MODULES[id(module), home] = found
    return found


def unwrapped(item: Any) -> Any:
    """Return what a view stands for; anything else as it is."""
    return item.view_target if isinstance(item, View) or type(item) is ModuleView else item


class TrainerView(View):
    """A Trainer under the names of Lightning's.

    Args:
        target: the trainer.
        home: the package of Lightning whose Trainer it is taken for.
    """

    __slots__ = ("_home", "_predict", "_val")

    _home: str
    _predict: PredictionLoop
    _val: EvaluationLoop

    def __init__(self, target: Any, home: str) -> None:
        super().__init__(target)
        object.__setattr__(self, "_home", home)
        object.__setattr__(self, "_val", EvaluationLoop(target))
        object.__setattr__(self, "_predict", PredictionLoop(target))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        package = sys.modules.get(self._home)
        return TrainerView if package is None else package.Trainer

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.view_target, name)
        except AttributeError as error:
            if error.name != name or error.obj is not self.view_target:
                raise
            raise lacking("Trainer", "Lightning", name) from None

    @property
    def state(self) -> StateView:
        """What it does, in Lightning's own words."""
        return StateView(self.view_target, self._home)

    @property
    def callbacks(self) -> list[Any]:
        """The callbacks, Lightning's as they were given."""
        return [_as_given(one) for one in self.view_target.callbacks]

    @callbacks.setter
    def callbacks(self, callbacks: list[Any]) -> None:
        self.view_target.callbacks = callbacks

    @property
    def checkpoint_callbacks(self) -> list[Any]:
        """The savers, likewise."""
        return [_as_given(one) for one in self.view_target.checkpoint_callbacks]

    @property
    def checkpoint_callback(self) -> Any:
        """The first of them, or None."""
        return _as_given(self.view_target.checkpoint_callback)

    @property
    def early_stopping_callbacks(self) -> list[Any]:
        """Those that stop early."""
        return [_as_given(one) for one in self.view_target.early_stopping_callbacks]

    @property
    def early_stopping_callback(self) -> Any:
        """The first of them, or None."""
        return _as_given(self.view_target.early_stopping_callback)

    @property
    def progress_bar_callback(self) -> Any:
        """The progress bar, or None."""
        return _as_given(self.view_target.progress_bar_callback)

    @property
    def lightning_module(self) -> Any:
        """The module, as callbacks get it."""
        trainer = self.view_target
        if trainer.module is None:
            return None
        own = getattr(trainer.module, "lightning_guest", None)
        if own is not None:
            return own
        found = _MODULES.get((id(trainer.module), self._home))
        if found is None or found.view_trainer is not self:
            found = _MODULES[id(trainer.module), self._home] = ModuleView(trainer.module, self)
        return found

    @property
    def model(self) -> Any:
        """The same."""
        return self.lightning_module

    @property
    def datamodule(self) -> Any:
        """The data module, Lightning's as it was given."""
        datamodule = self.view_target.datamodule
        return getattr(datamodule, "lightning_guest", datamodule)

    @property
    def loggers(self) -> list[Any]:
        """The loggers, Lightning's as they were given."""
        return [getattr(one, "lightning_guest", one) for one in self.view_target.loggers]

    @property
    def logger(self) -> Any:
        """The first of them, or None."""
        return next(iter(self.loggers), None)

    @property
    def strategy(self) -> StrategyView:
        """The processes and what they train."""
        return StrategyView(self.view_target.strategy, self)

    @property
    def fit_loop(self) -> FitLoop:
        """The counters of the fit."""
        return FitLoop(self.view_target, self._val)

    @property
    def validate_loop(self) -> EvaluationLoop:
        """The counters of an evaluation."""
        return self._val

    test_loop = _evaluation_loop = validate_loop

    @property
    def predict_loop(self) -> PredictionLoop:
        """The counters of a prediction."""
        return self._predict

    @property
    def precision_plugin(self) -> Any:
        """Lightning's own object for the precision."""
        return precision_plugin(self.view_target, self._home)

    def count_batch(self, place: tuple[int, int]) -> None:
        """Count a batch of the evaluation under way, however many guests hear of it.

        Args:
            place: the indices of its loader and of itself.
        """
        loop = self._predict if self.view_target.state.fn == "predict" else self._val
        if place != loop.place:
            loop.place, loop.batches = place, 1 if place == (0, 0) else loop.batches + 1

    @property
    def enable_validation(self) -> bool:
        """Whether a fit validates, as far as is known: in `setup` the loaders are not made."""
        trainer = self.view_target
        if not trainer.num_val_batches:
            has_step = trainer.module is not None and overrides(trainer.module, "validation_step")
            return bool(has_step and trainer.limit_val_batches)
        return bool(sum(trainer.num_val_batches))

    @property
    def num_devices(self) -> int:
        """The number of devices of this machine."""
        return int(self.view_target.num_devices)

    @property
    def _logger_connector(self) -> LoggerConnector:
        return LoggerConnector(self.view_target)

    @property
    def _checkpoint_connector(self) -> CheckpointConnector:
        return CheckpointConnector(self.view_target)

    @property
    def _accelerator_connector(self) -> Any:
        return _AcceleratorConnector(self.view_target)

    @property
    def is_last_batch(self) -> bool:
        """Whether the batch in work is its epoch's last."""
        return bool(self.view_target.is_last_batch)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Leave the run out of copies."""
        return _nothing, ()


class ModuleView:
    """A module under the names of a LightningModule; all but a few are passed on.

    Args:
        module: the module.
        trainer: the view of its trainer.
    """

    __slots__ = ("__weakref__", "view_target", "view_trainer")

    view_target: Any
    view_trainer: TrainerView

    def __init__(self, module: nn.Module, trainer: TrainerView) -> None:
        object.__setattr__(self, "view_target", module)
        object.__setattr__(self, "view_trainer", trainer)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return _kind_of(type(self.view_target), self.view_trainer._home)  # noqa: SLF001

    @property
    def trainer(self) -> TrainerView:
        """The view of the trainer."""
        return self.view_trainer

    _trainer = trainer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.view_target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.view_target, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.view_target, name)

    def __dir__(self) -> list[str]:
        """Return the module's names."""
        return dir(self.view_target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.view_target(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.view_target is unwrapped(other)

    def __hash__(self) -> int:
        return hash(self.view_target)

    def __repr__(self) -> str:
        """Show the module."""
        return repr(self.view_target)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.view_target, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the module."""
        return unwrapped, (self.view_target,)


class _AcceleratorConnector:
    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    @property
    def is_distributed(self) -> bool:
        return bool(self._trainer.world_size > 1)

    @property
    def use_distributed_sampler(self) -> bool:
        return True

    @property
    def strategy(self) -> Any:
        return self._trainer.strategy

    def __getattr__(self, name: str) -> Any:
        raise lacking("Trainer._accelerator_connector", "Lightning", name)


def _as_given(callback: Any) -> Any:
    return callback.guest if isinstance(callback, HostedCallback) else callback


def _kind_of(kind: type, home: str) -> type:
    """Return a class that is both the module's and a LightningModule, for `isinstance` alone."""
    package = sys.modules.get(home)
    if package is None:
        return kind
    known = _KINDS.setdefault(kind, {})
    theirs: type = package.LightningModule
    if theirs not in known:
        known[theirs] = type(kind.__name__, (kind, theirs), {"__module__": kind.__module__})
    return known[theirs]


def _nothing() -> None:
    """Return None, as the copy of what is not copied."""
