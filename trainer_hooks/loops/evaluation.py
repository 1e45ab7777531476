"""Validation and test: run the loaders one after another, reduce what was logged."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.data import iterator_of, no_batch, number_of_batches, set_epoch, shortage
from trainer_hooks.errors import DataError, StopTraining, TrainerHooksWarning, add_note
from trainer_hooks.loops.handover import hand_over
from trainer_hooks.loops.steps import evaluation_step
from trainer_hooks.metrics import Scope, floats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_hooks.context import EvalData, RunContext
    from trainer_hooks.hooks import HookRelay
    from trainer_hooks.module import Module

    Pick = Callable[[HookRelay], Callable[..., None]]

__all__ = ["EvaluationLoop", "evaluating"]


@dataclass(frozen=True, slots=True)
class _Phase:
    """Picks a phase's hooks from the relay at the moment they fire."""

    start: Pick
    epoch_start: Pick
    batch_start: Pick
    batch_end: Pick
    epoch_end: Pick
    end: Pick

    @classmethod
    def named(cls, name: str) -> _Phase:
        moments = ("start", "epoch_start", "batch_start", "batch_end", "epoch_end", "end")
        return cls(*(attrgetter(f"on_{name}_{moment}") for moment in moments))


_NAMES = {"validate": "validation", "test": "test", "predict": "predict"}
_PHASES = {"validate": _Phase.named("validation"), "test": _Phase.named("test")}


class EvaluationLoop:
    """Run validation or test once.

    Args:
        context: the run.
        stage: `"validate"` or `"test"`.
        hooks: who is told of it; everybody who takes part in the run unless given.
    """

    def __init__(self, context: RunContext, stage: str, hooks: HookRelay | None = None) -> None:
        self.context = context
        self.stage = stage
        self.data = context.data.evaluation[stage]
        self._hooks = context.hooks if hooks is None else hooks
        self._step = evaluation_step(context, stage, self._hooks)
        self._phase = _PHASES[stage]
        # a validation that follows a request to stop is run; one that came before or in it is cut
        self._requests = context.asked.stop_requests if context.state.fn == "fit" else 0

    def run(self, limit: int | None = None) -> list[dict[str, float]]:
        """Evaluate; return the reduced metrics of each loader.

        ::

            on_validation_start, on_epoch_start, on_validation_epoch_start
            for each loader, for each batch:
                on_validation_batch_start, validation_step, on_validation_batch_end
            on_validation_epoch_end, on_epoch_end, on_validation_end

        Args:
            limit: at most so many batches of each loader, as for a sanity check.
        """
        context, phase = self.context, self._phase
        trainer, module, hooks, metrics = (
            context.trainer, context.module, self._hooks, context.training.metrics
        )  # fmt: skip
        scope = metrics.scope
        is_in_fit = context.state.fn == "fit"
        metrics.enter(Scope.CLOSED)
        with evaluating(module, self.stage, context.plan.inference_mode and not is_in_fit):
            # as in Lightning, where a training is under way values are read at the end alone
            metrics.enter(Scope.EVALUATION_EPOCH, is_held=is_in_fit and not self._is_sanity_check)
            phase.start(hooks)(trainer, module)
            hooks.on_epoch_start(trainer, module)
            phase.epoch_start(hooks)(trainer, module)
            for index in range(len(self.data.loaders)):
                if self.data.is_chosen(index):
                    self._run_loader(index, limit)
                    metrics.refresh_loader(index)
            context.batch.loader_label = ""
            metrics.enter(Scope.EVALUATION_EPOCH)
            metrics.refresh(Scope.EVALUATION_EPOCH)
            phase.epoch_end(hooks)(trainer, module)
            hooks.on_epoch_end(trainer, module)
            metrics.share(Scope.EVALUATION, Scope.EVALUATION_EPOCH)
            results = self._results()
            reduced = metrics.close_epoch(Scope.EVALUATION, Scope.EVALUATION_EPOCH)
            metrics.enter(Scope.CLOSED)
            if not self._is_sanity_check:
                hand_over(context, *reduced)
            phase.end(hooks)(trainer, module)
        metrics.enter(scope)
        return results

    def _run_loader(self, index: int, limit: int | None) -> None:
        context = self.context
        extra = (index,) if len(self.data.loaders) > 1 else ()
        evaluator = self.data.evaluators[index] if self.data.evaluators else None
        context.batch.loader_label = evaluator.label if evaluator is not None else ""
        context.training.metrics.enter(
            Scope.EVALUATION,
            index,
            suffix=self.data.suffix(index),
            keeps=evaluator.keeps if evaluator is not None else None,
        )
        if self._is_cut():
            return
        set_epoch(self.data.loaders[index], context.training.progress.epochs_completed)
        try:
            for batch_idx, batch in enumerate(batches_of(self.data, index, limit)):
                if context.asked.pending_signal:
                    context.asked.heed_signal()
                if context.transfer.is_needed:
                    batch = context.transfer(batch, index)
                self._run_batch(index, batch, batch_idx, extra)
                if self._is_cut():
                    return
        except StopTraining as request:
            context.stop_by(request)

    def _run_batch(self, index: int, batch: Any, batch_idx: int, extra: tuple[int, ...]) -> None:
        context, phase, step = self.context, self._phase, self._step
        trainer, module, hooks, metrics = (
            context.trainer, context.module, self._hooks, context.training.metrics
        )  # fmt: skip
        metrics.batch = batch
        output = None
        try:
            phase.batch_start(hooks)(trainer, module, batch, batch_idx, *extra)
            with context.precision.forward_context():
                output = step(batch, batch_idx, *extra)
        except StopTraining as request:
            context.stop_by(request)
        except Exception as error:
            add_note(error, place_of(self.stage, batch_idx, self.data, index))
            raise
        phase.batch_end(hooks)(trainer, module, output, batch, batch_idx, *extra)
        if not self._is_sanity_check:
            place = metrics.count_evaluated(
                f"{metrics.prefix}{context.state.fn}/{self.stage}/{index}"
            )
            hand_over(context, *metrics.step_metrics(), step=place)

    @property
    def _is_sanity_check(self) -> bool:
        return self.context.state.stage == "sanity_check"

    def _is_cut(self) -> bool:
        """Return whether `StopTraining` was raised in this evaluation."""
        return self.context.asked.stop_requests > self._requests

    def _results(self) -> list[dict[str, float]]:
        metrics = self.context.training.metrics
        shared = metrics.epoch_values(Scope.EVALUATION_EPOCH)
        return [
            floats({**metrics.epoch_values(Scope.EVALUATION, index), **shared})
            for index in range(len(self.data.loaders))
        ]


def place_of(stage: str, batch_idx: int, data: EvalData, index: int) -> str:
    """Return which batch of an evaluation is in work, in words; the loader where there are more."""
    place = f"in {_NAMES[stage]} batch {batch_idx}"
    if data.evaluators:
        return f"{place} of evaluator {data.evaluators[index].label!r}"
    return place + (f" of loader {index}" if len(data.loaders) > 1 else "")


def batches_of(
    data: EvalData, index: int, limit: int | None = None, source: Any = None
) -> Iterator[Any]:
    """Give the batches of one loader that are to be run.

    Args:
        data: the loaders.
        index: which of them.
        limit: at most so many batches.
        source: what to take them from in the loader's place.

    Raises:
        DataError: there should be some, and there is none.
    """
    loader, count = data.loaders[index], data.num_batches[index]
    if limit is not None:
        count = min(count, limit)
    given = 0
    for batch in islice(
        iterator_of(loader if source is None else source), None if count == math.inf else int(count)
    ):
        given += 1
        yield batch
    if given == 0 < count:
        raise DataError(no_batch(f"evaluation loader {index}", loader))
    if given < count < math.inf and given < number_of_batches(loader) < math.inf:
        warn(shortage(loader, "evaluation", given), TrainerHooksWarning)


@contextmanager
def evaluating(module: Module, stage: str, inference: bool) -> Iterator[None]:
    """Put the module into eval mode without gradients, and every part back as it was."""
    modes = [(part, part.training) for part in module.modules()]
    setters = {
        "validate": (module.on_validation_model_eval, module.on_validation_model_train),
        "test": (module.on_test_model_eval, module.on_test_model_train),
        "predict": (module.on_predict_model_eval, module.on_predict_model_train),
    }
    to_eval, to_train = setters[stage]
    try:
        with torch.inference_mode() if inference else torch.no_grad():
            to_eval()
            yield
    finally:
        for part, mode in modes:
            part.training = mode
        to_train()
