"""The checkpoints of a run: what each holds, and which is the best."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint import (
    TAIL,
    UnusableFileError,
    inspect_file,
    is_folder,
    mapping,
    read_summary,
    size_of_folder,
    summarize,
)
from trainer_hooks.cli.checkpoint.show import told_of
from trainer_hooks.cli.values import counted, shortened
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from trainer_hooks.cli.report.run import Run

__all__ = ["CheckpointFile", "checkpoints_of"]

_MOST = 100
_SUFFIX = ".ckpt"
_NS = 1e9


@dataclass(slots=True)
class CheckpointFile:
    """A checkpoint, or a file that looks like one.

    Attributes:
        path: the file.
        name: its path, within the run's folder where it lies there.
        size: its bytes.
        saved_at: when it was saved, in seconds since 1970.
        parts: what is in it, in a few words.
        holds: the same, line by line.
        metrics: the metrics as they were then, line by line.
        epoch: epochs completed.
        step: optimizer steps done.
        fault: why it cannot be used, or an empty string.
        marks: what it is: the best by a callback's books, the last, a link to another.
    """

    path: Path
    name: str
    size: int
    saved_at: float
    parts: list[str] = field(default_factory=list)
    holds: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    epoch: int = 0
    step: int = 0
    fault: str = ""
    marks: list[str] = field(default_factory=list)


def checkpoints_of(run: Run) -> tuple[list[CheckpointFile], int]:
    """Return the checkpoints that a run has left, the oldest first, and how many more there are.

    They are those in its folder and below it, and those of its journal.
    """
    files = {path.absolute() for path in run.folder.rglob(f"*{_SUFFIX}") if _is_checkpoint(path)}
    for session in run.sessions:
        if session.folder == run.folder:
            noted = (Path(str(record.get("path"))) for record in session.saved)
            files |= {path for path in noted if path.is_absolute() and _is_checkpoint(path)}
    found = []
    root = run.folder.absolute()
    for path in files:
        try:
            name = str(path.relative_to(root) if path.is_relative_to(root) else path)
            size = size_of_folder(path) if path.is_dir() else path.stat().st_size
            found.append(CheckpointFile(path, name, size, _saved_at(path)))
        except OSError:
            continue  # removed a moment ago: the run is still going
    found.sort(key=lambda file: (file.saved_at, str(file.path)))
    books: dict[str, Any] = {}
    for file in found[-_MOST:]:
        _look_into(file, books)
    _mark(found, books)
    return found[-_MOST:], max(0, len(found) - _MOST)


def _is_checkpoint(path: Path) -> bool:
    return path.is_file() or is_folder(path)


def _saved_at(path: Path) -> float:
    """Return when a file was saved: by what it says, or else by its clock."""
    if path.is_dir():
        try:
            return summarize(str(path)).saved_at / _NS
        except CheckpointError:
            return path.stat().st_mtime
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        try:
            summary = read_summary(file.read(TAIL))
        except ValueError:
            summary = None
    return path.stat().st_mtime if summary is None else summary.saved_at / _NS


def _look_into(file: CheckpointFile, books: dict[str, Any]) -> None:
    """Fill in what a file holds, and take over what it knows of the best; the newest knows best."""
    try:
        contents = inspect_file(file.path)
        told = told_of(contents)
    except UnusableFileError as error:
        file.fault = f"{error.fault}: {error.reason}"
        return
    except CheckpointError as error:
        file.fault = str(error)
        return
    weights = told["weights"]
    file.parts = ["weights"]
    file.holds = [
        told["kind"],
        f"{counted(weights['tensors'], 'tensor')}, {counted(weights['elements'], 'number')}",
        f"can be resumed from: {told['place']}",
    ]
    if told["optimizers"]:
        file.parts.append(counted(len(told["optimizers"]), "optimizer state"))
    if told["callbacks"]:
        file.parts.append(counted(len(told["callbacks"]), "callback state"))
        file.holds += [f"state of {key}" for key in told["callbacks"]]
    file.metrics = [f"{name} {shortened(value)}" for name, value in told["metrics"].items()]
    counters = told["counters"]
    file.epoch = _count(counters, "epochs_completed", "epoch")
    file.step = _count(counters, "steps_completed", "optimizer_steps")
    for key, state in told["callbacks"].items():
        if mapping(state).get("best_model_path"):
            books[key] = state


def _count(counters: dict[str, Any], *names: str) -> int:
    """Return the first of these counters that there is; files of others have other ones."""
    found = (counters.get(name) for name in names)
    return next((value for value in found if isinstance(value, int)), 0)


def _mark(files: list[CheckpointFile], books: dict[str, Any]) -> None:
    for file in files:
        if file.path.is_symlink():
            file.marks.append(f"link to {file.path.resolve().name}")
        elif file.path.stem.startswith("last"):
            file.marks.append("last")
    for key, state in books.items():
        best = Path(str(state["best_model_path"]))
        score = state.get("best_model_score")
        said = "" if score is None else f", with a score of {_score(score)}"
        # the whole folder may have been moved
        matching = [file for file in files if file.path == best]
        matching = matching or [file for file in files if file.path.name == best.name]
        for file in matching[-1:]:
            file.marks.append("best")
            file.holds.insert(0, f"the best by {key}{said}")


def _score(score: Any) -> str:
    return f"{score.item():.6g}" if hasattr(score, "item") else shortened(score)
