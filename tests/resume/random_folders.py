"""What a run has left in its folder, as a chain is compared with the uncut run."""

from __future__ import annotations

import csv
import pickle
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from conftest import differences

from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

ONLY_OF_CUTS = re.compile(
    r"preempted-|exception-|on_exception|requested-|.*after_resume_\d"
    r"|\..*\.(trainer_hooks\.part|new)$"
)
"""The files that only a cut makes; hidden ones are of writes that a kill has broken off."""

MOST_SHOWN = 4


@dataclass
class End:
    """What a run ended with.

    Attributes:
        state: a checkpoint of the end, without wall times.
        metrics: the logged values and the weights, in short.
        random_numbers: those of the process, in short.
        calls: the calls of hooks of the last process.
        checkpoints: the content of each checkpoint, by its path in the folder of the run.
        batches: the batches after which each of them was saved.
        files: the names of all files, also hidden ones.
        links: where each link points.
        rows: those of metrics.csv, by name of the column.
        events: those of TensorBoard, as step, tag and value, in order.
        broken: links that lead nowhere, and files that cannot be read.
    """

    state: dict[str, Any]
    metrics: dict[str, Any]
    random_numbers: list[Any]
    calls: list[Any]
    checkpoints: dict[str, Any] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, str]] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def read_end(folder: Path) -> End:
    """Read what a run has left in a folder."""
    noted = pickle.loads((folder / "end.pickle").read_bytes())
    end = End(
        _normal(torch.load(folder / "end.ckpt", weights_only=True)),
        noted["metrics"],
        noted["random_numbers"],
        noted["calls"],
    )
    run = folder / "run"
    logs = None if noted["logs"] is None else run / noted["logs"]
    places = {run / place for place in noted["saved"]} | ({logs} if logs is not None else set())
    for place in places:
        for path in place.rglob("*"):
            if not path.is_dir():
                _read_file(path, _shown(str(path.relative_to(run))), end)
    end.events.sort()
    return end


def _read_file(path: Path, name: str, end: End) -> None:
    if path.is_symlink() and not path.name.startswith("."):
        end.links[name] = str(path.readlink())
        if not path.exists():
            end.broken.append(f"{name} points to {end.links[name]}, which is not there")
            return
    if "tfevents" in path.name:
        name = re.sub(r"tfevents.*", "tfevents", name)
        if ONLY_OF_CUTS.match(path.name) is None:
            end.events += _events_in(path)
    end.files.add(name)
    if path.name == "metrics.csv":
        with path.open() as file:
            end.rows = list(csv.DictReader(file))
    if path.suffix == ".ckpt" and not path.name.startswith("."):
        try:
            end.batches[name] = summarize(path).batches
            end.checkpoints[name] = _normal(torch.load(path, weights_only=True))
        except CheckpointError as error:
            end.broken.append(f"{name}: {error}")


def _events_in(path: Path) -> list[Any]:
    """Return the scalars of an event file as step, tag and value."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.util import tensor_util

    found = []
    for event in LegacyEventFileLoader(str(path)).Load():
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.append((event.step, value.tag, repr(value.simple_value)))
            elif value.HasField("tensor") and not value.tag.startswith("_hparams_"):
                array = tensor_util.make_ndarray(value.tensor)
                found.append((event.step, value.tag, repr(array.tolist())))
    return found


def _shown(text: str) -> str:
    """Return a text without the number of the run: it grows where a start had saved nothing."""
    return re.sub(r"version_\d+", "version_N", text)


def _normal(value: Any) -> Any:
    """Return a checkpoint's content without what differs from run to run.

    That is wall times, sizes and names of event files, the number of the run, and the names of
    files that only a cut makes.
    """
    if isinstance(value, dict):
        # the last epoch of a loader with a position of its own can be led back to from several
        left_out = ("wall_times", "sizes", "version", "last_epoch")
        return {_normal(key): _normal(part) for key, part in value.items() if key not in left_out}
    if isinstance(value, list | tuple):
        kept = [part for part in value if not _is_of_cut(part)]
        return type(value)(map(_normal, kept)) if type(value) in (list, tuple) else value
    return _shown(value) if isinstance(value, str) else value


def _is_of_cut(value: Any) -> bool:
    return isinstance(value, str) and ONLY_OF_CUTS.match(value.rpartition("/")[2]) is not None


def compare_ends(uncut: End, chain: End, told: list[str]) -> list[str]:
    """Return where a chain has ended otherwise than the uncut run.

    Args:
        uncut: the run without cuts.
        chain: the other.
        told: the chain's stages in words.
    """
    # a signal that ends a run in order renews the last checkpoint, out of its turn
    has_left = any(how in text for how in ("SIGTERM", "SIGUSR1") for text in told)
    newer = {name for name in chain.batches if has_left and _is_newer_last(name, uncut, chain)}
    found = list(chain.broken)
    found += _compare_calls(uncut.calls, chain.calls)
    found += differences(uncut.state, chain.state, "end")[:MOST_SHOWN]
    found += differences(uncut.metrics, chain.metrics, "metrics")[:MOST_SHOWN]
    found += differences(uncut.random_numbers, chain.random_numbers, "random numbers")
    found += differences(uncut.rows, chain.rows, "metrics.csv")[:2]
    found += differences(uncut.events, chain.events, "events")[:2]
    found += _compare_files(uncut, chain, newer)
    if newer:
        found = [text for text in found if "['last_model_path']: '' and" not in text]
    return [text if len(text) < 300 else f"{text[:300]}..." for text in found]


def _compare_calls(uncut: list[Any], calls: list[Any]) -> list[str]:
    """Return the first call of the last process that the uncut run did not make so."""
    names = [call[0] for call in calls]
    calls = calls[names.index("on_train_start") + 1 :] if "on_train_start" in names else []
    expected = uncut[len(uncut) - len(calls) :]
    for number, (first, second) in enumerate(zip(expected, calls, strict=False)):
        wrong = differences(first, second)
        if wrong:
            return [f"call {number}, {first[0]} {first[1]}: {wrong[0]}; got {second[0]}"]
    return []


def _is_newer_last(name: str, uncut: End, chain: End) -> bool:
    """Return whether a checkpoint is the last one, and newer than that of the uncut run."""
    if re.fullmatch(r"(second-)?last\.ckpt", name.rpartition("/")[2]) is None:
        return False
    if _is_of_cut(chain.links.get(name, "")):
        return True
    first, second = uncut.batches.get(name, -1), chain.batches[name]
    if first != second:
        return first < second
    # of the same batch, but another part of its end
    parts = [end.checkpoints[name]["trainer_hooks"] for end in (uncut, chain)]
    places = [(part["progress"], part.get("slot")) for part in parts]
    return places[0] != places[1]


def _compare_files(uncut: End, chain: End, newer: set[str]) -> list[str]:
    """Return where the files of a chain are others than those of the uncut run.

    Args:
        uncut: the run without cuts.
        chain: the other.
        newer: the last checkpoints of the chain that a signal has renewed.
    """
    names = {name for name in chain.files if not _is_of_cut(name) and name not in newer}
    names |= newer & uncut.files
    found = [f"{name}: only the uncut run has it" for name in sorted(uncut.files - names)]
    found += [f"{name}: only the chain has it" for name in sorted(names - uncut.files)]
    # such a link may point to the file that a signal has left, until the next save
    links = {name: to for name, to in chain.links.items() if not _is_of_cut(to)}
    expected = {name: to for name, to in uncut.links.items() if name in links or name not in newer}
    found += differences(expected, links, "links")
    for name in sorted(uncut.checkpoints.keys() & chain.checkpoints.keys() - newer):
        wrong = differences(uncut.checkpoints[name], chain.checkpoints[name], name)
        found += wrong[:2]
    return found[: 2 * MOST_SHOWN]
