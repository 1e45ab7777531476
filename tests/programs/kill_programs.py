"""Kill programs in the middle of their first fit: `kill_programs.py RESULTS FRAMEWORK WAY [names]`.

Each program runs here whole, and once more with SIGKILL after half of its batches. A third process
runs it in the folder of the killed one and resumes the fit at the last checkpoint, which was saved
a few batches before the kill. Each has a process of its own. The ways are those of
`run_programs.py`, ported or hosted.

The results are those of the whole and of the resumed run, and the signal that ended the killed one.
"""

from __future__ import annotations

import ast
import importlib
import json
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from run_programs import Recording, constants, port, programs, run

import trainer_hooks

BATCHES_TO_THE_KILL = 2
"""Batches after the checkpoint that the kill loses."""


class _SavesAndDies(trainer_hooks.Callback):
    """Saves a checkpoint after so many batches, and kills the process a few batches later."""

    def __init__(self, path: Path, saves_after: int, *, dies: bool) -> None:
        self.path = path
        self.saves_after = saves_after
        self.dies = dies

    def on_batch_checkpoint(self, trainer: Any, module: Any) -> None:
        batches = trainer.progress.batches_completed
        if self.dies and batches == self.saves_after:
            trainer.save_checkpoint(self.path)
        if self.dies and batches == self.saves_after + BATCHES_TO_THE_KILL:
            os.kill(os.getpid(), signal.SIGKILL)


class _InterruptedFits(Recording):
    """Records the trainers of a program, whose first fit is cut, or resumed."""

    def __init__(self, framework: str, way: str, path: Path, saves_after: int, *, dies: bool):
        super().__init__(framework, way)
        self.path = path
        self.saves_after = saves_after
        self.dies = dies

    def install(self) -> None:
        super().install()
        original = trainer_hooks.Trainer.fit

        def fit(trainer: Any, *args: Any, **options: Any) -> Any:
            trainer_hooks.Trainer.fit = original
            trainer.add_callback(_SavesAndDies(self.path, self.saves_after, dies=self.dies))
            if self.path.exists():
                options["ckpt_path"] = self.path
            return original(trainer, *args, **options)

        trainer_hooks.Trainer.fit = fit


def in_process(folder: Path, recording: _InterruptedFits, file: Path) -> tuple[dict, int]:
    """Run a program in a fork of this process; return its results, and the signal of its end."""
    target = folder / "results.json"
    child = os.fork()
    if child == 0:
        work = folder / "work"
        work.mkdir(exist_ok=True)
        found = run(file, recording, work)
        target.write_text(json.dumps(found), encoding="utf-8")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    found = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    target.unlink(missing_ok=True)
    return found, ended


def preload(file: Path) -> None:
    """Import what a program imports, once for the three processes that run it."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            importlib.import_module(name)


def kill(file: Path, framework: str, way: str, folder: Path) -> dict[str, Any]:
    """Run a program whole, killed, and resumed; return the results of the first and the last."""
    preload(file)
    whole, killed = folder / "whole", folder / "killed"
    whole.mkdir()
    killed.mkdir()
    path = killed / "last.ckpt"
    found, _ = in_process(whole, _InterruptedFits(framework, way, path, 0, dies=False), file)
    batches = len(found["runs"]["0"]["losses"]) if found.get("runs") else 0
    middle = constants(file).get("KILLED_AFTER", batches // 2 - BATCHES_TO_THE_KILL // 2)
    cut = _InterruptedFits(framework, way, path, middle, dies=True)
    _, ended = in_process(killed, cut, file)
    saved = path.exists()
    resumed = _InterruptedFits(framework, way, path, middle, dies=False)
    again, _ = in_process(killed, resumed, file)
    return {"whole": found, "resumed": again, "signal": ended, "saved": saved}


def main(target: str, framework: str, way: str, *names: str) -> None:
    """Kill the programs and write what came of each."""
    os.fsync = lambda descriptor: None  # files need not survive a power cut
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        files = {name: f for name, f in programs(framework).items() if not names or name in names}
        if way == "ported":
            ported = Path(temporary, "ported")
            ported.mkdir()
            files, _ = port(files, ported)
            sys.path.insert(0, str(ported))
        for name, file in files.items():
            if way == "hosted" and "HOSTED" in constants(file):
                continue
            folder = Path(temporary, name)
            folder.mkdir()
            found[name] = kill(file, framework, way, folder)
    Path(target).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
