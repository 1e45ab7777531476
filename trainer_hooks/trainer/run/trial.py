"""Trial runs: a short run inside of another one, after which all state is restored."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.callback import Callback
from trainer_hooks.errors import UsageError
from trainer_hooks.runtime.state_backup import StateBackup
from trainer_hooks.trainer.core.run_inputs import RunInputs, load_data
from trainer_hooks.trainer.run.lifecycle import TrainerRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trainer_hooks.context.context import RunContext, Trainer
    from trainer_hooks.loops.evaluation import EvaluationLoop
    from trainer_hooks.loops.fit import FitLoop
    from trainer_hooks.loops.prediction import PredictionLoop
    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.core.trainer_core import TrainerCore


def run_trial(
    begin: Callable[[type[TrainerRun], TrainerCore, RunInputs], TrainerRun],
    core: TrainerCore,
    callbacks: Sequence[Callback],
    steps: int,
    *,
    validates: bool,
) -> None:
    """Run a few batches of the run that is about to begin, and restore everything.

    Args:
        begin: returns a run of a class, by a trainer around another core.
        core: the core of the trainer whose run is tried.
        callbacks: the callbacks of the trial, besides the module's own hooks.
        steps: accumulation windows of training, or batches of each evaluation loader.
        validates: whether a fit validates, on as many batches of each loader.

    Raises:
        UsageError: no run is going on, or an epoch is; or there are several processes.
    """
    context, inputs = core.context, core.inputs
    if context is None or inputs is None or core.fn is None:
        raise UsageError(
            "trainer.trial_run() was called outside of a run: there is nothing to try. Call it in "
            "on_fit_start, on_train_epoch_start or the start of an evaluation, or use a Tuner."
        )
    if core.processes.is_distributed:
        raise UsageError(
            "trainer.trial_run() was called in one of several processes: what a trial finds could "
            "be another thing in each. Find it out in one process, and train with it in all."
        )
    if core.fn == "fit" and context.is_inside_epoch:
        raise UsageError(
            "trainer.trial_run() was called inside an epoch, whose loader cannot be shared. Call "
            "it before the epoch's first batch, as in on_train_epoch_start."
        )
    limits: dict[str, Any] = dict.fromkeys(
        ("limit_val_batches", "limit_test_batches", "limit_predict_batches"), steps
    )
    if inputs.fn == "fit" and not validates:
        limits["limit_val_batches"] = 0
    plan = replace(
        core.plan, max_epochs=-1, min_epochs=0, max_steps=steps, min_steps=0,
        val_check_interval=1.0, check_val_every_n_epoch=1, num_sanity_val_steps=0,
        iteration_length=None, **limits,
    )  # fmt: skip
    inner = core.for_trial(plan, [*callbacks, _Enough(steps)])
    brief = replace(inputs, ckpt_path=None, keeps_predictions=False)
    # registered state, weights and loaders are restored, in reverse order, even after an error
    with (
        context.state_registry.rolled_back(),
        StateBackup(context.module, context.datamodule),
        _loaders_kept(context),
    ):
        try:
            loop = begin(_TrialRun, inner, brief).prepare()
            loop.run()
        finally:
            inner.end_run()


@contextmanager
def _loaders_kept(context: RunContext) -> Iterator[None]:
    """Restore the run's loader positions and generators at the end of the context."""
    stream = context.data.stream
    states = {stage: data.generator_states() for stage, data in context.data.evaluation.items()}
    try:
        with nullcontext() if stream is None else stream.kept():
            yield
    finally:
        for stage, data in context.data.evaluation.items():
            data.set_generator_states(states[stage])


class _Enough(Callback):
    """A callback that stops a trial after its steps, even if no optimizer stepped."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Stop the trial once its steps are done."""
        if trainer.progress.batches_stepped >= self._steps:
            trainer.stop("the trial is over")


class _TrialRun(TrainerRun):
    """A run of a module that is prepared already, on its device, and is not torn down."""

    def prepare(self) -> FitLoop | EvaluationLoop | PredictionLoop:
        """Make the loaders and optimizers, and return the loop."""
        core, inputs = self.core, self.inputs
        module = inputs.module
        core.state.begin(inputs.fn)
        core.begin_run(inputs)
        ours(module).attach(self.trainer, core.log_target)
        if inputs.datamodule is not None:
            inputs.datamodule.trainer = self.trainer
        core.connector.set_module(module)
        context = core.context = self._make_context(module)
        core.connector.relay.begin_run(context.stop_by, context.leave_epoch)
        load_data(inputs, context)
        if inputs.fn == "fit":
            self._configure_optimizers()
            if module.automatic_optimization:
                # a trial may set the learning rate itself, as the search for one does
                context.training.optimization.schedulers.clear()
        return self._make_loop(context)
