"""A validation more at the end of an epoch, whose metrics have names of their own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainer_hooks.clock import EpochStage
from trainer_hooks.connector import collect
from trainer_hooks.context import RunningStage
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.loops.evaluation import EvaluationLoop
from trainer_hooks.loops.steps import has_evaluation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer_hooks.callback import Callback
    from trainer_hooks.context import RunContext

__all__ = ["validate_again"]

_VERB = "trainer.validate_again()"


def validate_again(
    context: RunContext | None, prefix: str, callbacks: Callback | Iterable[Callback] | None
) -> list[dict[str, float]]:
    """Run all validation loaders inside a hook at the end of an epoch.

    ::

        on_validation_run_start
        as any validation                                  (EvaluationLoop)
        on_validation_run_end

    Only the module and `callbacks` are told. A signal that comes in it is heeded: nothing of it
    is kept, and a resume from what is saved then fires the hooks of the epoch's end again.

    Args:
        context: the run.
        prefix: what is put before the names of what is logged.
        callbacks: who is told beside the module.

    Returns:
        The reduced metrics of each loader.

    Raises:
        UsageError: this is not the end of an epoch of fit, or there is nothing to validate.
        OptionError: the prefix is no text.
    """
    context = _checked(context)
    if not isinstance(prefix, str) or not prefix:
        raise OptionError(
            f"prefix {prefix!r} of {_VERB}: it must be a text, or the metrics would take the place "
            "of those of the epoch's own validation. Pass one, such as 'ema_'."
        )
    others = [one for one in collect(callbacks) if one not in context.connector.callbacks]
    hooks = context.connector.relay_beside(callbacks)
    hooks.on_stop = context.stop_by
    for callback in others:
        callback.attach_module(context.module)
    try:
        with _traceless(context), context.training.metrics.prefixed(prefix):
            hooks.on_validation_run_start(context.trainer, context.module)
            results = EvaluationLoop(context, "validate", hooks).run(context.validation.limit)
            hooks.on_validation_run_end(context.trainer, context.module)
    finally:
        for callback in others:
            callback.attach_module(None)
    return results


def _checked(context: RunContext | None) -> RunContext:
    """Return the run if it can be validated in now.

    Raises:
        UsageError: it cannot.
    """
    if (
        context is None
        or context.state.fn != "fit"
        or context.state.stage != "train"
        or context.training.progress.stage is not EpochStage.CLOSING
    ):
        raise UsageError(
            f"{_VERB} was called when no epoch of a fit was ending: call it in on_train_epoch_end "
            "or on_epoch_end, trainer.request_validation() elsewhere in fit, and "
            "trainer.validate(...) outside of it."
        )
    if not context.data.evaluation["validate"] or not has_evaluation(context.module, "validate"):
        raise UsageError(
            f"{_VERB}: fit has nothing to validate. Pass it val_dataloaders=, define "
            "validation_step, and see that the limits leave a batch."
        )
    return context


@contextmanager
def _traceless(context: RunContext) -> Iterator[None]:
    """Count the time as that of validation, and leave what a training goes by as it was.

    What a validation adds to the history stays, unless it is broken off.
    """
    data, state, stopwatch = (
        context.data.evaluation["validate"], context.state, context.training.timekeeper.stopwatch
    )  # fmt: skip
    training, stage = context.training, state.stage
    before, latest = context.parts.put_aside(), training.metrics.latest()
    # what a stop left of the validation before
    data.chosen = context.validation.limit = None
    # a checkpoint that is saved inside is one of the moment before
    context.validation.aside = before
    before.pop("buffers")  # other weights may be in the module, as an average is
    state.stage = RunningStage.VALIDATING
    stopwatch.start_evaluating()
    try:
        with context.parts.put_back():
            yield
    except BaseException:
        training.history.load_state_dict(before["history"])
        training.metrics.evaluated = before["evaluated"]
        training.metrics.set_latest(latest)
        raise
    finally:
        context.validation.limit = None
        context.batch.loader_label = ""
        context.validation.aside = {}
        state.stage = stage
        stopwatch.end_evaluating()
