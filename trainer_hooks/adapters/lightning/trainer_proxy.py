"""Proxies of a Trainer and a Module for Lightning's callbacks, under Lightning's names.

Their `__class__` is Lightning's own class where the package is imported, so `isinstance` holds. A
module that is a LightningModule itself is handed over as it is.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

import torch

from trainer_hooks.adapters.callback_adapter import HostedCallback
from trainer_hooks.adapters.lightning.loop_proxies import (
    BackwardSkipping,
    EvaluationLoopProxy,
    FitLoopProxy,
    PredictionLoopProxy,
)
from trainer_hooks.adapters.lightning.package import (
    enum_member,
    lightning_package_of,
    set_lightning_rank,
)
from trainer_hooks.adapters.proxy import ModuleProxy, PartialProxy, Proxy, joined_class
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.loggers.dummy import RankZeroLoggerProxy
from trainer_hooks.module.module import Module
from trainer_hooks.trainer.lightning_attributes import CallbackList, completed_windows

if TYPE_CHECKING:
    from torch import nn

# keyed by id and weak in the value: a proxy keeps its target alive, so as long as an entry is there
# its id belongs to no other object
_TRAINER_PROXIES: WeakValueDictionary[tuple[int, str], LightningTrainerProxy] = (
    WeakValueDictionary()
)
_MODULE_PROXIES: WeakValueDictionary[tuple[int, str], LightningModuleProxy] = WeakValueDictionary()


def get_trainer_proxy(trainer: Any, foreign: object) -> LightningTrainerProxy:
    """Set Lightning's rank, and return the trainer's proxy, one for each of Lightning's packages.

    Args:
        trainer: the Trainer.
        foreign: the callback, module, data module or logger that it is handed to.
    """
    set_lightning_rank(trainer.global_rank)
    key = (id(trainer), lightning_package_of(foreign))
    proxy = _TRAINER_PROXIES.get(key)
    if proxy is None:
        proxy = _TRAINER_PROXIES[key] = LightningTrainerProxy(trainer, key[1])
    return proxy


def get_module_proxy(module: Any, trainer: Any, foreign: object) -> Any:
    """Return the proxy of a module, or the LightningModule itself if it is an adapter of one.

    Args:
        module: the module, or None.
        trainer: the Trainer that runs it.
        foreign: the callback that it is handed to.
    """
    if module is None:
        return None
    return _module_proxy(module, get_trainer_proxy(trainer, foreign))


def _module_proxy(module: Any, trainer_proxy: LightningTrainerProxy) -> Any:
    original = getattr(module, "lightning_object", None)
    if original is not None:
        return original
    key = (id(module), trainer_proxy._package)  # noqa: SLF001 - of this file
    proxy = _MODULE_PROXIES.get(key)
    # a module that another Trainer runs now has a proxy with the trainer before
    if proxy is None or proxy.proxy_trainer is not trainer_proxy:
        proxy = _MODULE_PROXIES[key] = LightningModuleProxy(module, trainer_proxy)
    return proxy


def unwrap_proxy(item: Any) -> Any:
    """Return the object behind a proxy; anything else is returned as it is."""
    # a module proxy gives another class as its __class__, so isinstance would not know it
    is_proxy = isinstance(item, Proxy) or issubclass(type(item), LightningModuleProxy)
    return item.proxy_target if is_proxy else item


# --- the trainer ---


def divide_loss(trainer: Any, outputs: Any) -> Any:
    """Return the outputs of a training batch with the loss as Lightning's hooks get it.

    There it is divided by the batches of an accumulation window; here it is the step's own.

    Args:
        trainer: the Trainer.
        outputs: the outputs as our hooks get them; empty for a skipped batch.
    """
    window = trainer.accumulate_grad_batches
    # the Trainer of compat.lightning divides it for all hooks
    if window == 1 or not outputs or type(trainer)._divides_outputs:  # noqa: SLF001 - of ours
        return outputs
    return {**outputs, "loss": outputs["loss"] / window}


def _original_callback(callback: Any) -> Any:
    return callback.guest if isinstance(callback, HostedCallback) else callback


def _originals(name: str) -> property:
    """Return a property of the callback or callbacks of a Trainer, as the user passed them."""

    def read(proxy: LightningTrainerProxy) -> Any:
        value = getattr(proxy.proxy_target, name)
        many = isinstance(value, list)
        return [_original_callback(item) for item in value] if many else _original_callback(value)

    return property(read)


class LightningTrainerProxy(Proxy):
    """A Trainer under the names of Lightning's.

    Args:
        target: the Trainer.
        package: the package of Lightning whose Trainer `isinstance` takes it for.

    Attributes:
        skipping: whether batches of the fit are run without a backward.
    """

    __slots__ = ("_package", "_predict_loop", "_val_loop", "skipping")

    _framework: ClassVar[str] = "Lightning"

    def __init__(self, target: Any, package: str) -> None:
        super().__init__(target)
        self._package = package
        self._val_loop = EvaluationLoopProxy(target)
        self._predict_loop = PredictionLoopProxy(target)
        self.skipping = BackwardSkipping()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        package = sys.modules.get(self._package)
        return LightningTrainerProxy if package is None else package.Trainer

    # --- what runs now ---

    @property
    def state(self) -> TrainerStateProxy:
        """The state, in members of Lightning's own enums."""
        return TrainerStateProxy(self.proxy_target, self._package)

    # ours is 0 without a minimum
    min_steps = property(lambda self: self.proxy_target.min_steps or None)
    """Optimizer steps that are made at least; None if there is no minimum."""

    @property
    def enable_validation(self) -> bool:
        """Whether a fit validates; before the loaders are made, whether it could."""
        trainer = self.proxy_target
        # in setup and the like, where callbacks ask whether validations will come
        if not trainer.num_val_batches:
            has_step = trainer.module is not None and defines(
                trainer.module, "validation_step", Module
            )
            return bool(has_step and trainer.limit_val_batches)
        return bool(sum(trainer.num_val_batches))

    # --- callbacks, loggers, module ---

    @property
    def callbacks(self) -> list[Any]:
        """The callbacks; those of Lightning as the user passed them.

        A callback that is added to the list takes part, and one that is removed no longer does.
        """
        trainer = self.proxy_target
        originals = [_original_callback(callback) for callback in trainer.callbacks]
        return CallbackList(originals, trainer.add_callback, trainer.remove_callback)

    @callbacks.setter
    def callbacks(self, callbacks: list[Any]) -> None:
        # by way of this list: the trainer's own holds adapters, none of which is in `callbacks`
        self.callbacks[:] = callbacks

    checkpoint_callbacks = _originals("checkpoint_callbacks")
    """The savers; those of Lightning as the user passed them."""
    checkpoint_callback = _originals("checkpoint_callback")
    """The first saver, or None."""
    early_stopping_callbacks = _originals("early_stopping_callbacks")
    """The callbacks that stop early; those of Lightning as the user passed them."""
    early_stopping_callback = _originals("early_stopping_callback")
    """The first callback that stops early, or None."""
    progress_bar_callback = _originals("progress_bar_callback")
    """The progress bar, or None."""

    @property
    def lightning_module(self) -> Any:
        """The module as callbacks get it: a LightningModule, a proxy, or None."""
        module = self.proxy_target.module
        return None if module is None else _module_proxy(module, self)

    model = property(attrgetter("lightning_module"))
    """The same as `lightning_module`."""

    @property
    def datamodule(self) -> Any:
        """The data module; one of Lightning as the user passed it."""
        datamodule = self.proxy_target.datamodule
        return getattr(datamodule, "lightning_object", datamodule)

    loggers = property(
        lambda self: [_original_logger(logger) for logger in self.proxy_target.loggers]
    )
    """The loggers; those of Lightning as the user passed them."""

    logger = property(lambda self: next(iter(self.loggers), None))
    """The first logger, or None."""

    # --- parts of Lightning's Trainer ---

    @property
    def strategy(self) -> StrategyProxy:
        """The proxy of the processes."""
        return StrategyProxy(self.proxy_target.strategy, self, self._package)

    @property
    def accelerator(self) -> AcceleratorProxy:
        """The proxy of the device's type."""
        return AcceleratorProxy(self.proxy_target.accelerator, self._package)

    @property
    def precision_plugin(self) -> Any:
        """Lightning's object for the precision; ours where Lightning is not imported."""
        trainer, name = self.proxy_target, self.proxy_target.precision
        classes = sys.modules.get(f"{self._package}.plugins.precision")
        if classes is None:
            return trainer.precision_plugin
        if name.endswith("-mixed"):
            return classes.MixedPrecision(name, trainer.device.type, trainer.scaler)
        if name == "64-true":
            return classes.DoublePrecision()
        return classes.Precision() if name == "32-true" else classes.HalfPrecision(name)

    @property
    def fit_loop(self) -> FitLoopProxy:
        """The proxy of the loop over epochs."""
        return FitLoopProxy(self.proxy_target, self._val_loop, self.skipping)

    @property
    def validate_loop(self) -> EvaluationLoopProxy:
        """The proxy of the loop of a validation or test."""
        return self._val_loop

    # Lightning's ThroughputMonitor reads `_evaluation_loop`
    test_loop = _evaluation_loop = validate_loop

    @property
    def predict_loop(self) -> PredictionLoopProxy:
        """The proxy of the loop of a prediction."""
        return self._predict_loop

    def count_evaluation_batch(self, dataloader_idx: int, batch_idx: int) -> None:
        """Count a batch of the running evaluation, once however many callbacks report it.

        Args:
            dataloader_idx: the index of its loader.
            batch_idx: the index of the batch in that loader.
        """
        is_prediction = self.proxy_target.state.fn == "predict"
        loop = self._predict_loop if is_prediction else self._val_loop
        position = (dataloader_idx, batch_idx)
        if position != loop.last_batch:
            is_first = position == (0, 0)
            loop.last_batch, loop.batches = position, 1 if is_first else loop.batches + 1

    @property
    def _logger_connector(self) -> LoggerConnectorProxy:
        return LoggerConnectorProxy(self.proxy_target)

    @property
    def _checkpoint_connector(self) -> CheckpointConnectorProxy:
        return CheckpointConnectorProxy(self.proxy_target)

    @property
    def _accelerator_connector(self) -> AcceleratorConnectorProxy:
        return AcceleratorConnectorProxy(self.proxy_target)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Become None in copies and pickles, which must not hold the run."""
        return _none, ()


def _original_logger(logger: Any) -> Any:
    """Return Lightning's logger, also in a process where another object writes in its place."""
    original = logger.own if isinstance(logger, RankZeroLoggerProxy) else logger
    return getattr(original, "lightning_object", logger)


def _none() -> None:
    """Return None, as the copy of an object that is not copied."""


class TrainerStateProxy:
    """Proxy of `trainer.state`, in members of Lightning's own enums where they are imported.

    Args:
        trainer: the Trainer.
        package: the package of Lightning whose enums are used.
    """

    def __init__(self, trainer: Any, package: str) -> None:
        self._state = trainer.state
        self._package = package

    fn = property(lambda self: enum_member(self._package, "TrainerFn", self._state.fn))
    """The run's function: `"fit"`, `"validate"`, `"test"` or `"predict"`; None outside."""

    stage = property(lambda self: enum_member(self._package, "RunningStage", self._state.stage))
    """The running stage, set from the beginning of a run on; None outside of one."""

    status = property(lambda self: enum_member(self._package, "TrainerStatus", self._state.status))
    """The status of the run, such as `"running"` or `"finished"`."""

    finished = property(lambda self: self._state.status == "finished")
    """Whether the run ended in order."""

    stopped = property(lambda self: self._state.status in {"finished", "interrupted"})
    """Whether the run ended in order or was interrupted."""


# --- strategy and accelerator ---


def _imported_class(module: str, name: str, default: type) -> type:
    """Return a class of Lightning's if its module is imported, else `default`."""
    kind: type = getattr(sys.modules.get(module), name, default)
    return kind


class AcceleratorProxy(Proxy):
    """Proxy of `trainer.accelerator`; `isinstance` takes it for Lightning's for that device type.

    Args:
        target: the trainer's accelerator.
        package: the package of Lightning.
    """

    __slots__ = ("_package",)

    _framework: ClassVar[str] = "Lightning"
    _foreign_name: ClassVar[str] = "Trainer.accelerator"

    def __init__(self, target: Any, package: str) -> None:
        super().__init__(target)
        self._package = package

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        device_type = self.proxy_target.root_device.type.upper()
        return _imported_class(
            f"{self._package}.accelerators", f"{device_type}Accelerator", AcceleratorProxy
        )


class StrategyProxy(Proxy):
    """Proxy of `trainer.strategy`: collectives as in Lightning, and the module's proxy.

    Args:
        target: the trainer's strategy.
        trainer: the proxy of the trainer.
        package: the package of Lightning.
    """

    __slots__ = ("_package", "_trainer_proxy")

    _framework: ClassVar[str] = "Lightning"
    _foreign_name: ClassVar[str] = "Trainer.strategy"

    def __init__(self, target: Any, trainer: Any, package: str) -> None:
        super().__init__(target)
        self._trainer_proxy = trainer
        self._package = package

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # callbacks test for these, as StochasticWeightAveraging does to refuse FSDPStrategy
        target = self.proxy_target
        name = "DDPStrategy" if target.is_distributed else "SingleDeviceStrategy"
        return _imported_class(
            f"{self._package}.strategies",
            "FSDPStrategy" if target.is_sharded else name,
            StrategyProxy,
        )

    @property
    def accelerator(self) -> AcceleratorProxy:
        """The proxy of the device's type."""
        return AcceleratorProxy(self.proxy_target.accelerator, self._package)

    lightning_module = property(attrgetter("_trainer_proxy.lightning_module"))
    """The module as callbacks get it."""

    model = property(attrgetter("_trainer_proxy.lightning_module"))
    """The same as `lightning_module`."""

    precision_plugin = property(attrgetter("_trainer_proxy.precision_plugin"))
    """Lightning's object for the precision."""

    @property
    def parallel_devices(self) -> list[torch.device]:
        """The device of each process on this machine."""
        kind, indices = self.root_device.type, self._trainer_proxy.device_ids
        return [torch.device(kind) if kind == "cpu" else torch.device(kind, i) for i in indices]

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Reduce a tensor over all ranks in place, as in Lightning; anything else is returned.

        Args:
            tensor: a tensor of one shape on all ranks.
            group: a process group; all ranks unless given.
            reduce_op: the operation's name, or one of torch's.
        """
        if not isinstance(tensor, torch.Tensor) or self.proxy_target.world_size == 1:
            return tensor
        # torch's operations print as `RedOpType.SUM`
        name = reduce_op if reduce_op is None else str(reduce_op).rpartition(".")[2].lower()
        # callbacks of Lightning ignore the result, so the tensor itself must hold it
        with torch.no_grad():
            return tensor.copy_(self.proxy_target.reduce(tensor, group, name))


# --- connectors ---


class LoggerConnectorProxy(PartialProxy):
    """Proxy of `trainer._logger_connector`: whether and how metrics are logged."""

    _framework: ClassVar[str] = "Lightning"
    _foreign_name: ClassVar[str] = "Trainer._logger_connector"

    @property
    def should_update_logs(self) -> bool:
        """Whether metrics go to the loggers at this step."""
        trainer = self._trainer
        every = trainer.log_every_n_steps
        if every < 1:
            return False
        # + 1 as there: it is asked in hooks before the step too
        count = completed_windows(trainer.progress) + 1 if trainer.state.fn == "fit" else 1
        return bool(count % every == 0 or trainer.should_stop)

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        """Pass metrics to the loggers, at the current batch's step unless one is given."""
        # a metric named `step` is the step, and then nothing adds the epoch, as in Lightning
        if step is None and "step" not in metrics:
            epoch = self._trainer.current_epoch
            self._trainer.log_metrics(
                metrics, completed_windows(self._trainer.progress), epoch=epoch
            )
        else:
            self._trainer.log_metrics(metrics, step)


class CheckpointConnectorProxy(PartialProxy):
    """Proxy of `trainer._checkpoint_connector`: a checkpoint in memory."""

    _framework: ClassVar[str] = "Lightning"
    _foreign_name: ClassVar[str] = "Trainer._checkpoint_connector"

    def dump_checkpoint(self, weights_only: bool | None = False) -> dict[str, Any]:
        """Return the contents of a checkpoint of this moment."""
        checkpoint: dict[str, Any] = self._trainer.dump_checkpoint(bool(weights_only))
        return checkpoint


class AcceleratorConnectorProxy(PartialProxy):
    """Proxy of `trainer._accelerator_connector`: how processes share the work."""

    _framework: ClassVar[str] = "Lightning"
    _foreign_name: ClassVar[str] = "Trainer._accelerator_connector"

    is_distributed = property(lambda self: self._trainer.world_size > 1)
    """Whether there are several processes."""

    use_distributed_sampler = True
    """Whether each rank gets its share of the data: always True."""

    strategy = property(attrgetter("_trainer.strategy"))
    """The trainer's strategy."""


# --- the module ---


class LightningModuleProxy(ModuleProxy):
    """A module under the names of a LightningModule; all but a few are passed on.

    Args:
        module: the module.
        trainer: the proxy of its trainer.
    """

    __slots__ = ("proxy_trainer",)

    proxy_trainer: Any

    def __init__(self, module: nn.Module, trainer: LightningTrainerProxy) -> None:
        super().__init__(module)
        # past the __setattr__ of ModuleProxy, which sets attributes of the module
        object.__setattr__(self, "proxy_trainer", trainer)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        module_class = type(self.proxy_target)
        package = sys.modules.get(self.proxy_trainer._package)  # noqa: SLF001 - of this file
        return (
            module_class if package is None else joined_class(module_class, package.LightningModule)
        )

    trainer = _trainer = property(attrgetter("proxy_trainer"))
    """The proxy of the trainer."""
