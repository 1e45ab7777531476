"""Module: a model with its steps, losses and optimizers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor

from trainer_hooks.checkpoint import (
    HyperParameters,
    arguments_of_init,
    load_checkpoint,
    load_weights,
    savable,
    selected,
)
from trainer_hooks.errors import UsageError
from trainer_hooks.hooks import HOOKS, empty_hook
from trainer_hooks.module.module_logging import ModuleLogging
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    import os

    from trainer_hooks.metrics import MetricStore
    from trainer_hooks.module.optimization import ManualOptimizer

__all__ = ["Module"]


class _Manual(Protocol):
    """What the fit loop offers to a module that optimizes by itself."""

    optimizers: list[ManualOptimizer]

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None: ...


class Module(ModuleLogging):
    """Subclass it: define `training_step` and `configure_optimizers`, and what else you need.

    Or define `forward(batch)` and `loss(outputs, batch)` and no step at all: the default steps then
    run them, log `train_loss`, `val_loss` and `test_loss`, and fire the forward and loss hooks.

    Every hook of the catalogue may be defined too, without the arguments `trainer` and `module`.

    Attributes:
        automatic_optimization: set it to False in `__init__` to call `manual_backward`,
            `optimizer.step()` and `optimizer.zero_grad()` in `training_step` yourself.
        example_input_array: an input for `forward`, for summaries and exports.
    """

    automatic_optimization: bool = True
    example_input_array: Any = None

    _trainer: Any = None
    _manual: _Manual | None = None
    _hparams: HyperParameters | None = None
    _saved_hparams: Mapping[str, Any] | None = None
    _logs_hparams: bool = False

    # --- what a subclass uses ---

    def manual_backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients of `loss` with the run's precision; fires the backward hooks."""
        if self._manual is None:
            raise UsageError(
                f"{type(self).__qualname__}.manual_backward was called with automatic "
                "optimization, or outside fit: set self.automatic_optimization = False in "
                "__init__ to use it in training_step."
            )
        self._manual.backward(loss, *args, **kwargs)

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        """Return the optimizer, or a list of them.

        Args:
            use_pl_optimizer: in manual optimization, return them wrapped, so that `step` counts and
                fires the hooks; the name is Lightning's.
        """
        found: list[Any]
        if self._manual is not None and use_pl_optimizer:
            found = list(self._manual.optimizers)
        else:
            found = list(self.trainer.optimizers)
        return found[0] if len(found) == 1 else found

    def lr_schedulers(self) -> Any:
        """Return the scheduler, a list of them, or None."""
        found = [config.scheduler for config in self.trainer.lr_scheduler_configs]
        if not found:
            return None
        return found[0] if len(found) == 1 else found

    @contextmanager
    def toggled_optimizer(self, optimizer: Any) -> Iterator[None]:
        """Require gradients only of one optimizer's parameters meanwhile."""
        self.toggle_optimizer(optimizer)
        try:
            yield
        finally:
            self.untoggle_optimizer(optimizer)

    def toggle_optimizer(self, optimizer: Any) -> None:
        """Require gradients only of one optimizer's parameters, until `untoggle_optimizer`.

        Another one that is toggled still is untoggled first.
        """
        self.untoggle_optimizer(optimizer)
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        saved: list[tuple[Tensor, bool]] = []
        for other in self.trainer.optimizers:
            for group in other.param_groups:
                for parameter in group["params"]:
                    if id(parameter) not in mine:
                        saved.append((parameter, parameter.requires_grad))
                        parameter.requires_grad_(False)
        self.__dict__["_toggled"] = saved

    def untoggle_optimizer(self, optimizer: Any) -> None:
        """Undo `toggle_optimizer`."""
        for parameter, requires_grad in self.__dict__.pop("_toggled", ()):
            parameter.requires_grad_(requires_grad)

    def freeze(self) -> Self:
        """Require no gradients, and go into eval mode."""
        self.requires_grad_(False)
        return self.eval()

    def unfreeze(self) -> Self:
        """Require gradients again, and go into train mode."""
        self.requires_grad_(True)
        return self.train()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print without tearing the progress bar."""
        self.trainer.print(*args, **kwargs)

    # --- hyperparameters and checkpoints ---

    def save_hyperparameters(
        self, *args: Any, ignore: Any = None, frame: Any = None, logger: bool = True
    ) -> None:
        """Keep the arguments of `__init__` in `hparams` and in checkpoints.

        Args:
            args: names of the arguments to keep, or one dict to keep instead; all unless given.
            ignore: names to leave out.
            frame: the frame of `__init__`, where it is not the caller's.
            logger: whether loggers are given them when fit begins.

        Raises:
            ModuleError: a name is no argument, or this is called outside `__init__`.
        """
        is_dict = len(args) == 1 and isinstance(args[0], Mapping)
        if frame is None:
            current = inspect.currentframe()
            frame = current.f_back if current is not None else None
        arguments = {} if is_dict else arguments_of_init(self, frame)
        chosen = selected(arguments, args, ignore)
        self._hparams = HyperParameters({**(self._hparams or {}), **chosen})
        self._saved_hparams = savable(self._hparams, type(self).__qualname__)
        self._logs_hparams = logger

    @property
    def hparams(self) -> HyperParameters:
        """The hyperparameters, as a dict with attributes."""
        if self._hparams is None:
            self._hparams = HyperParameters()
        return self._hparams

    @property
    def saved_hparams(self) -> Mapping[str, Any] | None:
        """What of the hyperparameters a checkpoint holds; None if none were saved."""
        return self._saved_hparams

    @property
    def logged_hparams(self) -> Mapping[str, Any] | None:
        """What of the hyperparameters loggers are given, or None."""
        return self._hparams if self._logs_hparams else None

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | os.PathLike[str],
        map_location: Any = None,
        strict: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Make a module with a checkpoint's hyperparameters and load its weights.

        The global random numbers are as before afterwards.

        Args:
            checkpoint_path: the file: a checkpoint of trainer_hooks or of Lightning 2.x, or weights
                in a `.safetensors` file, with the hyperparameters that JSON can hold.
            map_location: the device to put the module on, or whatever else `torch.load` takes; the
                CPU unless given.
            strict: whether it is an error if a weight is missing or unknown.
            kwargs: arguments of `__init__` that replace or complete the hyperparameters.

        Raises:
            CheckpointError: it cannot be read, or its weights do not fit.
        """
        is_device = isinstance(map_location, str | torch.device)
        place = "cpu" if is_device or map_location is None else map_location
        checkpoint = load_checkpoint(checkpoint_path, place)
        arguments = {**checkpoint.get("hyper_parameters", {}), **kwargs}
        parameters = inspect.signature(cls.__init__).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            arguments = {name: value for name, value in arguments.items() if name in parameters}
        with rng.isolated():
            module = cls(**arguments)
            module.configure_model()
        getattr(module, "on_load_checkpoint")(checkpoint)  # noqa: B009 - made from the catalogue
        load_weights(module, checkpoint["state_dict"], str(checkpoint_path), strict=strict)
        if is_device:
            module.to(map_location)
        return module

    # --- the run it is in ---

    def attach(self, trainer: Any, metrics: MetricStore | None) -> None:
        """Tell the module which trainer runs it; the trainer calls this."""
        self.__dict__["_trainer"] = trainer
        self.attach_metrics(metrics)

    def attach_manual(self, manual: _Manual | None) -> None:
        """Give the module what it needs to optimize by itself; the fit loop calls this."""
        self.__dict__["_manual"] = manual

    @property
    def trainer(self) -> Any:
        """The trainer that runs this module.

        Raises:
            UsageError: none does.
        """
        if self._trainer is None:
            raise UsageError(
                f"{type(self).__qualname__} is attached to no trainer: `trainer` and what needs it "
                "are there within fit, validate, test and predict."
            )
        return self._trainer

    @property
    def device(self) -> torch.device:
        """Where the module's first parameter or buffer is; the CPU if it has none."""
        for tensor in (*self.parameters(), *self.buffers()):
            return tensor.device
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the module's first parameter; torch's default if it has none."""
        for tensor in self.parameters():
            return tensor.dtype
        return torch.get_default_dtype()

    @property
    def current_epoch(self) -> int:
        """The index of the epoch under way, 0 without a trainer."""
        return int(self._trainer.current_epoch) if self._trainer is not None else 0

    @property
    def global_step(self) -> int:
        """Optimizer steps so far, 0 without a trainer."""
        return int(self._trainer.global_step) if self._trainer is not None else 0

    @property
    def global_rank(self) -> int:
        """This process's number among all."""
        return int(self._trainer.global_rank) if self._trainer is not None else 0

    @property
    def logger(self) -> Any:
        """The trainer's first logger, or None."""
        return self._trainer.logger if self._trainer is not None else None

    @property
    def loggers(self) -> list[Any]:
        """The trainer's loggers."""
        return list(self._trainer.loggers) if self._trainer is not None else []

    def __getstate__(self) -> dict[str, Any]:
        """Leave the run out of copies and pickles."""
        return {**self.__dict__, "_trainer": None, "_metrics": None, "_manual": None}


for _hook in HOOKS:
    setattr(Module, _hook, empty_hook(_hook))
