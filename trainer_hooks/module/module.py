"""Module: a model with its steps, losses and optimizers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor, nn

from trainer_hooks import checkpoint, data
from trainer_hooks.data import DataHooks
from trainer_hooks.errors import ModuleError, UsageError
from trainer_hooks.hooks import HOOKS, empty_hook
from trainer_hooks.module.clipping import clip_gradients
from trainer_hooks.module.gathering import gathered
from trainer_hooks.module.loading import MethodOfClass, load_module
from trainer_hooks.module.log_rules import require_metric, warn_of_dropped
from trainer_hooks.module.toggling import toggle, untoggle

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer

    from trainer_hooks.metrics import MetricStore, MutedMetrics
    from trainer_hooks.module.hyperparameters import KeptArguments
    from trainer_hooks.module.optimization import ManualOptimizer

__all__ = ["Module"]


class _Manual(Protocol):
    """What the fit loop offers to a module that optimizes by itself."""

    optimizers: list[ManualOptimizer]

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None: ...


class Module(nn.Module, DataHooks):
    """Subclass it: define `training_step` and `configure_optimizers`, and what else you need.

    Or define `forward(batch)` and `loss(outputs, batch)` and no step at all: the default steps then
    run them, log `train_loss`, its mean `train_loss_epoch`, `val_loss` and `test_loss`, and fire
    the forward and loss hooks.

    Every hook of the catalogue may be defined too, without the arguments `trainer` and `module`.

    Attributes:
        automatic_optimization: set it to False in `__init__` to call `manual_backward`,
            `optimizer.step()` and `optimizer.zero_grad()` in `training_step` yourself.
        example_input_array: an input for `forward`, for summaries and exports.
        strict_loading: whether it is an error if a weight is missing or unknown where a checkpoint
            is loaded. Set it to False where `state_dict` leaves weights out.
    """

    automatic_optimization: bool = True
    example_input_array: Any = None
    strict_loading: bool = True

    _trainer: Any = None
    _metrics: MetricStore | MutedMetrics | None = None
    _manual: _Manual | None = None
    _kept: KeptArguments | None = None

    # --- what a subclass defines ---

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss of a batch: a tensor, a dict with the key `loss`, or None to skip it."""
        raise ModuleError(f"{type(self).__qualname__} has no training_step.")

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        """Evaluate a validation batch; add `dataloader_idx` where there are several loaders."""
        raise ModuleError(f"{type(self).__qualname__} has no validation_step.")

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        """Evaluate a test batch; add `dataloader_idx` where there are several loaders."""
        raise ModuleError(f"{type(self).__qualname__} has no test_step.")

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the predictions for a batch: those of `forward` unless overridden.

        Raises:
            ModuleError: there is no forward either.
        """
        if type(self).forward is nn.Module.forward:
            raise ModuleError(
                f"{type(self).__qualname__} has no predict_step and no forward: define one of them."
            )
        return self(batch)

    def configure_optimizers(self) -> Any:
        """Return the optimizers, and the schedulers if any, in a form of docs/optimizers.md."""
        raise ModuleError(
            f"{type(self).__qualname__} has no configure_optimizers: define it, and return an "
            "optimizer such as torch.optim.Adam(self.parameters()), or None to train without one."
        )

    def configure_model(self) -> None:
        """Build layers late, once it is known where they go; called before optimizers exist."""

    def configure_callbacks(self) -> Any:
        """Return callbacks for this module's runs; they replace those of the same type and key."""
        return ()

    # --- what a subclass may override of the counting ---

    def num_samples(self, batch: Any) -> int:
        """Return the samples of a training batch, which `trainer.clock` adds up.

        Unless overridden: the first dimension of the first tensor in it, or 1 without a tensor.
        """
        return data.count_samples(batch)

    def num_tokens(self, batch: Any) -> int:
        """Return the tokens of a training batch, likewise.

        Unless overridden: the number of its `"input_ids"` if it is a mapping with those, or 0.
        """
        return data.count_tokens(batch)

    # --- what a subclass may override of the optimization ---

    def split_batch(self, batch: Any, microbatch_size: int) -> list[Any]:
        """Return a training batch in parts of at most so many samples, for `microbatch_size`.

        Raises:
            DataError: its tensors do not agree on how many samples there are.
        """
        return data.split_batch(batch, microbatch_size)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients of `loss`, which is scaled and divided for accumulation."""
        loss.backward(*args, **kwargs)  # type: ignore[no-untyped-call]

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Any,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Step; `optimizer_closure` computes the gradients and must be called or handed on."""
        optimizer.step(closure=optimizer_closure)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Clear the gradients at the start of a window."""
        optimizer.zero_grad()

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients of a window; they are complete and unscaled."""
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def clip_gradients(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Bound the gradients of an optimizer's parameters, by norm or by value.

        Raises:
            OptionError: the algorithm is neither.
        """
        clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Step a scheduler; `metric` is its monitor's value where it has one."""
        if metric is None:
            scheduler.step()
        else:
            scheduler.step(metric)

    def on_validation_model_zero_grad(self) -> None:
        """Clear the gradients of a step that is done before a validation in fit.

        In manual optimization they stay unless it is overridden.
        """
        if self.automatic_optimization:
            self.zero_grad()

    def on_validation_model_eval(self) -> None:
        """Set the mode that validation runs in."""
        self.eval()

    def on_validation_model_train(self) -> None:
        """Called when every part of the module is back in the mode it had before validation."""

    def on_test_model_eval(self) -> None:
        """Set the mode that testing runs in."""
        self.eval()

    def on_test_model_train(self) -> None:
        """Called when every part of the module is back in the mode it had before testing."""

    def on_predict_model_eval(self) -> None:
        """Set the mode that prediction runs in."""
        self.eval()

    def on_predict_model_train(self) -> None:
        """Called when every part of the module is back in the mode it had before prediction."""

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
            use_pl_optimizer: return them wrapped, so that in manual optimization `step` counts and
                fires the hooks, and in automatic optimization is an error; the name is Lightning's.
        """
        found: list[Any] = list(self.trainer.optimizers)
        if self._manual is not None and use_pl_optimizer:
            found = list(self._manual.optimizers)
        elif self.automatic_optimization and use_pl_optimizer:
            from trainer_hooks.module.foreign_steps import without_step

            found = [without_step(optimizer, type(self).__qualname__) for optimizer in found]
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
        toggle(self, optimizer, self.trainer.optimizers)

    def untoggle_optimizer(self, optimizer: Any) -> None:
        """Undo `toggle_optimizer`."""
        untoggle(self)

    def freeze(self) -> Self:
        """Require no gradients, and go into eval mode."""
        self.requires_grad_(False)
        return self.eval()

    def unfreeze(self) -> Self:
        """Require gradients again, and go into train mode."""
        self.requires_grad_(True)
        return self.train()

    def all_gather(self, data: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Return tensors and numbers of all processes, each with a new first dimension.

        All processes must call it. In one process the dimension has one entry.

        Args:
            data: a tensor, a number, or any nesting of them; of one shape on all.
            group: a process group of torch's; all processes unless given.
            sync_grads: whether gradients flow back to the process that a part came from.
        """
        return gathered(self.trainer.strategy, self.device, data, group, sync_grads)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print without tearing the progress bar."""
        self.trainer.print(*args, **kwargs)

    # --- logging ---

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str | Callable[[Tensor], Tensor] = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Log a value: to the loggers, for callbacks, and for the progress bar if asked.

        Args:
            name: its name; with `on_step` and `on_epoch` both, `name_step` and `name_epoch`.
            value: a number, a tensor with one element, or a torchmetrics object.
            prog_bar: whether the progress bar shows it.
            logger: whether loggers are given it; they are unless this is False.
            on_step: whether single values are; in training steps and batch hooks unless said.
            on_epoch: whether the epoch's reduction is; everywhere else unless said.
            reduce_fx: `"mean"` (weighted by batch size), `"sum"`, `"min"`, `"max"`, or a function
                of the tensor of all values.
            enable_graph: keep the last value attached to the autograd graph.
            sync_dist: reduce over all processes; otherwise an epoch's value is that of rank 0.
            sync_dist_group: without effect, for Lightning's scripts; all processes take part.
            add_dataloader_idx: add `/dataloader_idx_N` where there are several loaders.
            batch_size: the value's weight in a mean; the first dimension of the batch's first
                tensor unless given, and 1 where there is none.
            metric_attribute: where the module keeps the torchmetrics object, as a dotted name;
                found by itself unless given.
            rank_zero_only: whether rank 0 alone logs it, which is then not warned of.

        Raises:
            MetricError: it cannot be logged here, is no such value, or was logged otherwise before.
        """
        metrics = self._metrics
        if metrics is None:
            warn_of_dropped(name)
            return
        if metric_attribute is not None:
            require_metric(self, name, value, metric_attribute)
        metrics.log(
            name,
            value,
            (
                prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx,
                sync_dist, rank_zero_only, enable_graph,
            ),
            batch_size,
        )  # fmt: skip

    def log_dict(
        self,
        dictionary: Mapping[str, Any],
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str | Callable[[Tensor], Tensor] = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Log every item of a dict, or of a torchmetrics collection; the arguments are `log`'s."""
        metrics = self._metrics
        call = (
            prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx,
            sync_dist, rank_zero_only, enable_graph,
        )  # fmt: skip
        # a collection's items would copy the states that its metrics share
        is_collection = hasattr(dictionary, "compute_groups")
        items = dictionary.items(copy_state=False) if is_collection else dictionary.items()  # type: ignore[call-arg]
        for name, value in items:
            if metrics is None:
                warn_of_dropped(name)
            else:
                metrics.log(name, value, call, batch_size)

    # --- exports ---

    def to_onnx(self, file_path: Any = None, input_sample: Any = None, **kwargs: Any) -> Any:
        """Export `forward` to ONNX, in evaluation mode.

        `trainer_hooks.callbacks.export_for_inference` does the same for batches of any size, and
        makes sure that what is written computes what the module does.

        Args:
            file_path: the file, or one that is open for writing bytes; none unless given.
            input_sample: an input for `forward`, or a tuple of its arguments;
                `self.example_input_array` unless given.
            kwargs: options of `torch.onnx.export`.

        Returns:
            What `torch.onnx.export` returns.

        Raises:
            OptionError: there is no input.
        """
        from trainer_hooks.module.exporting import to_onnx

        return to_onnx(self, Module, file_path, input_sample, kwargs)

    def to_torchscript(
        self,
        file_path: str | os.PathLike[str] | None = None,
        method: str | None = "script",
        example_inputs: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return the module as TorchScript, in evaluation mode.

        torch calls TorchScript deprecated. For something new, use `torch.export`, as
        `trainer_hooks.callbacks.export_for_inference` does.

        Args:
            file_path: where it is written, too: a path or an address.
            method: `"script"`, which keeps what depends on the data, or `"trace"`.
            example_inputs: an input for `forward` to trace with, or a tuple of its arguments;
                `self.example_input_array` unless given.
            kwargs: options of `torch.jit.script` or `torch.jit.trace`.

        Raises:
            OptionError: the method is neither, or there is no input to trace with.
        """
        from trainer_hooks.module.exporting import to_torchscript

        return to_torchscript(self, Module, file_path, method, example_inputs, kwargs)

    # --- hyperparameters and checkpoints ---

    def save_hyperparameters(
        self, *args: Any, ignore: Any = None, frame: Any = None, logger: bool = True
    ) -> None:
        """Keep the arguments of `__init__` in `hparams` and in checkpoints.

        Args:
            args: names of the arguments to keep; or one mapping, Namespace or dataclass, whose
                items are kept instead; all arguments unless given.
            ignore: names to leave out.
            frame: the frame of `__init__`, where it is not the caller's.
            logger: whether loggers are given them when fit begins.

        Raises:
            ModuleError: a name is no argument, or this is called outside `__init__`.
        """
        from trainer_hooks.module.hyperparameters import kept_arguments

        self._kept = kept_arguments(self, self._kept, args, ignore, frame, logger)

    @property
    def hparams(self) -> checkpoint.HyperParameters:
        """The hyperparameters, as a dict with attributes."""
        if self._kept is None:
            from trainer_hooks.module.hyperparameters import KeptArguments

            self._kept = KeptArguments()
        return self._kept.given

    @property
    def hparams_initial(self) -> checkpoint.HyperParameters:
        """A copy of the hyperparameters as they were when they were saved."""
        return checkpoint.HyperParameters() if self._kept is None else self._kept.copied()

    @property
    def saved_hparams(self) -> Mapping[str, Any] | None:
        """What of the hyperparameters a checkpoint holds; None if none were saved."""
        return None if self._kept is None else self._kept.saved

    @property
    def hparams_name(self) -> str | None:
        """The argument of `__init__` that was all of the hyperparameters, if it was one."""
        return None if self._kept is None else self._kept.name

    @property
    def logged_hparams(self) -> Mapping[str, Any] | None:
        """What of the hyperparameters loggers are given, or None."""
        return self.hparams if self._kept is not None and self._kept.is_logged else None

    @MethodOfClass
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | os.PathLike[str],
        map_location: Any = None,
        hparams_file: str | os.PathLike[str] | None = None,
        strict: bool | None = None,
        weights_only: bool | None = None,  # noqa: ARG003 - Lightning's
        **kwargs: Any,
    ) -> Self:
        """Make a module with a checkpoint's hyperparameters and load its weights.

        The global random numbers are as before afterwards.

        Args:
            checkpoint_path: the file: a checkpoint of trainer_hooks or of Lightning 2.x, or weights
                in a `.safetensors` file, with the hyperparameters that JSON can hold.
            map_location: the device to put the module on, or whatever else `torch.load` takes; the
                CPU unless given.
            hparams_file: a `.yaml` or `.csv` file whose hyperparameters are used, and not those of
                the checkpoint.
            strict: whether it is an error if a weight is missing or unknown; the module's
                `strict_loading` unless given.
            weights_only: without effect, for Lightning's scripts: no file is opened in a way that
                could run code.
            kwargs: arguments of `__init__` that replace or complete the hyperparameters.

        Raises:
            CheckpointError: it cannot be read, or its weights do not fit.
            ModuleError: `__init__` needs an argument that is neither there nor given, or the file
                of hyperparameters cannot be read.
        """
        module: Self = load_module(cls, checkpoint_path, map_location, hparams_file, strict, kwargs)
        return module

    # --- the run it is in ---

    def attach(self, trainer: Any, metrics: MetricStore | MutedMetrics | None) -> None:
        """Tell the module, and modules inside it, which trainer runs it; the trainer calls this."""
        for part in self.modules():
            if isinstance(part, Module):
                part.__dict__["_trainer"] = trainer
                part.__dict__["_metrics"] = metrics

    def attach_manual(self, manual: _Manual | None) -> None:
        """Give the module what it needs to optimize by itself; the fit loop calls this."""
        for part in self.modules():
            if isinstance(part, Module):
                part.__dict__["_manual"] = manual

    @property
    def trainer(self) -> Any:
        """The trainer that runs this module. May be set, as to call its steps in a test.

        Raises:
            UsageError: none does.
        """
        if self._trainer is None:
            raise UsageError(
                f"{type(self).__qualname__} is attached to no trainer: `trainer` and what needs it "
                "are there within fit, validate, test and predict."
            )
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Any) -> None:
        for part in self.modules():
            if isinstance(part, Module):
                part.__dict__["_trainer"] = trainer

    @property
    def device(self) -> torch.device:
        """Where the module's first parameter or buffer is; the CPU if it has none."""
        for tensor in (*self.parameters(), *self.buffers()):
            return tensor.device
        return torch.device("cpu")

    @property
    def device_mesh(self) -> DeviceMesh | None:
        """The processes by what they share, with FSDP; None otherwise."""
        found: DeviceMesh | None = self.trainer.strategy.device_mesh
        return found

    @property
    def on_gpu(self) -> bool:
        """Whether that is a CUDA device."""
        return self.device.type == "cuda"

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
    def local_rank(self) -> int:
        """This process's number among those of its machine."""
        return int(self._trainer.local_rank) if self._trainer is not None else 0

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
