"""Run prediction: iterate over the loaders and collect the outputs of the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.data.index_recorder import recording_indices
from trainer_hooks.loops.evaluation import EvaluationLoop, evaluation_stage
from trainer_hooks.metrics.store import LogScope

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.data.index_recorder import IndexRecorder


class PredictionLoop(EvaluationLoop):
    """Run prediction once.

    Args:
        context: the run context.
        returns_predictions: whether to collect and return the predictions.
    """

    def __init__(self, context: RunContext, returns_predictions: bool) -> None:
        super().__init__(context, "predict")
        self.returns_predictions = returns_predictions
        self._predictions: list[list[Any]] = [[] for _ in self.data.loaders]
        context.predictions = self._predictions

    def run(self) -> list[Any] | None:  # type: ignore[override]  # predictions, and no metrics
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
        with evaluation_stage(module, "predict", context.plan.inference_mode):
            hooks.on_predict_start(trainer, module)
            hooks.on_epoch_start(trainer, module)
            hooks.on_predict_epoch_start(trainer, module)
            for index in range(len(self.data.loaders)):
                self._run_loader(index)
            hooks.on_predict_epoch_end(trainer, module)
            hooks.on_epoch_end(trainer, module)
            hooks.on_predict_end(trainer, module)
        context.training.metrics.enter(LogScope.CLOSED)
        if not self.returns_predictions:
            return None
        return self._predictions[0] if len(self._predictions) == 1 else self._predictions

    def _open_loader(self, index: int) -> AbstractContextManager[tuple[Any, IndexRecorder | None]]:
        """Return a loader, with a recorder of its sample indices if a callback needs them."""
        if self.context.requests.records_indices:
            return recording_indices(self.data.loaders[index])
        return super()._open_loader(index)

    def _finish_batch(self, index: int, output: Any) -> None:
        """Keep the output, if the caller asked for the predictions."""
        if self.returns_predictions:
            self._predictions[index].append(output)
