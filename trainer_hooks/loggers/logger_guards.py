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

    def resume(self, states: Sequence[dict[str, Any]]) -> None:
        """Let each logger continue its run: the n-th of a class with the n-th state of it."""
        left = list(states)
        for guard in self._guards:
            kind = type(guard.logger).__qualname__
            state = next((state for state in left if state["kind"] == kind), None)
            if state is not None:
                left.remove(state)
                guard.resume_run(state)
