"""Python processes that start at once: forked from one that has imported torch already.

`run` and `Popen` are those of `subprocess`, for commands that begin with `sys.executable`. A new
interpreter spends two seconds on torch and on the compiler that its optimizers import. Here one
process does so for all, waits, and forks a child for each command. The child takes over the
command's words, folder, environment and files, and runs the program as `__main__`; it ends as any
interpreter ends.

A command that asks for more than a child can still become starts as a new interpreter does: one
with another thread setting or hash seed, or with options of the interpreter other than `-W` and
`-u`. Use `subprocess` itself where a test is about the start: the modules that are loaded, the
hash seed, the time.
"""

from __future__ import annotations

import inspect
import json
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_READ_AT_START = ("OMP_", "MKL_", "KMP_", "GOMP_", "LD_", "MALLOC_", "TORCH_", "PYTORCH_")
"""Beginnings of the environment variables that torch and its libraries read as they are loaded."""

_READ_BY_PYTHON = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS"}
"""The variables of the interpreter that a child can still follow."""

_SERVE = """
import sys
sys.path[0] = {folder!r}
import warm_python_server
del sys.path[0], sys
warm_python_server.main({number})
"""


class _Server:
    """The process that waits, and the socket that it takes commands from."""

    def __init__(self) -> None:
        self.environ = dict(os.environ)
        ours, theirs = socket.socketpair()
        self.socket = ours
        self.lock = threading.Lock()
        with theirs:
            without = {k: v for k, v in self.environ.items() if k != "PYTHONPATH"}
            # it is imported, so that `__main__` is left to the children's programs
            code = _SERVE.format(folder=str(Path(__file__).parent), number=theirs.fileno())
            command = [sys.executable, "-c", code]
            subprocess.Popen(command, pass_fds=[theirs.fileno()], env=without, cwd="/")

    def can_become(self, words: list[str], environ: dict[str, str]) -> bool:
        """Whether a child can still follow the words and the environment of a command."""
        fixed = {
            name
            for name in {*environ, *self.environ}
            if name.startswith(_READ_AT_START)
            or (name.startswith("PYTHON") and name not in _READ_BY_PYTHON)
        }
        return _program_at(words) is not None and all(
            environ.get(name) == self.environ.get(name) for name in fixed
        )

    def start(self, request: dict[str, Any], files: list[int]) -> tuple[int, int]:
        """Fork a child for a command; return its number, and a file that its code comes from."""
        code, to_server = os.pipe()
        try:
            message = json.dumps(request).encode()
            with self.lock:
                header = len(message).to_bytes(4, "big")
                socket.send_fds(self.socket, [header], [*files, to_server])
                self.socket.sendall(message)
        finally:
            os.close(to_server)
        return int.from_bytes(_read(code, 8), "big"), code


def _read(file: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(file, size - len(data))):
        data += more
    assert len(data) == size, "the server of tests/support/warm_python.py has ended"
    return data


def _program_at(words: list[str]) -> int | None:
    """The place of the program in a command's words: its file, `-c` or `-m`."""
    place = 0
    while place < len(words) and words[place] in ("-W", "-u"):
        place += 2 if words[place] == "-W" else 1
    if place >= len(words) or (words[place].startswith("-") and words[place] not in ("-c", "-m")):
        return None
    return place


_server: _Server | None = None
_server_lock = threading.Lock()


def _running_server() -> _Server:
    global _server
    with _server_lock:
        if _server is None:
            _server = _Server()
        return _server


class Popen(subprocess.Popen):
    """`subprocess.Popen`, whose Python has imported torch already."""

    _code_file: int | None = None

    def _execute_child(self, *given: Any) -> None:
        named = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments
        command = named["args"]
        words = [os.fsdecode(word) for word in command] if isinstance(command, list | tuple) else []
        environ = dict(os.environ if named["env"] is None else named["env"])
        server = _running_server()
        if words[:1] != [sys.executable] or not server.can_become(words[1:], environ):
            super()._execute_child(*given)
            return
        assert not named["preexec_fn"]
        assert not named["pass_fds"]
        assert not named["shell"]
        ends = (named["p2cread"], named["c2pwrite"], named["errwrite"])
        files = [number if end == -1 else end for number, end in enumerate(ends)]
        request = {
            "words": words, "at": 1 + _program_at(words[1:]), "environ": environ,
            "folder": str(named["cwd"] or os.getcwd()), "session": named["start_new_session"],
        }  # fmt: skip
        try:
            self.pid, self._code_file = server.start(request, files)
        finally:
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(named[name] for name in pipes))
        self._child_created = True

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """Return (number of the process, status), as `os.waitpid` does for a child."""
        if self._code_file is None:
            return super()._try_wait(flags)
        if flags & os.WNOHANG and not select.select([self._code_file], [], [], 0)[0]:
            return 0, 0
        status = int.from_bytes(_read(self._code_file, 8), "big")
        os.close(self._code_file)
        return self.pid, status

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._code_file is None:
            return super()._internal_poll(*given, **named)
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def run(
    *args: Any,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess:
    """Run a command to its end, as `subprocess.run` does."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(*args, **options) as process:
        try:
            output, errors = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done
