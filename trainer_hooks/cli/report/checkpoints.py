"""Find the checkpoints of a run, read the contents of each, and mark the best and the last."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint.atomic_write import is_sharded_folder, size_of_folder
from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.checkpoint.inspection import UnusableFileError, as_mapping, inspect_file
from trainer_hooks.checkpoint.seal import TAIL, read_summary
from trainer_hooks.cli.checkpoint.show import file_facts
from trainer_hooks.cli.values import count_with_noun, short_text
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from trainer_hooks.cli.report.logged_run import LoggedRun

__all__ = ["CheckpointFile", "read_checkpoints"]

_MAX_CHECKPOINTS = 100
_SUFFIX = ".ckpt"
_NANOSECONDS = 1e9


@dataclass(slots=True)
class CheckpointFile:
    """A checkpoint, or a file that looks like one.

    Attributes:
        path: the file, or the folder of a sharded checkpoint.
        name: its path, relative to the run's folder if it is inside.
        size: its size in bytes.
        saved_at: the time of the save, in seconds since 1970.
        parts: a short list of its contents.
        holds: its contents in detail, a line each.
        metrics: the metrics at the save, a line each.
        epoch: epochs completed.
        step: optimizer steps completed.
        fault: the reason why it cannot be used, or an empty string.
        marks: `"best"` by a saver's state, `"last"`, or the name of the file that it links to.
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


def read_checkpoints(run: LoggedRun) -> tuple[list[CheckpointFile], int]:
    """Return the newest checkpoints of a run, the oldest first, and the number of all others.

    They are those in its folder and below, and those that its journal records.
    """
    files = {path.absolute() for path in run.folder.rglob(f"*{_SUFFIX}") if _is_checkpoint(path)}
    for start in run.starts:
        if start.folder == run.folder:
            recorded = (Path(str(record.get("path"))) for record in start.saved)
            # addresses of other stores are not looked at
            files |= {path for path in recorded if path.is_absolute() and _is_checkpoint(path)}
    checkpoints = []
    root = run.folder.absolute()
    for path in files:
        try:
            name = str(path.relative_to(root) if path.is_relative_to(root) else path)
            size = size_of_folder(path) if path.is_dir() else path.stat().st_size
            checkpoints.append(CheckpointFile(path, name, size, _saved_at(path)))
        except OSError:
            continue  # the run is still going and has just deleted it
    checkpoints.sort(key=lambda file: (file.saved_at, str(file.path)))
    saver_states: dict[str, Any] = {}
    for file in checkpoints[-_MAX_CHECKPOINTS:]:
        _read_contents(file, saver_states)
    _add_marks(checkpoints, saver_states)
    return checkpoints[-_MAX_CHECKPOINTS:], max(0, len(checkpoints) - _MAX_CHECKPOINTS)


def _is_checkpoint(path: Path) -> bool:
    return path.is_file() or is_sharded_folder(path)


def _saved_at(path: Path) -> float:
    """Return the time of a save, from the checkpoint itself or else from the file system."""
    if path.is_dir():
        try:
            return summarize(str(path)).saved_at / _NANOSECONDS
        except CheckpointError:
            return path.stat().st_mtime
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        try:
            summary = read_summary(file.read(TAIL))
        except ValueError:
            summary = None
    return path.stat().st_mtime if summary is None else summary.saved_at / _NANOSECONDS


def _read_contents(file: CheckpointFile, saver_states: dict[str, Any]) -> None:
    """Fill in the contents of a checkpoint, and collect the states of its savers by state key.

    Called from the oldest to the newest checkpoint, so that the newest state of a saver stays.
    """
    try:
        contents = inspect_file(file.path)
        record = file_facts(contents)
    except UnusableFileError as error:
        file.fault = f"{error.fault}: {error.reason}"
        return
    except CheckpointError as error:
        file.fault = str(error)
        return
    weights = record["weights"]
    file.parts = ["weights"]
    file.holds = [
        record["kind"],
        (
            f"{count_with_noun(weights['tensors'], 'tensor')}, "
            f"{count_with_noun(weights['elements'], 'number')}"
        ),
        f"can be resumed from: {record['place']}",
    ]
    if record["optimizers"]:
        file.parts.append(count_with_noun(len(record["optimizers"]), "optimizer state"))
    if record["callbacks"]:
        file.parts.append(count_with_noun(len(record["callbacks"]), "callback state"))
        file.holds += [f"state of {key}" for key in record["callbacks"]]
    file.metrics = [f"{name} {short_text(value)}" for name, value in record["metrics"].items()]
    counters = record["counters"]
    file.epoch = _count(counters, "epochs_completed", "epoch")
    file.step = _count(counters, "steps_completed", "optimizer_steps")
    for key, state in record["callbacks"].items():
        if as_mapping(state).get("best_model_path"):
            saver_states[key] = state


def _count(counters: dict[str, Any], *names: str) -> int:
    """Return the first of some counters that is there; other frameworks' files name them so."""
    values = (counters.get(name) for name in names)
    return next((value for value in values if isinstance(value, int)), 0)


def _add_marks(files: list[CheckpointFile], saver_states: dict[str, Any]) -> None:
    """Mark links, the last checkpoint, and the best one of each saver."""
    for file in files:
        if file.path.is_symlink():
            file.marks.append(f"link to {file.path.resolve().name}")
        elif file.path.stem.startswith("last"):
            file.marks.append("last")
    for key, state in saver_states.items():
        best = Path(str(state["best_model_path"]))
        score = state.get("best_model_score")
        suffix = "" if score is None else f", with a score of {_score_text(score)}"
        # by its name where the path leads nowhere: the whole folder may have been moved
        matching = [file for file in files if file.path == best]
        matching = matching or [file for file in files if file.path.name == best.name]
        for file in matching[-1:]:
            file.marks.append("best")
            file.holds.insert(0, f"the best by {key}{suffix}")


def _score_text(score: Any) -> str:
    return f"{score.item():.6g}" if hasattr(score, "item") else short_text(score)
