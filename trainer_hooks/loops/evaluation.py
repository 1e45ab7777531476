"""Run validation and test: iterate over the loaders and reduce the logged metrics."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.data.loaders import (
    no_batch_message,
    number_of_batches,
    set_epoch,
    shortage_message,
)
from trainer_hooks.data.workers import reproducible_iterator
from trainer_hooks.errors import DataError, StopTraining, TrainerHooksWarning, add_note
from trainer_hooks.loops.metric_flush import flush_metrics
from trainer_hooks.loops.module_steps import build_evaluation_step
from trainer_hooks.metrics.scalars import floats
from trainer_hooks.metrics.store import LogScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.context.loaders import EvalLoaders
    from trainer_hooks.hooks.relay import HookRelay
    from trainer_hooks.module.module import Module

    Pick = Callable[[HookRelay], Callable[..., None]]

__all__ = ["EvaluationLoop", "evaluation_mode"]


@dataclass(frozen=True, slots=True)
class _EvaluationHooks:
    """Getters for the hooks of a stage, applied to the relay at the moment a hook is called."""

    start: Pick
    epoch_start: Pick
    batch_start: Pick
    batch_end: Pick
    epoch_end: Pick
    end: Pick

    @classmethod
    def named(cls, name: str) -> _EvaluationHooks:
        """Return the getters for the hooks `on_<name>_start`, `on_<name>_epoch_start` and so on."""
        suffixes = ("start", "epoch_start", "batch_start", "batch_end", "epoch_end", "end")
        return cls(*(attrgetter(f"on_{name}_{suffix}") for suffix in suffixes))


_STAGE_NAMES = {"validate": "validation", "test": "test", "predict": "predict"}
_EVALUATION_HOOKS = {
    "validate": _EvaluationHooks.named("validation"),
    "test": _EvaluationHooks.named("test"),
}


class EvaluationLoop:
    """Run validation or test once.

    Args:
        context: the run context.
        stage: `"validate"` or `"test"`.
        hooks: the relay to call hooks on; by default the relay of the run.
    """

    def __init__(self, context: RunContext, stage: str, hooks: HookRelay | None = None) -> None:
        self.context = context
        self.stage = stage
        self.data = context.data.evaluation[stage]
        self._hooks = context.hooks if hooks is None else hooks
        self._step = build_evaluation_step(context, stage, self._hooks)
        self._getters = _EVALUATION_HOOKS[stage]
        # A stop that was requested before this validation does not cut it short: the weights of the
        # end are validated. Only a StopTraining raised inside does.
        self._stops_before = context.requests.stop_requests if context.state.fn == "fit" else 0

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
        context, get = self.context, self._getters
        trainer, module, hooks, metrics = (
            context.trainer, context.module, self._hooks, context.training.metrics
        )  # fmt: skip
        scope = metrics.scope
        is_in_fit = context.state.fn == "fit"
        metrics.enter(LogScope.CLOSED)
        with evaluation_mode(module, self.stage, context.plan.inference_mode and not is_in_fit):
            # As in Lightning: inside fit, callback metrics change at the end of the validation
            # only.
            metrics.enter(
                LogScope.EVALUATION_EPOCH, is_held=is_in_fit and not self._is_sanity_check
            )
            get.start(hooks)(trainer, module)
            hooks.on_epoch_start(trainer, module)
            get.epoch_start(hooks)(trainer, module)
            for index in range(len(self.data.loaders)):
                if self.data.is_chosen(index):
                    self._run_loader(index, limit)
                    metrics.publish_loader_reductions(index)
            context.batch.loader_label = ""
            metrics.enter(LogScope.EVALUATION_EPOCH)
            metrics.publish_reductions(LogScope.EVALUATION_EPOCH)
            get.epoch_end(hooks)(trainer, module)
            hooks.on_epoch_end(trainer, module)
            metrics.reduce_over_ranks(LogScope.EVALUATION, LogScope.EVALUATION_EPOCH)
            results = self._results()
            reduced = metrics.reduce_and_reset(LogScope.EVALUATION, LogScope.EVALUATION_EPOCH)
            metrics.enter(LogScope.CLOSED)
            if not self._is_sanity_check:
                flush_metrics(context, *reduced)
            get.end(hooks)(trainer, module)
        metrics.enter(scope)
        return results

    def _run_loader(self, index: int, limit: int | None) -> None:
        """Evaluate the batches of one loader, up to `limit`."""
        context = self.context
        extra = (index,) if len(self.data.loaders) > 1 else ()
        evaluator = self.data.evaluators[index] if self.data.evaluators else None
        context.batch.loader_label = evaluator.label if evaluator is not None else ""
        context.training.metrics.enter(
            LogScope.EVALUATION,
            index,
            suffix=self.data.suffix(index),
            keeps=evaluator.keeps if evaluator is not None else None,
        )
        if self._is_stopped():
            return
        set_epoch(self.data.loaders[index], context.training.progress.epochs_completed)
        try:
            processes, module = context.processes, context.module
            batches = evaluation_batches(
                self.data, index, limit, lambda: processes.begin_uneven_forwards(module)
            )
            for batch_idx, batch in enumerate(batches):
                if context.requests.pending_signal:
                    context.requests.raise_pending_signal()
                if context.transfer.is_needed:
                    batch = context.transfer(batch, index)
                self._run_batch(index, batch, batch_idx, extra)
                if self._is_stopped():
                    return
        except StopTraining as request:
            context.stop_by(request)
        finally:
            context.processes.end_uneven_forwards(context.module)

    def _run_batch(self, index: int, batch: Any, batch_idx: int, extra: tuple[int, ...]) -> None:
        """Run the step on one batch, with its hooks, and flush the metrics that are due."""
        context, get, step = self.context, self._getters, self._step
        trainer, module, hooks, metrics = (
            context.trainer, context.module, self._hooks, context.training.metrics
        )  # fmt: skip
        metrics.batch = batch
        output = None
        try:
            get.batch_start(hooks)(trainer, module, batch, batch_idx, *extra)
            with context.precision.forward_context():
                output = step(batch, batch_idx, *extra)
        except StopTraining as request:
            context.stop_by(request)
        except Exception as error:
            add_note(error, describe_batch(self.stage, batch_idx, self.data, index))
            raise
        get.batch_end(hooks)(trainer, module, output, batch, batch_idx, *extra)
        if not self._is_sanity_check:
            position = metrics.count_evaluated(
                f"{metrics.prefix}{context.state.fn}/{self.stage}/{index}"
            )
            flush_metrics(context, *metrics.step_metrics(), step=position)

    @property
    def _is_sanity_check(self) -> bool:
        """Whether this evaluation is the sanity check before training."""
        return self.context.state.stage == "sanity_check"

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


def describe_batch(stage: str, batch_idx: int, data: EvalLoaders, index: int) -> str:
    """Return a phrase for error notes that names the batch, and the loader if there are several."""
    position = f"in {_STAGE_NAMES[stage]} batch {batch_idx}"
    if data.evaluators:
        return f"{position} of evaluator {data.evaluators[index].label!r}"
    return position + (f" of loader {index}" if len(data.loaders) > 1 else "")


def evaluation_batches(
    data: EvalLoaders,
    index: int,
    limit: int | None,
    on_uneven: Callable[[], None],
    iterable: Any = None,
) -> Iterator[Any]:
    """Yield the batches of one loader, up to its limit.

    Args:
        data: the loaders.
        index: index of the loader.
        limit: largest number of batches, or None.
        on_uneven: called once all ranks have had their common number of batches, if some have more.
        iterable: iterated in place of the loader.

    Raises:
        DataError: the loader gave no batch, and batches were expected.
    """
    loader, count = data.loaders[index], data.num_batches[index]
    if limit is not None:
        count = min(count, limit)
    count_taken, common_count = 0, data.shared_batches(index, limit)
    if common_count == 0:
        on_uneven()
    for batch in islice(
        reproducible_iterator(loader if iterable is None else iterable),
        None if count == math.inf else int(count),
    ):
        count_taken += 1
        yield batch
        if count_taken == common_count:
            on_uneven()
    if count_taken == 0 < count:
        raise DataError(no_batch_message(f"evaluation loader {index}", loader))
    if count_taken < count < math.inf and count_taken < number_of_batches(loader) < math.inf:
        warn(shortage_message(loader, "evaluation", count_taken), TrainerHooksWarning)


@contextmanager
def evaluation_mode(module: Module, stage: str, inference: bool) -> Iterator[None]:
    """Put the module into eval mode without gradients; restore each submodule's mode afterwards.

    Args:
        module: the module.
        stage: `"validate"`, `"test"` or `"predict"`.
        inference: whether to use `torch.inference_mode` in place of `torch.no_grad`.
    """
    training_flags = [(submodule, submodule.training) for submodule in module.modules()]
    setters = {
        "validate": (module.on_validation_model_eval, module.on_validation_model_train),
        "test": (module.on_test_model_eval, module.on_test_model_train),
        "predict": (module.on_predict_model_eval, module.on_predict_model_train),
    }
    to_eval, to_train = setters[stage]
    try:
        # Inside fit only no_grad: tensors made in inference mode cannot enter autograd later.
        with torch.inference_mode() if inference else torch.no_grad():
            to_eval()
            yield
    finally:
        for submodule, mode in training_flags:
            # Set directly: Module.train() would recurse and overwrite the modes of frozen
            # submodules.
            submodule.training = mode
        to_train()
