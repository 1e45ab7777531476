"""What a trainer's verbs do to the run under way; `Trainer` says when each may be called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks import module as modules
from trainer_hooks.clock import EpochStage
from trainer_hooks.connector import Entry, adopted, checked
from trainer_hooks.context import present_step
from trainer_hooks.errors import UsageError
from trainer_hooks.trainer import run
from trainer_hooks.trainer.options import check_limit, with_limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.callback import Callback
    from trainer_hooks.clock import Progress
    from trainer_hooks.context import Trainer
    from trainer_hooks.trainer.run import Session

__all__ = [
    "add_callback",
    "counters_of_fit",
    "end_epoch",
    "limit_batches",
    "limit_validation",
    "log_metrics",
    "note_batch_indices",
    "own_step",
    "reload_dataloaders",
    "renew_learning_rates",
    "replay_training_data",
    "request_checkpoint",
    "request_validation",
]


def counters_of_fit(session: Session, verb: str, instead: str) -> Progress:
    """Return the counters of the fit under way, in which requests are kept.

    Raises:
        UsageError: there is none; `instead` is what to call.
    """
    fn = session.fn
    if fn != "fit":
        raise UsageError(
            f"trainer.{verb}() was called {f'in {fn}' if fn else 'outside of a run'}: it is "
            f"for hooks and steps of fit. Call {instead} instead."
        )
    return session.training.progress


def request_validation(session: Session) -> None:
    """Ask for a validation after the batch in work; of several processes, when all know of it."""
    progress = counters_of_fit(session, "request_validation", "trainer.validate(...)")
    context = session.context
    if context is not None and context.processes.is_several:
        context.wishes.wants_validation = True
    else:
        progress.is_validation_requested = True


def request_checkpoint(session: Session) -> None:
    """Ask for a checkpoint at the next slot; of several processes, when all know of it."""
    progress = counters_of_fit(session, "request_checkpoint", "trainer.save_checkpoint(path)")
    context = session.context
    if context is not None and context.processes.is_several:
        context.wishes.wants_checkpoint = True
    else:
        progress.is_checkpoint_requested = True


def end_epoch(session: Session) -> None:
    """Ask for the end of the epoch's batches after the one in work."""
    counters_of_fit(session, "end_epoch", "trainer.stop(reason)")
    if session.context is not None:
        session.context.end_epoch()


def note_batch_indices(session: Session) -> None:
    """Let the prediction under way note its batches' indices."""
    context, fn = session.context, session.fn
    if context is None or fn != "predict":
        raise UsageError(
            f"trainer.note_batch_indices() was called in {fn or 'no run'}: it is for hooks of "
            "predict. Call it in on_predict_start."
        )
    context.asked.notes_indices = True


def reload_dataloaders(session: Session) -> None:
    """Make the loaders of the run under way anew."""
    context, job = session.context, session.job
    if context is None or job is None or session.fn is None:
        raise UsageError(
            "trainer.reload_dataloaders() was called outside of a run: the next run makes its "
            "loaders anew."
        )
    if not job.makes_loaders:
        raise UsageError(
            f"trainer.reload_dataloaders() was called in a {job.fn} whose loaders were passed "
            "to it: only a module or data module can make them anew. Define its dataloader "
            "methods, and pass none."
        )
    if job.fn == "fit" and context.is_inside_epoch:
        raise UsageError(
            "trainer.reload_dataloaders() was called inside an epoch, whose batches come from "
            "the loader that there is. Call it before, as in on_train_epoch_start."
        )
    run.reload_data(job, context)


def renew_learning_rates(session: Session) -> None:
    """Take over the rates that the module's `configure_optimizers` gives now."""
    module, training = session.module, session.training
    if session.fn != "fit" or module is None or not training.is_configured:
        raise UsageError(
            "trainer.renew_learning_rates() was called outside of a fit: the optimizers that "
            "there are belong to the last one. Call it in a hook of fit."
        )
    fresh = modules.parse(module.configure_optimizers(), type(module).__qualname__)
    training.optimization.take_rates(fresh, is_new=training.progress.steps_completed == 0)


def limit_batches(session: Session, number: int, stages: tuple[str, ...]) -> None:
    """Take at most so many batches of each loader in the run that is being set up."""
    context = session.context
    is_set_up = context is not None and context.data.is_loaded and not context.data.load_training
    if context is None or session.fn is None or is_set_up:
        raise UsageError(
            "trainer.limit_batches() was called when no run was being set up: call it in the "
            "hook `setup`, or pass limit_train_batches= and its kin to Trainer(...)."
        )
    context.plan = with_limits(context.plan, number, stages)
    context.data.stream = None  # one that was asked for already is made anew


def limit_validation(session: Session, number: int) -> None:
    """Take at most so many batches of each loader in the validation that is about to run."""
    context = session.context
    if context is None or session.fn != "fit" or session.state.stage != "validate":
        raise UsageError(
            "trainer.limit_validation() was called outside of a validation of fit: call it in "
            "the hook `on_validation_run_start`."
        )
    context.validation.limit = check_limit(number, "trainer.limit_validation")


def replay_training_data(session: Session) -> int:
    """Run the module on an epoch of training batches; return how many there were."""
    from trainer_hooks.loops.replay import replay

    progress = counters_of_fit(session, "replay_training_data", "the module on the batches")
    context = session.context
    if context is None or progress.stage is not EpochStage.BETWEEN:
        raise UsageError(
            "trainer.replay_training_data() was called inside an epoch: it would take the "
            "loader away from it. Call it in on_train_start or on_train_end."
        )
    return replay(context)


def own_step(session: Session, batch: Any, method: str) -> Any:
    """Run the module's own step, for a method of the trainer that stands in its place."""
    context = session.context
    if context is None or context.steps.own is None:
        raise UsageError(
            f"trainer.{method}() was called with no batch in work: it is called for each batch "
            "of a run. Override it, and call it with super() there."
        )
    return context.steps.own(batch)


def add_callback(session: Session, callback: Callback) -> None:
    """Register one more callback."""
    callback = checked(callback, "callback")
    if session.occupation.is_running:
        session.occupation.take([Entry(callback, "user")])
    session.connector.add(callback)
    if session.fn is not None:
        callback.attach_module(session.module)


def remove_callback(session: Session, callback: Callback) -> None:
    """Take a callback out."""
    callback = adopted(callback)
    session.connector.remove(callback)
    callback.attach_module(None)


def log_metrics(
    session: Session,
    trainer: Trainer,
    metrics: Mapping[str, float],
    step: int | None,
    epoch: int | None,
) -> None:
    """Hand metrics to every logger and to the history, and fire `on_log`."""
    values = dict(metrics)
    own_step = values.pop("step", None) if step is None else None
    session.training.metrics.note_logged(values)
    if own_step is not None:
        step = int(own_step)
    elif epoch is not None:
        values.setdefault("epoch", epoch)
    if step is None:
        step = present_step(session.fn, session.training.progress)
    session.training.history.record(metrics, step)
    for logger in session.loggers:
        logger.log_metrics(values, step)
    session.connector.relay.on_log(trainer, session.module, values, step)  # type: ignore[arg-type]
