"""Lifecycle: prepare a run of fit, validate, test or predict, and end it, whatever happened."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks import loops
from trainer_hooks.context import OverriddenSteps, RunContext, TrainerFn, TrainerStatus
from trainer_hooks.data import BatchTransfer, defines
from trainer_hooks.errors import StopTraining, TerminationSignal, add_note
from trainer_hooks.hooks import call_noting, describe_error
from trainer_hooks.metrics import Scope
from trainer_hooks.module import (
    DataModule,
    Module,
    outside_of_graphs,
    parse,
    setup_of,
    warn_of_foreign,
)
from trainer_hooks.trainer.run import folders
from trainer_hooks.trainer.run.advice import advise, advise_on_shuffling
from trainer_hooks.trainer.run.backends import set_backends
from trainer_hooks.trainer.run.job import Job, check_kinds, load_data, load_training
from trainer_hooks.trainer.run.leaving_out import leave_to_first
from trainer_hooks.trainer.run.modes import modes_of
from trainer_hooks.trainer.run.parts import moving_parts
from trainer_hooks.trainer.run.profiling import begin_run, report_run
from trainer_hooks.trainer.run.signals import heeding_signals, shorten_traceback
from trainer_hooks.trainer.run.starting_point import StartingPoint
from trainer_hooks.trainer.run.telling import tell_end, warn_of_nothing_to_do

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from trainer_hooks.context import Trainer
    from trainer_hooks.trainer.run.others import Others
    from trainer_hooks.trainer.run.profiled import Profiled
    from trainer_hooks.trainer.run.session import Session

__all__ = ["Run"]

_STEPS = ("training_step", "validation_step", "test_step", "predict_step")
_MODULE_METHODS = frozenset(name for name in dir(Module) if name.startswith("on_"))
"""Methods of a module that begin like a hook, among them those that move a batch."""


class Run:
    """One run: prepared, run, ended.

    Args:
        session: what outlives it.
        trainer: what hooks are given.
        job: what was asked for.
        batch_losses: methods of the trainer that run the module's step for it; see `RunContext`.
    """

    def __init__(
        self,
        session: Session,
        trainer: Trainer,
        job: Job,
        batch_losses: dict[str, Callable[[Any], Any]],
    ) -> None:
        self.session = session
        self.trainer = trainer
        self.job = job
        self._batch_losses = batch_losses
        self._guards = ExitStack()
        self._modes: list[tuple[torch.nn.Module, bool]] = []
        self._error: BaseException | None = None
        self._has_ended = False
        self._loop: loops.FitLoop | None = None
        self._reason = ""
        self._others: Others | None = None
        self._profiled: Profiled | None = None
        self._start = StartingPoint(session, trainer, job)
        check_kinds(job)

    def prepare(self) -> loops.FitLoop | loops.EvaluationLoop | loops.PredictionLoop:
        """Make everything ready and return the loop to run.

        ::

            the run's folder, configure_callbacks, prepare_data, setup, the loaders
            on_configure_model, the module to its device, on_after_configure_model
            on_before_load, the module's on_load_checkpoint
            the optimizers, the callbacks' on_load_checkpoint, the checkpoint restored
            on_after_load
            on_fit_start, or on_evaluation_run_start
        """
        session, trainer, job = self.session, self.trainer, self.job
        module = job.module
        if session.processes.is_several:
            from trainer_hooks.trainer.run.others import Others

            self._others = Others(session)
        context = self._begin(module)
        if session.processes.local_rank == 0:
            for part in (job.datamodule, module):
                if part is not None:
                    part.prepare_data()
        session.processes.barrier("prepare_data")
        hooks = session.connector.relay
        if job.fn == "fit":
            context.data.load_training = partial(load_training, job, context)
        if job.datamodule is not None:
            job.datamodule.setup(job.fn)
        hooks.setup(trainer, module, job.fn)
        folders.look_at(session, trainer)
        self._place_module()
        self._renew_loaders(context)
        load_data(job, context)
        context.data.load_training = None
        if self._others is not None:
            self._others.spread_random_numbers()
        self._start.restore(context, self._others, self._configure_optimizers)
        loop = self._make_loop(context)
        if job.fn == "fit":
            hooks.on_fit_start(trainer, module)
            self._log_hparams()
        elif job.fn != "predict":
            hooks.on_evaluation_run_start(trainer, module, job.fn)
        self._guards.enter_context(heeding_signals(context))
        session.state.enter(job.fn)
        return loop

    def complete(self) -> None:
        """End a run that went through.

        A signal that comes as a fit ends is heeded, too: what it was to save is saved.
        """
        hooks, module, context = self.session.connector.relay, self.job.module, self.session.context
        assert context is not None
        self.session.training.metrics.enter(Scope.CLOSED)
        self.session.background.finish()
        if self.job.fn == "fit":
            self._has_ended = True
            self._reason = "" if self._loop is None else self._loop.reason_to_end()
            hooks.on_fit_end(self.trainer, module)
            loops.Leaving(context).after_training()
        else:
            context.asked.heed_signal()
            if self.job.fn != "predict":
                hooks.on_evaluation_run_end(self.trainer, module, self.job.fn)
        if self._others is not None:
            self._others.meet_at_end()
        self.session.state.status = TrainerStatus.FINISHED

    def stop_in_order(self, request: StopTraining) -> None:
        """End a run that was stopped by raising before or after its loop, in no hook."""
        assert self.session.context is not None
        self.session.context.stop_by(request)
        self._reason = self.session.context.why_stopping
        self.session.state.status = TrainerStatus.FINISHED

    def fail(self, error: BaseException) -> None:
        """Tell everybody of an exception that ends the run; what fails in that is noted on it.

        A fit that made way for a signal in order is ended as others are.
        """
        self._error = error
        if self._others is not None:
            self._others.tell_failure(error)
        self.session.state.status = TrainerStatus.INTERRUPTED
        self.session.training.metrics.enter(Scope.CLOSED)
        hooks, module = self.session.connector.relay, self.job.module
        is_in_order = isinstance(error, TerminationSignal) and error.is_in_order
        if is_in_order and self.job.fn == "fit":
            if not self._has_ended:
                call_noting(error, hooks.on_fit_end, self.trainer, module)
            return
        if isinstance(error, KeyboardInterrupt):
            shorten_traceback()
            call_noting(error, hooks.on_keyboard_interrupt, self.trainer, module)
        call_noting(error, hooks.on_exception, self.trainer, module, error)
        if isinstance(self.job.datamodule, DataModule):
            call_noting(error, self.job.datamodule.on_exception, error)

    def close(self) -> None:
        """Tear down; a fault in that is raised unless another error is on its way already."""
        try:
            self._tear_down()
        finally:
            self.session.let_go()
            if self._others is not None:
                self._others.leave()

    def _tear_down(self) -> None:
        session, module = self.session, self.job.module
        fault = self._error
        steps: list[tuple[Any, tuple[Any, ...]]] = [
            (session.training.timekeeper.stopwatch.stop, ()),
            (session.background.finish, ()),
            (session.background.release, ()),
            (session.connector.relay.teardown, (self.trainer, module, self.job.fn)),
        ]
        if self.job.datamodule is not None:
            steps.append((self.job.datamodule.teardown, (self.job.fn,)))
        status = "failed" if self._error is not None else "success"
        steps += [(logger.finalize, (status,)) for logger in session.loggers]
        steps.append((session.guards.release, ()))
        if self.job.fn == "fit":
            steps.append((loops.drop_requests, (session.training.progress, self._error is None)))
        steps.append((report_run, (session, self.trainer)))
        if self._profiled is not None:
            steps.append((self._profiled.close, ()))
        steps.append((folders.give_back, (session,)))
        if self._loop is not None:
            steps.append((tell_end, (session, self.trainer, self._reason, self._error)))
        # last: until here a signal does not end the process in the midst of all this
        steps.append((self._guards.close, ()))
        for step, arguments in steps:
            try:
                step(*arguments)
            except StopTraining:
                pass  # there is nothing left to stop
            except BaseException as error:  # noqa: BLE001 - noted on the first, which is raised
                if fault is None:
                    fault = error
                else:
                    add_note(fault, f"and then, while tearing down: {describe_error(error)}")
        for part, mode in self._modes:
            part.training = mode
        session.connector.relay.on_stop = session.connector.relay.on_end_epoch = None
        for callback in session.connector.callbacks:
            callback.attach_module(None)
        module.attach(self.trainer, None)
        module.attach_manual(None)
        session.training.metrics.enter(Scope.CLOSED)
        if fault is not None and fault is not self._error:
            raise fault

    def _begin(self, module: Module) -> RunContext:
        """Note how things are, attach the module, and return what the run is about."""
        session, job = self.session, self.job
        self._modes = [(part, part.training) for part in module.modules()]
        session.state.fn = TrainerFn(job.fn)
        session.state.stage = None
        session.state.status = TrainerStatus.RUNNING
        session.take(job)
        session.guards.install(session.loggers)
        begin_run(session)
        session.has_run = True
        session.start.path, session.start.is_open = job.ckpt_path, True
        module.attach(self.trainer, session.log_target)
        if job.datamodule is not None:
            job.datamodule.trainer = self.trainer
        # at once, so that its hooks hear of it if something fails from here on
        session.connector.attach(module)
        if self._others is not None:
            self._others.share_metrics()
        context = session.context = self._make_context(module)
        context.parts = moving_parts(session, module, context)
        session.connector.relay.on_stop = context.stop_by
        session.connector.relay.on_end_epoch = context.leave_epoch
        self._start.resume_loggers()
        if self._others is not None:
            self._others.find_folders(job)
        if session.processes.is_global_zero:
            folders.take(session)
        if self._others is not None:
            self._others.share_loggers()
        brings = defines(module, "configure_callbacks", Module)
        session.connector.attach(module, module.configure_callbacks() if brings else ())
        if not session.processes.is_global_zero:
            leave_to_first(session.connector)
        session.occupation.take(session.connector.entries)
        for callback in session.connector.callbacks:
            callback.attach_module(module)
        session.connector.check_run(module, _MODULE_METHODS)
        set_backends(session.config, self._guards)
        if session.profiler is not None:
            from trainer_hooks.trainer.run.profiled import Profiled

            self._profiled = Profiled(session.profiler, context, self.trainer)
        if job.compiled is not None:
            self._guards.enter_context(outside_of_graphs(module))
        return context

    def _place_module(self) -> None:
        """Let the module be built, and take it to its device."""
        session, trainer, module = self.session, self.trainer, self.job.module
        hooks = session.connector.relay
        hooks.on_configure_model(trainer, module)
        module.configure_model()
        module.attach(trainer, session.log_target)  # parts of it may have been made just now
        session.precision.convert_module(module)
        session.processes.place(
            module,
            steps=[name for name in _STEPS if loops.overrides(module, name)],
            precision=session.precision.name,
            is_filled=self.job.ckpt_path is not None,
        )
        hooks.on_after_configure_model(trainer, module)
        if self._profiled is not None:
            self._profiled.attach()

    def _renew_loaders(self, context: RunContext) -> None:
        """Let the fit ask for loaders anew, if there are some to ask for and it is wished."""
        job = self.job
        is_asked = job.fn == "fit" and (job.train is None or job.evaluation is None)
        if is_asked and context.plan.reload_dataloaders_every_n_epochs:
            from trainer_hooks.trainer.run.renewal import Renewal

            Renewal(job, context)

    def _make_context(self, module: Module) -> RunContext:
        session, job = self.session, self.job
        return RunContext(
            trainer=self.trainer,
            module=module,
            datamodule=job.datamodule,
            connector=session.connector,
            hooks=session.connector.relay,
            background=session.background,
            plan=session.plan,
            state=session.state,
            training=session.training,
            precision=session.precision,
            transfer=BatchTransfer(
                module,
                job.datamodule,
                session.device,
                session.precision,
                around=session.training.metrics.closed,
            ),
            processes=session.processes,
            steps=OverriddenSteps(self._batch_losses, compiled=job.compiled),
        )

    def _configure_optimizers(self, *, is_rebuilt: bool = False) -> None:
        """Make the module's optimizers, unless its last fit here did: that is gone on with.

        Args:
            is_rebuilt: whether the module has other parameters since.
        """
        training, module = self.session.training, self.job.module
        if is_rebuilt:
            module.to(self.session.device)
        if is_rebuilt or not training.is_configured:
            wanted = module.configure_optimizers()
            training.optimization = parse(wanted, type(module).__qualname__)
            warn_of_foreign(training.optimization, module)
            training.setup = setup_of(training.optimization, module.saved_hparams)
            training.is_configured = True
        training.began = training.began or modes_of(module)

    def _make_loop(
        self, context: RunContext
    ) -> loops.FitLoop | loops.EvaluationLoop | loops.PredictionLoop:
        advise_on_shuffling(self.session, context)
        if self.job.fn == "predict":
            return loops.PredictionLoop(context, self.job.keeps_predictions)
        if self.job.fn != "fit":
            return loops.EvaluationLoop(context, self.job.fn)
        advise(self.session, context)
        loop = self._loop = loops.FitLoop(context)
        warn_of_nothing_to_do(context, loop.reason_to_end())
        return loop

    def _log_hparams(self) -> None:
        hparams = self.session.hparams
        if hparams and self.session.config.enable_autolog_hparams:
            for logger in self.session.loggers:
                logger.log_hyperparams(hparams)
        for logger in self.session.loggers:
            logger.log_graph(self.job.module)
