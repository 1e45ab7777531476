"""LoggerGuards: the guards of a trainer's loggers, and what checkpoints keep of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_hooks.loggers.base import Logger
    from trainer_hooks.loggers.guard import Guard

__all__ = ["LoggerGuards"]


class LoggerGuards:
    """One guard for each logger; they stand in front of them while a run is under way."""

    def __init__(self) -> None:
        self._guards: list[Guard] = []
        self._is_installed = False

    def install(self, loggers: Iterable[Logger]) -> None:
        """Guard these loggers until `release`."""
        known = {id(guard.logger): guard for guard in self._guards}
        self._guards = [known.get(id(logger)) or _guard_of(logger) for logger in loggers]
        for guard in self._guards:
            guard.install()
        self._is_installed = True

    def release(self) -> None:
        """Wait for what is written in the background, report errors, and stand aside.

        Raises:
            Exception: that of a logger in the background whose `on_error` is `"raise"`.
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
            guard.release()
        if first is not None:
            raise first

    def state(self) -> list[dict[str, Any]]:
        """Return what a checkpoint keeps of each logger."""
        return [guard.run_state() for guard in self._guards]

    def resume(self, states: Sequence[dict[str, Any]]) -> None:
        """Let each logger go on with its run: the first of a class with the first, and so on."""
        left = list(states)
        for guard in self._guards:
            kind = type(guard.logger).__qualname__
            state = next((state for state in left if state["kind"] == kind), None)
            if state is not None:
                left.remove(state)
                guard.resume_run(state)


def _guard_of(logger: Logger) -> Guard:
    """Return a guard for a logger, of the kind that it asks for."""
    if logger.in_background:
        from trainer_hooks.loggers.background_guard import BackgroundGuard

        return BackgroundGuard(logger)
    from trainer_hooks.loggers.guard import Guard

    return Guard(logger)
