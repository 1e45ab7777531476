"""Launch: the other processes of a script, each of which runs the script's own command again.

torch's launchers are not used for it: torchrun's agent takes over the signals of the process that
it is in, which here is the user's own, and `torch.multiprocessing.spawn` wants all that it is given
to be pickled. A command that is run again needs neither.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.errors import UsageError
from trainer_hooks.runtime.device import usable_cpus
from trainer_hooks.runtime.topology import STARTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.runtime.topology import Topology

__all__ = ["StartedProcesses", "can_start_again", "environment_of", "tie_to_parent"]

_POLL_S = 0.1
_END_S = 5.0
"""How long a process may take to end, before it is asked to and before it is made to."""

_PATIENCE_S = 10.0

_PR_SET_PDEATHSIG = 1
_TIED = """
import ctypes, os, sys
try:
    ctypes.CDLL(None).prctl(1, 9)
except (AttributeError, OSError):
    pass
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Become another program that the kernel ends (PR_SET_PDEATHSIG, SIGKILL) when its parent ends.

It is done in the child, since `preexec_fn` is not safe where there are threads.
"""


def can_start_again() -> bool:
    """Return whether this process was started by a command that can be run once more."""
    main = sys.modules["__main__"]
    is_interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    is_file = Path(getattr(main, "__file__", None) or "-").is_file()  # and no standard input
    return not is_interactive and (_name(main) != "" or is_file)


def _share_of_threads(topology: Topology) -> int:
    """Return how many threads each process of this machine is to compute with."""
    if "OMP_NUM_THREADS" in os.environ:
        return torch.get_num_threads()
    return max(1, usable_cpus() // topology.local_world_size)


def environment_of(topology: Topology, rank: int, port: int = 0) -> dict[str, str]:
    """Return the variables by which a process that is started here knows which one it is."""
    world_size = str(topology.world_size)
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        STARTED: topology.launcher,
    }  # fmt: skip


def tie_to_parent(parent: int) -> None:
    """Let the kernel end this process, forked from `parent`, when that one ends."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


class StartedProcesses:
    """The other processes of this script, from their start to their end.

    They end when this process does: with it, after it has failed, or by the kernel where it is
    killed.

    Args:
        topology: which process this is, the first; what it says of the others is theirs.
        port: where they find it.
    """

    def __init__(self, topology: Topology, port: int) -> None:
        self._world_size = topology.world_size
        self._is_over = threading.Event()
        threads = _share_of_threads(topology)
        torch.set_num_threads(threads)
        common = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        command = _tied(_command(common))
        self._started = {
            rank: subprocess.Popen(
                command,
                env={**common, **environment_of(topology, rank, port)},
                stdin=subprocess.DEVNULL,
            )
            for rank in range(1, topology.world_size)
        }

    def ended(self) -> tuple[int, str]:
        """Return the rank of a process that has ended, and how; -1 and nothing without one.

        One that has failed comes before others.
        """
        found = [(rank, process.poll()) for rank, process in self._started.items()]
        for rank, code in sorted(found, key=lambda one: not one[1]):
            if code is not None:
                by = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                return rank, f"rank {rank} of {self._world_size} has ended {by}"
        return -1, ""

    def wait_for_end(self, seconds: float = 1.0) -> str:
        """Return how a process has ended that does so about now; nothing if none does."""
        deadline = time.monotonic() + seconds
        while not (text := self.ended()[1]) and time.monotonic() < deadline:
            self._is_over.wait(_POLL_S / 2)
        return text

    def require_running(self) -> None:
        """Make sure that all are on their way.

        Raises:
            UsageError: one has ended, which the others would wait for.
        """
        _, text = self.ended()
        if text:
            self.stop()
            raise UsageError(
                f"{text} before it came to this run. It runs the same script, from its first line: "
                "what it printed says why it ended."
            )

    def watch(self, tell: Callable[[int, str], None]) -> None:
        """Tell of a process that ends before this one is at its own end."""

        def look() -> None:
            while not self._is_over.wait(_POLL_S):
                rank, text = self.ended()
                if text:
                    tell(rank, text)
                    return

        threading.Thread(target=look, name="trainer_hooks processes", daemon=True).start()

    def finish(self) -> None:
        """Wait until the others are at their end, too; after a failure of this one, not long."""
        self._is_over.set()
        has_failed = hasattr(sys, "last_value")  # set where an exception ends the process
        if has_failed:
            self.stop(_END_S)
        for rank, process in self._started.items():
            _wait(process, _PATIENCE_S)
            if process.poll() is None:
                print(f"rank 0: waiting for rank {rank} to end", file=sys.stderr, flush=True)
            process.wait()
        if not has_failed and any(process.returncode for process in self._started.values()):
            print(f"rank 0: {self.ended()[1]}", file=sys.stderr, flush=True)

    def stop(self, grace: float = 0.0) -> None:
        """End those that do not end by themselves."""
        deadline = time.monotonic() + grace
        for process in self._started.values():
            _wait(process, deadline - time.monotonic())
            process.terminate()
        deadline = time.monotonic() + _END_S
        for process in self._started.values():
            _wait(process, deadline - time.monotonic())
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[Any], seconds: float) -> None:
    try:
        process.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        return


def _command(environ: dict[str, str]) -> list[str]:
    """Return the command that this script was started by, with its arguments as they are now."""
    main = sys.modules["__main__"]
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001
    module = _name(main)
    if not module:
        return [sys.executable, *flags, str(main.__file__), *sys.argv[1:]]
    # it was found in the folder of then, which may not be that of now
    paths = (sys.path[0], environ.get("PYTHONPATH", ""))
    environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return [sys.executable, *flags, "-m", module, *sys.argv[1:]]


def _name(main: Any) -> str:
    """Return the name of the module that `python -m` was given; empty of a script."""
    spec = getattr(main, "__spec__", None)
    return "" if spec is None else str(spec.name).removesuffix(".__main__")


def _tied(command: list[str]) -> list[str]:
    """Return a command that ends with this process."""
    if threading.current_thread() is not threading.main_thread():
        return command  # the kernel would end it with this thread
    return [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *command]
