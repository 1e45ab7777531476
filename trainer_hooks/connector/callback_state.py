"""Saved states of callbacks: former state keys, state versions, and the report of a restore."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.connector.state_keys import short_state_keys
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.connector.registry import CallbackEntry


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of restoring callback states from a checkpoint.

    Attributes:
        restored: state_keys whose state a callback has loaded.
        missing: state_keys of stateful callbacks for which the checkpoint holds nothing.
        unexpected: state_keys in the checkpoint for which there is no callback.
        plugins: plugins that the checkpoint was saved with and that are gone or have another
            version now, in words.
        upgraded: states that an older version of their callback had saved, in words.
    """

    restored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    upgraded: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The differences in one sentence, or an empty string if there are none."""
        parts = []
        short_keys = short_state_keys([*self.restored, *self.missing, *self.unexpected])
        missing, unexpected = (
            ", ".join(repr(short_keys[key]) for key in keys)
            for keys in (self.missing, self.unexpected)
        )
        if missing:
            parts.append(f"no state for {missing}")
        if unexpected:
            parts.append(f"state without a callback: {unexpected}")
        parts.extend(self.plugins)
        return "; ".join(parts)


def rename_former_keys(
    entries: Sequence[CallbackEntry], states: Mapping[str, Any], versions: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return saved states and their versions, with former state keys replaced by present ones.

    A callback names its former key with `former_state_key`. Only states that no present callback
    owns are offered to it.

    Args:
        entries: the callbacks.
        states: the saved states by state_key.
        versions: the state_version of each, by state_key.
    """
    stateful = [entry.callback for entry in entries if entry.is_stateful]
    present_keys = {callback.state_key for callback in stateful}
    unowned_keys = [key for key in states if key not in present_keys]
    renamed_states, renamed_versions, former_keys = dict(states), dict(versions), set()
    for callback in stateful:
        # a state under the present key wins over those under former ones
        former = (
            None if callback.state_key in states else ours(callback).former_state_key(unowned_keys)
        )
        if former is not None:
            # a copy: two callbacks may name one former key, and each changes its state
            renamed_states[callback.state_key] = copy.deepcopy(states[former])
            renamed_versions[callback.state_key] = versions.get(former, 1)
            former_keys.add(former)
    return {
        key: state for key, state in renamed_states.items() if key not in former_keys
    }, renamed_versions


def upgrade_state(
    entry: CallbackEntry, state: Mapping[str, Any], saved_version: int
) -> dict[str, Any]:
    """Return a saved state in the form of the callback's present version.

    Args:
        entry: the callback.
        state: the state, as the other version of the callback saved it.
        saved_version: that version.

    Raises:
        CheckpointError: the state was saved by a newer version, or cannot be upgraded.
    """
    current = entry.state_version
    if saved_version > current:
        raise CheckpointError(
            f"the state of {entry.label} was saved by its state_version {saved_version}, and it is "
            f"{current} here: what is newer cannot be taken back. Install the version of the "
            "callback that saved it, or a later one, or resume without the callback."
        )
    # a copy: if the upgrade fails half-way and the callback is disabled, the state as it was
    # saved goes into the next checkpoint
    upgrade = ours(entry.callback).upgrade_state_dict
    upgraded: object = upgrade(copy.deepcopy(dict(state)), saved_version)
    if not isinstance(upgraded, dict):
        raise CheckpointError(
            f"upgrade_state_dict of {entry.label} returned {upgraded!r} of type "
            f"{type(upgraded).__qualname__}: it must return the state, a dict, as state_version "
            f"{current} saves it."
        )
    return upgraded
