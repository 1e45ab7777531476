"""Measure `trainer-hooks port` on libraries: `python tests/programs/measure_port.py FOLDER`.

    pip install -c constraints.txt lightning libcst pytest

Each library's source is downloaded into FOLDER without its dependencies, copied, and ported. Then
each file that imports a framework is imported, in the original and in the ported copy, in a process
of its own; what else it imports and is not installed is stood in for by empty classes. A file that
is imported in the original and not in the copy counts as broken, and its error is printed; so does
a test file that pytest collects in the original alone. A reported name that
the installed framework does not have either is counted apart, for a look: it is a name of another
release, or a false alarm. No test of the project runs this: it needs downloads.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIBRARIES = {
    # sdist, and the version that the figures in docs/coming-from-lightning.md are of
    "anomalib": "2.7.0",
    "chemprop": "2.3.1",
    "darts": "0.48.1",
    "finetuning-scheduler": "2.14.1",
    "kraken": "7.1.1",
    "lightning-bolts": "0.7.0",
    "llm-foundry": "0.22.0",
    "neuralforecast": "3.3.0",
    "pinnstorch": "0.1.2",
    "pytorch-forecasting": "1.8.0",
    "pytorch-tabular": "1.2.0",
    "rl4co": "0.7.0",
    "scvi-tools": "1.4.2",
    "torchgeo": "0.8.1",
}
_USES = re.compile(
    r"^\s*(?:import|from)\s+(?:lightning|pytorch_lightning|lightning_fabric|composer"
    r"|pytorch_accelerated)\b",
    re.MULTILINE,
)
_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d+): (?P<name>[\w.]+): (?P<advice>.*)$")

_IMPORT_ONE = r'''
"""Import files, with stand-ins for packages that are not installed; print the error of each."""
import importlib.abc, importlib.machinery, importlib.util, json, sys, traceback, types, warnings

warnings.simplefilter("ignore")
OURS = ("lightning", "pytorch_lightning", "lightning_fabric", "composer", "pytorch_accelerated",
        "trainer_hooks")


class Any(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Any(name, (Absent,), {})
    def __getitem__(cls, item): return cls
    def __call__(cls, *args, **kwargs):
        if len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType)):
            return args[0]  # a decorator
        return super().__call__()
    def __or__(cls, other): return object
    __ror__ = __or__
    def __iter__(cls): return iter(())
    def __len__(cls): return 0
    def __gt__(cls, other): return True
    __ge__ = __lt__ = __le__ = __gt__


class Absent(metaclass=Any):
    def __init__(self, *args, **kwargs): pass
    def __init_subclass__(cls, **kwargs): pass
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()
    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType)):
            return args[0]
        return Absent()
    def __iter__(self): return iter(())
    def __len__(self): return 0
    def __getitem__(self, item): return self
    def __enter__(self): return self
    def __exit__(self, *args): return None
    def __or__(self, other): return object
    __ror__ = __or__
    def __gt__(self, other): return True
    __ge__ = __lt__ = __le__ = __gt__
    def __mro_entries__(self, bases): return (Absent,)


class Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Any(name, (Absent,), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        root = name.partition(".")[0]
        if root in OURS or root in LOCAL or root in sys.stdlib_module_names:
            return None
        if isinstance(sys.modules.get(root), Module):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        # of the library's own imports alone: others look for optional packages
        frame = sys._getframe(1)
        while "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(folder):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec): return Module(spec.name)
    def exec_module(self, module): module.__version__ = "1.0.0"


import os

folder, root, files = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
sys.path.insert(0, root)
LOCAL = {name.removesuffix(".py") for name in os.listdir(root)}
for name in ("torch", "torchmetrics", "sklearn", "transformers", "matplotlib", "pandas"):
    # before there are stand-ins, as these ask for packages that they can do without
    if importlib.util.find_spec(name):
        importlib.import_module(name)
sys.meta_path.append(Finder())
for file in files:
    name = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    try:
        importlib.import_module(name)
        told = ""
    except BaseException as error:
        told = f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)
        if own := [frame for frame in frames if frame.filename.startswith(root)]:
            told += f" ({os.path.relpath(own[-1].filename, root)}:{own[-1].lineno}: {own[-1].line})"
    print("RESULT", json.dumps([file, told[:600]]), flush=True)
'''


def main() -> None:
    """Measure, and print a row for each library."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", type=Path, help="where the sources are kept")
    parser.add_argument("libraries", nargs="*", default=list(LIBRARIES))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = [measure(arguments.folder.resolve(), name) for name in arguments.libraries]
    print(
        "| library | files | places reported | not in the framework | imported | ported | tests |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def measure(folder: Path, name: str) -> list[object]:
    """Return the row of a library, and print what breaks."""
    source = download(folder, name)
    ported = folder / f"{source.name}-ported"
    shutil.rmtree(ported, ignore_errors=True)
    shutil.copytree(source, ported)
    command = [sys.executable, "-m", "trainer_hooks", "port", str(ported)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode in (0, 1), told.stderr
    places = [match for line in told.stdout.splitlines() if (match := _PLACE.match(line))]
    unknown = [place for place in places if not is_in_framework(place["name"])]
    for place in places:
        mark = "UNKNOWN " if place in unknown else ""
        print(f"{mark}{Path(place['file']).relative_to(ported)}:{place['line']}: {place['name']}")
    files = [
        file.relative_to(source)
        for file in sorted(source.rglob("*.py"))
        if _USES.search(file.read_text(encoding="utf-8", errors="replace"))
    ]
    before, after = (import_files(root, files) for root in (source, ported))
    for file in files:
        if not before[file] and after[file]:
            print(f"BROKEN {file}: {after[file]}")
    tests = [file for file in files if file.name.startswith("test_")]
    imported = [sum(not told for told in errors.values()) for errors in (before, after)]
    kept = [sum(not errors[file] for file in tests) for errors in (before, after)]
    label = f"{name} {LIBRARIES.get(name, '')}".strip()
    print(f"{label}: {len(files)} files, {len(places)} places, imported {imported}", flush=True)
    return [label, len(files), len(places), len(unknown), *imported, f"{kept[0]}, {kept[1]}"]


def download(folder: Path, name: str) -> Path:
    """Return the folder of a library's source, which is downloaded once."""
    stem = name.replace("-", "_")
    archives = folder.glob("*.tar.gz")
    found = [path for path in archives if path.name.replace("-", "_").startswith(stem)]
    if not found:
        wanted = f"{name}=={LIBRARIES[name]}" if name in LIBRARIES else name
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "-d", str(folder), wanted], check=True)
        return download(folder, name)
    source = folder / found[0].name.removesuffix(".tar.gz")
    if not source.exists():
        with tarfile.open(found[0]) as archive:
            archive.extractall(folder, filter="data")
    return source


def is_in_framework(name: str) -> bool:
    """Return whether the installed framework has a reported name."""
    names = name.split(".")
    for end in range(len(names), 0, -1):
        try:
            value = importlib.import_module(".".join(names[:end]))
        except ImportError:
            continue
        return all(hasattr(value, attribute) for attribute in names[end : end + 1])
    return False


def import_files(root: Path, files: list[Path]) -> dict[Path, str]:
    """Return the error of each file's import, empty for one that is imported."""
    homes: dict[Path, list[Path]] = {}
    for file in files:
        home = package_root(root, file)
        homes.setdefault(home, []).append(file)
    errors = dict.fromkeys(files, "it was not imported")

    def run(home: Path, some: list[Path]) -> None:
        names = [(root / file).relative_to(home).as_posix() for file in some]
        done = subprocess.run(
            [sys.executable, "-c", _IMPORT_ONE, str(root), str(home), json.dumps(names)],
            capture_output=True, text=True, check=False, timeout=900, cwd=home,
        )  # fmt: skip
        for line in done.stdout.splitlines():
            if line.startswith("RESULT "):
                name, error = json.loads(line.removeprefix("RESULT "))
                errors[(home / name).relative_to(root)] = error

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda item: run(*item), homes.items()))
    return errors


def package_root(root: Path, file: Path) -> Path:
    """Return the folder from which a file is imported: above its outermost package."""
    folder = (root / file).parent
    while (folder / "__init__.py").exists() and folder != root:
        folder = folder.parent
    return folder


if __name__ == "__main__":
    main()
