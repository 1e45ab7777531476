"""A validation whose batches the user's own loop goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

from trainer_hooks.context.loaders import EvalLoaders
from trainer_hooks.errors import StopTraining, UsageError
from trainer_hooks.loops.evaluation import EvaluationLoop
from trainer_hooks.loops.validation import FitValidation
from trainer_hooks.metrics.scalars import floats
from trainer_hooks.metrics.store import LogScope
from trainer_hooks.runtime.precision import OpenForward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.hooks.relay import HookRelay
    from trainer_hooks.loops.loop_position import LoopPosition


class HandedOverLoaders(EvalLoaders):
    """The loaders of a validation whose generators `LoopPosition` keeps, by the loaders' places."""

    def generator_states(self) -> dict[str, Any]:
        """Return no state: the loaders are handed over anew in each validation."""
        return {}


class OwnValidation(FitValidation):
    """The beginning and the end of the validations that the user's loop runs when it likes."""

    def _check_step(self) -> None:
        """Do nothing: the step is the user's lines."""

    def after_batch(self) -> None:
        """Do nothing: the user's loop asks `run.wants_validation`."""

    def after_batches(self, *, is_complete: bool) -> None:  # noqa: ARG002
        """Drop a request that the user's loop did not ask for."""
        self._context.training.progress.is_validation_requested = False

    def end(self) -> None:
        """Leave a validation, which serves a request for one."""
        super().end()
        self._context.training.progress.is_validation_requested = False


class OwnEvaluation(EvaluationLoop):
    """One validation, whose loaders are handed over one after another.

    Args:
        context: the run context.
        load: returns the loaders of a loader that is handed over.
        position: keeps the loaders, whose generators checkpoints hold.
        name: the name of the validation; its metrics have it as a suffix.
        num_dataloaders: number of loaders that are handed over.
        hooks: the relay; by default that of the run.

    Attributes:
        name: the name of the validation.
        has_effect: whether hooks are called and metrics count.
        output: what the end hook of the open batch gets as its outputs.
    """

    def __init__(
        self,
        context: RunContext,
        load: Callable[[Any], EvalLoaders],
        position: LoopPosition,
        name: str,
        num_dataloaders: int,
        hooks: HookRelay | None,
    ) -> None:
        super().__init__(context, "validate", hooks)
        self.name = name
        self.has_effect = hooks is None
        self.output: Any = None
        self._load = load
        self._position = position
        self._num_dataloaders = num_dataloaders
        self._metrics: dict[str, float] = {}
        self._open_batch: tuple[int, Any, int] | None = None
        self._open_loader_index: int | None = None
        self._iterator: Iterator[Any] | None = None
        self._mode = self.open()
        self._forward = OpenForward(context.precision)

    def _make_step(self) -> Callable[..., Any]:
        """Return a step that does nothing: it is the user's lines."""
        return lambda *_: None

    def enter(self) -> dict[str, float]:
        """Call the start hooks; return the dict that holds the metrics when it is over."""
        self._mode.__enter__()
        try:
            self.begin()
        except BaseException as error:
            self._mode.__exit__(type(error), error, error.__traceback__)
            raise
        return self._metrics

    def batches(self, loader: Any) -> Iterator[Any]:
        """Yield the batches of a loader, with the hooks around each.

        Raises:
            UsageError: there is no loader, or one more than was announced.
        """
        self._close_loader()
        index = len(self.data.loaders)
        if loader is None:
            raise UsageError(
                "run.batches() was given no loader in a validation: write run.batches(loader)."
            )
        if index >= self._num_dataloaders:
            raise UsageError(
                f"run.batches(loader) was given loader {index + 1} of a validation that was opened "
                f"for {self._num_dataloaders}, so that its metrics would have the names of the "
                f"first: write run.validation(num_dataloaders={index + 1}), or a validation of its "
                "own for each, with a name."
            )
        self._add_loader(loader, index)
        self._iterator = self._evaluate(index)
        return self._iterator

    def leave(self, error: BaseException | None) -> None:
        """Call the end hooks and reduce the metrics; after an error only leave eval mode."""
        try:
            if error is None:
                self._close_loader()
                for metrics in self.end():
                    self._metrics.update(metrics)
            else:
                self._forward.leave()
                self._close_iterator()
        except BaseException as new:
            self._mode.__exit__(type(new), new, new.__traceback__)
            raise
        # an error is raised by the user's `with`; the mode is left as without one
        self._mode.__exit__(None, None, None)

    def _evaluate(self, index: int) -> Iterator[Any]:
        extra = (index,) if self._num_dataloaders > 1 else ()
        with self._reading(index, self.context.validation.limit) as batches:
            for batch_idx, taken in batches:
                batch = self._receive(taken, index)
                self._open_batch = (index, batch, batch_idx)
                try:
                    self._begin_batch(batch, batch_idx, extra)
                except StopTraining as request:
                    self.context.stop_by(request)
                else:
                    self._forward.enter()
                    yield batch
                self._close_batch()
                if self._is_stopped():
                    break
        self._end_loader()

    def _add_loader(self, loader: Any, index: int) -> None:
        """Take a loader, and let the values that are logged from here on count for it."""
        data, made = self.data, self._load(loader)
        self._position.take_loader(f"{self.name}/{index}", made.loaders[0])
        data.loaders.append(made.loaders[0])
        data.num_batches[index] = made.num_batches[0]
        data.most += made.most
        data.fewest += made.fewest
        data.given = data.loaders
        self._open_loader_index = index
        self.context.batch.loader_label = self.name
        self.context.training.metrics.enter(
            LogScope.EVALUATION, self._place(index), suffix=self._suffix(index)
        )

    def _close_batch(self) -> None:
        """Call the end hook of the open batch, if there is one."""
        self._forward.leave()
        batch, self._open_batch = self._open_batch, None
        if batch is not None:
            index, content, batch_idx = batch
            extra = (index,) if self._num_dataloaders > 1 else ()
            output, self.output = self.output, None
            self._end_batch(self._place(index), output, content, batch_idx, extra)

    def _close_loader(self) -> None:
        """Close the loader in whose batches the user's `for` was left, if it was."""
        self._close_batch()
        self._close_iterator()
        self._end_loader()

    def _end_loader(self) -> None:
        """Publish the metrics of the loader that is done."""
        index, self._open_loader_index = self._open_loader_index, None
        if index is not None:
            metrics = self.context.training.metrics
            metrics.publish_loader_reductions(self._place(index))
            # values that are logged after the batches stand beside those of the batches
            metrics.enter(LogScope.EVALUATION_EPOCH, self._place(0), suffix=self._suffix(None))

    def _close_iterator(self) -> None:
        iterator, self._iterator = self._iterator, None
        if iterator is not None:
            iterator.close()  # type: ignore[attr-defined]

    def _results(self) -> list[dict[str, float]]:
        """Return the reduced metrics of each loader as floats."""
        metrics = self.context.training.metrics
        common_values = {
            **metrics.epoch_values(LogScope.EVALUATION_EPOCH),
            **metrics.epoch_values(LogScope.EVALUATION_EPOCH, self._place(0)),
        }
        return [
            floats(
                {**metrics.epoch_values(LogScope.EVALUATION, self._place(index)), **common_values}
            )
            for index in range(max(1, len(self.data.loaders)))
        ]

    def _suffix(self, index: int | None) -> str:
        """Return the suffix of metrics, of one loader or of the whole validation."""
        name = f"/{self.name}" if self.name else ""
        is_of_many = index is not None and self._num_dataloaders > 1
        return f"{name}/dataloader_idx_{index}" if is_of_many else name

    def _place(self, index: int) -> int:
        """Return the number under which a loader's metrics are kept, its own for each name."""
        return index + (crc32(self.name.encode()) << 8 if self.name else 0)
