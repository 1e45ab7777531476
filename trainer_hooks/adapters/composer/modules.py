"""ModelGuest: a ComposerModel in a Trainer; `adapt_module` brings its optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from trainer_hooks.adapters.composer.guest import home_of
from trainer_hooks.adapters.composer.losses import losses_of, mean_of
from trainer_hooks.adapters.modules import HostedModule
from trainer_hooks.errors import ModuleError

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.module import Module

__all__ = ["ModelGuest", "adapt_module"]


def adapt_module(
    model: Any,
    optimizers: Any = None,
    schedulers: Any = None,
    *,
    step_schedulers_every_batch: bool = False,
) -> Module:
    """Return what stands for a ComposerModel, with what Composer's Trainer is given beside it.

    Args:
        model: it.
        optimizers: one of torch's, or several; needed for a fit, unless the model has a
            `configure_optimizers`.
        schedulers: likewise, of torch's.
        step_schedulers_every_batch: whether they count steps, and not epochs.

    Raises:
        ModuleError: a scheduler is none of torch's.

    Example::

        trainer.fit(adapt_module(model, torch.optim.SGD(model.parameters(), 0.1)), loader)
    """
    listed = _listed(schedulers)
    for one in listed:
        if not isinstance(one, LRScheduler):
            raise ModuleError(
                f"adapt_module(schedulers={one!r}): it is no scheduler of torch's. Those of "
                "Composer are functions of its own trainer's time: pass one such as "
                "torch.optim.lr_scheduler.LambdaLR."
            )
    return ModelGuest(model, _listed(optimizers), listed, step_schedulers_every_batch)


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, Iterable) else [given]


class ModelGuest(HostedModule):
    """Stand for a ComposerModel: the default step runs its forward and its loss.

    Losses and metrics are logged under the names that they have in Composer's Trainer.

    Args:
        guest: the model.
        optimizers: what trains it.
        schedulers: what changes their rates.
        counts_steps: whether the schedulers count steps.
    """

    def __init__(
        self, guest: Any, optimizers: list[Any], schedulers: list[Any], counts_steps: bool
    ) -> None:
        super().__init__(guest)
        self._optimizers, self._schedulers = optimizers, schedulers
        self._counts_steps = counts_steps
        self._train_metrics: dict[str, Any] = {}
        self._eval_metrics: dict[str, dict[str, Any]] = {}
        self._learned: tuple[Any, Any] = (None, None)
        self._home: Any = None

    def attach(self, trainer: Any, metrics: Any) -> None:
        """Take the logger back from the model when a run is over."""
        super().attach(trainer, metrics)
        if metrics is None:
            vars(self)["module_guest"].logger = self._home = None

    def on_after_configure_model(self) -> None:
        """Give the model its logger, as Composer does at `init`."""
        self._home = home_of(self.trainer, self)
        vars(self)["module_guest"].logger = self._home.logger

    def configure_optimizers(self) -> Any:
        """Return what the model was given, or makes by a method of this name.

        Raises:
            ModuleError: neither.
        """
        guest = vars(self)["module_guest"]
        own = getattr(guest, "configure_optimizers", None)
        if not self._optimizers and own is not None:
            return own()
        if not self._optimizers:
            raise ModuleError(
                f"{type(guest).__qualname__} is a ComposerModel without an optimizer, which "
                "Composer's Trainer is given. Call fit with "
                "trainer_hooks.adapters.composer.adapt_module(model, optimizer), or define "
                "configure_optimizers(self) in it."
            )
        interval = "step" if self._counts_steps else "epoch"
        schedulers = [{"scheduler": one, "interval": interval} for one in self._schedulers]
        return self._optimizers, schedulers

    # --- training ---

    def on_fit_start(self) -> None:
        """Take copies of the model's metrics for the training, as Composer does."""
        self._home.begin_fit()
        self._train_metrics = self._copies(is_train=True)

    def forward(self, batch: Any) -> Any:
        """Return the model's outputs of a batch."""
        # a forward may change its batch, and metrics are given it as it was
        kept = deepcopy(batch) if self.training and self._train_metrics else None
        outputs = vars(self)["module_guest"](batch)
        self._learned = outputs, kept
        return outputs

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """Return the model's loss, or the sum of its losses, and log them."""
        guest = vars(self)["module_guest"]
        total, named = losses_of(guest.loss(outputs, batch), type(guest).__qualname__)
        for name, value in {**named, "total": total}.items():
            self.log(f"loss/train/{name}", mean_of(value.detach()))
        return total

    def on_after_backward(self) -> None:
        """Update the metrics of the training with what was learned from, and log them."""
        outputs, batch = self._learned
        self._learned = None, None
        if not self._train_metrics or batch is None:
            return
        guest = vars(self)["module_guest"]
        modes = [(part, part.training) for part in guest.modules()]
        guest.eval()
        try:
            with torch.no_grad():
                found = guest.eval_forward(batch, outputs)
                for name, metric in self._train_metrics.items():
                    if self.trainer.progress.batches_in_window == 0:
                        metric.reset()
                    guest.update_metric(batch, found, metric)
                    self.log(f"metrics/train/{name}", metric.compute())
        finally:
            for part, mode in modes:
                part.training = mode

    # --- evaluations ---

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Evaluate a batch, and return what the model gave."""
        guest, label = vars(self)["module_guest"], self._label(dataloader_idx)
        if batch_idx == 0:
            self._eval_metrics[label] = self._copies(is_train=False)
        outputs = guest.eval_forward(batch)
        for name, metric in self._eval_metrics[label].items():
            guest.update_metric(batch, outputs, metric)
            self.log(f"metrics/{label}/{name}", metric, add_dataloader_idx=False)
        return outputs

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Likewise."""
        return self.validation_step(batch, batch_idx, dataloader_idx)

    def predict_step(self, batch: Any, batch_idx: int) -> Any:  # noqa: ARG002 - ours
        """Return what the model gives of a batch that is evaluated."""
        return vars(self)["module_guest"].eval_forward(batch)

    def _label(self, index: int) -> str:
        """Return under which label Composer evaluates a loader."""
        trainer = self.trainer
        loaders = trainer.test_dataloaders if trainer.testing else trainer.val_dataloaders
        several = isinstance(loaders, list | tuple) and len(loaders) > 1
        return trainer.dataloader_label or (f"eval_{index}" if several else "eval")

    def _copies(self, *, is_train: bool) -> dict[str, Any]:
        found = vars(self)["module_guest"].get_metrics(is_train=is_train)
        return {name: deepcopy(metric).to(self.device) for name, metric in found.items()}

    def __reduce__(self) -> Any:
        """Copy and pickle the model with its optimizers."""
        guest = vars(self)["module_guest"]
        return ModelGuest, (guest, self._optimizers, self._schedulers, self._counts_steps)
