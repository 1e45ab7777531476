"""The process that `warm_python` forks its children from.

It reads commands from a socket. With each come files: standard input, output and errors, those of
`pass_fds`, perhaps a socket, and one to which the child's number and, when it has ended, its status
are written. Then comes JSON: the command's words, folder and environment. By the socket the child
has a process to fork children of its own from. A command without words makes such a process, which
imports further modules and serves the socket.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import io
import json
import os
import random
import runpy
import select
import signal
import site
import socket
import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from importlib import import_module, invalidate_caches
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

AT_START = list(warnings.filters)
"""The filters of warnings of a new interpreter, before any import."""

import numpy as np  # noqa: E402
import torch._dynamo.utils  # noqa: E402  (each optimizer imports it)
import torch.utils.data  # noqa: E402
import warm_python  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

PACKAGE = "trainer_hooks"
_MOST_FILES = 16
"""So many files come with a command at most; more would be lost."""
_NOT_PRELOADED = ("adapters", "cli", "compat", "testing")
"""Rooms whose modules import other frameworks, the parser of configurations, or pytest."""
_ALSO_PRELOADED = ("importlib_metadata", "torch.utils.serialization.config")
"""Modules that the package imports in functions, in nearly all runs."""


def main(number: int, folder: str) -> None:
    """Import the package, and serve the socket with this number; in a child, run its program.

    Args:
        number: the socket's file descriptor.
        folder: the folder that the package is imported from.
    """
    preload(folder)
    # it would import a package for tables at the end of each child
    atexit.unregister(torch._dynamo.utils.dump_compile_times)
    # as a shell gives them to a program in the foreground: one in the background ignores some
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ending in (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(ending, signal.SIG_DFL)
    request: dict[str, Any] | None = {"imports": [], "server": number}
    while request and "imports" in request:
        before = sys.path[:]
        for name in request["imports"]:
            if os.sep in name:  # a folder
                sys.path.insert(0, name)
            else:
                import_module(name)
        sys.path[:] = before
        # collections in the children, of which an interpreter's end makes several, skip these
        gc.collect()
        gc.freeze()
        request = serve(socket.socket(fileno=request["server"]))
    if request is None:
        return
    code = 0
    try:
        become(request)
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else asked.code is not None
        if code is True:
            print(asked.code, file=sys.stderr)
    except BaseException as error:
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        error = error.with_traceback(_of_program(error))
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
    end(int(code))


def preload(folder: str) -> None:
    """Import the modules of the package in a folder that most programs come to import."""
    sys.path.insert(0, folder)
    package = import_module(PACKAGE)
    root = Path(package.__path__[0])
    for file in sorted(root.rglob("*.py")):
        room, *rest = file.relative_to(root).with_suffix("").parts
        if room not in (*_NOT_PRELOADED, "__main__"):
            import_module(".".join((PACKAGE, room, *rest)).removesuffix(".__init__"))
    for name in _ALSO_PRELOADED:
        import_module(name)
    sys.path.remove(folder)


def _of_program(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error without the frames of this file."""
    kept = trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == __file__:
            kept = trace.tb_next
        trace = trace.tb_next
    return kept


def end(code: int) -> NoReturn:
    """End as an interpreter does, and leave out the destruction of all that torch imported."""
    threading._shutdown()
    atexit._run_exitfuncs()
    vars(sys.modules["__main__"]).clear()
    gc.collect()
    for file in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads it
            file.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def serve(commands: socket.socket) -> dict[str, Any] | None:
    """Fork a child for each command; return the command in its child, and None at the end.

    The child that is to serve a socket in its turn finds its descriptor in the command.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    codes: dict[int, int] = {}
    while True:
        ready = select.select([commands, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            _reap(codes)
        if commands not in ready:
            continue
        header, files, _, _ = socket.recv_fds(commands, 4, _MOST_FILES)
        message = _exactly(commands, int.from_bytes(header, "big"))
        if not message:
            return None
        request = json.loads(message)
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for file in (files.pop(), *codes.values(), woken, wake):
                os.close(file)
            commands.close()
            _take_over(files, request)
            return request
        os.write(files[-1], child.to_bytes(8, "big"))
        codes[child] = files.pop()
        for file in files:
            os.close(file)


def _take_over(files: list[int], request: dict[str, Any]) -> None:
    """Give the files of a command the numbers that they had there; a socket comes after them."""
    numbers = request["numbers"]
    # above all of those numbers, so that none is overwritten before it is moved
    above = [
        fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, max(numbers, default=0) + 1) for file in files
    ]
    for file in files:
        os.close(file)
    if len(above) > len(numbers):
        request["server"] = above.pop()
    for file, number in zip(above, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def _exactly(commands: socket.socket, size: int) -> bytes:
    """Read a message; empty where the other end closed the socket before it was whole."""
    data = b""
    while len(data) < size:
        more = commands.recv(size - len(data))
        if not more:
            return b""
        data += more
    return data


def _reap(codes: dict[int, int]) -> None:
    """Write down the status of each child that has ended."""
    while codes:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        file = codes.pop(child)
        with suppress(BrokenPipeError):  # nobody waits for it any more
            os.write(file, status.to_bytes(8, "big"))
        os.close(file)


def become(request: dict[str, Any]) -> None:
    """Take over the words, the folder and the environment of a command, and run its program."""
    words, at, environ = request["words"], request["at"], request["environ"]
    options, program = words[1:at], words[at:]
    if request["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(request["folder"])
    _open_standard_files(is_unbuffered="-u" in options or bool(environ.get("PYTHONUNBUFFERED")))
    sys.dont_write_bytecode = bool(environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.orig_argv[:] = words
    _filter_warnings(options, environ)
    # or all children would draw the numbers that the process which waits would
    random.seed()
    np.random.seed()
    torch.seed()
    folders = [place for place in environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:0] = [str(Path(place).absolute()) for place in folders]
    invalidate_caches()
    if would_import_others([_folder_of(program), *folders]):
        os.execve(sys.executable, words, environ)
    if environ.get("PYTHONPATH"):
        sys.modules.pop("sitecustomize", None)
        site.execsitecustomize()
    if "server" in request:
        warm_python.fork_all_from(request["server"])
    main = vars(sys.modules["__main__"])
    kind, *arguments = program
    if kind == "-m":
        sys.argv[:] = ["-m", *arguments[1:]]
        sys.path.insert(0, str(Path.cwd()))
        runpy._run_module_as_main(arguments[0])
        return
    if kind == "-c":
        sys.argv[:] = ["-c", *arguments[1:]]
        sys.path.insert(0, "")
        code = compile(arguments[0], "<string>", "exec")
    else:
        sys.argv[:] = program
        file = Path(kind)
        sys.path.insert(0, str(file.resolve().parent))
        main["__file__"] = str(file.absolute())
        code = compile(file.read_bytes(), kind, "exec")
    exec(code, main)


def _folder_of(program: list[str]) -> str:
    """Return the folder that an interpreter puts in front of its path for a program."""
    return os.curdir if program[0] in ("-c", "-m") else str(Path(program[0]).resolve().parent)


def would_import_others(folders: list[str]) -> bool:
    """Whether a new interpreter with these folders in its path has other files for loaded modules.

    That is so for another checkout of the package, and for modules that stand in for a package.
    """
    names = {PACKAGE}
    for folder in map(Path, folders):
        if folder.is_dir():
            names |= {file.name.partition(".")[0] for file in folder.iterdir()} & set(sys.modules)
    with _path_before(folders[:1]):
        return any(_file_of(name) != _loaded_file(name) for name in names)


@contextmanager
def _path_before(folders: list[str]) -> Iterator[None]:
    path = sys.path[:]
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = path


def _file_of(name: str) -> str | None:
    """Return the file that an import of a module would find now, were it not loaded."""
    specs = (finder.find_spec(name, None) for finder in sys.meta_path)
    spec = next((spec for spec in specs if spec is not None), None)
    return spec and spec.origin and os.path.realpath(spec.origin)


def _loaded_file(name: str) -> str | None:
    spec = sys.modules[name].__spec__
    return spec and spec.origin and os.path.realpath(spec.origin)


def _open_standard_files(*, is_unbuffered: bool) -> None:
    """Make the standard files anew: how they buffer depends on the files behind them."""
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = open(number, "wb", 0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
        text = io.TextIOWrapper(
            raw,
            errors="backslashreplace" if number == 2 else "strict",
            line_buffering=number == 2 or os.isatty(number),
            write_through=is_unbuffered,
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def _filter_warnings(options: list[str], environ: dict[str, str]) -> None:
    """Set the filters of a new interpreter with these options, and those of imports before them."""
    of_imports = [added for added in warnings.filters if added not in AT_START]
    given = [word for word in environ.get("PYTHONWARNINGS", "").split(",") if word]
    given += [word for before, word in pairwise(options) if before == "-W"]
    sys.warnoptions[:] = given
    warnings.filters[:] = AT_START
    warnings._processoptions(given)
    warnings.filters[:0] = of_imports
    warnings._filters_mutated()
