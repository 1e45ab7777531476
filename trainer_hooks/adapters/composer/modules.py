"""ComposerModelAdapter: a ComposerModel in a Trainer; `adapt_module` adds its optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from trainer_hooks.adapters.composer.callbacks import event_source_of
from trainer_hooks.adapters.module_adapter import ModuleAdapter
from trainer_hooks.data.batch_splitting import samples_in
from trainer_hooks.errors import ModuleError
from trainer_hooks.runtime.modes import evaluation_mode

if TYPE_CHECKING:
    from trainer_hooks.module.module import Module


def adapt_module(
    model: Any,
    optimizers: Any = None,
    schedulers: Any = None,
    *,
    step_schedulers_every_batch: bool = False,
) -> Module:
    """Return the adapter of a ComposerModel, with the optimizers that Composer's Trainer takes.

    Args:
        model: the ComposerModel.
        optimizers: an optimizer of torch, or several; needed for a fit unless the model has a
            `configure_optimizers`.
        schedulers: a scheduler of torch, or several.
        step_schedulers_every_batch: whether the schedulers count steps; otherwise they count
            epochs.

    Raises:
        ModuleError: a scheduler is none of torch's.

    Example::

        trainer.fit(adapt_module(model, torch.optim.SGD(model.parameters(), 0.1)), loader)
    """
    listed = _as_list(schedulers)
    for scheduler in listed:
        if not isinstance(scheduler, LRScheduler):
            raise ModuleError(
                f"adapt_module(schedulers={scheduler!r}): it is no scheduler of torch's. Those of "
                "Composer are functions of its own trainer's time: pass one such as "
                "torch.optim.lr_scheduler.LambdaLR."
            )
    return ComposerModelAdapter(model, _as_list(optimizers), listed, step_schedulers_every_batch)


def _as_list(argument: Any) -> list[Any]:
    if argument is None:
        return []
    return list(argument) if isinstance(argument, Iterable) else [argument]


class ComposerModelAdapter(ModuleAdapter):
    """An adapter of a ComposerModel: the default steps run its forward and its loss.

    Losses and metrics are logged under the names that they have in Composer's Trainer.

    Args:
        foreign: the ComposerModel.
        optimizers: the optimizers that train it.
        schedulers: the schedulers of the optimizers.
        counts_steps: whether the schedulers count steps; otherwise they count epochs.
    """

    shows_model_loss: ClassVar[bool] = True
    """Whether it puts the model's own loss on the state, where callbacks of Composer read it."""

    def __init__(
        self, foreign: Any, optimizers: list[Any], schedulers: list[Any], counts_steps: bool
    ) -> None:
        super().__init__(foreign)
        self._optimizers, self._schedulers = optimizers, schedulers
        self._counts_steps = counts_steps
        self._train_metrics: dict[str, Any] = {}
        self._eval_metrics: dict[str, dict[str, Any]] = {}
        # of the last training forward: its outputs, and a copy of its batch for the metrics
        self._outputs_and_batch: tuple[Any, Any] = (None, None)
        self._batch_losses: dict[str, Tensor] = {}
        self._source: Any = None

    @property
    def _model(self) -> Any:
        # not as an attribute: the model shares its parameters with this module, which would
        # otherwise register it as a part and save its weights twice
        return vars(self)["foreign_module"]

    def attach(self, trainer: Any, metrics: Any) -> None:
        """Attach the module to a run, or detach it and take the logger from the model."""
        super().attach(trainer, metrics)
        if metrics is None:
            self._model.logger = self._source = None

    def on_after_configure_model(self) -> None:
        """Set the model's logger, as Composer does at `init`."""
        self._source = event_source_of(self.trainer, self)
        self._model.logger = self._source.logger

    def configure_optimizers(self) -> Any:
        """Return the given optimizers and schedulers, or those of the model's own method.

        Raises:
            ModuleError: there are no optimizers, and the model has no such method.
        """
        model = self._model
        model_method = getattr(model, "configure_optimizers", None)
        if not self._optimizers and model_method is not None:
            return model_method()
        if not self._optimizers:
            raise ModuleError(
                f"{type(model).__qualname__} is a ComposerModel without an optimizer, which "
                "Composer's Trainer is given. Call fit with "
                "trainer_hooks.adapters.composer.adapt_module(model, optimizer), or define "
                "configure_optimizers(self) in it."
            )
        interval = "step" if self._counts_steps else "epoch"
        schedulers = [
            {"scheduler": scheduler, "interval": interval} for scheduler in self._schedulers
        ]
        return self._optimizers, schedulers

    # --- training ---

    def on_fit_start(self) -> None:
        """Copy the model's training metrics, as Composer does."""
        self._source.begin_fit(self.trainer)
        self._train_metrics = self._copy_metrics(is_train=True)

    def forward(self, batch: Any) -> Any:
        """Return the model's outputs for a batch."""
        # the forward may change its batch, and the metrics need the batch from before
        batch_copy = deepcopy(batch) if self.training and self._train_metrics else None
        if self.training:
            self._begin_forward()
        outputs = self._model(batch)
        self._outputs_and_batch = outputs, batch_copy
        return outputs

    def _begin_forward(self) -> None:
        source = self._source
        # not split, each forward is of another batch, whether or not a listener has its start
        if source.parts and source.forwards:
            source.forwards += 1
            return
        source.forwards = 1
        if self.trainer.progress.batches_in_window == 0:
            self._batch_losses = {}

    def split_batch(self, batch: Any, microbatch_size: int) -> list[Any]:
        """Return the microbatches of a batch, which the state shows one after the other."""
        source, parts = self._source, list(super().split_batch(batch, microbatch_size))
        source.whole_batch, source.parts, source.forwards = batch, parts, 0
        return parts

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """Return the model's loss, or the sum of its losses, and log them."""
        model, source = self._model, self._source
        model_loss = model.loss(outputs, batch)
        total, named = losses_of(model_loss, type(model).__qualname__)
        source.state.keep("loss", model_loss)
        source.share = 1.0
        if source.parts:
            source.share = samples_in(batch) / samples_in(source.whole_batch)
            if "total" in named and self.trainer.scaler is None:
                # the backward is that of a copy, since the state's own is multiplied in place
                source.scaled_total, total = total, total.clone()
        losses, window = self._batch_losses, self.trainer.accumulate_grad_batches
        for name, value in {**named, "total": total}.items():
            key, mean = f"loss/train/{name}", mean_of(value.detach())
            self.log(key, mean)
            if source.parts or window > 1:
                mean = mean * (source.share / window)
                mean = losses[key] + mean if key in losses else mean
            losses[key] = mean
        return total

    def on_after_train_batch(self) -> None:
        """Show the losses of the batch on the state, after callbacks had `after_train_batch`."""
        self._source.state.total_loss_dict.losses = self._batch_losses

    def on_after_backward(self) -> None:
        """Update the training metrics with the last forward, and log them."""
        self._source.scale_total()
        outputs, batch = self._outputs_and_batch
        # let go before the step, since they hold memory of the device
        self._outputs_and_batch = None, None
        if not self._train_metrics or batch is None:
            return
        model = self._model
        with evaluation_mode(model):
            eval_outputs = model.eval_forward(batch, outputs)
            for name, metric in self._train_metrics.items():
                if self.trainer.progress.batches_in_window == 0:
                    metric.reset()
                model.update_metric(batch, eval_outputs, metric)
                self.log(f"metrics/train/{name}", metric.compute())

    # --- evaluations ---

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Evaluate a batch, log the metrics, and return the model's outputs."""
        model, label = self._model, self._source.describe_loader(self.trainer, dataloader_idx)[1]
        if batch_idx == 0:
            self._eval_metrics[label] = self._copy_metrics(is_train=False)
        outputs = model.eval_forward(batch)
        for name, metric in self._eval_metrics[label].items():
            model.update_metric(batch, outputs, metric)
            # the label tells the loaders apart
            self.log(f"metrics/{label}/{name}", metric, add_dataloader_idx=False)
        return outputs

    test_step = validation_step

    def predict_step(self, batch: Any, batch_idx: int) -> Any:  # noqa: ARG002 - ours
        """Return the model's evaluation outputs for a batch."""
        return self._model.eval_forward(batch)

    def _copy_metrics(self, *, is_train: bool) -> dict[str, Any]:
        metrics = self._model.get_metrics(is_train=is_train)
        return {name: deepcopy(metric).to(self.device) for name, metric in metrics.items()}

    def __reduce__(self) -> Any:
        """Copy and pickle the model with its optimizers."""
        arguments = self._model, self._optimizers, self._schedulers, self._counts_steps
        return ComposerModelAdapter, arguments


def losses_of(loss: Any, owner: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss to differentiate and the named losses of a ComposerModel.

    Args:
        loss: the return value of `model.loss`: a tensor, several, or a dict of tensors.
        owner: the model's class, for the error.

    Returns:
        The item `total` of a dict, or else the sum of the losses' means; and the losses by name,
        `loss0`, `loss1` ... for several without names.

    Raises:
        ModuleError: it is something else.
    """
    named: dict[str, Any] = dict(loss) if isinstance(loss, dict) else {}
    several = list(named.values()) or (list(loss) if isinstance(loss, Sequence) else [])
    parts = several or [loss]
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        raise ModuleError(
            f"{owner}.loss returned {loss!r} of type {type(loss).__qualname__}: it must return a "
            "tensor, several, or a dict of them."
        )
    if "total" in named:
        return named["total"], named
    if not named and len(parts) > 1:
        named = {f"loss{index}": part for index, part in enumerate(parts)}
    total = mean_of(parts[0])
    for part in parts[1:]:
        total = total + mean_of(part)
    return total, named


def mean_of(loss: Tensor) -> Tensor:
    """Return the mean of a loss that has a value for each sample."""
    return loss.mean() if loss.ndim else loss
