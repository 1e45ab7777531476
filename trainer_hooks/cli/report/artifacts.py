"""Read the artifacts in a run's folder: hook traces, samples and checkpoints.

docs/run-report.md has the convention of samples: `samples/` holds pictures, and
`samples/samples.json` a list of their captions, and of texts.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._files import file_fault, is_missing
from trainer_hooks._text import count_with_noun
from trainer_hooks.checkpoint.atomic_write import is_sharded_folder, size_of_folder
from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.checkpoint.inspection import UnusableFileError, as_mapping, inspect_file
from trainer_hooks.checkpoint.seal import TAIL, read_summary
from trainer_hooks.cli.checkpoint.show import file_facts
from trainer_hooks.cli.report.logged_run import number, text
from trainer_hooks.cli.values import short_text
from trainer_hooks.connector.state_keys import short_state_keys
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from trainer_hooks.cli.report.logged_run import LoggedRun

_MAX_TRACE_BYTES = 200_000_000
"""A trace of a long run may not fit into memory."""


def _read_json(path: Path, max_bytes: int, notes: list[str]) -> Any:
    """Return the content of a JSON file; None, with a note, if it is too large or damaged."""
    try:
        if fault := file_fault(path):
            raise ValueError(fault)
        if path.stat().st_size > max_bytes:
            raise ValueError(f"it has over {max_bytes:,} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
    # json raises RecursionError where lists are nested some thousand deep
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{path} could not be read: {error}.")
        return None
    # a file that holds `null` was read: None would say that it was not
    return {} if content is None else content


@dataclass(frozen=True, slots=True)
class HookTime:
    """The time that one callback took at one hook, in seconds.

    Attributes:
        callback: the name of its class.
        supplier: where it came from: the trainer's options, a distribution, the user.
        hook: the hook's name.
        calls: the number of calls.
        total: the time of all calls.
        mean: the mean time of a call.
        longest: the time of the longest call.
        share: the share of the training batches' time, from 0 to 1; None for other hooks.
    """

    callback: str
    supplier: str
    hook: str
    calls: int
    total: float
    mean: float
    longest: float
    share: float | None


@dataclass(frozen=True, slots=True)
class HookTimes:
    """The times of all callbacks of a run.

    Attributes:
        source: the trace file.
        batches: the number of timed training batches.
        batch_seconds: the time of those, in seconds.
        spent: the times by callback and hook, the longest total first.
    """

    source: Path
    batches: int
    batch_seconds: float
    spent: list[HookTime]


def read_hook_times(folder: Path, notes: list[str]) -> HookTimes | None:
    """Read the newest hook trace in a folder; None without one.

    Args:
        folder: the run's folder.
        notes: a list to which the reason is added if a trace cannot be read.
    """
    traces = sorted(folder.glob("hook_trace*.json"), key=lambda path: path.stat().st_mtime)
    if not traces:
        return None
    path = traces[-1]
    trace = _read_json(path, _MAX_TRACE_BYTES, notes)
    if trace is None:
        return None
    other_data = as_mapping(as_mapping(trace).get("otherData"))
    costs = other_data.get("costs")
    if not isinstance(costs, list):
        notes.append(f"{path} holds no table of costs.")
        return None
    spent = [
        HookTime(
            callback=text(record, "name"),
            supplier=text(record, "supplier"),
            hook=text(record, "hook"),
            calls=int(number(record, "calls")),
            total=number(record, "total"),
            mean=number(record, "mean"),
            longest=number(record, "max"),
            share=None if record.get("share") is None else number(record, "share"),
        )
        for record in costs
        if isinstance(record, dict)
    ]
    spent.sort(key=lambda item: -item.total)
    batches = int(number(other_data, "training_batches"))
    return HookTimes(path, batches, number(other_data, "batch_seconds"), spent)


_FOLDER, _INDEX = "samples", "samples.json"
_MAX_SAMPLES, _MAX_BYTES = 48, 16_000_000
_MAX_INDEX_BYTES = 10_000_000
_MAX_TEXT_LENGTH = 4000
# by their first bytes: Python 3.13 has no imghdr, and Pillow would decode the whole picture
_MEDIA_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
_SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".webp"}


@dataclass(frozen=True, slots=True)
class Sample:
    """A picture or a text.

    Attributes:
        caption: its caption, with epoch and step if the index has them.
        address: the picture as a `data:` address; empty for a text.
        text: the text, or an empty string.
    """

    caption: str
    address: str = ""
    text: str = ""


def read_samples(folder: Path, notes: list[str]) -> list[Sample]:
    """Read the samples of a run, those of the index first.

    Args:
        folder: the run's folder.
        notes: a list to which the reason is added for each sample that is left out.
    """
    root = folder / _FOLDER
    if not root.is_dir():
        return []
    entries = _read_index(root, notes)
    indexed = {text(entry, "file") for entry in entries}
    names = sorted(path.name for path in root.iterdir() if path.suffix.lower() in _SUFFIXES)
    # a callback may save pictures and write no index
    entries += [{"file": name, "caption": name} for name in names if name not in indexed]
    samples: list[Sample] = []
    bytes_left = _MAX_BYTES
    for entry in entries[:_MAX_SAMPLES]:
        sample = _read_sample(root, entry, bytes_left, notes)
        if sample is not None:
            # as it takes room in the page: in base64
            bytes_left -= len(sample.address)
            samples.append(sample)
    if len(entries) > _MAX_SAMPLES:
        notes.append(f"{root}: of {len(entries):,} samples the first {_MAX_SAMPLES} are shown.")
    return samples


def _read_index(root: Path, notes: list[str]) -> list[dict[str, Any]]:
    path = root / _INDEX
    if not path.is_file():
        return []
    entries = _read_json(path, _MAX_INDEX_BYTES, notes)
    if entries is not None and not isinstance(entries, list):
        notes.append(f"{path} could not be read: it is no list.")
        return []
    return [entry for entry in entries or () if isinstance(entry, dict)]


def _read_sample(
    root: Path, entry: dict[str, Any], bytes_left: int, notes: list[str]
) -> Sample | None:
    """Read the sample of an entry of the index; None, with a note, if it cannot be shown."""
    caption = _caption(entry)
    name = text(entry, "file")
    if not name:
        content = text(entry, "text")
        return Sample(caption, text=content[:_MAX_TEXT_LENGTH]) if content else None
    reason = ""
    try:
        # resolved: a link may lead out of the folder just as `..` does; not Path.resolve, which
        # raises for a link that leads to itself
        path = Path(os.path.realpath(root / name))
        # the page may be sent to others: no entry may pull in a file from elsewhere
        if not path.is_relative_to(root.resolve()):
            reason = "it is outside of that folder"
        elif not is_missing(path) and (fault := file_fault(path)):
            reason = fault
        elif path.stat().st_size * 4 // 3 > bytes_left:  # base64 makes four bytes of three
            reason = f"the pictures of a page may take {_MAX_BYTES:,} bytes together"
        else:
            data = path.read_bytes()
            media_type = next(
                (kind for start, kind in _MEDIA_TYPES.items() if data.startswith(start)), ""
            )
            reason = "" if media_type else "it is no PNG, JPEG, GIF or WebP"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        notes.append(f"{root / name} is not shown: {reason}.")
        return None
    address = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return Sample(caption, address, text(entry, "text")[:_MAX_TEXT_LENGTH])


def _caption(entry: dict[str, Any]) -> str:
    parts = [text(entry, "caption") or text(entry, "file")]
    parts += [f"{name} {number(entry, name):g}" for name in ("epoch", "step") if name in entry]
    return ", ".join(filter(None, parts))


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
    # not resolved: a link such as last.ckpt keeps a row of its own
    files = {_plain(path) for path in run.folder.rglob(f"*{_SUFFIX}") if _is_checkpoint(path)}
    for start in run.starts:
        # the runs that it resumed have saved checkpoints too, which are not its own
        if start.folder == run.folder:
            recorded = (Path(str(record.get("path"))) for record in start.saved)
            # addresses of other stores are not looked at
            files |= {_plain(p) for p in recorded if p.is_absolute() and _is_checkpoint(p)}
    checkpoints = []
    root = _plain(run.folder)
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


def _plain(path: Path) -> Path:
    """Return an absolute path without `..`, so that each file has one; links are kept."""
    # a link on the way to `..` leads elsewhere, so the folder is resolved
    return Path(os.path.realpath(path.parent), path.name)


def _is_checkpoint(path: Path) -> bool:
    # not Path.is_file, which raises for a name that is too long, as a journal may hold any
    return os.path.isfile(path) or is_sharded_folder(path)  # noqa: PTH113


def _saved_at(path: Path) -> float:
    """Return the time of a save, from the checkpoint itself or else from the file system."""
    if path.is_dir():
        try:
            return summarize(str(path)).saved_at / _NANOSECONDS
        except CheckpointError:
            return path.stat().st_mtime
    with path.open("rb") as file:
        # the summary stands at the end: a checkpoint of many gigabytes is not read for its time
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
        short_keys = short_state_keys(map(str, record["callbacks"]))
        file.holds += [f"state of {key}" for key in short_keys.values()]
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
            file.marks.append(f"link to {Path(os.path.realpath(file.path)).name}")
        # a saver may add a number: last-v1.ckpt
        elif file.path.stem.startswith("last"):
            file.marks.append("last")
    short_keys = short_state_keys(map(str, saver_states))
    for key, state in saver_states.items():
        # without a monitor the newest is the best, which is no badge
        if state.get("monitor", "") is None:
            continue
        best = Path(str(state["best_model_path"]))
        score = state.get("best_model_score")
        # a saver keeps its score as a tensor; another framework's may be a number
        shown = f"{score.item():.6g}" if hasattr(score, "item") else short_text(score)
        suffix = "" if score is None else f", with a score of {shown}"
        # by its name where the path leads nowhere: the whole folder may have been moved
        matching = [file for file in files if file.path == _plain(best)]
        matching = matching or [file for file in files if file.path.name == best.name]
        for file in matching[-1:]:
            file.marks.append("best")
            file.holds.insert(0, f"the best by {short_keys[str(key)]}{suffix}")
