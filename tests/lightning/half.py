"""Run programs on one framework: `python half.py lightning|here|ported results.json [names]`."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from plain_values import plain
from programs import all_programs
from side import Side

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]


def main(framework: str, target: str, *names: str) -> None:
    """Run programs, and write what each of them returned."""
    torch.set_num_threads(1)
    os.fsync = lambda descriptor: None  # files need not survive a power cut
    logging.disable(logging.CRITICAL)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, program in all_programs().items():
            if not names or name in names:
                place = Path(folder, name)
                place.mkdir()
                started = time.perf_counter()
                values = _run(program, framework, place)
                found[name] = {"values": values, "seconds": time.perf_counter() - started}
    Path(target).write_text(json.dumps(found), encoding="utf-8")


def _run(program: Callable, framework: str, place: Path) -> Any:
    """Return what a program returns, or its error if it ended with one."""
    torch.manual_seed(1)
    random.seed(1)
    side = Side(framework, place)
    silent = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.chdir(place),
        contextlib.redirect_stdout(silent),
        contextlib.redirect_stderr(silent),
    ):
        warnings.simplefilter("ignore")
        try:
            return plain(program(side))
        except BaseException as error:
            if "TRACEBACK" in os.environ:
                raise
            return {"raised": side.kind(error), "message": str(error)}


if __name__ == "__main__":
    main(*sys.argv[1:])
