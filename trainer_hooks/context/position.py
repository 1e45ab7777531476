"""The position of a fit: the part of a checkpoint about the loop, its requests and its loaders.

`FitPosition` reads it from a run and restores it there; `training.EndedFit` is the position at
which a fit has ended. The state registry reads both by the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.context.requests import REQUESTED, RunRequests
from trainer_hooks.context.training import EndedFit

if TYPE_CHECKING:
    from trainer_hooks.clock.progress import Progress
    from trainer_hooks.context.context import RunContext


class FitPosition:
    """The position of a running fit.

    Args:
        context: the run's context.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._data = context.data

    def end(self) -> EndedFit:
        """Return the position at which the fit ends, as plain data; its loaders are still there."""
        return EndedFit(
            loop=self.loop,
            evaluators=self.evaluators,
            stream=self.stream,
            renewed=dict(self.renewed),
            sharding_seed=self.sharding_seed,
            val_generators=self.val_generators,
            # the next run makes a new Precision, and takes the loss scale from here
            scaler=self.scaler,
            is_inside_batch=self.is_inside_batch,
            window=self.window,
            set_window=self.set_window,
            slot=self._saved.get("slot", {}),
            broken_off=self.broken_off,
            # the run failed before its loop: what it had yet to restore is what it goes on with
            pending=self.pending,
        )

    @property
    def _saved(self) -> dict[str, Any]:
        """`checkpoint["trainer_hooks"]` of the checkpoint that the loop has yet to restore."""
        saved: dict[str, Any] = self._context.resumed.get("trainer_hooks", {})
        return saved

    @property
    def pending(self) -> dict[str, Any]:
        """The states that the loop has yet to restore, by name; empty once it has."""
        return self._context.state_registry.pending(self._context.resumed)

    @property
    def is_inside_batch(self) -> bool:
        """Whether a batch has been taken whose hooks are not all called."""
        return self._context.batch.is_taken or self._saved.get("inside_batch", False)

    @property
    def broken_off(self) -> str:
        """The hook of an epoch that was broken off before the checkpoint was saved."""
        return str(self._saved.get("broken_off", ""))

    @property
    def window(self) -> int | None:
        """Batches of an accumulation window; None without a training loader."""
        if "accumulate_grad_batches" in self._saved:
            window: int = self._saved["accumulate_grad_batches"]
            return window
        return None if self._data.stream is None else self._context.plan.accumulate_grad_batches

    @property
    def set_window(self) -> dict[str, int] | None:
        """The batches of a window that a hook set, and those as the fit began; None if it did not.

        A hook that sets them as an epoch begins is not called again by a resume inside that epoch.
        """
        before = self._context.plan_at_start.accumulate_grad_batches
        now = self._context.plan.accumulate_grad_batches
        return {"before": before, "now": now} if now != before else None

    # --- the loop and its loaders ---

    @property
    def loop(self) -> dict[str, Any]:
        """The training loop's flags, which no counter holds."""
        context = self._context
        return {
            "is_last_batch": context.batch.is_last,
            "is_in_cycle": context.cycle.is_open,
            "has_scheduled": context.batch.has_scheduled,
        }

    def load_loop(self, state: dict[str, Any]) -> None:
        """Restore the training loop's flags."""
        context = self._context
        context.batch.is_last = state["is_last_batch"]
        context.cycle.is_open = state["is_in_cycle"]
        context.batch.has_scheduled = state["has_scheduled"]

    @property
    def evaluators(self) -> dict[str, Any]:
        """The states of the validation schedules."""
        return dict(self._context.validation.evaluators)

    def load_evaluators(self, state: dict[str, Any]) -> None:
        """Restore the states of the validation schedules."""
        self._context.validation.evaluators = dict(state)

    @property
    def stream(self) -> dict[str, Any] | None:
        """The position of the training loader; before it is made, that of the last fit."""
        if self._data.stream is None:
            return self._context.training.ended.stream
        return self._data.stream.state_dict(inside_batch=self._context.batch.is_taken)

    def load_stream(self, state: dict[str, Any]) -> None:
        """Go on with the training loader at a position."""
        progress: Progress = self._context.training.progress
        self._data.restore_position(state, progress)

    @property
    def renewed(self) -> dict[str, Any]:
        """The position of the loaders that were made anew inside the training."""
        return self._data.renewed

    def load_renewed(self, state: dict[str, Any]) -> None:
        """Restore the position of loaders that are made anew, if this run makes them anew."""
        if self._data.renewed:
            self._data.renewed = state

    @property
    def sharding_seed(self) -> int | None:
        """The seed by which the ranks share the data."""
        return self._data.sharding_seed

    def load_sharding_seed(self, seed: int) -> None:
        """Let the ranks share the data by a seed."""
        self._data.sharding_seed = seed

    @property
    def val_generators(self) -> dict[str, Any]:
        """The random states of the validation loaders; before they are made, the last fit's."""
        if "validate" in self._data.evaluation:
            return self._data.evaluation["validate"].generator_states()
        return self._context.training.ended.val_generators

    def load_val_generators(self, states: dict[str, Any]) -> None:
        """Restore the random states of the validation loaders that are there."""
        if "validate" in self._data.evaluation:
            self._data.evaluation["validate"].set_generator_states(states)

    @property
    def scaler(self) -> dict[str, Any]:
        """The state of the loss scaler."""
        return self._context.precision.state_dict()

    # --- requests ---

    @property
    def stop(self) -> dict[str, Any] | None:
        """The request for a stop that the run has yet to follow; None if there is none."""
        return self._request_state() if _is_requested(self._context.requests) else None

    @property
    def own_stop(self) -> dict[str, Any] | None:
        """This rank's request for a stop that the ranks have yet to agree on, or None."""
        context, local = self._context, self._context.local_requests
        if _is_requested(context.requests) or not _is_requested(local):
            return None
        return {**self._request_state(), "is_sent": "is_stopping" not in local.unsent}

    @property
    def own_requests(self) -> dict[str, bool] | None:
        """This rank's other requests that the ranks have yet to agree on, or None.

        Each has its name, and whether the last backward has sent it to the other ranks.
        """
        local = self._context.local_requests
        if local is self._context.requests:  # one rank: its counters hold them
            return None
        return {name: name not in local.unsent for name in local.made - {"is_stopping"}} or None

    def load_stop(self, state: dict[str, Any]) -> None:
        """Request the stop again that a checkpoint holds, unless the run is to go on beyond it.

        It goes on if it has other limits, or if the callbacks that requested the stop take no part
        any more or decide about it themselves.
        """
        self._request_again(state, self._context.requests, self._context.local_requests)

    def load_own_stop(self, state: dict[str, Any]) -> None:
        """Do the same for this rank's request, on which the ranks have yet to agree."""
        self._request_again(state, self._context.local_requests)
        self._note_sent("is_stopping", state["is_sent"])

    def load_own_requests(self, state: dict[str, bool]) -> None:
        """Make this rank's other requests again, on which the ranks have yet to agree."""
        context = self._context
        for name, is_sent in state.items():
            if context.local_requests is not context.requests:
                setattr(context.local_requests, name, True)
                self._note_sent(name, is_sent)
            else:  # one rank goes on with the checkpoint of several
                setattr(context.training.progress, REQUESTED[name], True)

    def _note_sent(self, name: str, is_sent: bool) -> None:
        """Note of a restored request whether the last backward had sent it."""
        local = self._context.local_requests
        local.sent = (local.sent or frozenset()) | ({name} if is_sent else set())

    def _request_state(self) -> dict[str, Any]:
        context = self._context
        requests, local = context.requests, context.local_requests
        # empty if another rank alone requested it
        stoppers = list(local.stoppers) or [""]
        renewing = {c.state_key for c in context.connector.callbacks if ours(c).renews_stop}
        return {
            # callbacks that renew their request give their reason anew
            "reason": "" if renewing.issuperset(stoppers) else context.trainer.stop_reason,
            "stoppers": stoppers,
            "is_raised": bool(requests.stop_requests or local.stop_requests),
            "limits": self._limits(),
        }

    def _request_again(self, state: dict[str, Any], *places: RunRequests) -> None:
        callbacks = self._context.connector.callbacks
        deciding = {c.state_key: not ours(c).renews_stop for c in callbacks}
        # an empty key is that of the module, or of code outside of all hooks
        stoppers = [key for key in state["stoppers"] if deciding.get(key, not key)]
        if not stoppers or state["limits"] != self._limits():
            return
        self._context.trainer.stop(state["reason"])
        for requests in places:
            requests.is_stopping, requests.stoppers = True, stoppers
            requests.stop_requests = int(state["is_raised"])

    def _limits(self) -> dict[str, Any]:
        plan = self._context.plan
        duration = None if plan.max_duration is None else str(plan.max_duration)
        return {
            "max_epochs": plan.max_epochs,
            "max_steps": plan.max_steps,
            "max_duration": duration,
        }


def _is_requested(requests: RunRequests) -> bool:
    """Return whether a stop is among these requests."""
    return requests.is_stopping or requests.stop_requests > 0
