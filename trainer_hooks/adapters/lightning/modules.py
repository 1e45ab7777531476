"""Adapters of LightningModules and LightningDataModules, which a Trainer takes as they are."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.lightning.names import DATAMODULE_NAMES, MODULE_NAMES
from trainer_hooks.adapters.lightning.package import lightning_package_of, with_stage_enum
from trainer_hooks.adapters.lightning.trainer_proxy import divide_loss, get_trainer_proxy
from trainer_hooks.adapters.module_adapter import ModuleAdapter, take_class_name
from trainer_hooks.module.datamodule import DataModule

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from trainer_hooks.module.module import Module

_BOUND = (
    "log", "log_dict", "optimizers", "lr_schedulers", "manual_backward", "toggle_optimizer",
    "untoggle_optimizer", "toggled_optimizer", "clip_gradients", "all_gather", "print",
)  # fmt: skip
"""Methods that a LightningModule calls on itself; ours take their place while it is run."""

_NOT_COPIED = frozenset(
    {*_BOUND, "attach", "attach_manual", "train", "to", "forward", "load_from_checkpoint"}
)
"""Methods that the adapter has itself, whatever the LightningModule overrides."""

_STEPS = ("training_step", "validation_step", "test_step", "predict_step")


def adapt_module(foreign: Any) -> Module:
    """Return the adapter of a LightningModule."""
    return LightningModuleAdapter(foreign)


def adapt_datamodule(foreign: Any) -> DataModule:
    """Return the adapter of a LightningDataModule."""
    return LightningDataModuleAdapter(foreign)


def overridden_methods(foreign: Any, names: Collection[str]) -> Iterator[str]:
    """Yield the methods of Lightning's that a foreign object defines itself.

    They are those of its classes, and those that were assigned to the object, as in
    `self.training_step = self.pretraining_step`.

    Args:
        foreign: a LightningModule or LightningDataModule.
        names: the names that both Lightning's class and ours have; all others are the user's own.
    """
    # empty ones, or ones for Lightning's own trainer; its demos derive from these as users do
    inherited = set(_framework_base(foreign).__mro__)
    tables = [vars(kind) for kind in type(foreign).__mro__ if kind not in inherited]
    seen = set()
    for attributes in (vars(foreign), *tables):
        for name, value in attributes.items():
            is_new = name in names and name not in seen
            if is_new and callable(value) and not isinstance(value, _BoundMethod):
                seen.add(name)
                yield name


def _framework_base(foreign: Any) -> type:
    """Return Lightning's base class of a LightningModule or LightningDataModule."""
    package = lightning_package_of(foreign)
    names = (f"{package}.core.module", f"{package}.core.datamodule")
    return next(kind for kind in type(foreign).__mro__ if kind.__module__ in names)


def _present_method(foreign: Any, name: str) -> Callable[..., Any]:
    """Return a function that calls the method which a LightningModule has at that moment.

    Lightning looks up a step in each batch, and modules assign another in the middle of a run.
    """

    @wraps(getattr(foreign, name))
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(foreign, name)(*args, **kwargs)

    return call


class _Hosted:
    """The attributes and hyperparameters of the foreign object, as both adapters show them."""

    _pickles_hparams = True

    def _hparams_class(self: Any) -> type[Any]:
        return type(self.lightning_object)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self.lightning_object, name, value)

    @property
    def hparams(self: Any) -> Any:
        """The hyperparameters, as Lightning's own object."""
        return self.lightning_object.hparams

    @property
    def saved_hparams(self: Any) -> Mapping[str, Any] | None:
        """The hyperparameters that go into checkpoints, objects as pickles; None without any.

        Lightning itself reads them, from a file that is opened as trusted.
        """
        from trainer_hooks.checkpoint.hparams import (
            is_read_by_torch,
            pickled_hparams,
            warn_of_pickles,
        )

        foreign, warned = self.lightning_object, self._warned_hparams
        hparams = dict(foreign.hparams)
        objects = {name: value for name, value in hparams.items() if not is_read_by_torch(value)}
        new = {name: value for name, value in objects.items() if warned.get(name) is not value}
        if new:
            warned.update(new)
            warn_of_pickles(new, type(foreign))
        plain = {name: value for name, value in hparams.items() if name not in objects}
        # Lightning's is an empty object where save_hyperparameters() was not called
        return {**plain, **pickled_hparams(objects)[0]} or None

    @property
    def logged_hparams(self: Any) -> Mapping[str, Any] | None:
        """The hyperparameters for the loggers, as they were when they were saved.

        None for `save_hyperparameters(logger=False)`.
        """
        is_logged = getattr(self.lightning_object, "_log_hyperparams", True)
        return dict(self.lightning_object.hparams_initial) or None if is_logged else None

    @property
    def hparams_name(self: Any) -> str | None:
        """The name of the single argument that held all hyperparameters, if there was one."""
        name: str | None = getattr(self.lightning_object, "_hparams_name", None)
        # Lightning's word for arguments that were passed one by one
        return None if name == "kwargs" else name

    @property
    def hparams_type(self: Any) -> type | None:
        """The class of omegaconf's container, of which Lightning makes the hyperparameters."""
        hparams = self.lightning_object.hparams
        return None if isinstance(hparams, dict) else type(hparams)


class LightningModuleAdapter(_Hosted, ModuleAdapter):
    """Adapter of a LightningModule, whose steps, hooks and tensors are used as they are.

    Args:
        foreign: the LightningModule. Its parameters, buffers and submodules are shared, so that the
            names in a checkpoint are the same.
    """

    _makes_default_steps = False

    def __init__(self, foreign: Any) -> None:
        super().__init__(foreign)
        self._warned_hparams: dict[str, Any] = {}
        self._take_methods()

    def _take_methods(self) -> None:
        """Take over the methods that the LightningModule has, also those assigned since."""
        foreign = self.lightning_object
        for name in overridden_methods(foreign, MODULE_NAMES):
            if name == "teardown":
                vars(self)[name] = self._teardown_foreign
            elif name == "on_train_batch_end":
                vars(self)[name] = self._end_train_batch
            elif name == "setup":
                vars(self).setdefault(name, with_stage_enum(foreign.setup, foreign))
            elif name in _STEPS:
                vars(self).setdefault(name, _present_method(foreign, name))
            # on the instance, and only those: a step that is there counts as the module's own
            elif name not in _NOT_COPIED:
                vars(self)[name] = getattr(foreign, name)

    @property
    def lightning_object(self) -> Any:
        """The LightningModule."""
        return vars(self)["foreign_module"]

    @property
    def automatic_optimization(self) -> bool:  # type: ignore[override]
        """Whether the Trainer calls backward and steps the optimizers."""
        return bool(self.lightning_object.automatic_optimization)

    @property
    def example_input_array(self) -> Any:
        """An input of `forward`, for the logger's graph and the summary; or None."""
        return self.lightning_object.example_input_array

    @property
    def strict_loading(self) -> bool:  # type: ignore[override]
        """Whether a checkpoint must have exactly the module's weights."""
        return bool(self.lightning_object.strict_loading)

    def _teardown_foreign(self, stage: str) -> None:
        """Call `teardown`; not after an exception, as in Lightning."""
        if not self.trainer.interrupted:
            with_stage_enum(self.lightning_object.teardown, self.lightning_object)(stage)

    def _end_train_batch(self, outputs: Any, *rest: Any) -> None:
        """Call `on_train_batch_end` with the loss as Lightning has it."""
        self.lightning_object.on_train_batch_end(divide_loss(self.trainer, outputs), *rest)

    def attach(self, trainer: Any, metrics: Any) -> None:
        """Give the LightningModule its trainer, and let it log, optimize and print through ours.

        Args:
            trainer: the Trainer.
            metrics: the store of logged values, or None when the run is over.
        """
        super().attach(trainer, metrics)
        foreign = self.lightning_object
        foreign.trainer = get_trainer_proxy(trainer, foreign)
        for name in _BOUND:
            # those that the user assigned stay
            if isinstance(vars(foreign).get(name), _BoundMethod):
                del vars(foreign)[name]
            vars(self).pop(name, None)
        if metrics is None:
            return
        self._take_methods()
        overridden = [name for name in overridden_methods(foreign, MODULE_NAMES) if name in _BOUND]
        twin = self._twin() if overridden else None
        for name in _BOUND:
            if name not in overridden:
                vars(foreign)[name] = _BoundMethod(getattr(self, name))
            elif name not in vars(foreign):
                vars(foreign)[name] = _BoundMethod(getattr(super(type(twin), twin), name))
            # for `log_dict`, and for callbacks, which log as the module does
            if name == "log" and name in overridden:
                vars(self)[name] = vars(foreign)[name]

    def _twin(self) -> Any:
        """Return a `self` for methods that the user overrides, in which `super()` leads to ours.

        Lightning's own would look for its Trainer. The object has the LightningModule's attributes,
        and its class has ours between the user's classes and Lightning's.
        """
        foreign = self.lightning_object
        methods = {name: staticmethod(_BoundMethod(getattr(self, name))) for name in _BOUND}
        ours = type("LightningModule", (_framework_base(foreign),), methods)
        kind = type(foreign)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        twin: Any = object.__new__(type(kind.__name__, (kind, ours), names))
        # the same dict, so that both have one state
        object.__setattr__(twin, "__dict__", vars(foreign))
        return twin

    def __reduce__(self) -> Any:
        """Copy and pickle the LightningModule; the adapter of the copy is made anew."""
        return adapt_module, (self.lightning_object,)


class _BoundMethod:
    """A method of ours on a LightningModule, which copies of the module share.

    A bound method would take the whole run into a deep copy, and cannot be pickled.

    Args:
        method: the method.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> _BoundMethod:
        return self

    def __reduce__(self) -> Any:
        """Leave the run out of pickles."""
        return _BoundMethod, (_do_nothing,)


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing: an unpickled module takes part in no run."""


class LightningDataModuleAdapter(_Hosted, DataModule):
    """Adapter of a LightningDataModule.

    Args:
        foreign: the LightningDataModule.
    """

    def __init__(self, foreign: Any) -> None:
        # past `__setattr__`, which sets attributes of the foreign object
        vars(self)["lightning_object"] = foreign
        self._warned_hparams: dict[str, Any] = {}
        for name in overridden_methods(foreign, DATAMODULE_NAMES):
            if name not in {"load_from_checkpoint", "setup", "teardown"}:
                vars(self)[name] = getattr(foreign, name)
        take_class_name(self, foreign)

    @property
    def trainer(self) -> Any:
        """The proxy of the trainer that runs it, or None."""
        return self.lightning_object.trainer

    @trainer.setter
    def trainer(self, trainer: Any) -> None:
        foreign = self.lightning_object
        foreign.trainer = None if trainer is None else get_trainer_proxy(trainer, foreign)

    def setup(self, stage: str) -> None:
        """Call `setup` with Lightning's enum."""
        with_stage_enum(self.lightning_object.setup, self.lightning_object)(stage)

    def teardown(self, stage: str) -> None:
        """Call `teardown`; not after an exception, as in Lightning."""
        trainer = self.lightning_object.trainer
        if trainer is None or not trainer.interrupted:
            with_stage_enum(self.lightning_object.teardown, self.lightning_object)(stage)

    def __getattr__(self, name: str) -> Any:
        if name == "lightning_object":  # not set yet, as in a copy: no endless recursion
            raise AttributeError(name)
        return getattr(self.lightning_object, name)

    def __reduce__(self) -> Any:
        """Copy and pickle the LightningDataModule; the adapter of the copy is made anew."""
        return adapt_datamodule, (self.lightning_object,)
