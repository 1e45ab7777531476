"""Callbacks that take part in the first of several processes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.connector import CallbackConnector

__all__ = ["leave_to_first"]


def leave_to_first(connector: CallbackConnector) -> None:
    """Take out the callbacks that run on rank zero, in another process."""
    for callback in connector.callbacks:
        if callback.runs_on == "rank_zero":
            connector.remove(callback)
