"""Which callbacks take part, in what order, under which state key; it never sees the Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.connector.admission import Admission, adopting, all_hooks, can_take_part
    from trainer_hooks.connector.adoption import ADAPTERS, find_adapter
    from trainer_hooks.connector.connector import CallbackConnector
    from trainer_hooks.connector.occupation import Occupation
    from trainer_hooks.connector.registration import adopted, checked, collect, declared_by_bases
    from trainer_hooks.connector.reports import CallbackReport, LoadReport
    from trainer_hooks.connector.roster import Default, Entry, Roster

__all__ = [
    "ADAPTERS",
    "Admission",
    "CallbackConnector",
    "CallbackReport",
    "Default",
    "Entry",
    "LoadReport",
    "Occupation",
    "Roster",
    "adopted",
    "adopting",
    "all_hooks",
    "can_take_part",
    "checked",
    "collect",
    "declared_by_bases",
    "find_adapter",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "ADAPTERS": "adoption",
            "Admission": "admission",
            "CallbackConnector": "connector",
            "CallbackReport": "reports",
            "Default": "roster",
            "Entry": "roster",
            "LoadReport": "reports",
            "Occupation": "occupation",
            "Roster": "roster",
            "adopted": "registration",
            "adopting": "admission",
            "all_hooks": "admission",
            "can_take_part": "admission",
            "checked": "registration",
            "collect": "registration",
            "declared_by_bases": "registration",
            "find_adapter": "adoption",
        },
    )
