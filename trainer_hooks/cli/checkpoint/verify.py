"""`trainer-hooks checkpoint verify PATH...`: check that checkpoint files are whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from trainer_hooks._text import show_table
from trainer_hooks.checkpoint.atomic_write import is_sharded_folder
from trainer_hooks.checkpoint.inspection import (
    CheckpointKind,
    FileFault,
    UnusableFileError,
    verify_file,
)
from trainer_hooks.checkpoint.parts import FORMAT
from trainer_hooks.cli.commands import print_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from trainer_hooks.checkpoint.inspection import CheckpointContents

_OK = "ok"


@dataclass(frozen=True, slots=True)
class _Verdict:
    path: str
    state: str
    what: str  # a key of the JSON


def verify(paths: Iterable[Path], *, is_json: bool) -> int:
    """Print a line for each file and return the exit code: 0 if all are whole, else 1.

    Args:
        paths: files, and folders that are searched recursively for *.ckpt.
        is_json: whether to print JSON.
    """
    verdicts = [verdict for path in paths for verdict in _verdicts(path)]
    if is_json:
        print_json([asdict(verdict) for verdict in verdicts])
    else:
        rows = [[verdict.state, verdict.path, verdict.what] for verdict in verdicts]
        show_table(["state", "file", "what"], rows, whole={0})
    return 0 if all(verdict.state == _OK for verdict in verdicts) else 1


def _verdicts(path: Path) -> Iterator[_Verdict]:
    # a sharded checkpoint is a folder, and counts as one file
    if not path.is_dir() or is_sharded_folder(path):
        yield _verdict(path)
        return
    # a file that is being written has a name that begins with a dot
    files = sorted(file for file in path.rglob("*.ckpt") if not file.name.startswith("."))
    if not files:
        yield _Verdict(str(path), FileFault.MISSING, "there is no .ckpt file in this folder")
    for file in files:
        yield _verdict(file)


def _verdict(path: Path) -> _Verdict:
    try:
        contents = verify_file(path, FORMAT)
    except UnusableFileError as error:
        return _Verdict(str(path), error.fault, " ".join(error.reason.split()))
    return _Verdict(str(path), _OK, _summary(contents))


def _summary(contents: CheckpointContents) -> str:
    if contents.kind in (CheckpointKind.WEIGHTS, CheckpointKind.SAFETENSORS):
        return str(contents.kind)
    data = contents.data
    text = f"{contents.kind}, epoch {data.get('epoch')}, step {data.get('global_step')}"
    is_partial = contents.kind is CheckpointKind.OURS and not contents.is_resumable
    return f"{text}, weights alone" if is_partial else text
