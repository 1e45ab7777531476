"""What callbacks, modules and users ask of a trainer besides its entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.clock import EpochStage
from trainer_hooks.connector import Entry, checked
from trainer_hooks.context import present_step
from trainer_hooks.errors import UsageError
from trainer_hooks.loops import validate_again
from trainer_hooks.loops.replay import replay
from trainer_hooks.module import parse
from trainer_hooks.trainer.options import check_limit, with_limits
from trainer_hooks.trainer.run import active_profile, put_in, reload_data
from trainer_hooks.trainer.view import TrainerView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainer_hooks.callback import Callback
    from trainer_hooks.clock import Progress
    from trainer_hooks.hooks import HookProfile

__all__ = ["TrainerControl"]


class TrainerControl(TrainerView):
    """The verbs of a trainer: hooks return None, and act on the run by calling one of these."""

    def stop(self, reason: str = "") -> None:
        """Ask the fit to stop after the batch in work; it ends in order, `min_epochs` heeded."""
        if self._session.context is not None:
            self._session.context.asked.is_stopping = True
        self._session.stop_reason = reason

    def skip_batch(self) -> None:
        """Leave a training batch out: all of it, or its gradients.

        In `on_train_batch_start` the batch is not run at all. In `on_before_backward`, where its
        loss is known, it takes no part in the step, with all parts that it is split into; not in
        manual optimization, where the module itself decides.
        """
        if self._session.context is not None:
            self._session.context.asked.skips_batch = True

    def note_batch_indices(self) -> None:
        """Note of this prediction which samples each batch consists of; for `on_predict_start`.

        `trainer.batch_indices` then has those of the batch in work.

        Raises:
            UsageError: no prediction is under way.
        """
        context, fn = self._session.context, self._session.state.fn
        if context is None or fn != "predict":
            raise UsageError(
                f"trainer.note_batch_indices() was called in {fn or 'no run'}: it is for hooks of "
                "predict. Call it in on_predict_start."
            )
        context.asked.notes_indices = True

    def reload_dataloaders(self) -> None:
        """Let the module or data module make the run's loaders anew, before an epoch's batches.

        It is for `on_load_checkpoint`, `on_fit_start`, `on_train_epoch_start` and the start of an
        evaluation.

        Raises:
            UsageError: no run is under way, its loaders were passed to it, or an epoch is under
                way.
            DataError: there is nothing to run now.
        """
        session = self._session
        context, job = session.context, session.job
        if context is None or job is None or session.state.fn is None:
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
        reload_data(job, context)

    def renew_learning_rates(self) -> None:
        """Take over the learning rates that the module's `configure_optimizers` gives now.

        Before the first step everything is as if the optimizers were made now; afterwards their
        state and the schedulers' stay, and only the rates that they go by are replaced.

        Raises:
            UsageError: no fit is under way.
        """
        session = self._session
        module, training = session.module, session.training
        if session.state.fn != "fit" or module is None or not training.is_configured:
            raise UsageError(
                "trainer.renew_learning_rates() was called outside of a fit: the optimizers that "
                "there are belong to the last one. Call it in a hook of fit."
            )
        fresh = parse(module.configure_optimizers(), type(module).__qualname__)
        training.optimization.take_rates(fresh, is_new=training.progress.steps_completed == 0)

    def request_validation(self) -> None:
        """Ask for a validation after the training batch in work, whatever is scheduled.

        Any number of requests before it are one. From the epoch's last batch on it is the epoch's
        own validation; between epochs it waits for the next batch. Weights that were just validated
        are not validated again.

        Raises:
            UsageError: no fit is under way.
        """
        instead = "trainer.validate(...)"
        self._requested("request_validation", instead).is_validation_requested = True

    def validate_again(
        self, prefix: str, callbacks: Callback | Iterable[Callback] | None = None
    ) -> list[dict[str, float]]:
        """Validate at the end of an epoch once more, as with other weights in the module.

        It is for `on_train_epoch_end` and `on_epoch_end`. All validation loaders are run, and the
        module's own hooks fire, but no callback's save those of `callbacks`. The training is as it
        would be without: random numbers, and those of the loaders, are put back.

        Args:
            prefix: what is put before the names of all that is logged in it, as `"ema_"`.
            callbacks: whose hooks of a validation fire; they take no part in the run otherwise.

        Returns:
            The reduced metrics of each loader.

        Raises:
            UsageError: this is no end of an epoch of fit, or there is nothing to validate.
            OptionError: the prefix is no text.
        """
        return validate_again(self._session.context, prefix, callbacks)

    def limit_batches(self, number: int, *stages: str) -> None:
        """Take at most so many batches of each loader in the run that is being set up.

        It is for the hook `setup`, and lasts as long as the run. It takes the place of a share, and
        of a number that is larger.

        Args:
            number: how many, from 1 on.
            stages: of `"train"`, `"validate"`, `"test"` and `"predict"`; all of them unless given.

        Raises:
            UsageError: no run is being set up.
            OptionError: the number or a stage is outside its rule.
        """
        context = self._session.context
        if context is None or self._session.state.fn is None or context.data.is_loaded:
            raise UsageError(
                "trainer.limit_batches() was called when no run was being set up: call it in the "
                "hook `setup`, or pass limit_train_batches= and its kin to Trainer(...)."
            )
        context.plan = with_limits(context.plan, number, stages)

    def limit_validation(self, number: int) -> None:
        """Take at most so many batches of each loader in the validation that is about to run.

        It is for the hook `on_validation_run_start`.

        Raises:
            UsageError: no validation inside fit is under way.
            OptionError: the number is none from 1 on.
        """
        context, state = self._session.context, self._session.state
        if context is None or state.fn != "fit" or state.stage != "validate":
            raise UsageError(
                "trainer.limit_validation() was called outside of a validation of fit: call it in "
                "the hook `on_validation_run_start`."
            )
        context.validation.limit = check_limit(number, "trainer.limit_validation")

    def request_checkpoint(self) -> None:
        """Ask every checkpoint callback to save at its next slot, whatever is scheduled.

        That is the end of the batch in work, or of the epoch or iteration, whichever comes first.
        Any number of requests before it are one.

        Raises:
            UsageError: no fit is under way.
        """
        instead = "trainer.save_checkpoint(path)"
        self._requested("request_checkpoint", instead).is_checkpoint_requested = True

    def _requested(self, verb: str, instead: str) -> Progress:
        """Return the counters of the fit under way, in which requests are kept."""
        fn = self._session.state.fn
        if fn != "fit":
            raise UsageError(
                f"trainer.{verb}() was called {f'in {fn}' if fn else 'outside of a run'}: it is "
                f"for hooks and steps of fit. Call {instead} instead."
            )
        return self._session.training.progress

    def replay_training_data(self) -> int:
        """Run the module on an epoch of training batches without learning from them.

        It is run in the mode that it is in: its `training_step`, or its forward if it has none.
        There are no gradients and no hooks, and what it logs is dropped. It is for what a forward
        alone changes, such as the statistics of BatchNorm; for `on_train_end`, where no epoch is
        open. Random numbers and the loader's generators are put back.

        Returns:
            How many batches there were.

        Raises:
            UsageError: no fit is under way or an epoch is, the module optimizes by itself, or the
                loader has no length.
        """
        progress = self._requested("replay_training_data", "the module on the batches")
        context = self._session.context
        if context is None or progress.stage is not EpochStage.BETWEEN:
            raise UsageError(
                "trainer.replay_training_data() was called inside an epoch: it would take the "
                "loader away from it. Call it in on_train_start or on_train_end."
            )
        return replay(context)

    def call_event(self, event: str, **kwargs: Any) -> None:
        """Fire an event of your own, or a hook that an installed package adds.

        Args:
            event: the name of the method that is called on every callback that has it.
            **kwargs: what it is given, by name; a hook is given the trainer and the module first.

        Raises:
            UsageError: the event is one of the trainer's own hooks or a misspelt one, or the
                arguments are not the hook's.
        """
        self._session.connector.call_event(event, (self, self._session.module), kwargs)

    def add_callback(self, callback: Callback) -> None:
        """Register one more callback; in a run it takes part from the next hook on."""
        session = self._session
        if session.occupation.is_running:
            session.occupation.take([Entry(checked(callback, "callback"), "user")])
        session.connector.add(callback)
        if session.state.fn is not None:
            callback.attach_module(session.module)

    def remove_callback(self, callback: Callback) -> None:
        """Take a callback out."""
        self._session.connector.remove(callback)
        callback.attach_module(None)

    def profile_hooks(self, budget: str | float | None = None) -> HookProfile:
        """Time every call of a callback from here on, until the profile's `stop()`.

        A profile that is in already is given again. As a context manager it stops at the end.

        Args:
            budget: the share of a training batch's time that a callback may take, as `"2%"`.

        Raises:
            OptionError: the budget is no share.
        """
        return put_in(self._session, budget)

    @property
    def hook_profile(self) -> HookProfile | None:
        """What times the callbacks, or None."""
        return active_profile(self._session)

    def log_metrics(
        self, metrics: Mapping[str, float], step: int | None = None, *, epoch: int | None = None
    ) -> None:
        """Hand metrics to every logger and to the history, and fire `on_log`.

        Args:
            metrics: values by name; one named `step` takes the place of `step`.
            step: their place on the x axis; the number of windows done so far unless given.
            epoch: what loggers are given beside them under the name `epoch`, unless a value has
                that name or there is one named `step`.
        """
        session = self._session
        values = dict(metrics)
        own_step = values.pop("step", None) if step is None else None
        session.training.metrics.note_logged(values)
        if own_step is not None:
            step = int(own_step)
        elif epoch is not None:
            values.setdefault("epoch", epoch)
        if step is None:
            step = present_step(session.state.fn, session.training.progress)
        session.training.history.record(metrics, step)
        for logger in session.loggers:
            logger.log_metrics(values, step)
        session.connector.relay.on_log(self, session.module, values, step)  # type: ignore[arg-type]

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print without tearing the progress bar."""
        bar = self.progress_bar_callback
        if bar is not None and bar.is_enabled:
            bar.print(*args, **kwargs)
        else:
            print(*args, **kwargs)
