"""`trainer-hooks checkpoint prune FOLDER`: remove old checkpoints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer_hooks._text import show_table
from trainer_hooks.checkpoint import FORMAT, plan_pruning, remove_folder
from trainer_hooks.cli.values import counted, printable, size_text
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trainer_hooks.checkpoint import Entry, Rule

__all__ = ["prune"]


def prune(folder: Path, rule: Rule, *, is_dry: bool, is_agreed: bool) -> int:
    """Remove what a rule does not keep, and return the exit code: 1 if something is left undone.

    Args:
        folder: where to look; folders inside of it are left alone.
        rule: what is to stay.
        is_dry: tell, and remove nothing.
        is_agreed: do not ask.

    Raises:
        UsageError: it is no folder, or there is nobody to ask.
        MetricError: no checkpoint has the metric that tells the best.
    """
    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} must be a folder that is there.")
    entries = plan_pruning(folder, rule, FORMAT)
    going = [entry for entry in entries if not entry.is_kept]
    if entries:
        rows = [
            [
                "keep" if entry.is_kept else "remove",
                printable(entry.path.name),
                size_text(entry.size),
                printable(entry.reason),
            ]
            for entry in entries
        ]
        show_table(["", "file", "size", "because"], rows, right={2}, whole={0, 2})
    room = size_text(sum(entry.size for entry in going))
    if not going:
        print("nothing to remove")
        return 0
    if is_dry:
        print(f"would remove {counted(len(going), 'file')}, {room}")
        return 0
    if not is_agreed and not _agrees(f"Remove {counted(len(going), 'file')}, {room}? [y/N] "):
        print("nothing was removed")
        return 1
    return _remove(going)


def _agrees(question: str) -> bool:
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


def _remove(going: list[Entry]) -> int:
    removed = []
    for entry in going:
        if not entry.is_unchanged:
            print(f"{str(entry.path)!r} stays: it was written anew meanwhile", file=sys.stderr)
            continue
        try:
            remove_folder(entry.path)
            removed.append(entry)
        except OSError as error:
            print(f"{str(entry.path)!r} cannot be removed: {error.strerror}", file=sys.stderr)
    room = size_text(sum(entry.size for entry in removed))
    print(f"removed {counted(len(removed), 'file')}, {room}")
    return 0 if len(removed) == len(going) else 1
