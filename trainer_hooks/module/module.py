"""Module: a model with its steps, losses and optimizers."""

from __future__ import annotations

from contextlib import contextmanager
from numbers import Number
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from trainer_hooks._log import warn
from trainer_hooks._names import clash_message, names_left_to_user
from trainer_hooks._options import CLIP_ALGORITHM, check_option
from trainer_hooks.data.data_hooks import DataHooks
from trainer_hooks.errors import (
    MetricError,
    ModuleError,
    TrainerHooksWarning,
    UsageError,
)
from trainer_hooks.hooks.check import definition_clash, value_fault
from trainer_hooks.hooks.spec import HOOKS, empty_hook
from trainer_hooks.module.hyperparameters import (
    HyperparametersMixin,
    MethodOfClass,
    init_arguments_from,
    made_from_config,
    read_hparams,
)
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.device import device_of_option, require_usable
from trainer_hooks.runtime.nested_tensors import map_tensors

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping
    from typing import Protocol

    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer

    from trainer_hooks.metrics.store import MetricStore, MutedMetrics
    from trainer_hooks.module.optimization import ManualOptimizer

    class _Manual(Protocol):
        """The part of the fit loop that a module with manual optimization calls."""

        optimizers: list[ManualOptimizer]

        def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None: ...

        def unscale(self, optimizer: Any) -> None: ...


_OWN_NAMES = frozenset(
    {
        *HOOKS, "attach", "attach_manual", "hparams_name", "hparams_type", "logged_hparams",
        "num_samples", "num_tokens", "on_predict_model_train", "saved_hparams", "split_batch",
    }
)  # fmt: skip
"""Public names that Lightning's module has not, and the hooks: not for other uses of a user's."""


_NO_METHOD = object()


class Module(nn.Module, HyperparametersMixin, DataHooks):
    """Base class of the user's model: define `training_step` and `configure_optimizers` at least.

    Or define `forward(batch)` and `loss(outputs, batch)` and no training_step: default steps then
    run them, log `train_loss`, its mean `train_loss_epoch`, `val_loss` and `test_loss`, and fire
    the forward and loss hooks.

    Every hook of the catalogue may be defined too, without the arguments `trainer` and `module`.

    Attributes:
        automatic_optimization: set it to False in `__init__` to call `manual_backward`,
            `optimizer.step()` and `optimizer.zero_grad()` in `training_step` yourself.
        example_input_array: an input for `forward`, for summaries and exports.
        strict_loading: whether a missing or unknown weight is an error when a checkpoint is loaded.
            Set it to False if `state_dict` leaves weights out.
    """

    automatic_optimization: bool = True
    example_input_array: Any = None
    strict_loading: bool = True

    _makes_default_steps = True
    """Whether a module without a training_step has steps made of its `forward` and `loss`."""

    # torch.jit.script compiles each property of a module, and reads the type of each annotated
    # attribute, unless it is named here
    __jit_unused_properties__: ClassVar[list[str]]
    __jit_ignored_attributes__: ClassVar[list[str]] = [
        "_manual_step", "_run_metrics", "_trainer", "example_input_array",
    ]  # fmt: skip

    # on the class, so that `self.global_step` can be read before super().__init__() has run
    _trainer: Any = None
    # set by `attach` when a run begins (TrainerRun._begin): `TrainerCore.log_target`
    _run_metrics: MetricStore | MutedMetrics | None = None
    _manual_step: _Manual | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if clash := definition_clash(cls, _OWN_NAMES, skip=2):
            raise ModuleError(clash)

    # a value under one of these names would take the place of a method that the trainer calls; and
    # reading a submodule, parameter or buffer of such a name would give the method

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN_NAMES:
            _require_free(self, name, value)
        try:
            super().__setattr__(name, value)
        except AttributeError:
            require_init(self)
            if isinstance(getattr(type(self), name, None), property) and name in vars(Module):
                raise AttributeError(
                    f"{type(self).__qualname__}.{name} can only be read: the trainer sees to it. "
                    + (
                        "Choose the device by Trainer(accelerator=..., devices=...)."
                        if name == "device"
                        else "Give the attribute another name."
                    )
                ) from None
            raise

    # torch's own signature: it looks for `persistent` there as a buffer is assigned
    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a buffer, as `torch.nn.Module` does, under a name that is not ours."""
        if name in _OWN_NAMES:
            _require_free(self, name)
        super().register_buffer(name, tensor, persistent)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Register a parameter, as `torch.nn.Module` does, under a name that is not ours."""
        if name in _OWN_NAMES:
            _require_free(self, name)
        super().register_parameter(name, param)

    def add_module(self, name: str, module: nn.Module | None) -> None:
        """Add a submodule, as `torch.nn.Module` does, under a name that is not ours."""
        if name in _OWN_NAMES:
            _require_free(self, name)
        super().add_module(name, module)

    # --- what a subclass defines ---

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load weights, as `torch.nn.Module`; compiled layers take the names of checkpoints, too.

        Args:
            state_dict: the weights by name, with or without the `_orig_mod.` of compiled layers.
            strict: whether every name must be on both sides.
            assign: whether the tensors are put into the module in place of copies.
        """
        from trainer_hooks.runtime.parameter_names import with_names_of

        return super().load_state_dict(
            with_names_of(self.state_dict(), state_dict), strict=strict, assign=assign
        )

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss of a batch: a tensor, a dict with the key `loss`, or None to skip it."""
        raise ModuleError(f"{type(self).__qualname__} has no training_step.")

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        """Evaluate a validation batch; add `dataloader_idx` where there are several loaders."""
        raise ModuleError(f"{type(self).__qualname__} has no validation_step.")

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        """Evaluate a test batch; add `dataloader_idx` where there are several loaders."""
        raise ModuleError(f"{type(self).__qualname__} has no test_step.")

    # overrides pass all that they get to super(); type checkers take this form for any override
    def predict_step(self, batch: Any, batch_idx: int, *args: Any, **kwargs: Any) -> Any:
        """Return the predictions for a batch; by default the output of `forward`.

        Raises:
            ModuleError: there is no forward either.
        """
        # torch's own forward only raises, with an error that does not say what to define
        if type(self).forward is nn.Module.forward:
            raise ModuleError(
                f"{type(self).__qualname__} has no predict_step and no forward: define one of them."
            )
        # not self.forward(batch), which would leave out torch's forward hooks
        return self(batch)

    def configure_optimizers(self) -> Any:
        """Return the optimizers, and the schedulers if any, in a form of docs/optimizers.md."""
        raise ModuleError(
            f"{type(self).__qualname__} has no configure_optimizers: define it, and return an "
            "optimizer such as torch.optim.Adam(self.parameters()), or None to train without one."
        )

    def configure_model(self) -> None:
        """Build layers late, when their device is known; called before optimizers exist."""

    def configure_callbacks(self) -> Any:
        """Return callbacks for this module's runs; they replace all of the same type."""
        return ()

    # --- what a subclass may override of the counting ---

    def num_samples(self, batch: Any) -> int:
        """Return the number of samples in a training batch, which `trainer.clock` adds up.

        By default the first dimension of the first tensor in it, or 1 without a tensor.
        """
        from trainer_hooks.data.batch_counts import count_samples

        return count_samples(batch)

    def num_tokens(self, batch: Any) -> int:
        """Return the number of tokens in a training batch, which `trainer.clock` adds up.

        By default the number of its `"input_ids"` if it is a mapping that has them, or 0.
        """
        from trainer_hooks.data.batch_counts import count_tokens

        return count_tokens(batch)

    # --- what a subclass may override of the optimization ---

    def split_batch(self, batch: Any, microbatch_size: int) -> list[Any]:
        """Split a training batch into parts of at most `microbatch_size` samples.

        Raises:
            DataError: its tensors do not agree on how many samples there are.
        """
        from trainer_hooks.data.batch_splitting import split_batch

        return split_batch(batch, microbatch_size)

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
        """Step; `optimizer_closure` computes the gradients and must be called or passed on."""
        optimizer.step(closure=optimizer_closure)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Clear the gradients at the start of an accumulation window."""
        optimizer.zero_grad()

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients of an accumulation window; they are complete and unscaled."""
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def clip_gradients(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients of an optimizer's parameters by norm or by value.

        Args:
            optimizer: the optimizer.
            gradient_clip_val: the limit; that of the Trainer unless given. Without any nothing is
                clipped.
            gradient_clip_algorithm: `"norm"` or `"value"`; that of the Trainer unless given.

        Raises:
            OptionError: the algorithm is unknown.
            UsageError: in manual optimization with a loss scale, a backward has added to gradients
                that were clipped before.
        """
        check_option(
            "gradient_clip_algorithm",
            gradient_clip_algorithm,
            "clip_gradients",
            CLIP_ALGORITHM,
            is_call=True,
        )
        trainer = self._trainer
        if trainer is not None and gradient_clip_val is None:
            gradient_clip_val = trainer.gradient_clip_val
        if trainer is not None and gradient_clip_algorithm is None:
            gradient_clip_algorithm = trainer.gradient_clip_algorithm
        if gradient_clip_val is None:
            return
        if self._manual_step is not None:
            # before its step, so that the limit is one of the true gradients
            self._manual_step.unscale(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if gradient_clip_algorithm == "value":
            nn.utils.clip_grad_value_(parameters, gradient_clip_val)
        else:
            nn.utils.clip_grad_norm_(parameters, gradient_clip_val)

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Step a scheduler; `metric` is its monitor's value where it has one."""
        # torch's other schedulers would take the value as an epoch
        if metric is None:
            scheduler.step()
        else:
            scheduler.step(metric)

    def on_validation_model_zero_grad(self) -> None:
        """Clear the gradients of a completed step before a validation in fit.

        In manual optimization they are kept unless this method is overridden.
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
        if self._manual_step is None:
            raise UsageError(
                f"{type(self).__qualname__}.manual_backward was called with automatic "
                "optimization, or outside fit: set self.automatic_optimization = False in "
                "__init__ to use it in training_step."
            )
        self._manual_step.backward(loss, *args, **kwargs)

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        """Return the optimizer, or a list of them.

        Args:
            use_pl_optimizer: whether to wrap them (the name is Lightning's). A wrapped optimizer's
                `step` counts and fires the hooks in manual optimization, and raises in automatic
                optimization.
        """
        optimizers: list[Any] = list(self.trainer.optimizers)
        if self._manual_step is not None and use_pl_optimizer:
            optimizers = list(self._manual_step.optimizers)
        # outside fit a module with manual optimization gets them as they are
        elif self.automatic_optimization and use_pl_optimizer:
            from trainer_hooks.module.optimization import without_step

            owner = type(self).__qualname__
            optimizers = [without_step(optimizer, owner) for optimizer in optimizers]
        return optimizers[0] if len(optimizers) == 1 else optimizers

    def lr_schedulers(self) -> Any:
        """Return the scheduler, a list of them, or None."""
        schedulers = [config.scheduler for config in self.trainer.lr_scheduler_configs]
        if not schedulers:
            return None
        return schedulers[0] if len(schedulers) == 1 else schedulers

    @contextmanager
    def toggled_optimizer(self, optimizer: Any) -> Iterator[None]:
        """Require gradients only of one optimizer's parameters in a `with` statement."""
        self.toggle_optimizer(optimizer)
        try:
            yield
        finally:
            self.untoggle_optimizer(optimizer)

    def toggle_optimizer(self, optimizer: Any) -> None:
        """Require gradients only of one optimizer's parameters, until `untoggle_optimizer`.

        If another optimizer is toggled, it is untoggled first.
        """
        self.untoggle_optimizer(optimizer)
        toggled = {id(p) for group in optimizer.param_groups for p in group["params"]}
        saved: dict[int, tuple[Tensor, bool]] = {}
        for other in self.trainer.optimizers:
            for group in other.param_groups:
                for parameter in group["params"]:
                    # optimizers may share it: only the first one sees its original state
                    if id(parameter) not in toggled and id(parameter) not in saved:
                        saved[id(parameter)] = parameter, parameter.requires_grad
                        parameter.requires_grad_(False)
        # past nn.Module's own __setattr__, which would look for parameters in it
        self.__dict__["_toggled"] = tuple(saved.values())

    def untoggle_optimizer(self, optimizer: Any) -> None:
        """Undo `toggle_optimizer`."""
        for parameter, requires_grad in self.__dict__.pop("_toggled", ()):
            parameter.requires_grad_(requires_grad)

    def freeze(self) -> Self:
        """Stop requiring gradients, and go into eval mode."""
        self.requires_grad_(False)
        return self.eval()

    def unfreeze(self) -> Self:
        """Require gradients, and go into train mode."""
        self.requires_grad_(True)
        return self.train()

    def all_gather(self, data: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Gather tensors and numbers from all ranks, each with a new first dimension.

        All ranks must call it. With one rank no dimension is added.

        Args:
            data: a tensor, a number, or any nesting of them; of the same shapes on all ranks.
            group: a process group of torch; by default all ranks.
            sync_grads: whether gradients flow back to the rank that a part came from.
        """
        ranks, device = self.trainer.strategy, self.device

        def gather(item: Any) -> Tensor:
            tensor = item if isinstance(item, Tensor) else torch.tensor(item, device=device)
            gathered: Tensor = ranks.all_gather(tensor, group, sync_grads)
            return gathered

        return map_tensors(data, gather, is_convertible=lambda item: isinstance(item, Number))

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print without breaking the progress bar."""
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
        """Log a value to the loggers, for callbacks, and on request to the progress bar.

        Args:
            name: its name; with both `on_step` and `on_epoch`, `name_step` and `name_epoch`.
            value: a number, a tensor with one element, or a torchmetrics object.
            prog_bar: whether the progress bar shows it.
            logger: whether loggers get it; None means True.
            on_step: whether single values are logged; by default in training steps and batch hooks.
            on_epoch: whether the epoch's reduction is logged; by default everywhere else.
            reduce_fx: `"mean"` (weighted by batch size), `"sum"`, `"min"`, `"max"`, or a function
                of the tensor of all values.
            enable_graph: keep the last value attached to the autograd graph.
            sync_dist: reduce over all ranks; otherwise an epoch's value is that of rank 0.
            sync_dist_group: without effect, for Lightning's scripts; all ranks take part.
            add_dataloader_idx: add `/dataloader_idx_N` if there are several loaders.
            batch_size: the value's weight in a mean; by default the first dimension of the batch's
                first tensor, and 1 without a tensor.
            metric_attribute: the dotted name of the module's attribute that is the torchmetrics
                object; by default it is searched for.
            rank_zero_only: whether only rank 0 logs it, which then gives no warning.

        Raises:
            MetricError: it cannot be logged here, has another type, or was logged otherwise before.
        """
        metrics = self._run_metrics
        if metrics is None:
            _warn_of_dropped(name)
            return
        if metric_attribute is not None:
            _require_metric(self, name, value, metric_attribute)
        # one tuple, in the order of `metrics.store._DEFAULTS`: the store compares it with that of
        # the last call of this name, and makes an object of it only the first time
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
        metrics = self._run_metrics
        call = (
            prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx,
            sync_dist, rank_zero_only, enable_graph,
        )  # fmt: skip
        # a collection's items would copy the states that its metrics share. It is known by this
        # attribute, so that torchmetrics need not be imported
        is_collection = hasattr(dictionary, "compute_groups")
        items = dictionary.items(copy_state=False) if is_collection else dictionary.items()  # type: ignore[call-arg]
        overrides_log = type(self).log is not Module.log or "log" in vars(self)
        for name, value in items:
            if overrides_log:  # a `log` of the user's, which Lightning's log_dict calls as well
                self.log(
                    name=name, value=value, prog_bar=prog_bar, logger=logger, on_step=on_step,
                    on_epoch=on_epoch, reduce_fx=reduce_fx, enable_graph=enable_graph,
                    sync_dist=sync_dist, sync_dist_group=sync_dist_group,
                    add_dataloader_idx=add_dataloader_idx, batch_size=batch_size,
                    rank_zero_only=rank_zero_only,
                )  # fmt: skip
            elif metrics is None:
                _warn_of_dropped(name)
            else:
                metrics.log(name, value, call, batch_size)

    # --- exports ---

    def to_onnx(self, file_path: Any = None, input_sample: Any = None, **kwargs: Any) -> Any:
        """Export `forward` to ONNX, in evaluation mode.

        `trainer_hooks.callbacks.export_for_inference` does the same for batches of any size, and
        verifies that the exported graph computes what the module does.

        Args:
            file_path: a path, or a file that is open for writing bytes; None writes no file.
            input_sample: an input for `forward`, or a tuple of its arguments; by default
                `self.example_input_array`.
            kwargs: options of `torch.onnx.export`.

        Returns:
            The return value of `torch.onnx.export`.

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

        torch calls TorchScript deprecated. For new code use `torch.export`, as
        `trainer_hooks.callbacks.export_for_inference` does.

        Args:
            file_path: a path or an address to write it to as well.
            method: `"script"`, which keeps control flow that depends on the data, or `"trace"`.
            example_inputs: an input for `forward` to trace with, or a tuple of its arguments; by
                default `self.example_input_array`.
            kwargs: options of `torch.jit.script` or `torch.jit.trace`.

        Raises:
            OptionError: the method is unknown, there is no input to trace with, or a callback has
                replaced a forward by one that can be traced alone.
        """
        from trainer_hooks.module.exporting import to_torchscript

        return to_torchscript(self, Module, file_path, method, example_inputs, kwargs)

    # --- checkpoints; `save_hyperparameters` and its kin are HyperparametersMixin's ---

    @MethodOfClass
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | os.PathLike[str],
        map_location: Any = None,
        hparams_file: str | os.PathLike[str] | None = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make a module with a checkpoint's hyperparameters, and load its weights.

        The global random state is restored afterwards.

        Args:
            checkpoint_path: the file: a checkpoint of trainer_hooks or of Lightning 2.x, or weights
                in a `.safetensors` file, with the hyperparameters that JSON can hold.
            map_location: the device of the module, its name or its number, or anything else that
                `torch.load` takes; by default the CPU.
            hparams_file: a `.yaml` or `.csv` file whose hyperparameters are used instead of those
                of the checkpoint.
            strict: whether a missing or unknown weight is an error, and not only a warning; by
                default the module's `strict_loading`.
            weights_only: False to open hyperparameters that the checkpoint holds as pickles, which
                runs the code that the file names. Nothing else runs code, whatever it is.
            kwargs: arguments of `__init__` that replace or complete the hyperparameters.

        Raises:
            CheckpointError: it cannot be read, or its weights do not fit.
            ModuleError: an argument that `__init__` needs is missing, or the file of
                hyperparameters cannot be read.
            OptionError: `map_location` names no device, or one that is not there.
        """
        from trainer_hooks.checkpoint.file import load_checkpoint
        from trainer_hooks.checkpoint.weights import load_weights

        path = str(checkpoint_path)
        is_device = isinstance(map_location, str | int | torch.device)
        if is_device:
            # before the file is read, which takes long
            where = f"{cls.__qualname__}.load_from_checkpoint"
            device = device_of_option(map_location, "map_location", where)
            if device != torch.device("meta"):
                require_usable(device, "map_location", where)
        # a device is for the module; its weights are read to the CPU first
        weights_location = "cpu" if is_device or map_location is None else map_location
        checkpoint = load_checkpoint(checkpoint_path, weights_location)
        if hparams_file is not None:
            checkpoint["hyper_parameters"] = read_hparams(hparams_file)
        saved = checkpoint.get("hyper_parameters", {})
        name = checkpoint.get("hparams_name")
        # the first weights draw random numbers, although they are replaced below
        with rng.isolated():
            is_trusted = weights_only is False
            form = checkpoint.get("hparams_type")
            arguments = init_arguments_from(
                cls, saved, name, kwargs, path, is_trusted=is_trusted, form=form
            )
            with made_from_config({cls: {**saved, **kwargs}}):
                module = cls(**arguments)
            # layers that are built late must exist before their weights are loaded
            module.configure_model()
        # before the weights are loaded: the hook may rename them in the checkpoint
        getattr(module, "on_load_checkpoint")(checkpoint)  # noqa: B009 - made from the catalogue
        is_strict = module.strict_loading if strict is None else strict
        load_weights(module, checkpoint["state_dict"], path, strict=is_strict)
        if is_device:
            module.to(map_location)
        return module

    # --- the run it is in ---

    def attach(self, trainer: Any, metrics: MetricStore | MutedMetrics | None) -> None:
        """Set the trainer of the module and of the modules inside it; the trainer calls this.

        Args:
            trainer: the trainer that runs the module, or None after the run.
            metrics: the store that `log` writes to, or None.
        """
        self._refer_to(_trainer=trainer, _run_metrics=metrics)

    def attach_manual(self, manual: _Manual | None) -> None:
        """Set the object that steps optimizers in manual optimization; the fit loop calls this."""
        self._refer_to(_manual_step=manual)

    def _refer_to(self, **references: Any) -> None:
        """Set references to the run in this module and in the modules inside it."""
        for part in self.modules():
            if isinstance(part, Module):
                # past nn.Module's __setattr__, which looks for parameters in each value
                part.__dict__.update(references)

    @property
    def trainer(self) -> Any:
        """The trainer that runs this module. May be set, for example to call a step in a test.

        Raises:
            UsageError: no trainer runs it.
        """
        if self._trainer is None:
            raise UsageError(
                f"{type(self).__qualname__} is attached to no trainer: `trainer` and what needs it "
                "are there within fit, validate, test and predict."
            )
        return self._trainer

    @trainer.setter
    def trainer(self, trainer: Any) -> None:
        self._refer_to(_trainer=trainer)

    @property
    def device(self) -> torch.device:
        """The device of the module's first parameter or buffer; the CPU if it has none."""
        for tensor in (*self.parameters(), *self.buffers()):
            return tensor.device
        return torch.device("cpu")

    @property
    def device_mesh(self) -> DeviceMesh | None:
        """The device mesh of the ranks with FSDP; None otherwise, and outside of a run."""
        if self._trainer is None:
            return None  # torch.jit.trace reads every attribute, also of a module without a run
        mesh: DeviceMesh | None = self._trainer.strategy.device_mesh
        return mesh

    @property
    def on_gpu(self) -> bool:
        """Whether the module is on a CUDA device."""
        return self.device.type == "cuda"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the module's first parameter; torch's default dtype if it has none."""
        for tensor in self.parameters():
            return tensor.dtype
        return torch.get_default_dtype()

    @property
    def current_epoch(self) -> int:
        """The index of the current epoch, 0 without a trainer."""
        return int(self._trainer.current_epoch) if self._trainer is not None else 0

    @property
    def global_step(self) -> int:
        """The number of optimizer steps so far, 0 without a trainer."""
        return int(self._trainer.global_step) if self._trainer is not None else 0

    @property
    def global_rank(self) -> int:
        """This process's rank among all."""
        return int(self._trainer.global_rank) if self._trainer is not None else 0

    @property
    def local_rank(self) -> int:
        """This process's rank on its machine."""
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
        """Leave the references to the run out of copies and pickles."""
        return {**self.__dict__, "_trainer": None, "_run_metrics": None, "_manual_step": None}


def require_init(module: Module) -> None:
    """Require that the `__init__` of a module has called that of its base class.

    Raises:
        ModuleError: it has not.
    """
    # torch's __init__ makes it; nothing of a module works without
    if "_parameters" not in vars(module):
        name = type(module).__qualname__
        raise ModuleError(
            f"{name}.__init__ has not called super().__init__(), without which a module can have "
            "no parameters and submodules: call it in the first line of __init__."
        )


def _require_free(module: Module, name: str, value: Any = _NO_METHOD) -> None:
    """Require that a name of ours is the user's, or that the value can take the place of ours.

    Args:
        module: the module.
        name: the name.
        value: the value for the name; by default one that is no method.

    Raises:
        ModuleError: the name is taken.
    """
    kind = type(module)
    if name in names_left_to_user(kind):
        return
    is_part = value is _NO_METHOD or isinstance(value, nn.Module | Tensor)
    fault = "is no tensor or submodule" if is_part else value_fault(kind, name, value, skip=2)
    if fault:
        raise ModuleError(clash_message(kind, name, fault))


def _require_metric(module: Module, name: str, value: Any, attribute: str) -> None:
    """Require an attribute of a module to be the torchmetrics object that is logged.

    Args:
        module: the module.
        name: the name that the object is logged under.
        value: the object.
        attribute: the dotted name of the attribute.

    Raises:
        MetricError: it is another object, or there is none.
    """
    try:
        metric = attrgetter(attribute)(module)
    except (AttributeError, TypeError):
        metric = None
    if metric is not value:
        raise MetricError(
            f"log({name!r}, metric_attribute={attribute!r}): {type(module).__qualname__} has no "
            "such metric object there. Name the attribute that is what you log, or leave "
            "metric_attribute out."
        )


def _warn_of_dropped(name: str) -> None:
    """Warn that a logged value is dropped, as no trainer runs the module."""
    warn(
        f"log({name!r}) was called on a module that no trainer runs: the value is dropped. "
        "Call it within fit, validate or test.",
        TrainerHooksWarning,
    )


# made from the catalogue, so that a new hook needs no line here
for _hook in HOOKS:
    setattr(Module, _hook, empty_hook(_hook))


Module.__jit_unused_properties__ = [
    name for name in dir(Module) if isinstance(getattr(Module, name), property)
]
