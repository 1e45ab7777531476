"""The record of a start that failed: a resume that ended before it had trained a batch.

`ckpt_path="auto"` would take the same checkpoint at each restart, and fail each time. So the failed
start leaves a record in the folder of the checkpoint, and the next start from it says so. The
record is written as the start begins, since a process that is killed writes nothing any more; its
first batch removes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log, warn
from trainer_hooks.checkpoint.paths import (
    exists,
    file_name,
    is_remote,
    join_path,
    open_whole,
    parent_folder,
    remove,
)
from trainer_hooks.errors import (
    CheckpointError,
    TerminationSignal,
    TrainerHooksWarning,
    error_message,
)
from trainer_hooks.hooks.relay import error_summary_with_notes
from trainer_hooks.trainer.identity.run_origin import is_live_elsewhere, process_identity

if TYPE_CHECKING:
    from trainer_hooks.checkpoint.custom_io import CustomIO
    from trainer_hooks.trainer.core.trainer_core import TrainerCore

RECORD = ".failed_start.json"
"""The file's name; each folder has one at most."""

_LONGEST = 1000
"""Characters of an error that a record holds."""

_KILLED = "its process ended without an error, as one that is killed or runs out of memory"
"""The text of a record until the fit that wrote it ends, or has trained a batch."""


def begin_start(core: TrainerCore) -> None:
    """Write the record of a fit that begins, in case that its process is killed."""
    core.start_checkpoint.record = ""
    update_start(core, _KILLED)


def update_start(core: TrainerCore, error: BaseException | str | None = None) -> None:
    """Call `record_start` where a folder that takes no file must not end the fit."""
    try:
        record_start(core, error)
    except (OSError, CheckpointError) as failure:
        log.warning("the record of the start was not changed: %s", error_message(failure))


def record_start(core: TrainerCore, error: BaseException | str | None) -> None:
    """Write the record of a fit that failed before it trained a batch, or remove an earlier one.

    It is written only on rank 0, and only where a word chose the checkpoint: a path is the user's.

    Args:
        core: the core of the trainer whose fit ends.
        error: the error that ends the fit, or its text; None if there is none.

    Raises:
        OSError: the folder cannot be written to.
        CheckpointError: the remote store does not answer.
    """
    start_checkpoint = core.start_checkpoint
    if core.fn != "fit" or core.is_trial or not core.processes.is_global_zero:
        return
    is_chosen = start_checkpoint.path is not None and start_checkpoint.named_path is None
    record = (
        join_path(parent_folder(start_checkpoint.path), RECORD)
        if start_checkpoint.path and is_chosen
        else ""
    )
    if start_checkpoint.record not in ("", record):
        # a callback has chosen another checkpoint since
        if exists(start_checkpoint.record):
            remove(start_checkpoint.record)
        start_checkpoint.record = ""
    if not is_chosen or start_checkpoint.path is None:
        return
    if not isinstance(error, str | Exception) or isinstance(error, TerminationSignal):
        error = None  # a signal, or Ctrl-C: no fault of the checkpoint
    if error is None or _has_trained(core):
        if exists(record):
            remove(record)
        start_checkpoint.record = ""
        return
    if not exists(start_checkpoint.path):
        return
    # here and below: a fit that resumes nothing and saves nothing does not load it
    from trainer_hooks.checkpoint.file import summarize

    text = error if isinstance(error, str) else error_summary_with_notes(error)
    content = {
        "checkpoint": file_name(start_checkpoint.path),
        "saved_at": summarize(start_checkpoint.path, core.custom_io).saved_at,
        "error": text[:_LONGEST],
        "process": process_identity(),
    }
    start_checkpoint.record = record
    with open_whole(record, "record of a failed start") as file:
        file.write(json.dumps(content).encode())


def warn_of_failed_start(path: str, asked: str, io: CustomIO | None = None) -> None:
    """Warn if the last start from a checkpoint failed before it had trained a batch.

    Args:
        path: the checkpoint.
        asked: the word that chose it.
        io: reads it, where the user's own object writes the checkpoints.
    """
    record = _read(join_path(parent_folder(path), RECORD))
    # by the time of the save, too: `last.ckpt` is another checkpoint after each save
    if record.get("checkpoint") != file_name(path) or "error" not in record:
        return
    from trainer_hooks.checkpoint.file import summarize

    if record.get("saved_at") != summarize(path, io).saved_at:
        return
    # until its first batch, a start that goes on beside this one is no failed one
    if is_live_elsewhere(str(record.get("process", ""))):
        return
    warn(
        f"ckpt_path={asked!r} took {path!r} once more, although the last start from it failed "
        f"before it had trained a batch: {record['error']}. If it fails again, mend the cause, "
        "give the path of an older checkpoint, or move this one out of its folder.",
        TrainerHooksWarning,
    )


def _has_trained(core: TrainerCore) -> bool:
    """Return whether a fit has trained or saved anything since it was resumed."""
    start_checkpoint, training = core.start_checkpoint, core.training
    # the checkpoint was not yet restored, or its restoring was undone
    if (
        start_checkpoint.is_open
        or start_checkpoint.report is None
        or not training.progress.is_restored
    ):
        return False
    has_batch = training.progress.batches_completed > training.newest_batches
    return has_batch or training.newest_path != start_checkpoint.path


def _read(path: str) -> dict[str, Any]:
    """Return a record, or an empty one if there is none, or none that can be read."""
    if not exists(path):
        return {}
    try:
        if is_remote(path):
            from trainer_hooks.checkpoint.remote import downloaded

            with downloaded(path) as local:
                content = json.loads(local.read_text(encoding="utf-8"))
        else:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
    # a start must not fail by its record; another process may have removed it meanwhile
    except (OSError, ValueError, CheckpointError):
        return {}
    return content if isinstance(content, dict) else {}
