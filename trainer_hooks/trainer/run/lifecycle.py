"""The life of a run: set it up, and tear it down however it ended."""

from __future__ import annotations

import errno
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks._names import ours
from trainer_hooks._output import escaping_output, flush_output
from trainer_hooks.checkpoint.atomic_write import check_writable
from trainer_hooks.checkpoint.paths import is_inside, is_remote, require_local
from trainer_hooks.context.context import RunContext, StepCalls
from trainer_hooks.context.run_state import TrainerFn, TrainerStatus
from trainer_hooks.data.data_hooks import BatchTransfer, defines
from trainer_hooks.data.workers import explain_worker_death
from trainer_hooks.errors import (
    OptionError,
    StopTraining,
    TerminationSignal,
    UsageError,
    add_note,
)
from trainer_hooks.hooks.check import check_stage_methods
from trainer_hooks.hooks.relay import (
    call_and_note_errors,
    error_summary_with_notes,
    hook_broken_off,
)
from trainer_hooks.hooks.spec import HOOKS
from trainer_hooks.loggers.run_folder import FolderLogger, open_folders, remove_unused_folders
from trainer_hooks.metrics.store import LogScope
from trainer_hooks.module.added_groups import note_group_twice
from trainer_hooks.module.datamodule import DataModule
from trainer_hooks.module.module import Module
from trainer_hooks.module.optimization import (
    describe_setup,
    import_compiler,
    parse_optimizers,
    warn_of_foreign_parameters,
)
from trainer_hooks.module.torch_wrappers import exclude_run_methods
from trainer_hooks.runtime.parameter_names import tensor_names
from trainer_hooks.trainer.core.registered_state import build_state_registry, modes_of
from trainer_hooks.trainer.core.run_inputs import (
    LoaderReload,
    RunInputs,
    check_inputs,
    load_data,
    load_evaluation,
    load_handed_over,
    load_training,
)
from trainer_hooks.trainer.core.trainer_core import remove_rank_zero_callbacks
from trainer_hooks.trainer.messages.console_summary import (
    advise,
    advise_on_shuffling,
    log_end,
    warn_of_half_a_validation,
    warn_of_nothing_to_do,
)
from trainer_hooks.trainer.messages.failed_start import begin_start, record_start, update_start
from trainer_hooks.trainer.restoring.starting_point import StartingPoint
from trainer_hooks.trainer.run.hook_profiling import begin_profiled_run, report_hook_profile
from trainer_hooks.trainer.run.signals import (
    deferring_signals,
    receiving_signals,
    shorten_traceback,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from trainer_hooks.callbacks import RunManifest
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.loops.evaluation import EvaluationLoop
    from trainer_hooks.loops.fit import FitLoop
    from trainer_hooks.loops.prediction import PredictionLoop
    from trainer_hooks.trainer.core.trainer_core import TrainerCore
    from trainer_hooks.trainer.options.config import TrainerConfig
    from trainer_hooks.trainer.ranks.distributed_run import DistributedRun
    from trainer_hooks.trainer.run.profiler_attachment import ProfilerAttachment

_STEPS = ("training_step", "validation_step", "test_step", "predict_step")


_MODULE_METHODS = frozenset(name for name in dir(Module) if name.startswith("on_"))
"""Methods of a module that begin like a hook, among them those that move a batch."""


class TrainerRun:
    """One run of fit, validate, test or predict: prepared, looped by the caller, torn down.

    Args:
        core: the trainer's core, which outlives the run.
        trainer: the trainer, for the hooks.
        inputs: the arguments of the call.
    """

    def __init__(
        self,
        core: TrainerCore,
        trainer: Trainer,
        inputs: RunInputs,
    ) -> None:
        self.core = core
        self.trainer = trainer
        self.inputs = inputs
        # what `_tear_down` takes back last: torch's switches, a compiled module's methods, signals
        self._exit_stack = ExitStack()
        self._modes: list[tuple[torch.nn.Module, bool]] = []
        self._error: BaseException | None = None
        self._has_ended = False
        self._fit_loop: FitLoop | None = None
        self._assigned_hooks: dict[str, Any] = {}
        self._batches_before = 0
        self._reason = ""
        self._distributed_run: DistributedRun | None = None
        self._profiler: ProfilerAttachment | None = None
        self._starting_point = StartingPoint(core, trainer, inputs)
        # here, before the run holds any callback: after an error nothing has to be torn down
        check_inputs(inputs)

    def __enter__(self) -> Self:
        run_lock, inputs = self.core.run_lock, self.inputs
        module = type(inputs.module).__qualname__
        run_lock.begin(f"{inputs.fn} of {module} (Trainer at {id(self.trainer):#x})")
        try:
            # one callback in two runs at once would have the state of both
            run_lock.acquire(self.core.connector.entries)
        except BaseException:
            # with those that it has acquired before the one that is in use, or before a signal
            run_lock.release()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        core = self.core
        try:
            if error is not None:
                # a step that forked, and whose child leaves it: run and end are the parent's
                core.connector.relay.end_forked_copy(error)
            if isinstance(error, StopTraining):
                # raised outside of hooks and loops, as in `prepare_data`: no failure of the run
                assert core.context is not None
                core.context.stop_by(error)
                self._reason = core.context.stop_explanation
                core.state.status = TrainerStatus.FINISHED
                if core.processes.is_distributed:
                    lone = UsageError(
                        "StopTraining was raised outside of the training of several processes, "
                        "where the others go on. Call trainer.stop() there."
                    )
                    self.fail(lone)
                    raise lone from error
            elif error is not None:
                self.fail(error)
        finally:
            try:
                self.close()
            finally:
                # last: `teardown` and what follows still use the callbacks
                core.run_lock.release()
        return isinstance(error, StopTraining)

    def prepare(self) -> FitLoop | EvaluationLoop | PredictionLoop:
        """Set the run up and return its loop.

        ::

            of a fit: its checkpoint read, for the loggers
            the run's folder, configure_callbacks, prepare_data, setup
            on_configure_model, the module to its device, on_after_configure_model
            the loaders
            on_before_load, the module's on_load_checkpoint
            the optimizers
            on_before_restore, the weights restored, the callbacks' on_load_checkpoint
            counters and callbacks restored, on_after_load
            the optimizers restored, on_fit_start (first if it may change them);
            or on_evaluation_run_start
        """
        core = self.core
        # for what the user's steps and hooks print, too
        self._exit_stack.enter_context(escaping_output())
        if core.processes.is_distributed:
            from trainer_hooks.trainer.ranks.distributed_run import DistributedRun

            self._distributed_run = DistributedRun(core)
            # here, where an error of it reaches the other ranks
            self._distributed_run.make_groups()
        with receiving_signals(core.processes):
            loop = self._set_up()
        assert core.context is not None
        # last: while a run is set up, no batch has to be finished, and a signal acts at once, by
        # `ending_at_once` or as Ctrl-C does
        self._exit_stack.enter_context(deferring_signals(core.context))
        return loop

    def _set_up(self) -> FitLoop | EvaluationLoop | PredictionLoop:
        """Take the steps that `prepare` lists, and return the loop."""
        core, trainer, inputs = self.core, self.trainer, self.inputs
        module = inputs.module
        context = self._begin(module)
        if inputs.datamodule is not None:
            check_stage_methods(inputs.datamodule)
        # on each node once: its disk may be its own
        if core.processes.local_rank == 0:
            for part in (inputs.datamodule, module):
                if part is not None:
                    part.prepare_data()
        # no rank may use the data before local rank 0 of its node has prepared them
        core.processes.barrier("prepare_data")
        hooks = core.connector.relay
        if inputs.fn == "fit":
            # a hook that asks for the number of steps before the loaders are made makes them
            context.data.load_training = partial(load_training, inputs, context)
        if inputs.datamodule is not None:
            inputs.datamodule.setup(inputs.fn)
        hooks.setup(trainer, module, inputs.fn)
        # after `setup`, in which savers learn their folders
        check_folders(core, trainer)
        self._place_module()
        # loaders that were passed stay as they are, as nothing could make them again
        makes_loaders = inputs.fn == "fit" and (inputs.train is None or inputs.evaluation is None)
        if makes_loaders and context.plan.reload_dataloaders_every_n_epochs:
            checkpoint = self._starting_point.early_checkpoint
            LoaderReload(inputs, context).load(checkpoint, inputs.ckpt_path)
        else:
            load_data(inputs, context)
        context.data.load_training = None
        if self._distributed_run is not None:
            # not earlier: with equal random states all ranks have built the same module and data
            self._distributed_run.spread_random_numbers()
        with self._starting_point.restoring(context, self._configure_optimizers):
            loop = self._make_loop(context)
            if inputs.fn == "fit":
                hooks.on_fit_start(trainer, module)
                self._attach_again()
        self._log_hparams()
        if inputs.fn not in ("fit", "predict"):
            hooks.on_evaluation_run_start(trainer, module, inputs.fn)
        return loop

    def complete(self) -> None:
        """Call the end hooks of a run whose loop has returned.

        A signal that arrives as a fit ends still saves what it was to save.
        """
        from trainer_hooks.loops.fit import obey_late_signal

        hooks, module, context = self.core.connector.relay, self.inputs.module, self.core.context
        assert context is not None
        self.core.training.metrics.enter(LogScope.CLOSED)
        # before the end hooks: a save that failed is an error of the run, and its files are there
        self.core.background.finish()
        if self.inputs.fn == "fit":
            # before its hook, so that `fail` does not call that once more after a signal
            self._has_ended = True
            self._reason = "" if self._fit_loop is None else self._fit_loop.reason_to_end()
            hooks.on_fit_end(self.trainer, module)
            obey_late_signal(context)
        else:
            context.requests.raise_pending_signal()
            if self.inputs.fn != "predict":
                hooks.on_evaluation_run_end(self.trainer, module, self.inputs.fn)
        if self._distributed_run is not None:
            self._distributed_run.meet_at_end()
        self.core.state.status = TrainerStatus.FINISHED

    def fail(self, error: BaseException) -> None:
        """Call the exception hooks for the error that ends the run; their errors become its notes.

        A fit that a signal stopped in order gets its end hooks instead.
        """
        self._error = error
        note_group_twice(error, self.core.training.optimization)
        if explanation := explain_worker_death(error):
            add_note(error, explanation)
        if self.core.state.stage == "train":  # a validation is run again from its start
            self.core.broken_off = hook_broken_off(error)
        if self._distributed_run is not None:
            # before any hook: the other ranks wait for this one until they hear of it
            self._distributed_run.tell_failure(error)
        self.core.state.status = TrainerStatus.INTERRUPTED
        if self.inputs.label is not None:
            from trainer_hooks.trainer.identity.run_identity import TRAININGS

            TRAININGS.broken.add(self.core.training.identity.run)
        self.core.training.metrics.enter(LogScope.CLOSED)
        hooks, module = self.core.connector.relay, self.inputs.module
        is_in_order = isinstance(error, TerminationSignal) and error.is_in_order
        if is_in_order and self.inputs.fn == "fit":
            if not self._has_ended:  # the signal may have come as the end hooks ran
                call_and_note_errors(error, hooks.on_fit_end, self.trainer, module)
            return
        if isinstance(error, KeyboardInterrupt):
            shorten_traceback()
            call_and_note_errors(error, hooks.on_keyboard_interrupt, self.trainer, module)
        call_and_note_errors(error, hooks.on_exception, self.trainer, module, error)
        if isinstance(self.inputs.datamodule, DataModule):
            call_and_note_errors(error, self.inputs.datamodule.on_exception, error)

    def close(self) -> None:
        """Tear the run down; raise an error in that, unless the run has raised one already."""
        try:
            self._tear_down()
        finally:
            # in any case: the trainer must be free for its next run, and the watchdog must end
            try:
                self.core.end_run()
            finally:
                self._restore_modes()  # after that, which takes down the modes of the run
                if self._fit_loop is not None:
                    self._fit_loop.release()
                # its traceback holds the frames of this run: in a circle, the workers of a loader
                # would live in them until the garbage collector comes
                self._error = None
                if self._distributed_run is not None:
                    self._distributed_run.leave()

    def _tear_down(self) -> None:
        from trainer_hooks.loops.batch_end import discard_unserved_requests

        core, module = self.core, self.inputs.module
        fault = self._error
        # first the record of a failed start, which nothing may prevent; then the clock, which
        # counts no tearing down; then saves, whose files the hooks of `teardown` may use; loggers
        # after `teardown`, whose hooks may log
        steps: list[tuple[Any, tuple[Any, ...]]] = [
            (record_start, (core, self._error)),
            (core.training.timekeeper.stopwatch.stop, ()),
            (core.background.finish, ()),
            (core.background.release, ()),
        ]
        # by name, as any object may be one; it may wait here for files that a thread writes
        end_io = getattr(core.config.checkpoint_io, "teardown", None)
        if end_io is not None and not core.is_trial:
            steps.append((end_io, ()))
        if self.inputs.datamodule is not None:
            steps.append((self.inputs.datamodule.teardown, (self.inputs.fn,)))
        steps.append((core.connector.relay.teardown, (self.trainer, module, self.inputs.fn)))
        status = "failed" if self._error is not None else "success"
        steps += [(logger.finalize, (status,)) for logger in core.loggers]
        steps.append((core.guards.release, ()))
        if self.inputs.fn == "fit":
            steps.append((discard_unserved_requests, (core.training.progress, self._error is None)))
        steps.append((report_hook_profile, (core, self.trainer)))
        if self._profiler is not None:
            steps.append((self._profiler.close, ()))
        steps.append((remove_unused_folders, (core.loggers,)))
        is_unchanged = core.training.progress.batches_completed == self._batches_before
        is_idle = core.state.has_nothing_to_do and is_unchanged and self._error is None
        # a hook may have raised the limit since it was told that there is nothing to do
        if self._fit_loop is not None and not is_idle:
            steps.append((log_end, (core, self.trainer, self._reason, self._error)))
        # here, where a closed pipe is still no error: Python itself would complain as it exits
        steps.append((flush_output, ()))
        # last: this restores the signal handlers, and a signal must not interrupt the steps above
        steps.append((self._exit_stack.close, ()))
        # every step is run, whichever fails: files must be closed and hooks paired in any case
        for step, arguments in steps:
            try:
                step(*arguments)
            except StopTraining:
                pass  # no request is served any more: on with the other steps
            except BaseException as error:  # noqa: BLE001 - noted on the first, which is raised
                if fault is None:
                    fault = error
                else:
                    add_note(
                        fault, f"and then, while tearing down: {error_summary_with_notes(error)}"
                    )
        core.connector.relay.end_run()
        for callback in core.connector.callbacks:
            ours(callback).attach_module(None)
        ours(module).attach(self.trainer, None)
        ours(module).attach_manual(None)
        core.training.metrics.enter(LogScope.CLOSED)
        # the run's own error is on its way out of the call already
        if fault is not None and fault is not self._error:
            raise fault

    def _restore_modes(self) -> None:
        """Put each part of the module back into its mode before the run.

        A fit that ends in order leaves the modes that the user's hooks have set.
        """
        if self._error is None and self.core.state.fn == TrainerFn.FITTING:
            return
        for part, mode in self._modes:
            # not train(mode), which would set all submodules
            part.training = mode

    def _begin(self, module: Module) -> RunContext:
        """Make the run's context: guard loggers, attach module and callbacks, open folders."""
        core, inputs = self.core, self.inputs
        self._modes = [(part, part.training) for part in module.modules()]
        # as in Lightning, from the beginning on: hooks of the set-up ask what the run will do
        core.state.begin(inputs.fn)
        core.begin_run(inputs)
        core.guards.install(core.loggers)
        # before `has_run` is set: the profile of a first run also has what came before the run
        begin_profiled_run(core)
        core.has_run = True
        core.start_checkpoint.path, core.start_checkpoint.is_open = inputs.ckpt_path, True
        # before the checkpoint is read, for which memory may not suffice
        begin_start(core)
        ours(module).attach(self.trainer, core.log_target)
        if inputs.datamodule is not None:
            inputs.datamodule.trainer = self.trainer
        # now, so that the module's `on_exception` and `teardown` are called if the rest fails
        core.connector.set_module(module)
        if self._distributed_run is not None:
            self._distributed_run.share_metrics()
        context = core.context = self._make_context(module)
        context.state_registry = build_state_registry(core, module, context)
        if core.start_checkpoint.record:
            context.after_first_batches.append(partial(update_start, core))
        core.connector.relay.begin_run(context.stop_by, context.leave_epoch)
        # before a folder is opened: a resumed run logs into that of its checkpoint
        self._starting_point.read_and_resume_loggers()
        if self._distributed_run is not None:
            self._distributed_run.find_folders(inputs)
        if core.processes.is_global_zero and inputs.fn == "fit":
            # before a callback asks a logger for its folder: no other run may get the same one
            progress = core.training.progress
            is_new = inputs.ckpt_path is None and progress.is_untrained and not core.is_trial
            open_folders(core.loggers, begins_anew=is_new)
        if self._distributed_run is not None:
            self._distributed_run.share_loggers()
        brings = defines(module, "configure_callbacks", Module)
        # once more, with the module's callbacks: they are made when folders and loggers are known
        core.connector.set_module(module, module.configure_callbacks() if brings else ())
        if not core.processes.is_global_zero:
            # after the last `set_module`, which would bring them back
            remove_rank_zero_callbacks(core.connector)
        # once more, for the callbacks that the module has brought
        core.run_lock.acquire(core.connector.entries)
        for callback in core.connector.callbacks:
            ours(callback).attach_module(module)
        core.connector.check_run(module, _MODULE_METHODS)
        self._assigned_hooks = _assigned_hooks(module)
        set_backends(core.config, self._exit_stack)
        if core.profiler is not None:
            from trainer_hooks.trainer.run.profiler_attachment import ProfilerAttachment

            self._profiler = ProfilerAttachment(core.profiler, context, self.trainer)
        if inputs.compiled is not None:
            self._exit_stack.enter_context(exclude_run_methods(module))
        return context

    def _place_module(self) -> None:
        """Let the module build its layers, and move it to its device."""
        core, trainer, module = self.core, self.trainer, self.inputs.module
        hooks = core.connector.relay
        hooks.on_configure_model(trainer, module)
        module.configure_model()
        self._attach_again()
        # before the shards are made, which have the dtype of the parameters
        core.precision.convert_module(module)
        core.processes.place(
            module,
            steps=[name for name in _STEPS if defines(module, name, Module)],
            precision=core.precision.name,
            is_filled=self.inputs.ckpt_path is not None,
            units=self.inputs.units,
        )
        hooks.on_after_configure_model(trainer, module)
        if self.inputs.fn == "fit":
            core.training.buffers.begin(module)
        if self._profiler is not None:
            self._profiler.attach()

    def _attach_again(self) -> None:
        """Attach the module with the submodules and methods that its hooks have assigned to it."""
        core, module = self.core, self.inputs.module
        ours(module).attach(self.trainer, core.log_target)
        assigned = _assigned_hooks(module)
        if assigned != self._assigned_hooks:
            self._assigned_hooks = assigned
            core.connector.check_run(module, _MODULE_METHODS)
            core.connector.renew_module()

    def _make_context(self, module: Module) -> RunContext:
        core, inputs = self.core, self.inputs
        return RunContext(
            trainer=self.trainer,
            module=module,
            datamodule=inputs.datamodule,
            connector=core.connector,
            hooks=core.connector.relay,
            background=core.background,
            plan=core.plan,
            state=core.state,
            training=core.training,
            precision=core.precision,
            transfer=BatchTransfer(
                module,
                inputs.datamodule,
                core.device,
                core.precision,
                context_of_hooks=core.training.metrics.closed,
            ),
            processes=core.processes,
            steps=StepCalls(compiled=inputs.compiled),
        )

    def _configure_optimizers(self, *, is_rebuilt: bool = False) -> None:
        """Make the module's optimizers, unless its last fit in this trainer made them.

        Args:
            is_rebuilt: whether the module has new parameters since.
        """
        training, module = self.core.training, self.inputs.module
        if is_rebuilt:
            # the hook's new layers came after the module was moved
            module.to(self.core.device)
        if is_rebuilt or not training.is_configured:
            if any(parameter.requires_grad for parameter in module.parameters()):
                import_compiler()
            make = self.inputs.make_optimizers
            training.optimization = parse_optimizers(
                module.configure_optimizers() if make is None else make(),
                f"{type(module).__qualname__}.configure_optimizers returned"
                if make is None
                else "Run was given",
                is_manual=not module.automatic_optimization,
            )
            warn_of_foreign_parameters(training.optimization, module)
            training.setup = describe_setup(training.optimization, ours(module).saved_hparams)
            training.setup["trainer"] = self.core.config.compared_options()
            training.is_configured = True
        # the modes at the beginning: by these a resume tells a module that was built otherwise from
        # one whose parts a hook froze
        training.began = training.began or modes_of(module)
        # likewise the names, by which a resume knows the layers that hooks add later
        training.built = training.built or tensor_names(module)

    def _make_loop(self, context: RunContext) -> FitLoop | EvaluationLoop | PredictionLoop:
        advise_on_shuffling(self.core, context)
        if self.inputs.fn == "predict":
            from trainer_hooks.loops.prediction import PredictionLoop

            return PredictionLoop(context, self.inputs.keeps_predictions)
        if self.inputs.fn != "fit":
            from trainer_hooks.loops.evaluation import EvaluationLoop

            return EvaluationLoop(context, self.inputs.fn)
        warn_of_half_a_validation(self.core, self.inputs, context)
        advise(self.core, context)
        if self.inputs.own_loop is not None:
            from trainer_hooks.loops.own_loop import OwnLoop

            self._fit_loop = OwnLoop(
                context,
                partial(load_handed_over, self.inputs, context),
                partial(load_evaluation, self.inputs, context),
                self.inputs.own_loop,
                self.inputs.train,
            )
        else:
            from trainer_hooks.loops.fit import FitLoop

            self._fit_loop = FitLoop(context, is_advising=not self.core.is_trial)
        loop = self._fit_loop
        self._batches_before = self.core.training.progress.batches_completed
        is_idle = warn_of_nothing_to_do(context, loop.reason_to_end(), self.core.entry_point)
        self.core.state.has_nothing_to_do = is_idle
        return loop

    def _log_hparams(self) -> None:
        hparams = self.core.hparams
        if hparams and self.core.config.enable_autolog_hparams:
            for logger in self.core.loggers:
                logger.log_hyperparams(hparams)
        if self.inputs.fn == "fit":
            for logger in self.core.loggers:
                logger.log_graph(self.inputs.module)


def _assigned_hooks(module: Module) -> dict[str, Any]:
    """Return the hooks that were assigned to a module itself, by name."""
    return {name: value for name, value in vars(module).items() if name in HOOKS}


def _require_no_custom_io(core: TrainerCore) -> None:
    """Refuse a `CheckpointIO` where each rank writes its own shards.

    Raises:
        OptionError: there is one.
    """
    if core.custom_io is not None:
        raise OptionError(
            f"Trainer(plugins=...): {core.custom_io.name} writes whole checkpoints, and "
            "FSDPStrategy(state_dict_type='sharded') saves a file of each process. Take "
            "state_dict_type='full', or leave the plugin out."
        )


def check_folders(core: TrainerCore, trainer: Trainer) -> None:
    """Check that a fit can write to all its folders, and print those outside of its run folder.

    Raises:
        OptionError: a folder is not writable.
        CheckpointError: sharded checkpoints are to be saved to a remote store.
    """
    if core.state.fn != "fit" or trainer.fast_dev_run:
        return
    # on all ranks: if only rank 0 raised, the others would wait for it at the next collective
    if core.processes.saves_shards:
        _require_no_custom_io(core)
        for saver in trainer.checkpoint_callbacks:
            for folder in ours(saver).folders():
                require_local(folder)
    if not trainer.is_global_zero:
        return
    run_folder = None
    folder_loggers = [logger for logger in core.loggers if isinstance(logger, FolderLogger)]
    if folder_loggers:
        # a bare fit needs none
        from trainer_hooks.callbacks.reporting.journal import journal_folder

        run_folder = journal_folder(core.loggers)
        # with the checkpoints, which lie beside a `sub_dir` of TensorBoard's
        paths = (
            str(logger.run_folder.path) for logger in folder_loggers if logger.log_dir == run_folder
        )
        run_folder = next(paths, run_folder)
    elsewhere: dict[str, None] = {}
    for folder, what in _folders_of(core, trainer):
        if is_remote(folder):
            elsewhere[f"{what}: {folder!r}"] = None
            continue
        try:
            check_writable(Path(folder))
        except OSError as error:
            path = "" if error.filename is None else f": {error.filename}"
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            cure = (
                "Free some space, or give another path."
                if is_full
                else (
                    "It must be a folder that is there, or can be made, and takes files. Give "
                    "another path, or change its rights."
                )
            )
            raise OptionError(
                f"{what}, {folder!r}: nothing can be written there ({error.strerror}{path}). {cure}"
            ) from error
        if run_folder is not None and not is_inside(str(Path(folder, "file")), run_folder):
            elsewhere[f"{what}: {folder!r}"] = None
    if run_folder is not None and elsewhere:
        trainer.print(f"run folder: {run_folder!r}; elsewhere: {', '.join(elsewhere)}")


def _folders_of(core: TrainerCore, trainer: Trainer) -> Iterator[tuple[str, str]]:
    """Yield each folder that a fit writes to, with a description of its content."""
    for logger in core.loggers:
        folder = logger.log_dir if isinstance(logger, FolderLogger) else logger.save_dir
        if folder is not None:
            yield folder, f"logs of {type(logger).__name__}"
    for saver in trainer.checkpoint_callbacks:
        for folder in ours(saver).folders():
            yield folder, f"checkpoints of {type(saver).__name__}"
    manifest = class_if_loaded("trainer_hooks.callbacks.reporting.run_manifest", "RunManifest")
    for callback in core.connector.callbacks:
        if isinstance(callback, manifest):
            folder = cast("RunManifest", callback).dirpath
            if folder is not None:
                yield folder, f"journal of {type(callback).__name__}"


def set_backends(config: TrainerConfig, guards: ExitStack) -> None:
    """Set torch's global switches from the options; `guards` restores them.

    Args:
        config: `deterministic`, `benchmark` and `detect_anomaly`.
        guards: the stack that is closed as the run ends.
    """
    if config.detect_anomaly:
        guards.enter_context(torch.autograd.set_detect_anomaly(True))
    benchmark = config.benchmark
    if config.deterministic:
        was = torch.are_deterministic_algorithms_enabled()
        warned = torch.is_deterministic_algorithms_warn_only_enabled()
        # registered before the switch is set: what comes after may fail
        guards.callback(torch.use_deterministic_algorithms, was, warn_only=warned)
        torch.use_deterministic_algorithms(True, warn_only=config.deterministic == "warn")
        # cuDNN's benchmark may choose another algorithm in each process: off, unless asked for
        benchmark = bool(benchmark)
    if benchmark is not None:
        cudnn = torch.backends.cudnn
        guards.callback(setattr, cudnn, "benchmark", cudnn.benchmark)
        cudnn.benchmark = benchmark
