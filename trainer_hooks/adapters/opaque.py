"""Parts of a guest's state that are no plain data: sealed as bytes, and opened again."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import CheckpointStateError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["opened", "sealed"]

_SEAL = "trainer_hooks.opaque"
"""Where in a state the parts are that were sealed, as bytes."""


def sealed(state: Any, names: Collection[str]) -> Any:
    """Return a guest's state with the named parts as bytes.

    Args:
        state: what the guest returned.
        names: the parts.
    """
    if not names or not isinstance(state, dict):
        return state
    held = {name: pickle.dumps(state[name]) for name in state if name in names}
    plain = {name: value for name, value in state.items() if name not in held}
    return {**plain, _SEAL: held} if held else plain


def opened(state: Any, names: Collection[str], owner: str) -> Any:
    """Return a guest's state with its sealed parts as they were.

    Args:
        state: as `sealed` returned it.
        names: the parts that may be opened.
        owner: the guest's class, for messages.

    Raises:
        CheckpointStateError: a part is sealed that is not named; none is opened then.
    """
    held = state.get(_SEAL) if isinstance(state, dict) else None
    if held is None:
        return state
    unnamed = sorted(set(held) - set(names))
    if unnamed:
        listed = ", ".join(map(repr, unnamed))
        raise CheckpointStateError(
            f"the checkpoint holds {listed} of the state of {owner} as a pickle, which was not "
            "opened: doing so runs whatever code it names. If you trust the file, pass "
            f"trainer_hooks.adapters.keep_opaque(callback, {listed}) to the Trainer; if not, "
            "resume without the callback."
        )
    found = {name: value for name, value in state.items() if name != _SEAL}
    return {**found, **{name: pickle.loads(raw) for name, raw in held.items()}}
