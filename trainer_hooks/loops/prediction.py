"""Prediction: run the loaders one after another and collect what the steps return."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from trainer_hooks.data import noting_indices, set_epoch
from trainer_hooks.errors import StopTraining, add_note
from trainer_hooks.loops.evaluation import batches_of, evaluating, place_of
from trainer_hooks.loops.steps import predict_step
from trainer_hooks.metrics import Scope

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from trainer_hooks.context import RunContext
    from trainer_hooks.data import IndexNotes

__all__ = ["PredictionLoop"]


class PredictionLoop:
    """Run prediction once.

    Args:
        context: the run.
        keeps: whether the predictions are returned.
    """

    def __init__(self, context: RunContext, keeps: bool) -> None:
        self.context = context
        self.data = context.data.evaluation["predict"]
        self.keeps = keeps
        self._step = predict_step(context)

    def run(self) -> list[Any] | None:
        """Predict; return the predictions of each batch, in a list a loader if there are several.

        ::

            on_predict_start, on_epoch_start, on_predict_epoch_start
            for each loader, for each batch:
                on_predict_batch_start, predict_step, on_predict_batch_end
            on_predict_epoch_end, on_epoch_end, on_predict_end
        """
        context = self.context
        trainer, module, hooks = context.trainer, context.module, context.hooks
        context.training.metrics.enter(Scope.PREDICTION)
        with evaluating(module, "predict", context.plan.inference_mode):
            hooks.on_predict_start(trainer, module)
            hooks.on_epoch_start(trainer, module)
            hooks.on_predict_epoch_start(trainer, module)
            predictions = [self._run_loader(index) for index in range(len(self.data.loaders))]
            hooks.on_predict_epoch_end(trainer, module)
            hooks.on_epoch_end(trainer, module)
            hooks.on_predict_end(trainer, module)
        context.training.metrics.enter(Scope.CLOSED)
        if not self.keeps:
            return None
        return predictions[0] if len(predictions) == 1 else predictions

    def _run_loader(self, index: int) -> list[Any]:
        context = self.context
        extra = (index,) if len(self.data.loaders) > 1 else ()
        kept: list[Any] = []
        if self._is_cut():
            return kept
        set_epoch(self.data.loaders[index], context.training.progress.epochs_completed)
        try:
            with self._source(index) as (source, notes):
                for batch_idx, batch in enumerate(batches_of(self.data, index, source=source)):
                    if context.asked.pending_signal:
                        context.asked.heed_signal()
                    context.batch.indices = None if notes is None else notes.take()
                    if context.transfer.is_needed:
                        batch = context.transfer(batch, index)
                    output = self._run_batch(batch, batch_idx, extra)
                    if self.keeps:
                        kept.append(output)
                    if self._is_cut():
                        break
        except StopTraining as request:
            context.stop_by(request)
        return kept

    def _source(self, index: int) -> AbstractContextManager[tuple[Any, IndexNotes | None]]:
        """Return what to take a loader's batches from, and what notes their indices if wanted."""
        loader = self.data.loaders[index]
        return (
            noting_indices(loader)
            if self.context.asked.notes_indices
            else nullcontext((loader, None))
        )

    def _run_batch(self, batch: Any, batch_idx: int, extra: tuple[int, ...]) -> Any:
        context = self.context
        trainer, module, hooks = context.trainer, context.module, context.hooks
        output = None
        try:
            hooks.on_predict_batch_start(trainer, module, batch, batch_idx, *extra)
            with context.precision.forward_context():
                output = self._step(batch, batch_idx, *extra)
        except StopTraining as request:
            context.stop_by(request)
        except Exception as error:
            add_note(error, place_of("predict", batch_idx, self.data, extra[0] if extra else 0))
            raise
        hooks.on_predict_batch_end(trainer, module, output, batch, batch_idx, *extra)
        return output

    def _is_cut(self) -> bool:
        """Return whether `StopTraining` was raised in this run."""
        return self.context.asked.stop_requests > 0
