"""Checkpoints that an object of the user's writes, reads and removes: Lightning's `CheckpointIO`.

It gets whole checkpoints, as plain data and tensors, and writes them in any format and anywhere.
The facts that a sealed file has at its end are inside such a checkpoint, as its files have no seal.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks._annotations import signature_of
from trainer_hooks.checkpoint.paths import modified_at
from trainer_hooks.checkpoint.seal import CheckpointSummary
from trainer_hooks.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    TrainerHooksError,
    error_message,
    is_interruption,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

_SUMMARY = "summary"
"""Where a checkpoint holds its summary, in `checkpoint["trainer_hooks"]`."""


class CheckpointIO(Protocol):
    """An object that writes, reads and removes whole checkpoints."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write a checkpoint to a path."""

    def load_checkpoint(self, path: Any, map_location: Any = None) -> dict[str, Any]:
        """Return the checkpoint that was written to a path."""

    def remove_checkpoint(self, path: Any) -> None:
        """Remove the checkpoint at a path."""


class CustomIO:
    """The user's `CheckpointIO` as the Trainer calls it.

    Args:
        io: the user's object.

    Attributes:
        io: the user's object.
    """

    def __init__(self, io: CheckpointIO) -> None:
        self.io = io
        # the user's object reads whole checkpoints, and a resume asks several times for the facts
        self._summaries: dict[str, tuple[int, CheckpointSummary]] = {}

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.io).__name__

    def write(
        self,
        checkpoint: Mapping[str, Any],
        path: str,
        summary: CheckpointSummary | None = None,
        storage_options: Any = None,
    ) -> None:
        """Write a checkpoint.

        Args:
            checkpoint: plain data and tensors.
            path: the absolute path, or the address.
            summary: the facts to store in it; None for a copy, and for one of a user's code.
            storage_options: passed on.

        Raises:
            CheckpointError: the user's object raised an error, which is its cause.
        """
        self._summaries.pop(path, None)
        # a copy, as the method may change it, and the same checkpoint may go to several files
        content = dict(checkpoint)
        if summary is not None:
            content["trainer_hooks"] = {**content["trainer_hooks"], _SUMMARY: asdict(summary)}
        try:
            self.io.save_checkpoint(content, path, storage_options=storage_options)
        except TrainerHooksError:
            raise
        except Exception as error:
            if is_interruption(error):
                raise
            raise CheckpointError(
                f"checkpoint {path!r} could not be written by {self.name}: {error_message(error)}. "
                "Whether a part of it is there is up to that class."
            ) from error

    def read(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Return the checkpoint at a path.

        Raises:
            CheckpointNotFoundError: the user's object raised a FileNotFoundError.
            CheckpointError: it raised another error, or returned no dict.
        """
        options: dict[str, Any] = {}
        # a class that can run code as it reads is told not to: no checkpoint of ours needs it
        if "weights_only" in signature_of(self.io.load_checkpoint).parameters:
            options["weights_only"] = True
        written_at = modified_at(str(path))
        try:
            checkpoint = self.io.load_checkpoint(path, **options)
        except TrainerHooksError:
            raise
        except FileNotFoundError as error:
            message = f"checkpoint {str(path)!r} is not there: {error_message(error)}"
            raise CheckpointNotFoundError(message) from error
        except Exception as error:
            if is_interruption(error):
                raise
            raise CheckpointError(
                f"checkpoint {str(path)!r} could not be read by {self.name}: {error_message(error)}"
            ) from error
        if not isinstance(checkpoint, dict):
            raise CheckpointError(
                f"checkpoint {str(path)!r} could not be used: {self.name}.load_checkpoint returned "
                f"a {type(checkpoint).__name__}. Return the dict that save_checkpoint was given."
            )
        summary = summary_in(checkpoint) or CheckpointSummary.of(checkpoint, written_at)
        self._summaries[str(path)] = written_at, summary
        return checkpoint

    def summarize(self, path: str) -> CheckpointSummary:
        """Return the summary of the checkpoint at a path, which is read unless it was before.

        Raises:
            CheckpointError: as for `read`.
        """
        written_at, summary = self._summaries.get(path, (0, None))
        if summary is None or written_at != modified_at(path):
            self.read(path)
            summary = self._summaries[path][1]
        return summary

    def remove(self, path: str) -> None:
        """Remove the checkpoint at a path."""
        self._summaries.pop(path, None)
        self.io.remove_checkpoint(path)


def summary_in(checkpoint: Mapping[str, Any]) -> CheckpointSummary | None:
    """Return the summary in a checkpoint that was made for an IO; None for another one.

    Raises:
        CheckpointError: it was changed by another tool.
    """
    part = checkpoint.get("trainer_hooks")
    facts = part.get(_SUMMARY) if isinstance(part, dict) else None
    if not isinstance(facts, dict):
        return None
    try:
        return CheckpointSummary.read(facts)
    except TypeError as error:
        raise CheckpointError(f"the summary in a checkpoint cannot be read: {error}") from error


def facts_for_writing(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `write_checkpoint` that its summary holds; none without one."""
    summary = summary_in(checkpoint)
    if summary is None:
        return {}
    names = ("module", "saved_at", "origin", "process", "command", "identity")
    return {name: getattr(summary, name) for name in names}
