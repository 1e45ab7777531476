"""`trainer-hooks checkpoint prune FOLDER`: delete old checkpoints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer_hooks._text import count_with_noun, show_table
from trainer_hooks.checkpoint.atomic_write import remove_folder
from trainer_hooks.checkpoint.folder_retention import plan_retention
from trainer_hooks.checkpoint.parts import FORMAT
from trainer_hooks.cli.values import size_text
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trainer_hooks.checkpoint.folder_retention import RetentionDecision, RetentionRule


def prune(folder: Path, rule: RetentionRule, *, is_dry: bool, is_agreed: bool) -> int:
    """Delete the checkpoints that a rule does not keep; exit with 1 if some could not be deleted.

    Args:
        folder: the folder to search; subfolders are left alone.
        rule: which checkpoints to keep.
        is_dry: only print the plan, delete nothing.
        is_agreed: delete without asking.

    Raises:
        UsageError: the folder does not exist, or there is no terminal to ask on.
        MetricError: no checkpoint has the metric that ranks them.
    """
    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} must be a folder that is there.")
    entries = plan_retention(folder, rule, FORMAT)
    going = [entry for entry in entries if not entry.is_kept]
    if entries:
        rows = [
            [
                "keep" if entry.is_kept else "remove",
                entry.path.name,
                size_text(entry.size),
                entry.reason,
            ]
            for entry in entries
        ]
        show_table(["", "file", "size", "because"], rows, right={2}, whole={0, 2})
    room = size_text(sum(entry.size for entry in going))
    if not going:
        print("nothing to remove")
        return 0
    if is_dry:
        print(f"would remove {count_with_noun(len(going), 'file')}, {room}")
        return 0
    if not is_agreed and not _agrees(
        f"Remove {count_with_noun(len(going), 'file')}, {room}? [y/N] "
    ):
        print("nothing was removed")
        return 1
    return _remove(going)


def _agrees(question: str) -> bool:
    # a job without a terminal would wait for an answer, or read one from its own input
    if not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask on before files are removed: give --yes, or --dry-run."
        )
    try:
        # not rich's Confirm, which asks on: whatever is not a yes is a no
        answer = input(question)
    except EOFError:
        return False
    return answer.strip().lower() in {"y", "yes"}


def _remove(going: list[RetentionDecision]) -> int:
    removed = []
    for entry in going:
        # the question may have waited for hours, in which a run wrote its last.ckpt anew
        if not entry.is_unchanged:
            print(f"{str(entry.path)!r} stays: it was written anew meanwhile", file=sys.stderr)
            continue
        try:
            # a file, too; a sharded checkpoint is a folder
            remove_folder(entry.path)
            removed.append(entry)
        except OSError as error:
            reason = error.strerror or str(error)
            print(f"{str(entry.path)!r} cannot be removed: {reason}", file=sys.stderr)
    room = size_text(sum(entry.size for entry in removed))
    print(f"removed {count_with_noun(len(removed), 'file')}, {room}")
    return 0 if len(removed) == len(going) else 1
