"""`trainer-hooks port PATH...`: rewrite the import lines of files for other frameworks."""

from __future__ import annotations

import importlib.util
import os
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
    done = "to be ported" if arguments.check else "ported"
    files, places = count_with_noun(changed, "file"), count_with_noun(open_ends, "place")
    print(f"{files} {done}; {places} without a counterpart")
    return 1 if open_ends else 0


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
                one for one in folders if one[0] != "." and not (here / one / "pyvenv.cfg").exists()
            )
            yield from (here / one for one in sorted(files) if one.endswith((".py", *_CONFIGS)))


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
