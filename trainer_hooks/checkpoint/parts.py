"""Parts of a checkpoint: their format and types, and one error for one that cannot be restored."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._text import printable
from trainer_hooks.errors import CheckpointError, TrainerHooksError, is_interruption
from trainer_hooks.hooks.relay import error_summary_with_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = 4
"""Number of the layout of a checkpoint, kept in `checkpoint["trainer_hooks"]`.

A change of the layout that a reader must know raises it, and files of format 4 and later are still
read then: tests/checkpoint/examples has one.
"""

_TYPES: dict[str, type | tuple[type, ...]] = {
    "callbacks": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
}
_OWN_TYPES: dict[str, type | tuple[type, ...]] = {
    "accumulate_grad_batches": int,
    "added_groups": list,
    "added_weights": list,
    "buffers": dict,
    "clock": dict,
    "evaluated": dict,
    "evaluators": dict,
    "extra_buffers": dict,
    "generators": dict,
    "gradients": dict,
    "history": dict,
    "inside_batch": bool,
    "loggers": list,
    "loop": dict,
    "metric_objects": dict,
    "metrics": dict,
    "modes": dict,
    "own_buffers": dict,
    "own_stop": dict,
    "own_requests": dict,
    "plugins": list,
    "progress": dict,
    "renewed": dict,
    "rng": dict,
    "setup": dict,
    "set_window": dict,
    "sharding_seed": int,
    "slot": dict,
    "state_versions": dict,
    "stop": dict,
    "stream": dict,
    "val_generators": dict,
    "wall_times": dict,
    "world_size": int,
}
"""The types of the parts of a checkpoint in the present format, as far as it holds them."""
_NUMBERS = {"stream": ("num_batches",)}
"""Numbers inside of parts that nothing converts as they are restored, and a loop compares."""


def require_format(checkpoint: dict[str, Any], source: str) -> None:
    """Raise unless a checkpoint that trainer_hooks wrote has a format that this version reads.

    Args:
        checkpoint: the checkpoint.
        source: the file, for messages.

    Raises:
        CheckpointError: its format is newer, from before the first that is kept, or missing.
    """
    entries = checkpoint["trainer_hooks"]
    number = entries.get("format") if isinstance(entries, dict) else None
    if type(number) is not int or number < 1:  # not isinstance: True is an int, too
        raise CheckpointError(
            f"checkpoint {source!r} says nothing of its format: it is damaged, or was changed by "
            "another tool. Resume from another one."
        )
    if number == FORMAT:
        return
    saved = f"checkpoint {source!r} has format {number}, saved by trainer_hooks"
    if number > FORMAT:
        raise CheckpointError(
            f"{saved} {entries.get('version')}: this version knows formats up to {FORMAT}. Upgrade "
            "trainer-hooks."
        )
    raise CheckpointError(
        f"{saved} before its first version: this version reads format {FORMAT}. Load its weights "
        "by torch.load(path)['state_dict']."
    )


def require_types(checkpoint: dict[str, Any], source: str) -> None:
    """Raise unless the parts of a checkpoint in the present format have their types.

    Args:
        checkpoint: a checkpoint that trainer_hooks wrote, or another program after it.
        source: the file, for messages.

    Raises:
        CheckpointError: a part holds something else.
    """
    for parts, types in ((checkpoint, _TYPES), (checkpoint["trainer_hooks"], _OWN_TYPES)):
        for name, type_ in types.items():
            # some parts of a real file are None, but none of its lists is
            if name in parts and not isinstance(parts[name], type_):
                if parts[name] is None and type_ is not list:
                    continue
                raise CheckpointError(
                    f"checkpoint {source!r} cannot be used: its part {name!r} is a "
                    f"{type(parts[name]).__qualname__}. It was changed by another tool. Resume "
                    "from another one."
                )
    for part, names in _NUMBERS.items():
        for name in names:
            value = (checkpoint["trainer_hooks"].get(part) or {}).get(name, 0)
            if not isinstance(value, int | float):
                raise CheckpointError(
                    f"checkpoint {source!r} cannot be used: {name!r} in its part {part!r} is a "
                    f"{type(value).__qualname__}, and must be a number. It was changed by another "
                    "tool. Resume from another one."
                )


class UnfitPartError(CheckpointError):
    """Raised for a part of a checkpoint that its owner cannot load.

    Attributes:
        part: the name of the part.
    """

    def __init__(self, part: str, source: str, reason: str) -> None:
        super().__init__(
            f"checkpoint {source!r} cannot be restored: its part {part!r} does not fit the object "
            f"that is to load it ({reason}). It must be as that object saved it. Resume from "
            "another checkpoint, or load the weights alone with load_from_checkpoint."
        )
        self.part = part


@contextmanager
def restoring_part(part: str, source: str) -> Iterator[None]:
    """Turn an error of the `with` block, which restores a part, into an UnfitPartError.

    Args:
        part: the name of the part, as in the checkpoint.
        source: the file, for messages.

    Raises:
        UnfitPartError: the block raised an error of another library, or of the program; that is
            its cause. Errors of trainer_hooks pass through, warnings that are errors, and those
            of the data and of other processes, with which the file has nothing to do.
    """
    try:
        yield
    # the file may be whole: it is the machine that is too small
    except (TrainerHooksError, Warning, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # of any class: a state is restored by code of others, too
        if _is_of_others(error, part) or is_interruption(error):
            raise
        reason = printable(" ".join(error_summary_with_notes(error).split()))
        raise UnfitPartError(part, source, reason) from error


_STREAM = "stream"
_KNOWN = frozenset({"contextlib", "numpy", "random", "torch", "torchdata", "trainer_hooks"})
"""Packages whose errors, as the stream is restored, are about its state."""


def _is_of_others(error: Exception, part: str) -> bool:
    """Return whether an error is of the loader's data, or of the talk with other processes."""
    # a resume opens the loader and goes on to its place, so the user's data set is run
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("torch.utils.data."):
            return True
        is_talk = module.startswith("torch.distributed.")
        if is_talk and not module.startswith("torch.distributed.checkpoint"):
            return True
        if part == _STREAM and module.partition(".")[0] not in _KNOWN:
            return True
    return False
