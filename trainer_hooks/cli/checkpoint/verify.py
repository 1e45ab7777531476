"""`trainer-hooks checkpoint verify PATH...`: which files are whole, and what is wrong."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from trainer_hooks._text import show_table
from trainer_hooks.checkpoint import FORMAT, Fault, Kind, UnusableFileError, is_folder, verify_file
from trainer_hooks.cli.values import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from trainer_hooks.checkpoint import Contents

__all__ = ["verify"]

_OK = "ok"


@dataclass(frozen=True, slots=True)
class _Verdict:
    path: str
    state: str
    what: str


def verify(paths: Iterable[Path], *, is_json: bool) -> int:
    """Print a line for each file and return the exit code: 0 if all are ok, else 1.

    Args:
        paths: files, and folders that are searched for *.ckpt, through all levels.
        is_json: whether JSON is printed.
    """
    verdicts = [verdict for path in paths for verdict in _verdicts(path)]
    if is_json:
        print(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    else:
        rows = [
            [verdict.state, *map(printable, (verdict.path, verdict.what))] for verdict in verdicts
        ]
        show_table(["state", "file", "what"], rows, whole={0})
    return 0 if all(verdict.state == _OK for verdict in verdicts) else 1


def _verdicts(path: Path) -> Iterator[_Verdict]:
    if not path.is_dir() or is_folder(path):
        yield _verdict(path)
        return
    # a file that is being written has a name that begins with a dot
    files = sorted(file for file in path.rglob("*.ckpt") if not file.name.startswith("."))
    if not files:
        yield _Verdict(str(path), Fault.MISSING, "there is no .ckpt file in this folder")
    for file in files:
        yield _verdict(file)


def _verdict(path: Path) -> _Verdict:
    try:
        contents = verify_file(path, FORMAT)
    except UnusableFileError as error:
        return _Verdict(str(path), error.fault, " ".join(error.reason.split()))
    return _Verdict(str(path), _OK, _summary(contents))


def _summary(contents: Contents) -> str:
    if contents.kind in (Kind.WEIGHTS, Kind.SAFETENSORS):
        return str(contents.kind)
    told = [f"{name} {contents.data.get(key)}" for key, name in _COUNTERS.items()]
    rest = "" if contents.is_resumable or contents.kind is not Kind.OURS else ", weights alone"
    return f"{contents.kind}, {', '.join(told)}{rest}"


_COUNTERS = {"epoch": "epoch", "global_step": "step"}
