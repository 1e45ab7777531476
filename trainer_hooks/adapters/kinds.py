"""What a guest may count as, where the trainer asks more of such a callback than its hooks."""

from __future__ import annotations

from typing import Any

from trainer_hooks.callbacks import ProgressBar

__all__ = ["HostedBar"]


class HostedBar(ProgressBar):
    """A progress bar of another framework: it draws, enables itself and prints as it does there."""

    guest: Any

    @property
    def is_enabled(self) -> bool:
        """Whether the guest draws, and prints for the trainer; one that cannot print does not."""
        kind = type(self.guest)
        return hasattr(kind, "print") and (
            not hasattr(kind, "is_enabled") or bool(self.guest.is_enabled)
        )

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print as the guest does."""
        self.guest.print(*args, **kwargs)

    def enable(self) -> None:
        """Show the guest's bar."""
        self.guest.enable()

    def disable(self) -> None:
        """Show it no more."""
        self.guest.disable()
