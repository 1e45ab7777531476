"""Run validation and test: iterate over the loaders and reduce the logged metrics."""

from __future__ import annotations

import math
from contextlib import contextmanager, nullcontext
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks._names import names_left_to_user
from trainer_hooks.data.loaders import (
    no_batch_message,
    number_of_batches,
    set_epoch,
    shortage_message,
)
from trainer_hooks.data.workers import reproducible_iterator, spawn_advice
from trainer_hooks.errors import DataError, StopTraining, TrainerHooksWarning, add_note
from trainer_hooks.loops.metric_flush import flush_metrics
from trainer_hooks.loops.module_steps import build_evaluation_step
from trainer_hooks.metrics.scalars import floats
from trainer_hooks.metrics.store import LogScope
from trainer_hooks.runtime.modes import restored_modes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.data.index_recorder import IndexRecorder
    from trainer_hooks.hooks.relay import HookRelay
    from trainer_hooks.module.module import Module

_END = object()
"""Stands for the batch after the last."""

_STAGE_NAMES = {"validate": "validation", "test": "test", "predict": "predict"}
_SUFFIXES = ("start", "epoch_start", "batch_start", "batch_end", "epoch_end", "end")
_HOOKS = {
    # getters, which are applied to the relay when a hook is called: its functions may be replaced
    stage: {suffix: attrgetter(f"on_{name}_{suffix}") for suffix in _SUFFIXES}
    for stage, name in _STAGE_NAMES.items()
}
"""Getters for the hooks of a stage, such as `on_test_start`."""


class EvaluationLoop:
    """Run validation or test once; `PredictionLoop` derives from it.

    Args:
        context: the run context.
        stage: `"validate"`, `"test"` or `"predict"`.
        hooks: the relay to call hooks on; by default the relay of the run.
    """

    def __init__(self, context: RunContext, stage: str, hooks: HookRelay | None = None) -> None:
        self.context = context
        self.stage = stage
        self.data = context.data.evaluation[stage]
        self._hooks = context.hooks if hooks is None else hooks
        self._step = self._make_step()
        self._recorder: IndexRecorder | None = None
        self._getters = _HOOKS[stage]
        # the loop of the sanity check is made after the fit has entered that stage
        self._is_sanity_check = context.state.stage == "sanity_check"
        # a stop that was requested before this validation does not cut it short: the weights of the
        # end are validated. Only a StopTraining raised inside does
        self._stops_before = context.requests.stop_requests if context.state.fn == "fit" else 0

    def _make_step(self) -> Callable[..., Any]:
        """Return the function that runs one batch."""
        return build_evaluation_step(self.context, self.stage, self._hooks)

    def run(self, limit: int | None = None) -> list[dict[str, float]]:
        """Evaluate and return the reduced metrics of each loader.

        ::

            on_validation_start, on_epoch_start, on_validation_epoch_start
            for each loader, for each batch:
                on_validation_batch_start, validation_step, on_validation_batch_end
            on_validation_epoch_end, on_epoch_end, on_validation_end

        Args:
            limit: largest number of batches of each loader, as for a sanity check.
        """
        metrics = self.context.training.metrics
        with self.open():
            self.begin()
            for index in range(len(self.data.loaders)):
                if self.data.is_chosen(index):
                    self._enter_loader(index)
                    self._run_loader(index, limit)
                    metrics.publish_loader_reductions(index)
            return self.end()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Put the module into eval mode, and let metrics return to their scope afterwards."""
        context, metrics = self.context, self.context.training.metrics
        # a validation may run in the middle of a training epoch, whose scope goes on afterwards
        scope = metrics.scope
        is_in_fit = context.state.fn == "fit"
        metrics.enter(LogScope.CLOSED)
        with evaluation_stage(
            context.module, self.stage, context.plan.inference_mode and not is_in_fit
        ):
            yield
        metrics.enter(scope)

    def begin(self) -> None:
        """Call the start hooks."""
        context, get = self.context, self._getters
        trainer, module, hooks = context.trainer, context.module, self._hooks
        # as in Lightning: inside fit, callback metrics change at the end of the validation only
        context.training.metrics.enter(
            LogScope.EVALUATION_EPOCH,
            is_held=context.state.fn == "fit" and not self._is_sanity_check,
        )
        get["start"](hooks)(trainer, module)
        hooks.on_epoch_start(trainer, module)
        get["epoch_start"](hooks)(trainer, module)

    def end(self) -> list[dict[str, float]]:
        """Call the end hooks, reduce the metrics, and return them for each loader."""
        context, get = self.context, self._getters
        trainer, module, hooks, metrics = (
            context.trainer, context.module, self._hooks, context.training.metrics
        )  # fmt: skip
        context.batch.loader_label = ""
        metrics.enter(LogScope.EVALUATION_EPOCH)
        metrics.publish_reductions(LogScope.EVALUATION_EPOCH)
        get["epoch_end"](hooks)(trainer, module)
        hooks.on_epoch_end(trainer, module)
        metrics.reduce_over_ranks(LogScope.EVALUATION, LogScope.EVALUATION_EPOCH)
        results = self._results()
        reduced = metrics.reduce_and_reset(LogScope.EVALUATION, LogScope.EVALUATION_EPOCH)
        metrics.enter(LogScope.CLOSED)
        if not self._is_sanity_check:
            flush_metrics(context, *reduced)
        get["end"](hooks)(trainer, module)
        return results

    def _enter_loader(self, index: int) -> None:
        """Let the metrics that are logged from here on count for one loader."""
        context = self.context
        evaluator = self.data.evaluators[index] if self.data.evaluators else None
        context.batch.loader_label = evaluator.label if evaluator is not None else ""
        context.training.metrics.enter(
            LogScope.EVALUATION,
            index,
            suffix=self.data.suffix(index),
            keeps=evaluator.keeps if evaluator is not None else None,
        )

    def _run_loader(self, index: int, limit: int | None = None) -> None:
        """Run the batches of one loader, up to `limit`."""
        extra = (index,) if len(self.data.loaders) > 1 else ()
        if self._is_stopped():
            return
        with self._reading(index, limit) as batches:
            for batch_idx, batch in batches:
                self._run_batch(index, self._receive(batch, index), batch_idx, extra)
                if self._is_stopped():
                    return

    @contextmanager
    def _reading(self, index: int, limit: int | None) -> Iterator[Iterator[tuple[int, Any]]]:
        """Open one loader; a `StopTraining` ends the `with` block in order.

        Returns:
            A context with the batches and their indices, up to `limit`.
        """
        context = self.context
        set_epoch(self.data.loaders[index], context.training.progress.epochs_completed)
        try:
            with self._open_loader(index) as (iterable, self._recorder):
                yield enumerate(self._batches(iterable, index, limit))
        except StopTraining as request:
            context.stop_by(request)
        # also after an error: gathered weights would take the memory of the whole model
        finally:
            context.processes.end_uneven_forwards(context.module)

    def _receive(self, batch: Any, index: int) -> Any:
        """Act on a signal, note the batch's sample indices, and return it on the device."""
        context = self.context
        if context.requests.pending_signal:
            context.requests.raise_pending_signal()
        if self._recorder is not None:
            context.batch.indices = self._recorder.take()
        return context.transfer(batch, index) if context.transfer.is_needed else batch

    def _open_loader(self, index: int) -> AbstractContextManager[tuple[Any, IndexRecorder | None]]:
        """Return a context with a loader to iterate, and a recorder of its sample indices."""
        return nullcontext((self.data.loaders[index], None))

    def _batches(self, iterable: Any, index: int, limit: int | None) -> Iterator[Any]:
        """Yield the batches of one loader, up to its limit.

        Args:
            iterable: the loader, or another iterable of its batches.
            index: index of the loader.
            limit: largest number of batches, or None.

        Raises:
            DataError: the loader gave no batch, and batches were expected.
        """
        data, processes, module = self.data, self.context.processes, self.context.module
        loader, count = data.loaders[index], data.num_batches[index]
        if limit is not None:
            count = min(count, limit)
        count_taken, common_count = 0, data.shared_batches(index, limit)
        # past their common number of batches the ranks must not wait for each other's weights
        if common_count == 0:
            processes.begin_uneven_forwards(module)
        batches = islice(reproducible_iterator(iterable), None if count == math.inf else int(count))
        while (batch := self._load_batch(batches, count_taken, index)) is not _END:
            count_taken += 1
            yield batch
            if count_taken == common_count:
                processes.begin_uneven_forwards(module)
        if count_taken == 0 < count:
            raise DataError(no_batch_message(f"evaluation loader {index}", loader))
        if count_taken < count < math.inf and count_taken < number_of_batches(loader) < math.inf:
            warn(shortage_message(loader, "evaluation", count_taken), TrainerHooksWarning)

    def _load_batch(self, batches: Iterator[Any], batch_idx: int, index: int) -> Any:
        """Return the next batch of a loader, or `_END`."""
        try:
            return next(batches, _END)
        except StopTraining:
            raise
        except Exception as error:
            add_note(error, f"{self._describe_batch(batch_idx, index)}, while it was loaded")
            if advice := spawn_advice(error):
                add_note(error, advice)
            raise

    def _run_batch(self, index: int, batch: Any, batch_idx: int, extra: tuple[int, ...]) -> None:
        """Run the step on one batch, with its hooks, and use its output."""
        # what the end hook gets if the start hook or the step asked to stop
        output = None
        try:
            self._begin_batch(batch, batch_idx, extra)
            with self.context.precision.forward_context():
                output = self._step(batch, batch_idx, *extra)
        except StopTraining as request:
            self.context.stop_by(request)
        except Exception as error:
            add_note(error, self._describe_batch(batch_idx, index))
            raise
        self._end_batch(index, output, batch, batch_idx, extra)

    def _begin_batch(self, batch: Any, batch_idx: int, extra: tuple[int, ...]) -> None:
        """Let logged values count for a batch, and call its start hook."""
        context = self.context
        context.training.metrics.batch = batch
        self._getters["batch_start"](self._hooks)(
            context.trainer, context.module, batch, batch_idx, *extra
        )

    def _end_batch(
        self, index: int, output: Any, batch: Any, batch_idx: int, extra: tuple[int, ...]
    ) -> None:
        """Call the end hook of a batch, and use its output."""
        context = self.context
        self._getters["batch_end"](self._hooks)(
            context.trainer, context.module, output, batch, batch_idx, *extra
        )
        self._finish_batch(index, output)

    def _finish_batch(self, index: int, output: Any) -> None:  # noqa: ARG002 - for predictions
        """Flush the metrics that are due."""
        context, metrics = self.context, self.context.training.metrics
        if not self._is_sanity_check:
            position = metrics.count_evaluated(
                f"{metrics.prefix}{context.state.fn}/{self.stage}/{index}"
            )
            flush_metrics(context, *metrics.step_metrics(), step=position)

    def _is_stopped(self) -> bool:
        """Return whether `StopTraining` was raised in this evaluation."""
        return self.context.requests.stop_requests > self._stops_before

    def _results(self) -> list[dict[str, float]]:
        """Return the reduced metrics of each loader as floats."""
        metrics = self.context.training.metrics
        common_values = metrics.epoch_values(LogScope.EVALUATION_EPOCH)
        return [
            floats({**metrics.epoch_values(LogScope.EVALUATION, index), **common_values})
            for index in range(len(self.data.loaders))
        ]

    def _describe_batch(self, batch_idx: int, index: int) -> str:
        """Return a phrase for error notes that names the batch, and the loader of several."""
        position, data = f"{_STAGE_NAMES[self.stage]} batch {batch_idx}", self.data
        position = f"in the sanity check, {position}" if self._is_sanity_check else f"in {position}"
        if data.evaluators:
            return f"{position} of evaluator {data.evaluators[index].label!r}"
        return position + (f" of loader {index}" if len(data.loaders) > 1 else "")


@contextmanager
def evaluation_stage(module: Module, stage: str, inference: bool) -> Iterator[None]:
    """Put the module into eval mode without gradients; restore each submodule's mode afterwards.

    Args:
        module: the module.
        stage: `"validate"`, `"test"` or `"predict"`.
        inference: whether to use `torch.inference_mode` in place of `torch.no_grad`.
    """
    hook = f"on_{_STAGE_NAMES[stage]}_model"
    try:
        # inside fit only no_grad: tensors made in inference mode cannot enter autograd later
        with restored_modes(module), torch.inference_mode() if inference else torch.no_grad():
            getattr(module, f"{hook}_eval")()
            yield
    finally:
        # the name of one of the three is not Lightning's, and may be the user's own there
        if f"{hook}_train" not in names_left_to_user(type(module)):
            getattr(module, f"{hook}_train")()
