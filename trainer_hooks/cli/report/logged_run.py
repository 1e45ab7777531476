"""Read a run from its folder: journal, metrics, hyperparameters, and the runs that it resumed."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks._system import is_running, process_start
from trainer_hooks._text import printable
from trainer_hooks.callbacks.reporting.journal import JOURNAL
from trainer_hooks.callbacks.reporting.run_facts import without_secrets
from trainer_hooks.checkpoint.inspection import as_mapping
from trainer_hooks.cli.report.metrics import METRICS, Metrics
from trainer_hooks.errors import TrainerHooksError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SWEEP_JOURNAL = "study.log"
"""The file in a sweep's folder in which Optuna keeps the study."""

_MAX_LINE_BYTES = 1 << 20
_MAX_RECORDS = 200_000


class Outcome(StrEnum):
    """The outcome of a journaled run."""

    FINISHED = "finished"
    FAILED = "failed"
    SIGNAL = "ended by a signal"
    KILLED = "killed"
    RUNNING = "running"
    UNKNOWN = "running or killed"


@dataclass(slots=True)
class JournaledRun:
    """One call of fit, validate, test or predict, from its start to its end.

    Attributes:
        folder: the folder of its journal.
        start: its first record.
        samples: the records of its counters, in the order of time.
        saved: the records of the checkpoints that it wrote.
        end: its last record; empty if it did not end in order.
        last_seen: the time of its latest record, in seconds since 1970.
        outcome: its outcome; set by `set_outcomes`.
    """

    folder: Path
    start: dict[str, Any]
    samples: list[dict[str, Any]] = field(default_factory=list)
    saved: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    last_seen: float = 0.0
    outcome: Outcome = Outcome.UNKNOWN

    @property
    def stage(self) -> str:
        """The stage: fit, validate, test or predict."""
        return text(self.start, "stage") or "fit"

    @property
    def began(self) -> float:
        """The time of its start, in seconds since 1970."""
        return number(self.start, "time")

    @property
    def resumed_from(self) -> str:
        """The path of the checkpoint that it resumed from, or an empty string."""
        return text(self.start, "resumed_from")

    def last_count(self, name: str) -> int:
        """Return the highest value of a counter in its records."""
        records = [self.start, *self.samples, *self.saved, self.end]
        return int(max((number(record, name) for record in records), default=0))


def number(record: dict[str, Any], name: str) -> float:
    """Return a record's value as a float, 0.0 if it is not a number."""
    value = record.get(name)
    # bool is a subclass of int
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # a damaged file may hold any number; no time or counter is larger
    return float(value) if is_number and abs(value) < 1e15 else 0.0  # type: ignore[arg-type]


def text(record: dict[str, Any], name: str) -> str:
    """Return a record's value if it is a string, an empty string otherwise."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def read_journal(folder: Path) -> tuple[list[JournaledRun], int]:
    """Read a folder's journal; return its runs in order and the number of unreadable lines.

    Raises:
        OSError: there is a journal, and it cannot be read.
    """
    path = folder / JOURNAL
    runs: dict[str, JournaledRun] = {}
    unreadable = 0
    if not path.is_file():
        return [], 0
    for record in _records(path):
        if record is None:
            unreadable += 1
            continue
        key = text(record, "run")
        if record["event"] == "start":
            # a start that was copied into the journal twice leaves the records of the first alone
            runs.setdefault(key, JournaledRun(folder, record))
        elif key in runs:
            run = runs[key]
            # other events, of a newer version, count for the time alone
            records = {"sample": run.samples, "saved": run.saved}.get(record["event"])
            if records is not None:
                records.append(record)
            elif record["event"] == "end":
                run.end = record
        if key in runs:
            run = runs[key]
            run.last_seen = max(run.last_seen, number(record, "time"))
    return list(runs.values()), unreadable


def set_outcomes(runs: list[JournaledRun]) -> list[JournaledRun]:
    """Set the outcome of each run, given in the order of time; return the runs."""
    for index, run in enumerate(runs):
        run.outcome = _outcome(run, is_followed=index + 1 < len(runs))
    return runs


def _outcome(run: JournaledRun, *, is_followed: bool) -> Outcome:
    if run.end:
        by_status = {"failed": Outcome.FAILED, "signal": Outcome.SIGNAL}
        return by_status.get(text(run.end, "status"), Outcome.FINISHED)
    host = text(as_mapping(run.start.get("hardware")), "host")
    if host == socket.gethostname():
        return Outcome.RUNNING if _is_alive(run.start) else Outcome.KILLED
    # on another machine nobody can look; but where a later run took over, this one is over
    return Outcome.KILLED if is_followed else Outcome.UNKNOWN


def _is_alive(start: dict[str, Any]) -> bool:
    """Return whether the process that wrote a start record still runs on this machine."""
    pid = int(number(start, "pid"))
    if pid <= 0:
        return False
    # not psutil, which need not be installed; the start time tells a reused process id apart
    started = text(start, "process")
    if started:
        return process_start(pid) == started
    return is_running(pid)


def _records(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the records, and None for each line that is none."""
    # in bytes: a line of broken UTF-8 is one bad record, and not the end of the file
    with path.open("rb") as file:
        for _ in range(_MAX_RECORDS):
            # bounded: a damaged file may hold gigabytes without a line break
            line = file.readline(_MAX_LINE_BYTES)
            if not line:
                return
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            is_record = isinstance(record, dict) and isinstance(record.get("event"), str)
            yield record if is_record else None


_OTHER_LOGGERS = (
    ("events.out.tfevents.*", "TensorBoard"),
    ("wandb", "wandb"),
    ("mlruns", "MLflow"),
    ("hparams.yaml", "Lightning"),
)


class RunFolderError(TrainerHooksError):
    """Raised for a folder that is not the folder of a run."""


def newest_runs(folders: Iterable[Path]) -> list[Path]:
    """Replace each folder of several runs by its newest run; print on stderr which was taken.

    Args:
        folders: folders of runs, or folders that hold such folders.

    Returns:
        The folders of runs, each once.

    Raises:
        RunFolderError: a folder is not a run's, and holds none.
    """
    runs: dict[Path, None] = {}
    for folder in dict.fromkeys(folders):
        run, count = newest_run(folder)
        runs[run] = None
        if count:
            choice = "the only run" if count == 1 else f"the newest of {count} runs"
            # on stderr: stdout is for the plot
            message = f"took {str(run)!r}, {choice} in {str(folder)!r}"
            print(f"trainer-hooks plot: {printable(message)}", file=sys.stderr)
    return list(runs)


def newest_run(folder: Path) -> tuple[Path, int]:
    """Return the newest run in a folder of runs and their number; for a run's folder itself and 0.

    The newest run is the one whose journal or metrics were written last.

    Raises:
        RunFolderError: the folder is not a run's, and holds none.
    """
    runs = _runs_below(folder)
    if runs:
        return max(runs, key=_written_at), len(runs)
    require_run(folder)
    return folder, 0


def runs_in(folder: Path) -> list[Path]:
    """Return the runs in a folder of runs, by their names; for a run's folder itself alone.

    Of each trial of a sweep it is the newest run.

    Raises:
        RunFolderError: the folder is not a run's, and holds none.
    """
    if (folder / SWEEP_JOURNAL).is_file():
        # not all that is below: `earlier_0` holds the trials of another sweep
        trials = [_runs_below(trial) for trial in folder.glob("trial_*/")]
        runs = [max(trial, key=_written_at) for trial in trials if trial]
    else:
        runs = _runs_below(folder)
    if not runs:
        require_run(folder)
        return [folder]
    return sorted(runs, key=_natural_order)


def _runs_below(folder: Path) -> list[Path]:
    """Return the runs in a folder, all of the level nearest to it; none for a run's folder."""
    if folder.is_dir() and not _is_run(folder):
        # a folder of checkpoints alone may belong to a run beside it
        for is_run in (_is_logged, _is_run):
            # a pattern that ends in a slash finds folders alone
            for pattern in ("*/", "*/*/", "*/*/*/"):
                if runs := [path for path in folder.glob(pattern) if is_run(path)]:
                    return runs
    return []


def _natural_order(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts `version_9` before `version_10`."""
    parts = re.split(r"(\d+)", str(path))
    # `isdecimal` takes the digits of all alphabets, as int does
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


_PAUSE = 1.0
"""Seconds between two looks at the files of runs that are followed."""

_MAX_SHARE, _LONGEST_PAUSE = 0.1, 10.0
"""The share of the time for reading: after a long look the pause is longer, up to a limit."""


def pause_after(spent: float) -> float:
    """Return the seconds until the next look at the files, after one that took `spent` seconds."""
    return max(_PAUSE, min(spent / _MAX_SHARE, _LONGEST_PAUSE))


def files_signature(folder: Path) -> tuple[tuple[int, int], ...]:
    """Return the sizes and times of a run's files; two equal ones have the same contents."""
    files = [folder / JOURNAL, metrics_folder(folder) / METRICS, folder / HPARAMS]
    stats = [path.stat() for path in files if path.is_file()]
    return tuple((stat.st_size, stat.st_mtime_ns) for stat in stats)


def require_run(folder: Path) -> None:
    """Check that a folder is the folder of a run.

    Raises:
        RunFolderError: it is not; the message tells why, and which folder to give instead.
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
        "no folder in it does, three levels down. Give the folder that trainer.log_dir names, or "
        "one that holds such folders."
    )


def _is_logged(folder: Path) -> bool:
    return (folder / METRICS).is_file() or (folder / JOURNAL).is_file()


def _is_run(folder: Path) -> bool:
    if _is_logged(folder):
        return True
    return any(folder.glob("*.ckpt")) or any(folder.glob("checkpoints/*.ckpt"))


def _written_at(folder: Path) -> tuple[int, int, str]:
    """Return a key that sorts runs by the time of their last write.

    The name decides between two runs of one moment: `version_10` is newer than `version_9`.
    """
    files = [folder / METRICS, folder / JOURNAL, *folder.glob("checkpoints/*.ckpt")]
    times = [path.stat().st_mtime_ns for path in files if path.is_file()]
    name = folder.name
    return max(times, default=0), len(name), name


HPARAMS = "hparams.json"
"""The name of the hyperparameters' file in a run's folder."""

_MAX_SIBLINGS = 200
_MAX_ANCESTORS = 100
_MAX_HEADER_BYTES = 10_000_000
_NEAR_CHECKPOINT = 3


@dataclass(slots=True)
class LoggedRun:
    """A run as its folder records it, joined with the runs that it resumed.

    Attributes:
        folder: its folder.
        label: its name beside other runs.
        metrics: its metrics, with those of the runs that it resumed.
        starts: all its starts, those of the runs that it resumed first.
        hparams: its hyperparameters.
        earlier: the folders of the runs that it resumed, the oldest first.
        notes: notes on missing or damaged files.
    """

    folder: Path
    label: str
    metrics: Metrics
    starts: list[JournaledRun] = field(default_factory=list)
    hparams: dict[str, Any] = field(default_factory=dict)
    earlier: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def fits(self) -> list[JournaledRun]:
        """The starts of training."""
        return [start for start in self.starts if start.stage == "fit"]

    @property
    def seconds(self) -> float:
        """The time of all its starts of training, also of the runs that it resumed, in seconds."""
        return sum(max(0.0, fit.last_seen - fit.began) for fit in self.fits)

    @property
    def last_fit(self) -> JournaledRun | None:
        """The last start of training in its own folder; None without one."""
        fits = [fit for fit in self.fits if fit.folder == self.folder]
        return fits[-1] if fits else None


class RunReader(Protocol):
    """Reads a run, as `read_run` does."""

    def __call__(
        self, folder: Path, label: str, most: int, beside: Sequence[Path] = ()
    ) -> LoggedRun:
        """Return the run in a folder."""


def read_run(
    folder: Path, label: str, most: int, beside: Sequence[Path] = (), *, hparams: bool = True
) -> LoggedRun:
    """Read a run, and the runs that it resumed.

    Args:
        folder: its folder.
        label: its name beside other runs.
        most: the maximum of points of a curve.
        beside: folders of other runs that are shown too; their metrics are not joined to this one.
        hparams: whether to read the hyperparameters.

    Raises:
        RunFolderError: the folder is not a run's.
        MetricsFileError: its metrics cannot be read.
        OSError: its journal cannot be read.
    """
    require_run(folder)
    run = LoggedRun(folder, label, Metrics(most))
    visited: set[Path] = {folder.resolve()}
    journals = [_read_starts(run, folder)]
    # a run that is drawn by itself would be drawn twice if it were joined to the next
    shown = {path.resolve() for path in beside}
    for _ in range(_MAX_ANCESTORS):
        # journals[0] is the oldest so far: each predecessor goes in front
        before = _predecessor(journals[0])
        # a journal that was copied may lead back to a run that was read already
        if before is None or before.resolve() in visited:
            break
        visited.add(before.resolve())
        run.earlier.insert(0, before)
        journals.insert(0, _read_starts(run, before))
    joined = [path for path in run.earlier if not shown & {path.resolve()}]
    for path, starts in zip([*run.earlier, folder], journals, strict=True):
        if path in joined or path == folder:
            fits = [start for start in starts if start.stage == "fit"]
            if fits and fits[0].resumed_from:
                # the steps after the checkpoint were lost
                run.metrics.cut(int(number(fits[0].start, "step")))
            _read_metrics(run, path)
    run.starts = set_outcomes([start for starts in journals for start in starts])
    if hparams:
        run.hparams = _read_hparams(run)
    _add_metric_notes(run)
    return run


def labels_of(folders: Sequence[Path]) -> list[str]:
    """Return a label for each folder: its name, after as many parents as make the labels unique."""
    paths = [folder.resolve().parts for folder in folders]
    depth = 1
    max_depth = max(map(len, paths))
    while depth < max_depth and len({parts[-depth:] for parts in paths}) < len(set(paths)):
        depth += 1
    return ["/".join(parts[-depth:]) for parts in paths]


def metrics_folder(folder: Path) -> Path:
    """Return the folder with the `metrics.csv` of a run: its own, or that of its journal."""
    if not (folder / METRICS).is_file():
        for start in reversed(read_journal(folder)[0]):
            elsewhere = text(start.start, "metrics_folder")
            # a damaged journal may name anything
            if elsewhere and os.path.isfile(folder / elsewhere / METRICS):  # noqa: PTH113
                return folder / elsewhere
    return folder


def count_metrics(folder: Path) -> int:
    """Count the metrics of a run by the header of its file."""
    path = metrics_folder(folder) / METRICS
    if not path.is_file():
        return 0
    with path.open("rb") as file:  # the header alone: the file of a long run is large
        # a comma less than columns, of which the step is no metric; the epoch does no harm
        return file.readline(_MAX_HEADER_BYTES).count(b",")


def _read_starts(run: LoggedRun, folder: Path) -> list[JournaledRun]:
    """Read the starts in a folder's journal; add notes to the run if lines or all are missing."""
    starts, unreadable = read_journal(folder)
    if unreadable:
        run.notes.append(
            f"{folder / JOURNAL}: lines could not be read: {unreadable}. They were left out."
        )
    if not starts and folder == run.folder:
        run.notes.append(
            f"There is no {JOURNAL}: how the run went, and where, is not known. A RunManifest "
            "writes it, which a trainer with a logger has unless enable_run_manifest=False."
        )
    return starts


def _read_metrics(run: LoggedRun, folder: Path) -> None:
    path = metrics_folder(folder) / METRICS
    if path.is_file():
        run.metrics.read(path)
    elif folder == run.folder:
        run.notes.append(
            f"There is no {METRICS}, from which curves are drawn: nothing was logged yet, or only "
            "by loggers other than CSVLogger. Give the Trainer a CSVLogger beside them."
        )


def _add_metric_notes(run: LoggedRun) -> None:
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


def _predecessor(starts: list[JournaledRun]) -> Path | None:
    """Return the folder of the run that saved the checkpoint which the first fit resumed from."""
    fit = next((start for start in starts if start.stage == "fit"), None)
    if fit is None or not fit.resumed_from:
        return None
    checkpoint = Path(fit.resumed_from)
    # by default a run's checkpoints are in a folder of its own; all runs may have been moved since,
    # so that the path leads nowhere, and the names are looked up beside this run
    folders = list(checkpoint.parents)[:_NEAR_CHECKPOINT]
    moved = [fit.folder.resolve().parent / folder.name for folder in folders if folder.name]
    for folder in [*folders, *moved]:
        if os.path.isfile(folder / JOURNAL):  # noqa: PTH113 - the path may be any text
            return folder
    return _saved_by(checkpoint, fit)


def _saved_by(checkpoint: Path, fit: JournaledRun) -> Path | None:
    """Return the folder, beside a run's, whose journal records a checkpoint last before the fit."""
    parent = fit.folder.resolve().parent
    saves: list[tuple[float, Path]] = []
    for journal in sorted(parent.glob(f"*/{JOURNAL}"))[-_MAX_SIBLINGS:]:
        for start in read_journal(journal.parent)[0]:
            times = [
                number(record, "time")
                for record in start.saved
                if record.get("path") == str(checkpoint) and number(record, "time") <= fit.began
            ]
            saves += [(moment, journal.parent) for moment in times]
    return max(saves)[1] if saves else None


def _read_hparams(run: LoggedRun) -> dict[str, Any]:
    path = metrics_folder(run.folder) / HPARAMS
    if not path.is_file():
        return {}
    try:
        hparams = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        run.notes.append(f"{path} could not be read: {type(error).__name__}: {error}.")
        return {}
    return as_mapping(without_secrets(hparams))
