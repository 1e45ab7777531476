"""Serializable: what has a state to save."""

from __future__ import annotations

from typing import Any

__all__ = ["Serializable"]


class Serializable:
    """Base of what has a state to save and load."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` returned."""
