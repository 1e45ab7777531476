"""Run prediction: iterate over the loaders and collect the outputs of the steps."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from trainer_hooks.data.index_recorder import recording_indices
from trainer_hooks.data.loaders import set_epoch
from trainer_hooks.errors import StopTraining, add_note
from trainer_hooks.loops.evaluation import describe_batch, evaluation_batches, evaluation_mode
from trainer_hooks.loops.module_steps import build_predict_step
from trainer_hooks.metrics.store import LogScope

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.data.index_recorder import IndexRecorder

__all__ = ["PredictionLoop"]


class PredictionLoop:
    """Run prediction once.

    Args:
        context: the run context.
        returns_predictions: whether to collect and return the predictions.
    """

    def __init__(self, context: RunContext, returns_predictions: bool) -> None:
        self.context = context
        self.data = context.data.evaluation["predict"]
        self.returns_predictions = returns_predictions
        self._step = build_predict_step(context)

    def run(self) -> list[Any] | None:
        """Predict and return the predictions of each batch, in one list per loader of several.

        ::

            on_predict_start, on_epoch_start, on_predict_epoch_start
            for each loader, for each batch:
                on_predict_batch_start, predict_step, on_predict_batch_end
            on_predict_epoch_end, on_epoch_end, on_predict_end
        """
        context = self.context
        trainer, module, hooks = context.trainer, context.module, context.hooks
        context.training.metrics.enter(LogScope.PREDICTION)
        with evaluation_mode(module, "predict", context.plan.inference_mode):
            hooks.on_predict_start(trainer, module)
            hooks.on_epoch_start(trainer, module)
            hooks.on_predict_epoch_start(trainer, module)
            predictions = [self._run_loader(index) for index in range(len(self.data.loaders))]
            hooks.on_predict_epoch_end(trainer, module)
            hooks.on_epoch_end(trainer, module)
            hooks.on_predict_end(trainer, module)
        context.training.metrics.enter(LogScope.CLOSED)
        if not self.returns_predictions:
            return None
        return predictions[0] if len(predictions) == 1 else predictions

    def _run_loader(self, index: int) -> list[Any]:
        """Predict the batches of one loader and return their predictions."""
        context = self.context
        extra = (index,) if len(self.data.loaders) > 1 else ()
        predictions: list[Any] = []
        if self._is_stopped():
            return predictions
        set_epoch(self.data.loaders[index], context.training.progress.epochs_completed)
        try:
            with self._iterable_of(index) as (iterable, recorder):
                processes, module = context.processes, context.module
                batches = evaluation_batches(
                    self.data,
                    index,
                    None,
                    lambda: processes.begin_uneven_forwards(module),
                    iterable,
                )
                for batch_idx, batch in enumerate(batches):
                    if context.requests.pending_signal:
                        context.requests.raise_pending_signal()
                    context.batch.indices = None if recorder is None else recorder.take()
                    if context.transfer.is_needed:
                        batch = context.transfer(batch, index)
                    output = self._run_batch(batch, batch_idx, extra)
                    if self.returns_predictions:
                        predictions.append(output)
                    if self._is_stopped():
                        break
        except StopTraining as request:
            context.stop_by(request)
        finally:
            context.processes.end_uneven_forwards(context.module)
        return predictions

    def _iterable_of(self, index: int) -> AbstractContextManager[tuple[Any, IndexRecorder | None]]:
        """Return a loader, with a recorder of its sample indices if a callback needs them."""
        loader = self.data.loaders[index]
        return (
            recording_indices(loader)
            if self.context.requests.records_indices
            else nullcontext((loader, None))
        )

    def _run_batch(self, batch: Any, batch_idx: int, extra: tuple[int, ...]) -> Any:
        """Run the step on one batch, with its hooks, and return its output."""
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
            add_note(
                error, describe_batch("predict", batch_idx, self.data, extra[0] if extra else 0)
            )
            raise
        hooks.on_predict_batch_end(trainer, module, output, batch, batch_idx, *extra)
        return output

    def _is_stopped(self) -> bool:
        """Return whether `StopTraining` was raised in this run."""
        return self.context.requests.stop_requests > 0
