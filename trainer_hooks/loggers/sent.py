"""What a process has sent to a service: a resume there must not send it once more."""

from __future__ import annotations

__all__ = ["Sent"]


class Sent:
    """Numbers the calls of a logger, and knows up to which step each name was sent.

    Attributes:
        calls: how many there were; the step of one that has none.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._last: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def is_new(self, name: str, step: int) -> bool:
        """Return whether a value was not sent before the resume that is gone on from."""
        return self._before.get(name, -1) < step

    def note(self, name: str, step: int) -> None:
        """Note that a value was sent."""
        self._last[name] = step

    def forget(self) -> None:
        """Forget all of it: what is sent from here on goes elsewhere."""
        self._last = {}

    def resume(self, calls: int) -> None:
        """Go on after so many calls: what was sent since is passed over when it comes again."""
        self.calls, self._before = calls, dict(self._last)

    def end_run(self) -> None:
        """Pass nothing over any more."""
        self._before = {}
