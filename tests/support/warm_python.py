"""Python processes that start at once: forked from one that has imported torch and the package.

`run` and `Popen` are those of `subprocess`, for commands that begin with `sys.executable`. A new
interpreter spends two seconds on torch and on the compiler that its optimizers import. Here one
process does so for all, waits, and forks a child for each command. The child takes over the
command's words, folder, environment and files, `pass_fds` among them, and runs the program as
`__main__`; it ends as any interpreter ends. Signals have the handlers of a program in the
foreground.

A command with options of the interpreter other than `-W` and `-u`, or with a `preexec_fn`, starts
as a new interpreter does. So does one whose folders hold other files of modules that are imported
already: another checkout of the package, or modules that stand in for others. Variables that are
read before a child is forked, such as the number of threads, have a process that waits for each of
their values. Use `subprocess` itself where a test is about the start of an interpreter (the modules
that are loaded, the hash seed) or about its end.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

_READ_AT_START = ("OMP_", "MKL_", "KMP_", "GOMP_", "LD_", "MALLOC_", "TORCH_", "PYTORCH_")
"""Beginnings of the environment variables that torch and its libraries read as they are loaded."""

_READ_BY_CHILD = {
    "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS",
    "TORCHINDUCTOR_CACHE_DIR", "PYTORCH_NVML_BASED_CUDA_CHECK",
    "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK",
}  # fmt: skip
"""The variables that a child can still follow.

Those of torch and OpenMP appear once a test has imported the compiler or scikit-learn, which set
them. They would else make a further process necessary.
"""

_package = find_spec("trainer_hooks")
assert _package is not None
_PACKAGE = str(Path(_package.origin or "").parents[1])
"""The folder that the tests import the package from; most children import it from there, too."""

_SERVE = """
import sys
sys.path[0] = {folder!r}
import warm_python_server
del sys.path[0], sys
warm_python_server.main({number}, {package!r})
"""


class _Server:
    """The socket of a process that waits, which takes commands from it.

    Args:
        socket_: the socket.
        output: the file to which the process writes its errors.
    """

    def __init__(self, socket_: socket.socket, output: IO[bytes]) -> None:
        self.lock = threading.Lock()
        self.socket, self.output = socket_, output

    @classmethod
    def new(cls, read: dict[str, str]) -> _Server:
        """Start a process that imports torch and the package, with these variables of `_is_read`.

        It has none else of the command that it is started for: it outlives it.
        """
        others = {name: value for name, value in os.environ.items() if not _is_read(name)}
        others.pop("PYTHONPATH", None)
        output = tempfile.TemporaryFile()  # noqa: SIM115
        ours, theirs = socket.socketpair()
        with theirs:
            # it is imported, so that `__main__` is left to the children's programs
            code = _SERVE.format(
                folder=str(Path(__file__).parent), number=theirs.fileno(), package=_PACKAGE
            )
            process = subprocess.Popen(
                [sys.executable, "-c", code], pass_fds=[theirs.fileno()], cwd="/",
                env={**others, **read},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

        def end() -> None:
            ours.close()  # the process waits for more until then
            process.wait()
            output.close()

        atexit.register(end)
        return cls(ours, output)

    def fork(self, imports: tuple[str, ...] = ()) -> _Server:
        """Fork a process that imports further modules, and waits for commands as this one does."""
        ours, theirs = socket.socketpair()
        with theirs:
            _, code = self.start({"imports": imports, "numbers": []}, [theirs.fileno()])
        os.close(code)
        return _Server(ours, self.output)

    def start(self, request: dict[str, Any], files: list[int]) -> tuple[int, int]:
        """Fork a child for a command; return its number, and a file that its code comes from."""
        code, to_server = os.pipe()
        try:
            message = json.dumps(request).encode()
            # a process that has ended is told of by `read`
            with self.lock, suppress(BrokenPipeError, ConnectionResetError):
                header = len(message).to_bytes(4, "big")
                socket.send_fds(self.socket, [header], [*files, to_server])
                self.socket.sendall(message)
        finally:
            os.close(to_server)
        return self.read(code), code

    def read(self, file: int) -> int:
        """Read a number that the server wrote."""
        data = os.read(file, 8)
        if not data:
            self.output.seek(0)
            output = self.output.read().decode(errors="replace")
            raise RuntimeError(f"tests/support/warm_python_server.py has ended:\n{output}")
        return int.from_bytes(data, "big")


def _program_at(words: list[str]) -> int | None:
    """The place of the program in a command's words: its file, `-c` or `-m`."""
    place = 0
    while place < len(words) and words[place] in ("-W", "-u"):
        place += 2 if words[place] == "-W" else 1
    if place >= len(words) or (words[place].startswith("-") and words[place] not in ("-c", "-m")):
        return None
    return place


_servers: dict[tuple[tuple[str, ...], frozenset[tuple[str, str]]], _Server] = {}
_servers_lock = threading.Lock()
_given: list[_Server] = []
"""In a child whose own children are forked as well, the process that they are forked from."""


def fork_all_from(descriptor: int) -> None:
    """Let each `subprocess.Popen` of this process fork from the process behind a socket."""
    output = tempfile.TemporaryFile()  # noqa: SIM115
    _given.append(_Server(socket.socket(fileno=descriptor), output))
    for module in list(sys.modules.values()):  # torchrun's has the class itself
        if getattr(module, "__dict__", {}).get("Popen") is _Popen:
            module.Popen = Popen  # type: ignore[attr-defined]


def _is_read(name: str) -> bool:
    """Whether a variable has its effect as a process starts, so that a child comes too late."""
    return name.startswith((*_READ_AT_START, "PYTHON")) and name not in _READ_BY_CHILD


def _server_for(imports: tuple[str, ...], environ: dict[str, str]) -> _Server:
    """Return the server with these modules, and with the variables that are read at the start."""
    if _given:
        return _given[0]
    read = frozenset((name, value) for name, value in environ.items() if _is_read(name))
    with _servers_lock:
        if ((), read) not in _servers:
            _servers[(), read] = _Server.new(dict(read))
        if (imports, read) not in _servers:
            _servers[imports, read] = _servers[(), read].fork(imports)
            atexit.register(_servers[imports, read].socket.close)
        return _servers[imports, read]


_Popen = subprocess.Popen  # `fork_all_from` replaces the name


class Popen(_Popen):
    """`subprocess.Popen`, whose Python has imported torch already, and the modules in `imports`.

    A folder in `imports` is one that the modules after it are looked for in first.
    With `forks_children`, so has each Python that the program starts, such as torchrun's ranks.
    """

    _code_file: int | None = None

    def __init__(
        self,
        *args: Any,
        imports: tuple[str, ...] = (),
        forks_children: bool = False,
        **options: Any,
    ) -> None:
        self._imports, self._forks_children = imports, forks_children
        super().__init__(*args, **options)

    def _execute_child(self, *given: Any) -> None:
        named = inspect.signature(_Popen._execute_child).bind(self, *given).arguments
        command = named["args"]
        words = [os.fsdecode(word) for word in command] if isinstance(command, list | tuple) else []
        environ = dict(os.environ if named["env"] is None else named["env"])
        at = _program_at(words[1:])
        # Windows forks nothing, and a stand-in begins with its process
        if os.name == "nt" or "TRAINER_HOOKS_STAND_IN" in environ:
            at = None
        asks_more = named["preexec_fn"] or named["shell"]
        if words[:1] != [sys.executable] or at is None or asks_more:
            super()._execute_child(*given)
            return
        self._server = _server_for(self._imports, environ)
        theirs = self._server.fork() if self._forks_children else None
        ends = (named["p2cread"], named["c2pwrite"], named["errwrite"])
        passed = sorted(named["pass_fds"])
        files = [*(number if end == -1 else end for number, end in enumerate(ends)), *passed]
        request = {
            "words": words, "at": 1 + at, "environ": environ,
            "folder": str(named["cwd"] or Path.cwd()), "session": named["start_new_session"],
            "numbers": [*range(len(ends)), *passed],
        }  # fmt: skip
        if theirs is not None:
            files.append(theirs.socket.fileno())
        try:
            self.pid, self._code_file = self._server.start(request, files)
        finally:
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(named[name] for name in pipes))
            if theirs is not None:
                theirs.socket.close()
        self._child_created = True

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """Return (number of the process, status), as `os.waitpid` does for a child."""
        if self._code_file is None:
            return super()._try_wait(flags)
        if flags & os.WNOHANG and not select.select([self._code_file], [], [], 0)[0]:
            return 0, 0
        status = self._server.read(self._code_file)
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
    input: Any = None,  # noqa: A002
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
