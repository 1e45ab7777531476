"""`trainer-hooks port PATH...`: rewrite the import lines of files for other frameworks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._files import file_fault, is_missing, replace_file
from trainer_hooks._text import count_with_noun, printable
from trainer_hooks.cli.commands import print_failure

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from trainer_hooks.cli.commands import Commands

_ALL = "all"
_CONFIGS = (".yaml", ".yml")
_PACKAGES = {
    "lightning": {
        "lightning.pytorch": "",
        "pytorch_lightning": "",
        "lightning_fabric": ".fabric",
        "lightning": "",
    },
    "composer": {"composer": ""},
    "accelerated": {"pytorch_accelerated": ""},
}
"""The packages that each framework is imported from, the longest names first, each with its place
below the compatibility package."""


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "port",
        help="give code of other frameworks the import lines that run it here",
        description=(
            "Rewrite the import lines of Python files that are written for Lightning, Composer or "
            "pytorch-accelerated, and the class paths of their YAML configs, and list by file and "
            "line what has no counterpart. Nothing else is changed. The exit code is 1 if anything "
            "has none."
        ),
        epilog="Example: trainer-hooks port --check src",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, or a folder of them")
    parser.add_argument(
        "--from",
        dest="origin",
        choices=[*_PACKAGES, _ALL],
        default=_ALL,
        help="the framework that the code is written for (default: whichever it imports)",
    )
    parser.add_argument("--check", action="store_true", help="report only, and change no file")
    parser.add_argument(
        "--try",
        dest="tries",
        action="store_true",
        help="import each changed Python file in a fresh process, which runs its code, and name "
        "the first line that fails",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Rewrite the files and return the exit code."""
    if importlib.util.find_spec("libcst") is None:
        return print_failure("port", "it needs libcst: pip install 'trainer-hooks[port]'")
    for path in arguments.paths:
        if is_missing(path):
            return print_failure("port", f"{path!r}: there is no such file or folder")
        # not Path.is_dir, which raises for a name that is too long
        if not os.path.isdir(path) and (fault := file_fault(path)):  # noqa: PTH112
            return print_failure("port", f"{path!r}: {fault}. Give a file, or a folder of them")
    origin = arguments.origin
    packages = {
        package: f"trainer_hooks.compat.{framework}{place}"
        for framework in (_PACKAGES if origin == _ALL else [origin])
        for package, place in _PACKAGES[framework].items()
    }
    # here, since libcst is an extra, and takes its time to import
    from trainer_hooks.cli.port.porting import NotPythonError, port_config, port_imports

    changed = open_ends = 0
    to_try = []
    for path in _files(arguments.paths):
        name = printable(path)
        try:
            # bytes, so that encoding and line ends stay as they are
            port = port_config if path.suffix in _CONFIGS else port_imports
            ported = port(_read(path), packages)
        except OSError as error:
            print(f"{name}: it cannot be read: {printable(error.strerror or error)}")
            open_ends += 1
            continue
        except NotPythonError as error:
            print(f"{name}: it cannot be read as Python: {printable(error)}")
            open_ends += 1
            continue
        if ported.lines:
            kind = "lines" if path.suffix in _CONFIGS else "import lines"
            numbers = ", ".join(map(str, ported.lines))
            print(f"{name}: {kind} {numbers} {'would change' if arguments.check else 'changed'}")
        for missing in ported.findings:
            print(printable(f"{name}:{missing.line}: {missing.name}: {missing.instead}"))
        changed += bool(ported.lines)
        open_ends += len(ported.findings)
        if ported.lines and not arguments.check:
            _write(path, ported.text)
            to_try.append(path)
    done = "to be ported" if arguments.check else "ported"
    files, places = count_with_noun(changed, "file"), count_with_noun(open_ends, "place")
    print(f"{files} {done}; {places} without a counterpart")
    has_failed = arguments.tries and _try(to_try)
    return 1 if open_ends or has_failed else 0


def _try(paths: list[Path]) -> bool:
    """Import Python files, print the first line of each that fails, and return whether one did."""
    files = [path for path in paths if path.suffix == ".py"]
    failed = [fault for path in files if (fault := _import_fault(path))]
    for fault in failed:
        print(printable(fault))
    if files:
        print(f"{count_with_noun(len(files) - len(failed), 'file')} of {len(files)} imported")
    return bool(failed)


_IMPORT = """
import importlib, sys, traceback
root, module, file = sys.argv[1:]
sys.path.insert(0, root)
try:
    importlib.import_module(module)
except BaseException as error:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    print(f"\\0{(lines or [0])[-1]}\\0{type(error).__name__}: {error}")
"""
_LONGEST_IMPORT = 300
"""The seconds that the import of a file may take."""


def _import_fault(path: Path) -> str:
    """Import a file in a process of its own; return the line that fails and its error, or ""."""
    file = path.resolve()
    root, names = file.parent, [file.stem] if file.stem != "__init__" else []
    while (root / "__init__.py").exists():
        names.insert(0, root.name)
        root = root.parent
    command = [sys.executable, "-c", _IMPORT, str(root), ".".join(names), str(file)]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False,
            timeout=_LONGEST_IMPORT, cwd=file.parent,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{path}: its import takes longer than {_LONGEST_IMPORT} s"
    _, _, told = ran.stdout.partition("\0")
    if told:
        line, _, error = told.rstrip().partition("\0")
        place = f":{line}" if line != "0" else ""
        return f"{path}{place}: {' '.join(error.split())}"
    return f"{path}: its import ends the process ({ran.returncode})" if ran.returncode else ""


def _files(paths: list[str]) -> Iterator[Path]:
    """Yield the Python and YAML files in order, not of hidden folders and environments."""
    for name in paths:
        path = Path(name)
        if not path.is_dir():
            yield path
            continue
        for folder, folders, files in os.walk(path):
            here = Path(folder)
            # in place: os.walk goes down into what is left in this very list
            folders[:] = sorted(
                child
                for child in folders
                if child[0] != "." and not (here / child / "pyvenv.cfg").exists()
            )
            yield from (here / file for file in sorted(files) if file.endswith((".py", *_CONFIGS)))


def _read(path: Path) -> bytes:
    if fault := file_fault(path):  # a folder of sources may hold anything of such a name
        raise OSError(fault)
    return path.read_bytes()


def _write(path: Path, text: bytes) -> None:
    """Replace a file's text atomically, so that a full disk does not cost the file its text."""
    # the new file takes the place of the old one, but not its rights
    mode = path.stat().st_mode
    replace_file(path, lambda file: file.buffer.write(text))
    path.chmod(mode)
