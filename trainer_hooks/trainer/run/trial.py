"""Trial: a short run inside of another one, after which everything is as it was."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.context import TrainerFn, TrainerStatus
from trainer_hooks.errors import UsageError
from trainer_hooks.runtime import Memento
from trainer_hooks.trainer.run.job import Job, load_data
from trainer_hooks.trainer.run.lifecycle import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trainer_hooks.context import RunContext, Trainer
    from trainer_hooks.loops import EvaluationLoop, FitLoop, PredictionLoop
    from trainer_hooks.module import Module
    from trainer_hooks.trainer.run.session import Session

__all__ = ["run_trial"]


def run_trial(
    begin: Callable[[type[Run], Session, Job], Run],
    session: Session,
    callbacks: Sequence[Callback],
    steps: int,
    *,
    validates: bool,
) -> None:
    """Run a few batches of what a session is about to run, and put everything back.

    Args:
        begin: returns a run of a class, by a trainer like the session's around another session.
        session: whose run it is.
        callbacks: what takes part, besides the module's own hooks.
        steps: windows of training, or batches of each loader of an evaluation.
        validates: whether a fit validates, on as many batches of each loader.

    Raises:
        UsageError: no run is under way, or an epoch is; or there are several processes.
    """
    context, job = session.context, session.job
    if context is None or job is None or session.fn is None:
        raise UsageError(
            "trainer.trial_run() was called outside of a run: there is nothing to try. Call it in "
            "on_fit_start, on_train_epoch_start or the start of an evaluation, or use a Tuner."
        )
    if session.processes.is_several:
        raise UsageError(
            "trainer.trial_run() was called in one of several processes: what a trial finds could "
            "be another thing in each. Find it out in one process, and train with it in all."
        )
    if session.fn == "fit" and context.is_inside_epoch:
        raise UsageError(
            "trainer.trial_run() was called inside an epoch, whose loader cannot be shared. Call "
            "it before the epoch's first batch, as in on_train_epoch_start."
        )
    limits: dict[str, Any] = dict.fromkeys(
        ("limit_val_batches", "limit_test_batches", "limit_predict_batches"), steps
    )
    if job.fn == "fit" and not validates:
        limits["limit_val_batches"] = 0
    plan = replace(
        session.plan, max_epochs=-1, min_epochs=0, max_steps=steps, min_steps=0,
        val_check_interval=1.0, check_val_every_n_epoch=1, num_sanity_val_steps=0,
        iteration_length=None, **limits,
    )  # fmt: skip
    inner = session.for_trial(plan, [*callbacks, _Enough(steps)])
    brief = replace(job, ckpt_path=None, keeps_predictions=False)
    with (
        context.parts.put_back(),
        Memento(context.module, context.datamodule),
        _loaders_kept(context),
    ):
        try:
            loop = begin(_TrialRun, inner, brief).prepare()
            loop.run()
        finally:
            inner.let_go()


@contextmanager
def _loaders_kept(context: RunContext) -> Iterator[None]:
    """Put the run's loaders back to where they were, with their generators."""
    stream = context.data.stream
    opened_by = None if stream is None else stream.state_dict()
    states = {stage: data.generator_states() for stage, data in context.data.evaluation.items()}
    try:
        yield
    finally:
        if stream is not None and opened_by is not None:
            stream.restore_between(opened_by)
        for stage, data in context.data.evaluation.items():
            data.set_generator_states(states[stage])


class _Enough(Callback):
    """Ends a trial after its steps, also where none of them counts as one of the optimizer."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Look whether it is enough."""
        if trainer.progress.batches_stepped >= self._steps:
            trainer.stop("the trial is over")


class _TrialRun(Run):
    """A run of a module that is prepared already, on its device, and is not torn down."""

    def prepare(self) -> FitLoop | EvaluationLoop | PredictionLoop:
        """Make the loaders and optimizers ready and return the loop to run."""
        session, job = self.session, self.job
        module = job.module
        session.state.fn, session.state.status = TrainerFn(job.fn), TrainerStatus.RUNNING
        session.take(job)
        module.attach(self.trainer, session.log_target)
        if job.datamodule is not None:
            job.datamodule.trainer = self.trainer
        session.connector.attach(module)
        context = session.context = self._make_context(module)
        session.connector.relay.on_stop = context.stop_by
        session.connector.relay.on_end_epoch = context.leave_epoch
        load_data(job, context)
        if job.fn == "fit":
            self._configure_optimizers()
            if module.automatic_optimization:
                context.training.optimization.schedulers.clear()
        loop = self._make_loop(context)
        session.state.enter(job.fn)
        return loop
