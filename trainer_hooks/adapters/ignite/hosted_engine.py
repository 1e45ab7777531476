"""HostedEngine: an engine of Ignite that does not run by itself, and fires what it is told to."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from trainer_hooks.errors import StopTraining, UsageError, add_note

__all__ = ["name_of", "new_engine"]


@cache
def _engine_class() -> Any:
    """Return a class of engines that know on which events somebody listens."""
    package: Any = importlib.import_module("ignite.engine")
    base: Any = package.Engine
    events = {event.name: event for event in package.Events}

    class HostedEngine(base):  # type: ignore[misc]  # not known before
        """An engine whose run is a fit of trainer_hooks."""

        def add_event_handler(self, event_name: Any, *args: Any, **kwargs: Any) -> Any:
            """Add a handler, and note its event."""
            # a list comes back one by one; a text is none that is known
            if not hasattr(event_name, "__iter__"):
                self.__dict__.setdefault("wanted", set()).add(event_name.name)
            return super().add_event_handler(event_name, *args, **kwargs)

        def fire_hosted(self, event: str, *args: Any, **kwargs: Any) -> None:
            """Fire an event, with what its handlers are given; an error names the handler."""
            try:
                self._fire_event(events[event], *args, **kwargs)
            except StopTraining:
                raise
            except Exception as error:
                add_note(error, f"in {_handler_of(error, base)} of Ignite, on Events.{event}")
                raise

        def run(self, *_: Any, **__: Any) -> Any:
            """Refuse: the Trainer runs.

            Raises:
                UsageError: always.
            """
            raise UsageError(
                "engine.run() was called by a handler of Ignite, on the engine of a fit of "
                "trainer_hooks: the Trainer runs it. Call trainer.request_validation() in a hook."
            )

    return HostedEngine


def _handler_of(error: Exception, engine_class: Any) -> str:
    """Return what an engine had called when an error came up.

    All handlers of an event hang on one engine, so that the callback whose hook fires it need not
    be the one that broke.
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is engine_class._fire_event.__code__:  # noqa: SLF001 - its frame
            return f"the handler {name_of(trace.tb_frame.f_locals.get('func'))}"
        trace = trace.tb_next
    return "an engine"


def name_of(handler: Any) -> str:
    """Return the name of a function, or of an object's class."""
    return str(getattr(handler, "__qualname__", type(handler).__qualname__))


def new_engine() -> Any:
    """Return an engine that does nothing by itself."""
    made = _engine_class()(lambda _engine, _batch: None)
    made.wanted = set()
    return made
