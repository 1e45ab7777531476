"""Run the trials of a sweep, some at a time, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from optuna.trial import TrialState

from trainer_hooks._system import IS_WINDOWS, as_group, is_running, lock_file
from trainer_hooks._text import printable
from trainer_hooks.cli.sweep.study import DONE
from trainer_hooks.cli.sweep.trial import NOT_LOGGED
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.runtime.launcher import how_ended

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path
    from types import FrameType

    from trainer_hooks.cli.sweep.study import SweepStudy

OUTPUT = "output.txt"
"""The file in a trial's folder with all that its process printed."""

_LONGEST_LINE = 500

_PAUSE = 0.1
"""Seconds between two looks at the trials: there is no wait for any of several on all systems."""

_ERROR = re.compile(
    r"([A-Za-z_][\w.]*(Error|Exception|Interrupt|Pruned|Warning)|trainer-hooks \w+: error): ."
)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold a folder for one sweep; yield a descriptor, and who inherits it holds the folder too.

    Raises:
        UsageError: another sweep, or a trial of one that was killed, runs in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "sweep.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            lock_file(descriptor)
        except BlockingIOError:
            raise UsageError(
                f"a sweep is running in {str(folder)!r}, or a trial of one that was killed: "
                f"{_running(_noted(descriptor))}. Wait for its end, or stop it by `kill`: it "
                "saves a checkpoint, from which the same line goes on."
            ) from None
        _note_processes(descriptor, ())
        yield descriptor
    finally:
        os.close(descriptor)


def _note_processes(lock: int, trials: Iterable[subprocess.Popen[bytes]]) -> None:
    """Write the ids of this process and its trials into the file that holds the folder."""
    ids = " ".join(str(number) for number in (os.getpid(), *(trial.pid for trial in trials)))
    os.ftruncate(lock, 0)
    os.lseek(lock, 0, os.SEEK_SET)
    os.write(lock, ids.encode())


def _noted(lock: int) -> bytes:
    os.lseek(lock, 0, os.SEEK_SET)
    return os.read(lock, 10_000)


def _running(ids: bytes) -> str:
    """Return the processes that were noted and still run, for a message."""
    numbers = ids.decode(errors="replace").split()
    alive = [text for text in numbers if text.isdecimal() and is_running(int(text))]
    return f"process {', '.join(alive)}" if alive else "on another machine"


def run_trials(sweep: SweepStudy, planned: int, jobs: int, lock: int) -> int:
    """Run trials until the sweep has as many as planned; return the number that failed.

    A signal that ends this process is passed on to the trials, which save a checkpoint.

    Args:
        sweep: the study.
        planned: the number of trials that the sweep is to have at its end.
        jobs: the number of trials that run at the same time.
        lock: the descriptor that holds the folder.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the processes of the trials have ended.
        OptionError: a trial did not log the metric, and none before it has a result.
    """
    unfinished = sweep.prepare()
    done = sum(trial.state in DONE for trial in sweep.results())
    left = planned - done
    failed = 0
    running: dict[int, subprocess.Popen[bytes]] = {}
    with _interrupted_by_sigterm():
        try:
            while left > 0 or running:
                while left > 0 and len(running) < jobs:
                    number = unfinished.pop(0) if unfinished else sweep.ask()
                    running[number] = _start(sweep, number, lock)
                    _note_processes(lock, running.values())
                    left -= 1
                time.sleep(_PAUSE)
                for number, process in list(running.items()):
                    if process.poll() is not None:
                        del running[number]
                        failed += not _has_succeeded(sweep, number, process.returncode)
                        if process.returncode == NOT_LOGGED:
                            _check_metric(sweep, number)
        finally:
            _end(running.values())
    return failed


def _start(sweep: SweepStudy, number: int, lock: int) -> subprocess.Popen[bytes]:
    folder = sweep.folder_of(number)
    folder.mkdir(parents=True, exist_ok=True)
    values = " ".join(f"{key}={value}" for key, value in sweep.values_of(number).items())
    print(printable(f"trial {number}: {values}"), file=sys.stderr, flush=True)
    command = [
        sys.executable,
        "-m",
        "trainer_hooks.cli.sweep.trial",
        str(sweep.folder),
        str(number),
    ]
    with (folder / OUTPUT).open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            **as_group(),  # a Ctrl-C in the terminal comes to it once, from here
            # the folder is held until the last trial has ended; Windows passes no lock on
            pass_fds=() if IS_WINDOWS else [lock],
        )


def _has_succeeded(sweep: SweepStudy, number: int, code: int) -> bool:
    """Print the result of a trial that has ended; one without a result becomes a failed one."""
    trial = sweep.record(number)
    if trial.state not in DONE:
        sweep.study.tell(number, state=TrialState.FAIL)
        output = sweep.folder_of(number) / OUTPUT
        # a killed process has printed no reason: its last line is about something else
        reason = how_ended(code) if code < 0 else f"failed (exit code {code}): {_reason(output)}"
        text = f"trial {number} {reason} (all that it printed: {output})"
    elif trial.state == TrialState.PRUNED:
        text = f"trial {number} was pruned: {_value_text(sweep, trial.value)}"
    else:
        text = f"trial {number} has ended: {_value_text(sweep, trial.value)}"
    print(printable(text), file=sys.stderr, flush=True)
    return trial.state in DONE


def _check_metric(sweep: SweepStudy, number: int) -> None:
    """Raise an OptionError if no trial has a result: each would be trained for nothing."""
    if not any(trial.state in DONE for trial in sweep.results()):
        reason = _reason(sweep.folder_of(number) / OUTPUT).partition("error: ")[2]
        raise OptionError(f"{reason} No further trial was begun.")


def _value_text(sweep: SweepStudy, value: float | None) -> str:
    return f"{sweep.definition.monitor} {'not reported' if value is None else f'{value:.6g}'}"


def _reason(output: Path) -> str:
    """Return the line of the last error that a trial printed, or its last line, shortened.

    The file also holds what earlier processes of the trial printed.
    """
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - 10 * _LONGEST_LINE))
        text = file.read().decode(errors="replace").strip()
    # lines of code, of tracebacks and below warnings, are indented
    lines = [line for line in text.split("\n") if line[:1].strip()] or ["it printed nothing"]
    # notes follow the line of an error in its traceback
    line = next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1]).strip()
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, too."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Ask the processes to save and end, and wait; a second Ctrl-C kills them."""
    for process in processes:
        process.terminate()
    try:
        for process in processes:
            process.wait()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
            process.wait()
        raise
