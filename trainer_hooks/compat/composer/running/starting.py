"""Where a training of Composer's trainer starts: at nothing, or at a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks import checkpoint
from trainer_hooks.compat.composer.core.callback import Callback
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.utils import format_name_with_dist

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.core.engine import Engine
    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.options import TrainerOptions
    from trainer_hooks.compat.composer.running.carrier import Carrier

__all__ = ["load"]


def load(options: TrainerOptions, state: State, engine: Engine, carrier: Carrier) -> str | None:
    """Load what a trainer is to go on from, between `BEFORE_LOAD` and `AFTER_LOAD`.

    The weights, the timestamp and the states of callbacks are there at once, as in Composer. The
    rest, and all of it exactly, is restored when a fit begins.

    Returns:
        The checkpoint that a fit goes on from; None if it begins, or has the weights alone.
    """
    engine.run_event(Event.BEFORE_LOAD)
    path = _newest(options, state.run_name)
    weights_only = options.load_weights_only and path is None
    if path is None and options.load_path is not None:
        path = format_name_with_dist(str(options.load_path), state.run_name)
    if path is not None:
        state.load_path = path
        found = checkpoint.load_checkpoint(path)
        strict = options.load_strict_model_weights
        checkpoint.load_weights(carrier, found["state_dict"], path, strict=strict)
        if not weights_only:
            _preview(found.get("callbacks", {}), state)
    engine.run_event(Event.AFTER_LOAD)
    return None if weights_only else path


def _newest(options: TrainerOptions, run_name: str) -> str | None:
    """Return the newest checkpoint of this run, if it is to go on by itself and has one."""
    folder = options.place(run_name)
    if not options.autoresume or folder is None or options.save_latest_filename is None:
        return None
    name = format_name_with_dist(options.save_latest_filename, run_name)
    found = Path(folder) / name
    return str(found) if found.exists() else None


def _preview(states: dict[str, Any], state: State) -> None:
    """Let the state and the callbacks be as they were, where that is known."""
    known = states.get("ComposerState")
    if known is not None:
        state.timestamp.load_state_dict(known["timestamp"])
    for one in state.callbacks:
        if isinstance(one, Callback) and one.is_stateful and one.state_key in states:
            one.load_state_dict(states[one.state_key])
