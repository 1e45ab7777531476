"""keep_opaque: the parts of a guest's state that a checkpoint keeps as pickles."""

from __future__ import annotations

from typing import Any

from trainer_hooks.adapters.hosted import HostedCallback
from trainer_hooks.connector import adopted
from trainer_hooks.errors import UsageError

__all__ = ["keep_opaque"]


def keep_opaque(callback: Any, *names: str) -> HostedCallback:
    """Return the adapter of a foreign callback, parts of whose state are kept as its pickle.

    Opening a pickle runs the code that it names. Whoever can write the checkpoint can run code
    where it is resumed, so do it only with files that you trust. Parts that are not named are plain
    data as ever, and a resume that names none of them opens none.

    Args:
        callback: the callback of another framework, to be passed on to the Trainer as it is
            returned.
        names: the keys of its `state_dict()` whose values are kept so.

    Raises:
        UsageError: the callback is no foreign one, no name is given, or its adapter keeps the state
            in a way of its own.

    Example::

        trainer = Trainer(callbacks=[keep_opaque(TheirCallback(), "history")])
    """
    adapter = adopted(callback)
    kind = type(adapter)
    if not isinstance(adapter, HostedCallback) or kind.state_dict is not HostedCallback.state_dict:
        raise UsageError(
            f"keep_opaque({kind.__qualname__}): it is for callbacks of other frameworks, whose "
            "adapter says what `guest_state` is. Return plain data from state_dict()."
        )
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"keep_opaque({kind.__qualname__}, ...): names {names!r} must be keys of its state. "
            "Name those that are no plain data."
        )
    adapter.opaque_names = frozenset(names)
    return adapter
