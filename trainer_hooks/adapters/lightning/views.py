"""What a callback of Lightning is handed: a Trainer and a module under Lightning's names.

`isinstance` takes the views for Lightning's own classes, where the package is imported. A module
that is a LightningModule itself is handed over as it is.
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakValueDictionary

from trainer_hooks.adapters.hosted import HostedCallback
from trainer_hooks.adapters.lightning.connectors import (
    AcceleratorConnector,
    CheckpointConnector,
    LoggerConnector,
    precision_plugin,
)
from trainer_hooks.adapters.lightning.home import StateView, home_of, tell_rank
from trainer_hooks.adapters.lightning.loops import EvaluationLoop, FitLoop, PredictionLoop, Skipping
from trainer_hooks.adapters.lightning.module_view import ModuleView
from trainer_hooks.adapters.lightning.strategy import AcceleratorView, StrategyView
from trainer_hooks.adapters.views import View, lacking
from trainer_hooks.loggers.elsewhere import LoggerElsewhere
from trainer_hooks.loops import overrides

__all__ = ["TrainerView", "module_view", "trainer_view"]

_TRAINERS: WeakValueDictionary[tuple[int, str], TrainerView] = WeakValueDictionary()
_MODULES: WeakValueDictionary[tuple[int, str], ModuleView] = WeakValueDictionary()
"""The views, by what they stand for and for whom; a view keeps what it stands for."""


def trainer_view(trainer: Any, guest: object) -> TrainerView:
    """Return the view of a trainer, which is one for all callbacks of a package."""
    tell_rank(trainer.global_rank)
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


class TrainerView(View):
    """A Trainer under the names of Lightning's.

    Args:
        target: the trainer.
        home: the package of Lightning whose Trainer it is taken for.
    """

    __slots__ = ("_home", "_predict", "_val", "skipping")

    _home: str
    _predict: PredictionLoop
    _val: EvaluationLoop
    skipping: Skipping

    def __init__(self, target: Any, home: str) -> None:
        super().__init__(target)
        object.__setattr__(self, "_home", home)
        object.__setattr__(self, "_val", EvaluationLoop(target))
        object.__setattr__(self, "_predict", PredictionLoop(target))
        object.__setattr__(self, "skipping", Skipping())

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
    def training(self) -> bool:
        """Whether it trains: in a fit from its beginning on, but for validations."""
        return bool(_value(self.state.stage) == "train")

    @property
    def validating(self) -> bool:
        """Whether it validates, from the beginning of that run on."""
        return bool(_value(self.state.stage) == "validate")

    @property
    def testing(self) -> bool:
        """Whether it tests, likewise."""
        return bool(_value(self.state.stage) == "test")

    @property
    def predicting(self) -> bool:
        """Whether it predicts, likewise."""
        return bool(_value(self.state.stage) == "predict")

    @property
    def evaluating(self) -> bool:
        """Whether it validates or tests; a sanity check counts as that, too."""
        return _value(self.state.stage) in {"sanity_check", "validate", "test"}

    @property
    def min_steps(self) -> int | None:
        """The steps that are made at least, None for no such rule."""
        return self.view_target.min_steps or None

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
        return [_logger_as_given(one) for one in self.view_target.loggers]

    @property
    def logger(self) -> Any:
        """The first of them, or None."""
        return next(iter(self.loggers), None)

    @property
    def strategy(self) -> StrategyView:
        """The processes and what they train."""
        return StrategyView(self.view_target.strategy, self, self._home)

    @property
    def accelerator(self) -> AcceleratorView:
        """The kind of device."""
        return AcceleratorView(self.view_target.accelerator, self._home)

    @property
    def fit_loop(self) -> FitLoop:
        """The counters of the fit."""
        return FitLoop(self.view_target, self._val, self.skipping)

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
        return AcceleratorConnector(self.view_target)

    @property
    def is_last_batch(self) -> bool:
        """Whether the batch in work is its epoch's last."""
        return bool(self.view_target.is_last_batch)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Leave the run out of copies."""
        return _nothing, ()


def _as_given(callback: Any) -> Any:
    return callback.guest if isinstance(callback, HostedCallback) else callback


def _logger_as_given(logger: Any) -> Any:
    """Return Lightning's logger, also in a process where it does not write."""
    own = logger.own if isinstance(logger, LoggerElsewhere) else logger
    return getattr(own, "lightning_guest", logger)


def _value(word: Any) -> Any:
    """Return the text of a word of an enum of theirs."""
    return getattr(word, "value", word)


def _nothing() -> None:
    """Return None, as the copy of what is not copied."""
