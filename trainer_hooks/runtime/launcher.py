"""Launch the other ranks of a script by running the script's own command again.

torch.distributed.elastic is not used for this. Its agent is a parent that is no rank itself and
installs its own handlers for SIGTERM, SIGINT, SIGHUP and SIGQUIT; here the parent is rank 0, the
user's own process, whose signals end the run with a checkpoint, and a function as entry point would
have to be pickled. Its restarts of failed ranks remain available: a run under torchrun uses nothing
of this module, only the watchdog, because the agent sees a rank that exits but not one that hangs.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._output import flush_output, losing_output
from trainer_hooks._system import IS_WINDOWS
from trainer_hooks.errors import UsageError
from trainer_hooks.runtime.device import usable_cpus
from trainer_hooks.runtime.topology import STARTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.runtime.topology import Topology

_POLL_S = 0.1
_EXIT_S = 5.0
"""Seconds that a process has to exit, before it is terminated and again before it is killed."""

_LOG_AFTER_S = 10.0
"""Seconds after which rank 0 prints that it waits for another rank to exit."""

_PR_SET_PDEATHSIG = 1
_DEATH_SIGNAL_PROGRAM = """
import ctypes, os, sys
try:
    ctypes.CDLL(None).prctl(1, 9)
except (AttributeError, OSError):
    pass
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Program that asks the kernel for SIGKILL at its parent's death, then becomes the command.

It calls prctl(PR_SET_PDEATHSIG, SIGKILL) in the child, as `preexec_fn` is not safe with threads.
"""


def can_rerun_command() -> bool:
    """Return whether this process was started by a command that can be run again."""
    main = sys.modules["__main__"]
    is_interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    is_file = Path(getattr(main, "__file__", None) or "-").is_file()  # and not standard input
    return not is_interactive and (_module_name(main) != "" or is_file)


def rank_environment(topology: Topology, rank: int, port: int = 0) -> dict[str, str]:
    """Return the environment variables that tell a launched process its rank."""
    world_size = str(topology.world_size)
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        STARTED: topology.launcher,
    }  # fmt: skip


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process, forked from `parent`, when the parent ends."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    # the parent may have ended before prctl was called
    if os.getppid() != parent:
        os._exit(1)


def how_ended(code: int) -> str:
    """Return how a process ended, by its exit code or the negative number of a signal."""
    if code >= 0:
        return f"has ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    # of the kernel's kills there is no other trace for who looks at a terminal
    return f"was killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")


class LaunchedProcesses:
    """The other ranks on this node, from their launch to their exit.

    They end when this process does: in order, after its failure, or by the kernel if it is killed.

    Args:
        topology: the ranks; this process is rank 0.
        port: port of the rendezvous store.
    """

    def __init__(self, topology: Topology, port: int) -> None:
        self._world_size = topology.world_size
        self._is_finished = threading.Event()
        # without a limit each rank would start a thread for every CPU of the machine
        threads = max(1, usable_cpus() // topology.local_world_size)
        if "OMP_NUM_THREADS" in os.environ:
            threads = torch.get_num_threads()
        # OMP_NUM_THREADS is read when torch is loaded, which is too late for this process.
        torch.set_num_threads(threads)
        common = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        command = _with_death_signal(_command(common))
        self._processes = {
            rank: subprocess.Popen(
                command,
                env={**common, **rank_environment(topology, rank, port)},
                # two processes that read one terminal would steal each other's input
                stdin=subprocess.DEVNULL,
            )
            for rank in range(1, topology.world_size)
        }

    def find_exit(self) -> tuple[int, str]:
        """Return a rank that has exited and a sentence on how; -1 and an empty text if none has.

        A rank that failed comes before one that succeeded.
        """
        # `poll` also reaps the process, which would stay a zombie.
        exit_codes = [(rank, process.poll()) for rank, process in self._processes.items()]
        for rank, code in sorted(exit_codes, key=lambda rank_and_code: not rank_and_code[1]):
            if code is not None:
                return rank, f"rank {rank} of {self._world_size} {how_ended(code)}"
        return -1, ""

    def require_running(self) -> None:
        """Check that no process has exited.

        Raises:
            UsageError: one has, and the other ranks would wait for it.
        """
        _, text = self.find_exit()
        if text:
            self.terminate()
            raise UsageError(
                f"{text} before it came to this run. It runs the same script, from its first line: "
                "what it printed says why it ended."
            )

    def watch(self, report: Callable[[int, str], None]) -> None:
        """Start a thread that reports a process which exits before this one is finished."""

        def poll() -> None:
            while not self._is_finished.wait(_POLL_S):
                rank, text = self.find_exit()
                if text:
                    report(rank, text)
                    return

        threading.Thread(target=poll, name="trainer_hooks processes", daemon=True).start()

    def join(self) -> None:
        """Wait for the other processes to exit, and exit with the code of one that has failed.

        The code is that of the lowest rank that failed, and 128 + its signal's number if a signal
        killed it. After an error of this process they are terminated, and its own code stands.
        """
        # stops the thread of `watch`: from here on an exit is no failure
        self._is_finished.set()
        # the interpreter sets sys.last_value before atexit handlers run, if an exception ends the
        # process
        has_failed = hasattr(sys, "last_value")
        if has_failed:
            self.terminate(_EXIT_S)
        for rank, process in self._processes.items():
            # without a line the user would see a prompt that does not come back, and not why
            _wait(process, _LOG_AFTER_S)
            if process.poll() is None:
                with losing_output():
                    print(f"rank 0: waiting for rank {rank} to end", file=sys.stderr, flush=True)
            process.wait()
        rank, text = self.find_exit()
        code = self._processes[rank].returncode if text else 0
        if code and not has_failed:
            with losing_output():
                print(f"rank 0: {text}", file=sys.stderr, flush=True)
            # Python offers no other way to an exit code from here, and a job script would take 0
            # for a success. What Python does after this handler must be done first.
            flush_output()
            logging.shutdown()
            # this process may be ending by sys.exit(code) or TerminationSignal itself. Python tells
            # nobody the code of a SystemExit, but all ranks run one script and the same signal ends
            # all, so that the code of another rank is this one's too
            os._exit(code if code > 0 else 128 - code)

    def terminate(self, grace_s: float = 0.0) -> None:
        """Terminate the processes that do not exit within `grace_s` seconds, then kill them."""
        deadline = time.monotonic() + grace_s
        for process in self._processes.values():
            _wait(process, deadline - time.monotonic())
            process.terminate()
        deadline = time.monotonic() + _EXIT_S
        for process in self._processes.values():
            _wait(process, deadline - time.monotonic())
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[Any], seconds: float) -> None:
    """Wait for a process, at most `seconds`."""
    try:
        process.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        return


def _command(environ: dict[str, str]) -> list[str]:
    """Return the command that started this script, with its current arguments."""
    main = sys.modules["__main__"]
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001
    module = _module_name(main)
    if not module:
        return [sys.executable, *flags, str(main.__file__), *sys.argv[1:]]
    # `python -m` found the module from the folder at the start, which may not be the current one.
    paths = (sys.path[0], environ.get("PYTHONPATH", ""))
    environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return [sys.executable, *flags, "-m", module, *sys.argv[1:]]


def _module_name(main: Any) -> str:
    """Return the name of the module that `python -m` ran, or an empty text for a script."""
    spec = getattr(main, "__spec__", None)
    return "" if spec is None else str(spec.name).removesuffix(".__main__")


def _with_death_signal(command: list[str]) -> list[str]:
    """Return a command whose process is killed when this one ends."""
    if IS_WINDOWS:  # it has no such signal, and its `execv` starts another process
        return command
    if threading.current_thread() is not threading.main_thread():
        # PR_SET_PDEATHSIG acts when the parent thread ends, not the parent process.
        return command
    # isolated and without site-packages, so that the helper starts fast and runs no code of the
    # user's
    return [sys.executable, "-I", "-S", "-c", _DEATH_SIGNAL_PROGRAM, str(os.getpid()), *command]
