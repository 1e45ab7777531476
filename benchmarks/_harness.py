"""What the benchmarks share: fresh processes, interleaved rounds, plain text tables."""

from __future__ import annotations

import json
import os
import pty
import select
import socket
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ChildError", "environment", "interleave", "run_child", "run_two_ranks", "table"]

_ROOT = Path(__file__).resolve().parent.parent
"""The checkout that is measured: it comes first on every child's path."""

_TAIL_CHARACTERS = 4000
_Item = TypeVar("_Item")


class ChildError(RuntimeError):
    """A measuring process failed, took too long, or wrote no result."""


def run_child(
    command: Sequence[str], *, hash_seed: int = 0, timeout_s: float = 600.0
) -> dict[str, Any]:
    """Run a command in a fresh process on a terminal of its own and return its result.

    The path of the file it has to write its JSON to is appended to the command. Its stdout and
    stderr are one pseudo-terminal, 100 columns wide, that this process drains: every contestant
    draws its bars on a real terminal, and none shares its interpreter with the reader.

    Raises:
        ChildError: with the end of what the process printed.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        result = Path(folder, "result.json")
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (40, 100))
        try:
            child = subprocess.Popen(
                [*command, str(result)],
                stdin=subprocess.DEVNULL,
                stdout=slave,
                stderr=slave,
                cwd=folder,
                env=environment(hash_seed),
            )
        finally:
            os.close(slave)
        printed = _drain(master, child, timeout_s)
        if child.returncode != 0 or not result.exists():
            raise ChildError(f"exit status {child.returncode} of {list(command)}:\n{printed}")
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def environment(hash_seed: int) -> dict[str, str]:
    """Return the child's environment: this checkout first, one thread, bytecode kept."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    path = [str(_ROOT), *filter(None, [env.get("PYTHONPATH")])]
    return env | {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONHASHSEED": str(hash_seed),
        "OMP_NUM_THREADS": "1",
        "TERM": "xterm",
        "HF_HUB_OFFLINE": "1",
        "TRAINER_HOOKS_DISABLE_PLUGINS": "1",
    }


def _drain(master: int, child: subprocess.Popen[bytes], timeout_s: float) -> str:
    """Read the terminal until the child is gone; return the end of what it printed."""
    deadline = time.monotonic() + timeout_s
    tail = b""
    try:
        while True:
            if time.monotonic() > deadline:
                child.kill()
                raise ChildError(f"no result of {child.args!r} within {timeout_s:g} s")
            if not select.select([master], [], [], 0.2)[0]:
                if child.poll() is not None:
                    break
                continue
            try:
                chunk = os.read(master, 65536)
            except OSError:  # Linux says EIO once the last writer has closed the terminal
                break
            if not chunk:
                break
            tail = (tail + chunk)[-_TAIL_CHARACTERS:]
    finally:
        os.close(master)
        child.wait()
    return tail.decode(errors="replace")


def interleave(items: Sequence[_Item], rounds: int) -> Iterator[tuple[int, _Item]]:
    """Yield (round, item): every item once a round, each round starting one item later.

    A machine that slows down for a while then slows all of them, and none always runs first.
    """
    for number in range(rounds):
        start = number % len(items) if items else 0
        for item in (*items[start:], *items[:start]):
            print(f"\r\033[K  round {number + 1}/{rounds}: {item}", end="", file=sys.stderr)
            yield number, item
    print("\r\033[K", end="", file=sys.stderr, flush=True)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a text table: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]
    rule = ["-" * width for width in widths]
    lines = []
    for row in (headers, rule, *rows):
        first, *others = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join((first, *others)).rstrip())
    return "\n".join(lines)


def run_two_ranks(command: Sequence[str]) -> int:
    """Run a command as two ranks on this machine, a thread each; return the worse exit code."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        **os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(_ROOT),
    }  # fmt: skip
    ranks = [
        subprocess.Popen(command, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    return max(rank.wait() for rank in ranks)
