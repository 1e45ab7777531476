"""LoggerGuards: the guards of a trainer's loggers, and their part of a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_hooks.loggers.base import Logger
    from trainer_hooks.loggers.guard import Guard


class LoggerGuards:
    """One guard per logger, installed while a run is active."""

    def __init__(self) -> None:
        self._guards: list[Guard] = []
        self._is_installed = False

    def install(self, loggers: Iterable[Logger]) -> None:
        """Guard these loggers until `release`."""
        # a guard lives as long as its logger: it may still hold calls of the last run
        guards = {id(guard.logger): guard for guard in self._guards}
        self._guards = []
        for logger in loggers:
            # here, so that a run without loggers does not load it
            from trainer_hooks.loggers.guard import BackgroundGuard, Guard

            kind = BackgroundGuard if ours(logger).in_background else Guard
            # ids are safe as keys, since each guard keeps its logger alive
            self._guards.append(guards.get(id(logger)) or kind(logger))
        for guard in self._guards:
            guard.install()
        self._is_installed = True

    def release(self) -> None:
        """Wait for the writes in the background, report errors, and remove the guards.

        Raises:
            Exception: an error of a logger in the background whose `on_error` is `"raise"`.
        """
        if not self._is_installed:
            return
        self._is_installed = False
        first: Exception | None = None
        for guard in self._guards:
            try:
                guard.finish()
            except Exception as error:  # noqa: BLE001 - raised below, once all are released
                first = first or error
            guard.release()  # also after an error: the logger must get its methods back
        if first is not None:
            raise first

    def state(self) -> list[dict[str, Any]]:
        """Return each logger's part of a checkpoint."""
        return [guard.run_state() for guard in self._guards]

    def resume(self, states: Sequence[dict[str, Any]]) -> str:
        """Let each logger continue its run, and return the differences in words; empty without any.

        A logger gets a state that it calls its own, else the n-th of a class the n-th that is left
        of it: a logger that refuses its run takes its unwritten rows all the same.

        Args:
            states: the loggers' parts of a checkpoint.
        """
        left, new = list(states), list(self._guards)
        # those first that may choose among the fewest, as one whose version the user gave
        for guard in sorted(self._guards, key=lambda guard: sum(map(guard.owns_run, states))):
            state = next(filter(guard.owns_run, left), None)
            if state is not None:
                left.remove(state)
                new.remove(guard)
                guard.resume_run(state)
        ended = [state for state in left if state["state"] or state["unwritten"]]
        kinds = {state["kind"] for state in ended}
        parts = []
        if ended:
            places = (_named(state["kind"], _place_of(state["state"])) for state in ended)
            parts.append(f"no logger goes on with {', '.join(places)}")
        for guard in new:
            if guard.kind in kinds:
                # no `log_dir`: asking for it would fix the folder's number
                name = _named(guard.kind, guard.logger.root_dir or guard.logger.name)
                parts.append(f"{name} begins a run of its own")
            state = next((state for state in left if state["kind"] == guard.kind), None)
            if state is not None:
                left.remove(state)
                guard.resume_run(state)
        return "; ".join(parts)


def _place_of(state: dict[str, Any]) -> str | None:
    """Return the entry of a logger's state that tells where its run is, if there is one."""
    places = (state.get(key) for key in ("root", "project", "experiment"))
    return next((place for place in places if isinstance(place, str)), None)


def _named(kind: str, place: str | None) -> str:
    # the name of a logger without one is its class
    return f"{kind} of {place!r}" if place and place != kind else kind
