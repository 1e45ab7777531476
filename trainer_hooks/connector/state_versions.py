"""Versions of callback states: one of an older version is upgraded before it is taken back."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import CallbackError, CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.connector.roster import Entry

__all__ = ["current_version", "under_present_keys", "upgraded_state"]


def under_present_keys(
    entries: Sequence[Entry], states: Mapping[str, Any], versions: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return saved states and their versions by the keys that the callbacks have now.

    Only what was saved under no present key can be one's whose key was another.
    """
    stateful = [entry.callback for entry in entries if entry.callback.is_stateful]
    present = {callback.state_key for callback in stateful}
    left = [key for key in states if key not in present]
    found, known, taken = dict(states), dict(versions), set()
    for callback in stateful:
        former = None if callback.state_key in states else callback.former_state_key(left)
        if former is not None:
            found[callback.state_key] = copy.deepcopy(states[former])
            known[callback.state_key] = versions.get(former, 1)
            taken.add(former)
    return {key: state for key, state in found.items() if key not in taken}, known


def current_version(entry: Entry) -> int:
    """Return the version of the state that a callback saves.

    Raises:
        CallbackError: it is no version.
    """
    version: object = entry.callback.state_version
    if type(version) is not int or version < 1:
        raise CallbackError(
            f"state_version {version!r} of {entry.label}: it must be an int from 1 on. Count it up "
            "by one whenever what state_dict() returns changes its form."
        )
    return version


def upgraded_state(entry: Entry, state: Mapping[str, Any], saved: int) -> dict[str, Any]:
    """Return a state that was saved by another version of a callback as the present one knows it.

    Raises:
        CheckpointError: it was saved by a newer version, or cannot be upgraded.
    """
    now = current_version(entry)
    if saved > now:
        raise CheckpointError(
            f"the state of {entry.label} was saved by its state_version {saved}, and it is {now} "
            "here: what is newer cannot be taken back. Install the version of the callback that "
            "saved it, or a later one, or resume without the callback."
        )
    found: object = entry.callback.upgrade_state_dict(copy.deepcopy(dict(state)), saved)
    if not isinstance(found, dict):
        raise CheckpointError(
            f"upgrade_state_dict of {entry.label} returned {found!r} of type "
            f"{type(found).__qualname__}: it must return the state, a dict, as state_version {now} "
            "saves it."
        )
    return found
