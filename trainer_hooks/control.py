"""What callbacks, modules and users ask of a trainer besides its entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.errors import UsageError
from trainer_hooks.profiling import active_profile, put_in
from trainer_hooks.view import TrainerView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.callback import Callback
    from trainer_hooks.hooks.profile import HookProfile
    from trainer_hooks.progress import Progress

__all__ = ["TrainerControl"]


class TrainerControl(TrainerView):
    """The verbs of a trainer: hooks return None, and act on the run by calling one of these."""

    def stop(self, reason: str = "") -> None:
        """Ask the fit to stop after the batch in work; it ends in order, `min_epochs` heeded."""
        if self._session.context is not None:
            self._session.context.is_stopping = True
        self._session.stop_reason = reason

    def skip_batch(self) -> None:
        """Leave out the batch that is starting; for `on_train_batch_start`."""
        if self._session.context is not None:
            self._session.context.skips_batch = True

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
        return self._session.progress

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
        """Register one more callback."""
        self._session.connector.add(callback)

    def remove_callback(self, callback: Callback) -> None:
        """Take a callback out."""
        self._session.connector.remove(callback)

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

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Hand metrics to every logger, and fire `on_log`.

        Args:
            metrics: values by name; one named `step` takes the place of `step`.
            step: their place on the x axis; the number of windows done so far unless given.
        """
        session = self._session
        values = dict(metrics)
        if step is None:
            step = int(values.pop("step", max(0, session.progress.batches_stepped - 1)))
        session.metrics.logged_metrics.update(
            {name: torch.as_tensor(value) for name, value in values.items()}
        )
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
