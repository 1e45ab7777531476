"""A run, as its folder tells it: metrics, journal, and those that it went on from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.reporting.journal import JOURNAL
from trainer_hooks.cli.report.journal import Session, number, read_journal, with_outcomes
from trainer_hooks.cli.report.metrics import METRICS, Metrics
from trainer_hooks.cli.report.run_folders import require_run

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "HPARAMS",
    "Run",
    "count_metrics",
    "labels_of",
    "read_run",
]

HPARAMS = "hparams.json"
"""The hyperparameters' name in a run's folder."""

_MOST_SIBLINGS = 200
_MOST_ANCESTORS = 100
_SHOWN = 5
_LONGEST_HEADER = 10_000_000
_NEAR_CHECKPOINT = 3


@dataclass(slots=True)
class Run:
    """What a run left.

    Attributes:
        folder: its folder.
        label: what it is called, beside others.
        metrics: its metrics, with those of the runs that it went on from.
        sessions: all starts, those of the runs that it went on from first.
        hparams: its hyperparameters.
        earlier: the folders of the runs that it went on from, the oldest first.
        notes: what a reader should know of what is missing or damaged.
    """

    folder: Path
    label: str
    metrics: Metrics
    sessions: list[Session] = field(default_factory=list)
    hparams: dict[str, Any] = field(default_factory=dict)
    earlier: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def fits(self) -> list[Session]:
        """The starts of training among the sessions."""
        return [session for session in self.sessions if session.stage == "fit"]

    @property
    def last_fit(self) -> Session | None:
        """The last start of training in its own folder."""
        own = [session for session in self.fits if session.folder == self.folder]
        return own[-1] if own else None


def read_run(
    folder: Path, label: str, most: int, beside: Sequence[Path] = (), *, hparams: bool = True
) -> Run:
    """Read what a run left.

    Args:
        folder: its folder.
        label: what to call it.
        most: how many points a curve may have.
        beside: folders of other runs that are shown too; their metrics are left to them.
        hparams: whether the hyperparameters are wanted.

    Raises:
        RunFolderError: it is not the folder of a run.
        MetricsFileError: its metrics cannot be read.
        OSError: its journal cannot be read.
    """
    require_run(folder)
    run = Run(folder, label, Metrics(most))
    known: set[Path] = {folder.resolve()}
    chain = [_journal(run, folder)]
    shown = {path.resolve() for path in beside}
    for _ in range(_MOST_ANCESTORS):
        before = _predecessor(chain[0])
        if before is None or before.resolve() in known:
            break
        known.add(before.resolve())
        run.earlier.insert(0, before)
        chain.insert(0, _journal(run, before))
    joined = [path for path in run.earlier if not shown & {path.resolve()}]
    for path, sessions in zip([*run.earlier, folder], chain, strict=True):
        if path in joined or path == folder:
            fits = [session for session in sessions if session.stage == "fit"]
            if fits and fits[0].resumed_from:
                run.metrics.cut(int(number(fits[0].start, "step")))
            _read_metrics(run, path)
    run.sessions = with_outcomes([session for sessions in chain for session in sessions])
    if hparams:
        run.hparams = _hparams(run)
    _note_metrics(run)
    return run


def labels_of(folders: Sequence[Path]) -> list[str]:
    """Return a name for each folder: its own, with as many of those above as tell all apart."""
    parts = [path.resolve().parts for path in folders]
    depth = 1
    deepest = max(map(len, parts))
    while depth < deepest and len({own[-depth:] for own in parts}) < len(set(parts)):
        depth += 1
    return ["/".join(own[-depth:]) for own in parts]


def count_metrics(folder: Path) -> int:
    """Return how many metrics a run has logged, by the first line of its file."""
    path = folder / METRICS
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return file.readline(_LONGEST_HEADER).count(b",")


def _journal(run: Run, folder: Path) -> list[Session]:
    sessions, bad = read_journal(folder)
    if bad:
        run.notes.append(f"{folder / JOURNAL}: lines could not be read: {bad}. They were left out.")
    if not sessions and folder == run.folder:
        run.notes.append(
            f"There is no {JOURNAL}: how the run went, and where, is not known. A RunManifest "
            "writes it, which a trainer with a logger has unless enable_run_manifest=False."
        )
    return sessions


def _read_metrics(run: Run, folder: Path) -> None:
    path = folder / METRICS
    if path.is_file():
        run.metrics.read(path)
    elif folder == run.folder:
        run.notes.append(
            f"There is no {METRICS}, from which curves are drawn: nothing was logged yet, or only "
            "by loggers other than CSVLogger."
        )


def _note_metrics(run: Run) -> None:
    metrics = run.metrics
    if metrics.skipped:
        run.notes.append(
            f"{metrics.skipped:,} of {metrics.rows + metrics.skipped:,} rows of {METRICS} made no "
            "sense and were left out; the last row of a run that is killed or still going may be "
            "half a row."
        )
    for name, curve in metrics.curves.items():
        if curve.gaps:
            run.notes.append(
                f"{name}: {curve.gaps:,} values were NaN or infinite, the first at step "
                f"{curve.first_gap:,}; they are not drawn."
            )


def _predecessor(sessions: list[Session]) -> Path | None:
    """Return the folder of the run that saved the checkpoint which the first fit went on from."""
    fit = next((session for session in sessions if session.stage == "fit"), None)
    if fit is None or not fit.resumed_from:
        return None
    checkpoint = Path(fit.resumed_from)
    # the default: a folder of checkpoints in the run's; it may have been moved with all its runs
    folders = list(checkpoint.parents)[:_NEAR_CHECKPOINT]
    moved = [fit.folder.resolve().parent / folder.name for folder in folders if folder.name]
    for folder in [*folders, *moved]:
        if (folder / JOURNAL).is_file():
            return folder
    return _saved_by(checkpoint, fit)


def _saved_by(checkpoint: Path, fit: Session) -> Path | None:
    """Return the folder beside a run's whose journal tells of a checkpoint, the latest before."""
    parent = fit.folder.resolve().parent
    found: list[tuple[float, Path]] = []
    for journal in sorted(parent.glob(f"*/{JOURNAL}"))[-_MOST_SIBLINGS:]:
        for session in read_journal(journal.parent)[0]:
            times = [
                number(record, "time")
                for record in session.saved
                if record.get("path") == str(checkpoint) and number(record, "time") <= fit.began
            ]
            found += [(moment, journal.parent) for moment in times]
    return max(found)[1] if found else None


def _hparams(run: Run) -> dict[str, Any]:
    path = run.folder / HPARAMS
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        run.notes.append(f"{path} could not be read: {type(error).__name__}: {error}.")
        return {}
    return found if isinstance(found, dict) else {}
