"""StateChanges: a callback's changes to Composer's State that the trainer obeys or refuses."""

from __future__ import annotations

from typing import Any

from trainer_hooks.errors import UsageError

_OPENS_EPOCH = frozenset({"iteration_start", "epoch_start"})


class StateChanges:
    """A base of the States that callbacks of Composer receive, for the values that they set.

    Both States have it: that of the installed Composer's callbacks, which derives from Composer's
    own, and that of `trainer_hooks.compat.composer`.

    Attributes:
        current_event: the event that is being delivered, or an empty string.
        delayed_stop: the reason of a stop that waits for the epoch's first batch, or an empty
            string.
    """

    current_event: str = ""
    delayed_stop: str = ""
    timestamp: Any

    def keep(self, name: str, value: Any) -> None:
        """Set an attribute on behalf of the trainer; each State has its own."""
        raise NotImplementedError

    # --- refused changes ---

    @property
    def device_train_microbatch_size(self) -> Any:
        """The most samples of a microbatch; a callback cannot set it."""
        return vars(self)["_microbatch_size"]

    @device_train_microbatch_size.setter
    def device_train_microbatch_size(self, value: Any) -> None:
        if self.current_event:
            raise UsageError(
                f"state.device_train_microbatch_size was set to {value!r} at "
                f"{self.current_event!r}: a fit keeps the size that it began with. Pass it to the "
                "Trainer, as microbatch_size, or as device_train_microbatch_size of "
                "trainer_hooks.compat.composer."
            )
        self.keep("_microbatch_size", value)

    def require_own_dataloader(self) -> None:
        """Raise an error if a callback sets the loader, which the trainer does, too.

        Raises:
            UsageError: an event is being delivered.
        """
        if self.current_event:
            raise UsageError(
                f"state.set_dataloader() was called at {self.current_event!r}: a fit keeps the "
                "loaders that it began with. Change the data set in place, or pass the loader to "
                "another fit."
            )

    # --- the length of the training ---

    def apply_max_duration(
        self, trainer: Any, longest: Any, reason: str, epochs_broken_off: int = 0
    ) -> None:
        """Make a trainer train for as long as `max_duration` says; stop it if that is over.

        Args:
            trainer: the trainer of trainer_hooks.
            longest: the `max_duration` that was set, a Time of Composer.
            reason: the reason of a stop.
            epochs_broken_off: how many epochs that were broken off the trainer counts, and the
                timestamp does not.
        """
        if self.timestamp >= longest:
            if trainer.state.status == "running" and trainer.state.fn == "fit":
                self.request_stop(trainer, reason)
            return  # the limits stay for a later fit, as after stop_training()
        unit = longest.unit.value
        if unit == "ep":
            longest = longest + epochs_broken_off
        # a batch of Composer is a window of accumulated ones, after which the optimizer steps
        is_in_windows = unit == "ba" and trainer.accumulate_grad_batches > 1
        # the new limit replaces all others, in whatever unit they are
        trainer.max_epochs = trainer.max_steps = -1
        trainer.max_duration = f"{int(longest)}st" if is_in_windows else str(longest)

    def request_stop(self, trainer: Any, reason: str) -> None:
        """Stop the trainer after this batch; as an epoch begins, after its first, as in Composer.

        Args:
            trainer: the trainer of trainer_hooks.
            reason: the reason of the stop.
        """
        if self.current_event in _OPENS_EPOCH:
            self.keep("delayed_stop", reason)
        else:
            self.stop(trainer, reason)

    def stop_if_delayed(self, trainer: Any) -> None:
        """Stop the trainer, after a batch, if a callback asked for it as the epoch began."""
        reason = self.delayed_stop
        if reason:
            self.keep("delayed_stop", "")
            self.stop(trainer, reason)

    def stop(self, trainer: Any, reason: str) -> None:
        """Stop the trainer after this batch."""
        trainer.stop(reason)
