"""ComposerModule: a ComposerModel as the Module that trainer_hooks trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.composer.modules import losses_of, mean_of
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.trainer_events import update_metrics
from trainer_hooks.data.batch_splitting import samples_in
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.compat.composer.trainer_events import TrainerEventSource

__all__ = ["ComposerModule"]


class ComposerModule(Module):
    """Run a ComposerModel's forward and loss in the default steps of trainer_hooks.

    Batches, outputs and losses go through Composer's State, where callbacks may replace them.

    Args:
        model: the ComposerModel.
        source: the event source of the trainer.
    """

    def __init__(self, model: Any, source: TrainerEventSource) -> None:
        super().__init__()
        self.model = model
        self.source = source

    def forward(self, batch: Any) -> Any:
        """Return the model's outputs for the batch on the state."""
        state = self.source.state
        # not `batch`: a callback or a microbatch split may have replaced it on the state
        state.outputs = self.model(state.batch)
        return state.outputs

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """Return the loss to differentiate, the sum of several; keep each for the loggers."""
        source, state = self.source, self.source.state
        model_loss = self.model.loss(state.outputs, state.batch)
        state.keep("loss", model_loss)
        total, named = losses_of(model_loss, type(self.model).__qualname__)
        share = 1.0
        if source.microbatches is not None:  # the mean over the batch, of microbatches of any size
            share = samples_in(state.batch) / samples_in(source.whole_batch)
        logged = source.batch_losses
        for name, value in {**named, "total": total}.items():
            key = f"loss/train/{name}"
            part = mean_of(value.detach()) * share
            logged[key] = logged[key] + part if key in logged else part
        return total

    def split_batch(self, batch: Any, microbatch_size: int) -> list[Any]:
        """Return the microbatches of the batch on the state."""
        return self.source.split(microbatch_size)

    def num_samples(self, batch: Any) -> int:
        """Return the number of samples in a training batch, as its `DataSpec` counts them."""
        assert self.source.spec is not None
        return int(self.source.spec.get_num_samples_in_batch(batch))

    def num_tokens(self, batch: Any) -> int:
        """Return the number of tokens in a training batch, as its `DataSpec` counts them."""
        assert self.source.spec is not None
        return int(self.source.spec.get_num_tokens_in_batch(batch))

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Evaluate the batch on the state, in microbatches if the evaluator has a size for them."""
        source, state = self.source, self.source.state
        evaluator = source.evaluator
        if evaluator is None:  # it is not due
            return None
        spec, size = evaluator.dataloader, evaluator.device_eval_microbatch_size
        microbatches = [state.batch] if size is None else spec.split_batch(state.batch, size)
        for microbatch in microbatches:
            state.batch = spec.microbatch_transforms(microbatch)
            source.engine.run_event(Event.EVAL_BEFORE_FORWARD)
            state.outputs = self.model.eval_forward(state.batch)
            source.engine.run_event(Event.EVAL_AFTER_FORWARD)
            metrics = state.eval_metrics.get(evaluator.label, {})
            update_metrics(state, self.model, metrics, state.outputs)
        return state.outputs

    def configure_optimizers(self) -> Any:
        """Return the optimizers and schedulers on the state."""
        state = self.source.state
        if not state.optimizers:
            return None
        interval = "step" if self.source.steps_schedulers_each_batch else "epoch"
        schedulers = [{"scheduler": one, "interval": interval} for one in state.schedulers]
        return list(state.optimizers), schedulers

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Step a scheduler that counts batches; one that counts epochs waits for `EPOCH_END`."""
        if self.source.steps_schedulers_each_batch:
            scheduler.step()
        else:
            # trainer_hooks steps it before on_train_batches_end, and Composer's metrics come first
            self.source.has_pending_scheduler_step = True
