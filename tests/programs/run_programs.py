"""Run all programs of a framework: `run_programs.py RESULTS FRAMEWORK own|ported|hosted [names]`.

- own: in the framework itself.
- ported: a copy, after `trainer-hooks port`; the framework is not imported.
- hosted: the program's own objects, in `trainer_hooks.Trainer`.

A program is a file with a function `main`. Each trainer that it makes gets a recorder as another
callback. A file says these things of itself, as constants:

- `DIFFERENCES`: values that are not the same here, and why; see `compare_programs.py`.
- `HOSTED`: why its objects cannot be given to our Trainer. A program whose trainer takes other
  arguments than ours has a function `hosted` in place of it.
- `COPIES`: packages of others that are ported with it.
- `KILLED`: why a killed and resumed run is not the whole one; see `kill_programs.py`. `PORTED` and
  `KILLED_HOSTED`: why it is not killed ported, or hosted.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import io
import json
import logging
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import recorders
import torch
from foreign_programs import quiet_folder
from plain_values import plain

from trainer_hooks.cli.main import main as command_line

HERE = Path(__file__).parent
OURS = "trainer_hooks"
FRAMEWORKS = {
    "lightning": ["lightning.pytorch", "pytorch_lightning"],
    "composer": ["composer"],
    "accelerated": ["pytorch_accelerated"],
    "transformers": ["transformers"],
    "ignite": ["ignite.engine"],
}
"""The packages of each framework."""

PORTED = ("lightning", "composer", "accelerated")
"""The frameworks with import lines here; of the others, a program's callbacks are hosted alone."""

FOREIGN = {package for framework in PORTED for package in FRAMEWORKS[framework]}


def ways(framework: str) -> tuple[str, ...]:
    """Return how a framework's programs are run here."""
    return ("ported", "hosted") if framework in PORTED else ("hosted",)


BASES = {
    "lightning": ("", "Callback"),
    "composer": ("", "Callback"),
    "accelerated": (".callbacks", "TrainerCallback"),
    "transformers": ("", "TrainerCallback"),
    "ignite": ("", "Engine"),
}
"""The module below each framework's package, and the base of callbacks in it."""


def constants(program: Path) -> dict[str, Any]:
    """Return the constants with a literal value that a program defines, without running it."""
    found = {}
    for node in ast.parse(program.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError):
                found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


def programs(framework: str) -> dict[str, Path]:
    """Return the files of a framework's programs by name."""
    return {file.stem: file for file in sorted((HERE / f"of_{framework}").glob("*.py"))}


class Recording:
    """Gives each Trainer that is made a recorder."""

    def __init__(self, framework: str, way: str) -> None:
        self.make = getattr(recorders, f"of_{framework}")
        self.framework = framework
        self.way = way
        self.made: list[Any] = []

    def install(self) -> None:
        """Wrap the constructors of the Trainers that a program can make."""
        ours = {"ported": f"trainer_hooks.compat.{self.framework}", "hosted": OURS}
        for name in [ours[self.way]] if self.way in ours else FRAMEWORKS[self.framework]:
            if self.way == "own" and name not in sys.modules:
                continue
            if self.framework == "ignite" and self.way == "own":
                self._record_engines()
                continue
            trainer = importlib.import_module(name).Trainer
            if "is_recorded" not in vars(trainer):
                home = FRAMEWORKS[self.framework][0] if self.way == "hosted" else name
                self._wrap(trainer, home)

    def _record_engines(self) -> None:
        """Record each engine of Ignite that is run; one that runs inside of it evaluates."""
        from ignite.engine import Engine

        if "is_recorded" in vars(Engine):
            return
        original, running = Engine.run, []

        def run(engine: Any, *args: Any, **options: Any) -> Any:
            if running:
                self.made[-1].attach_evaluator(engine)
            else:
                self.made.append(recorders.OfIgnite())
                self.made[-1].attach(engine)
            running.append(engine)
            try:
                return original(engine, *args, **options)
            finally:
                running.pop()

        Engine.run, Engine.is_recorded = run, True

    def _wrap(self, trainer: Any, home: str) -> None:
        original = trainer.__init__
        path, name = BASES[self.framework]
        base = getattr(importlib.import_module(f"{home}{path}"), name)
        default = ()
        if self.framework == "accelerated" and self.way != "hosted":
            default = importlib.import_module(f"{home}.trainer").DEFAULT_CALLBACKS

        def construct(this: Any, *args: Any, **options: Any) -> None:
            given = options.get("callbacks", default) or []
            one = self.make(base)
            self.made.append(one)
            options["callbacks"] = [*(given if hasattr(given, "__iter__") else [given]), one]
            original(this, *args, **options)

        construct.__wrapped__ = original  # the signature, for command lines
        trainer.__init__ = construct
        trainer.is_recorded = True


class _OurTrainer(ast.NodeTransformer):
    """Replace Lightning's Trainer by ours where a program makes one."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        for place in (node, *node.keywords):
            name = "func" if place is node else "value"
            value = getattr(place, name)
            is_trainer = getattr(value, "attr", getattr(value, "id", "")) == "Trainer"
            if is_trainer and (place is node or getattr(place, "arg", "") == "trainer_class"):
                setattr(place, name, ast.Name("OurTrainer", ast.Load()))
        return node


def load(name: str, file: Path, way: str) -> types.ModuleType:
    """Import a program; hosted, with our Trainer in its calls."""
    module = types.ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    tree = ast.parse(file.read_text(encoding="utf-8"))
    if way == "hosted":
        tree = ast.fix_missing_locations(_OurTrainer().visit(tree))
        vars(module)["OurTrainer"] = importlib.import_module(OURS).Trainer
    exec(compile(tree, str(file), "exec"), vars(module))
    return module


def run(file: Path, recording: Recording, folder: Path) -> dict[str, Any]:
    """Run a program in an empty folder and return what came of it."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    recording.made.clear()
    found: dict[str, Any] = {}
    with quiet_folder(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = load(f"program_{file.stem}", file, recording.way)
            recording.install()
            start = getattr(module, "hosted", None) if recording.way == "hosted" else None
            found["result"] = plain((start or module.main)())
        except Exception as error:
            found["raised"] = f"{type(error).__name__}: {error}".partition("\n")[0]
            if "TRACEBACK" in os.environ:
                found["traceback"] = traceback.format_exc()
    found["runs"] = {number: one.values() for number, one in enumerate(recording.made)}
    found["files"] = {_name(path, folder): True for path in folder.rglob("*") if path.is_file()}
    return found


def _name(path: Path, folder: Path) -> str:
    """Return a file's path, without the time and machine in a name of TensorBoard's."""
    return re.sub(r"tfevents\..*", "tfevents", path.relative_to(folder).as_posix())


def port(files: dict[str, Path], folder: Path) -> tuple[dict[str, Path], dict[str, list[str]]]:
    """Port copies of programs; return the copies, and what the command says of each."""
    for file in files.values():
        for copied in sorted(file.parent.glob(f"{file.stem}.*")):
            shutil.copy(copied, folder)
        for package in constants(file).get("COPIES", ()):
            # of the top package alone, which does not import it
            top, *rest = package.split(".")
            (place,) = importlib.util.find_spec(top).submodule_search_locations
            shutil.copytree(Path(place, *rest), folder.joinpath(top, *rest))
            folder.joinpath(top, "__init__.py").touch()
    with contextlib.redirect_stdout(io.StringIO()) as written:
        command_line(["port", str(folder)])
    output = written.getvalue()
    assert " without a counterpart" in output, output
    said: dict[str, list[str]] = {name: [] for name in files}
    for line in output.splitlines():
        told = re.match(r"(.*?)\.\w+:(\d+): (.*)", line)
        if told:
            said.setdefault(Path(told[1]).name, []).append(f"line {told[2]}: {told[3]}")
    return {name: folder / file.name for name, file in files.items()}, said


def main(target: str, framework: str, way: str, *names: str) -> None:
    """Run the programs and write what came of each."""
    os.fsync = lambda descriptor: None  # files need not survive a power cut
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        files = {name: f for name, f in programs(framework).items() if not names or name in names}
        said: dict[str, list[str]] = {}
        if way == "ported":
            ported = Path(temporary, "ported")
            ported.mkdir()
            files, said = port(files, ported)
            sys.path.insert(0, str(ported))
        recording = Recording(framework, way)
        for name, file in files.items():
            if way == "hosted" and "HOSTED" in constants(file):
                continue
            folder = Path(temporary, name)
            folder.mkdir()
            before = {*sys.modules}
            started = time.perf_counter()
            values = run(file, recording, folder)
            if way == "ported":
                values["port"] = said[name]
                values["foreign"] = sorted(({*sys.modules} - before) & FOREIGN)
            found[name] = {"values": values, "seconds": time.perf_counter() - started}
    Path(target).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
