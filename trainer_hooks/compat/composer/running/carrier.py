"""Carrier: a ComposerModel as the module that trainer_hooks trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.composer import losses_of, mean_of
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.running.figures import update_metrics
from trainer_hooks.data import samples_in
from trainer_hooks.module import Module

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.compat.composer.running.links import Links

__all__ = ["Carrier"]


class Carrier(Module):
    """Forward and loss are the model's; the default step of trainer_hooks runs them.

    Args:
        model: it.
        links: what it shares with the callbacks' conductor.
    """

    def __init__(self, model: Any, links: Links) -> None:
        super().__init__()
        self.model = model
        self.links = links

    def forward(self, batch: Any) -> Any:
        """Return the model's outputs of the batch that the state has."""
        state = self.links.state
        state.outputs = self.model(state.batch)
        return state.outputs

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """Return what is learned from: the model's loss, or the sum of its losses."""
        state = self.links.state
        loss = self.model.loss(state.outputs, state.batch)
        state.keep_loss(loss)
        total, named = losses_of(loss, type(self.model).__qualname__)
        whole = self.links.losses
        share = 1.0
        if self.links.parts is not None:
            share = samples_in(state.batch) / samples_in(self.links.whole)
        for name, value in {**named, "total": total}.items():
            key = f"loss/train/{name}"
            part = mean_of(value.detach()) * share
            whole[key] = whole[key] + part if key in whole else part
        return total

    def split_batch(self, batch: Any, microbatch_size: int) -> list[Any]:
        """Return the microbatches of the batch that the state has."""
        return self.links.split(microbatch_size)

    def num_samples(self, batch: Any) -> int:
        """Return the samples of a training batch."""
        assert self.links.spec is not None
        return int(self.links.spec.get_num_samples_in_batch(batch))

    def num_tokens(self, batch: Any) -> int:
        """Return the tokens of a training batch."""
        assert self.links.spec is not None
        return int(self.links.spec.get_num_tokens_in_batch(batch))

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Evaluate a batch, in microbatches where the evaluator says so."""
        links, state = self.links, self.links.state
        evaluator = links.evaluator
        if evaluator is None:
            return None
        spec, size = evaluator.dataloader, evaluator.device_eval_microbatch_size
        whole = state.batch
        for part in [whole] if size is None else spec.split_batch(whole, size):
            state.batch = spec.microbatch_transforms(part)
            links.fire(Event.EVAL_BEFORE_FORWARD)
            state.outputs = self.model.eval_forward(state.batch)
            links.fire(Event.EVAL_AFTER_FORWARD)
            metrics = state.eval_metrics.get(evaluator.label, {})
            update_metrics(state, self.model, metrics, state.outputs)
        return state.outputs

    def configure_optimizers(self) -> Any:
        """Return the optimizers and schedulers that the state has."""
        state = self.links.state
        if not state.optimizers:
            return None
        interval = "step" if self.links.steps_each_batch else "epoch"
        schedulers = [{"scheduler": one, "interval": interval} for one in state.schedulers]
        return list(state.optimizers), schedulers

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Step a scheduler; those that count epochs wait for the end of the epoch."""
        if self.links.steps_each_batch:
            scheduler.step()
        else:
            self.links.waiting = True
