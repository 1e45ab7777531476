"""Extra passes over data that a callback requests inside a fit.

`replay_training_batches` serves `trainer.replay_training_data()`, `validate_again` serves
`trainer.validate_again()`.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from trainer_hooks._names import ours
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.connector.registry import collect_callbacks
from trainer_hooks.context.run_state import RunningStage
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.loops.evaluation import EvaluationLoop
from trainer_hooks.loops.module_steps import has_validation_step
from trainer_hooks.metrics.store import LogScope, MetricStore
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer_hooks.callback import Callback
    from trainer_hooks.context.context import RunContext


def replay_training_batches(context: RunContext) -> int:
    """Run the training step on an epoch of training batches without learning; return their number.

    The batches are those of the last epoch. The module stays in its current mode; gradients and
    hooks are off, and logged values are dropped. So only state that a forward changes is changed,
    such as the statistics of BatchNorm. Random state and the loader's generators are restored.

    Raises:
        UsageError: the module uses manual optimization, or the epoch has no known end.
    """
    module, stream = context.module, context.data.stream
    # for samplers that shuffle by the number of the epoch, such as torch's DistributedSampler
    last_epoch = max(context.training.progress.epochs_completed - 1, 0)
    name = type(module).__qualname__
    if not module.automatic_optimization:
        raise UsageError(
            f"trainer.replay_training_data(): {name} optimizes by itself, so its training_step "
            "cannot be run without learning. Run its forward on the batches instead, as "
            "torch.optim.swa_utils.update_bn does."
        )
    if stream is None or stream.num_batches == math.inf:
        raise UsageError(
            "trainer.replay_training_data(): the training loader has no length, so there is no "
            "telling where an epoch ends. Pass Trainer(limit_train_batches=...) a number."
        )
    scratch_metrics = MetricStore()
    scratch_metrics.enter(LogScope.TRAIN_BATCH)
    has_step = defines(module, "training_step", Module)
    # the step's `self.log` writes into metrics that are dropped
    ours(module).attach(context.trainer, scratch_metrics)
    count = 0
    try:
        with (
            torch.no_grad(),
            context.state_registry.rolled_back("buffers"),
            stream.replayed(last_epoch) as batches,
        ):
            for batch in batches:
                if context.transfer.is_needed:
                    batch = context.transfer(batch)
                scratch_metrics.batch = batch
                with context.precision.forward_context():
                    if has_step:
                        module.training_step(batch, count)
                    else:
                        module(batch)
                count += 1
    finally:
        scratch_metrics.drop(LogScope.TRAIN_BATCH)
        ours(module).attach(context.trainer, context.training.metrics)
    return count


_METHOD = "trainer.validate_again()"


def validate_again(
    context: RunContext | None, prefix: str, callbacks: Callback | Iterable[Callback] | None
) -> list[dict[str, float]]:
    """Run all validation loaders once more, from a hook at the end of an epoch.

    ::

        on_validation_run_start
        as any validation                                  (EvaluationLoop)
        on_validation_run_end

    Only the hooks of the module and of `callbacks` are called. A signal during this validation is
    obeyed: its results are dropped, and a resume from the saved checkpoint calls the hooks of the
    epoch's end again.

    Args:
        context: the run context, or None outside of a run.
        prefix: prefix of the names of logged metrics.
        callbacks: callbacks whose hooks are called, beside the module's.

    Returns:
        The reduced metrics of each loader.

    Raises:
        UsageError: no epoch of a fit is ending, or there is nothing to validate.
        OptionError: the prefix is not a text, or empty.
    """
    context = _require_end_of_epoch(context)
    if not isinstance(prefix, str) or not prefix:
        raise OptionError(
            f"prefix {prefix!r} of {_METHOD}: it must be a text, or the metrics would take the "
            "place of those of the epoch's own validation. Pass one, such as 'ema_'."
        )
    # callbacks of the run are attached to the module already, and stay so
    extra_callbacks = [
        callback
        for callback in collect_callbacks(callbacks)
        if callback not in context.connector.callbacks
    ]
    hooks = context.connector.separate_relay(callbacks)
    # the relay is a new one, which would raise a `StopTraining` of a hook instead
    hooks.begin_run(context.stop_by)
    for callback in extra_callbacks:
        ours(callback).attach_module(context.module)
    try:
        with _keeping_training_state(context), context.training.metrics.prefixed(prefix):
            hooks.on_validation_run_start(context.trainer, context.module)
            results = EvaluationLoop(context, "validate", hooks).run(context.validation.limit)
            hooks.on_validation_run_end(context.trainer, context.module)
    finally:
        hooks.end_run()
        for callback in extra_callbacks:
            ours(callback).attach_module(None)
    return results


def _require_end_of_epoch(context: RunContext | None) -> RunContext:
    """Return the run context if an epoch of a fit is ending and there is data to validate.

    Raises:
        UsageError: `validate_again` is impossible now.
    """
    if (
        context is None
        or context.state.fn != "fit"
        or context.state.stage != "train"
        or context.training.progress.stage is not EpochStage.CLOSING
        # a resume may be at that epoch stage from its set-up on, before the loop has begun
        or not context.training.timekeeper.stopwatch.is_running
    ):
        raise UsageError(
            f"{_METHOD} was called when no epoch of a fit was ending: call it in "
            "on_train_epoch_end or on_epoch_end, trainer.request_validation() elsewhere in fit, "
            "and trainer.validate(...) outside of it."
        )
    if not context.data.evaluation["validate"] or not has_validation_step(context.module):
        raise UsageError(
            f"{_METHOD}: fit has nothing to validate. Pass it val_dataloaders=, define "
            "validation_step, and see that the limits leave a batch."
        )
    return context


@contextmanager
def _keeping_training_state(context: RunContext) -> Iterator[None]:
    """Restore the training's state afterwards, and count the elapsed time as validation.

    Points that the validation adds to the history are kept, unless it fails.
    """
    data, state, stopwatch = (
        context.data.evaluation["validate"], context.state, context.training.timekeeper.stopwatch
    )  # fmt: skip
    training, running_stage = context.training, state.stage
    snapshot, latest_metrics = context.state_registry.snapshot(), training.metrics.latest()
    # a validation that was stopped may have left these set
    data.chosen = context.validation.limit = None
    # a checkpoint that is saved inside must hold the state before this validation
    context.validation.snapshot = snapshot
    # the module may hold other weights now, such as an average, whose buffers differ
    snapshot.pop("buffers")
    state.stage = RunningStage.VALIDATING
    stopwatch.start_evaluating()
    try:
        with context.state_registry.rolled_back():
            yield
    except BaseException:
        training.history.load_state_dict(snapshot["history"])
        training.metrics.evaluated = snapshot["evaluated"]
        training.metrics.set_latest(latest_metrics)
        raise
    finally:
        context.validation.limit = None
        context.batch.loader_label = ""
        context.validation.snapshot = {}
        state.stage = running_stage
        stopwatch.end_evaluating()
