"""The position of a running fit, and its requests, as a checkpoint holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.context.requests import REQUESTED, RunRequests
from trainer_hooks.context.training import FitPosition

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext


def read_position(context: RunContext) -> FitPosition:
    """Return the position of a running fit."""
    saved = context.resumed.get("trainer_hooks", {})
    window = None if context.data.stream is None else context.plan.accumulate_grad_batches
    return FitPosition(
        is_inside_batch=context.batch.is_taken or saved.get("inside_batch", False),
        window=saved.get("accumulate_grad_batches", window),
        slot=dict(saved.get("slot", {})),
        broken_off=str(saved.get("broken_off", "")),
        # of a validation that has begun and not ended, which a resume runs again; or of the
        # checkpoint resumed from, as after an error in `on_train_start`
        replacements=context.validation.snapshot
        or context.state_registry.left_to_loop(context.resumed),
    )


def end_position(context: RunContext) -> FitPosition:
    """Return the position at which a fit ends, while its loaders are still there."""
    position = read_position(context)
    position.states = context.state_registry.states_of_run()
    return position


class SavedRequests:
    """The requests of a running fit as a checkpoint holds them, and their restoring.

    Args:
        context: the run's context.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def stop(self) -> dict[str, Any] | None:
        """Return the request for a stop that the run has yet to follow; None if there is none."""
        return self._request_state() if _is_requested(self._context.requests) else None

    def own_stop(self) -> dict[str, Any] | None:
        """Return this rank's request for a stop that the ranks have yet to agree on, or None."""
        context, local = self._context, self._context.local_requests
        if _is_requested(context.requests) or not _is_requested(local):
            return None
        return {**self._request_state(), "is_sent": "is_stopping" not in local.unsent}

    def own_requests(self) -> dict[str, bool] | None:
        """Return this rank's other requests that the ranks have yet to agree on, or None.

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
