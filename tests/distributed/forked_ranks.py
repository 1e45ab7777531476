"""Ranks forked from a process that has imported torch, under an agent as torchrun's.

A stage of a training costs a fork in place of an interpreter and its imports. The process that
calls `fork_ranks` must have run no training: threads do not survive a fork.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_EXIT_S = 20.0
"""Seconds that a rank has to end after SIGTERM; then it hangs, and is killed."""


def fork_ranks(
    target: Callable[[int], object],
    output: Path,
    *,
    ranks: int = 2,
    seconds: float = 60.0,
    notice: float = 5.0,
    during: Callable[[list[int]], object] | None = None,
) -> list[int]:
    """Run a function in forked ranks; return their exit codes, the negative signal if killed.

    A rank that has not ended soon after the first one, or in time, gets SIGTERM, as from torchrun's
    agent. If it does not end by that, it is killed and has the code 999.

    Args:
        target: is called with the rank, in the environment that torchrun makes.
        output: the file that gets what the ranks print.
        ranks: number of ranks.
        seconds: longest time of the stage.
        notice: seconds that a rank has to notice the end of another by itself.
        during: is called with the process ids of the ranks once they run.
    """
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(64)
    sys.stdout.flush()
    children: list[int] = []
    for rank in range(ranks):
        group = children[0] if children else 0
        children.append(_fork(target, rank, ranks, listening, output, group))
    store = os.fork()
    if store == 0:
        _serve(listening, ranks)
    listening.close()
    try:
        if during is not None:
            during(children)
        return _wait(children, seconds, notice)
    finally:
        os.kill(store, signal.SIGKILL)
        os.waitpid(store, 0)


def _fork(
    target: Callable[[int], object],
    rank: int,
    ranks: int,
    listening: socket.socket,
    output: Path,
    group: int,
) -> int:
    """Fork one rank into a process group, 0 for a new one, and return its process id."""
    child = os.fork()
    if child:
        os.setpgid(child, group)  # here too: whoever is first
        return child
    code = 1
    try:
        os.setpgid(0, group)
        port = listening.getsockname()[1]
        listening.close()
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        # as pytest may have replaced them
        sys.stdout = os.fdopen(1, "w", buffering=1)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE=str(ranks),
            LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
            TORCHELASTIC_USE_AGENT_STORE="True", GLOO_SOCKET_IFNAME="lo",
        )  # fmt: skip
        target(rank)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # it is printed, and told by the code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # neither pytest's handlers at exit nor those of the parent's modules
        os._exit(code)


def _serve(listening: socket.socket, ranks: int) -> None:
    """Host the key-value store, as torchrun's agent does, until this process is killed."""
    # kept: the server ends with the object
    store = dist.TCPStore(
        "127.0.0.1", listening.getsockname()[1], ranks, is_master=True, wait_for_workers=False,
        master_listen_fd=listening.fileno(), timeout=timedelta(seconds=60), use_libuv=False,
    )  # fmt: skip
    while store.port:
        signal.pause()


def _wait(ranks: list[int], seconds: float, notice: float) -> list[int]:
    """Wait for the ranks; return their exit codes."""
    codes: dict[int, int] = {}
    end, is_told = time.monotonic() + seconds, False
    while len(codes) < len(ranks):
        for rank in ranks:
            if rank not in codes:
                ended, status = os.waitpid(rank, os.WNOHANG)
                if ended:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                    if not is_told:
                        end = min(end, time.monotonic() + notice)
                elif time.monotonic() > end and not is_told:
                    is_told, end = True, time.monotonic() + _EXIT_S
                    for other in set(ranks) - codes.keys():
                        os.kill(other, signal.SIGTERM)
                elif time.monotonic() > end:
                    os.kill(rank, signal.SIGKILL)
                    os.waitpid(rank, 0)
                    codes[rank] = 999
        time.sleep(0.005)  # the ends of other processes: there is no event to wait on
    return [codes[rank] for rank in ranks]
