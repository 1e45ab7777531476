"""Which folders are runs, and which of several is the newest."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainer_hooks.callbacks.reporting.journal import JOURNAL
from trainer_hooks.cli.report.metrics import METRICS
from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["RunFolderError", "newest_of_each", "newest_run", "require_run"]

_OTHER_LOGGERS = (
    ("events.out.tfevents.*", "TensorBoard"),
    ("wandb", "wandb"),
    ("mlruns", "MLflow"),
    ("hparams.yaml", "Lightning"),
)


class RunFolderError(TrainerHooksError):
    """Raised for a folder that is not a run's."""


def newest_of_each(given: Iterable[Path], command: str) -> list[Path]:
    """Return the runs that are meant, each once; say on stderr which of several was taken.

    Raises:
        RunFolderError: a folder is no run's, and holds none.
    """
    found: dict[Path, None] = {}
    for folder in dict.fromkeys(given):
        run, count = newest_run(folder)
        found[run] = None
        if count:
            what = "the only run" if count == 1 else f"the newest of {count} runs"
            told = f"{str(run)!r}, {what} in {str(folder)!r}"
            print(f"trainer-hooks {command}: took {told}", file=sys.stderr)
    return list(found)


def newest_run(folder: Path) -> tuple[Path, int]:
    """Return a run's folder, or the newest of the runs in a folder that holds some, and how many.

    The newest is the one whose journal or metrics were written to last. The number is 0 for the
    folder of a run.

    Raises:
        RunFolderError: it is neither.
    """
    if folder.is_dir() and not _is_run(folder):
        runs = [path for path in folder.glob("*/") if _is_run(path)]
        runs = runs or [path for path in folder.glob("*/*/") if _is_run(path)]
        if runs:
            return max(runs, key=_written_at), len(runs)
    require_run(folder)
    return folder, 0


def require_run(folder: Path) -> None:
    """Make sure that a folder is a run's.

    Raises:
        RunFolderError: it is not; the message says what it is, and what to give instead.
    """
    if not folder.exists():
        raise RunFolderError(f"{str(folder)!r} is not there: give the folder of a run.")
    if not folder.is_dir():
        raise RunFolderError(
            f"{str(folder)!r} is a file: give the folder of a run, as trainer_logs/version_0."
        )
    if _is_run(folder):
        return
    for pattern, name in _OTHER_LOGGERS:
        if any(folder.glob(pattern)):
            raise RunFolderError(
                f"{str(folder)!r} holds files of {name} alone: metrics are read from the "
                f"{METRICS} of a CSVLogger. Train with Trainer(logger=[CSVLogger('logs'), ...])."
            )
    raise RunFolderError(
        f"{str(folder)!r} holds nothing of a run: neither {METRICS}, {JOURNAL} nor checkpoints; "
        "no folder in it does, two levels down. Give the folder that trainer.log_dir names, or one "
        "that holds such folders."
    )


def _is_run(folder: Path) -> bool:
    if (folder / METRICS).is_file() or (folder / JOURNAL).is_file():
        return True
    return any(folder.glob("*.ckpt")) or any(folder.glob("checkpoints/*.ckpt"))


def _written_at(folder: Path) -> tuple[int, int, str]:
    """Return when a run was written to last; of two at one moment, the higher number wins."""
    files = [folder / METRICS, folder / JOURNAL, *folder.glob("checkpoints/*.ckpt")]
    times = [path.stat().st_mtime_ns for path in files if path.is_file()]
    name = folder.name
    return max(times, default=0), len(name), name
