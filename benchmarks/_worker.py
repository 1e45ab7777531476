"""Train one contestant in this process and write what it took: `_worker.py MODULE:FUNCTION EPOCHS`.

A third argument is the file to write the JSON to; without it, it goes to stdout.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from _workload import make_batches

_UNMEASURED_EPOCHS = 2
"""The first warms up. The last only gives the last measured one its end, the next epoch's start."""


def main(target: str, epochs: int, result: Path | None) -> None:
    """Run `target` for `epochs` measured epochs and write the clocks and the trained weights."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    module, function = target.split(":")
    train = getattr(importlib.import_module(f"contestants.{module}"), function)
    batches = make_batches()
    total = epochs + _UNMEASURED_EPOCHS
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        model = train(batches, total, Path(folder))
    marks = batches.marks
    if len(marks) != total:
        raise RuntimeError(f"{target} passed {len(marks)} times over the data: {total} wanted.")
    spans = [
        tuple((end - begin) * 1e6 / len(batches) for begin, end in zip(first, second, strict=True))
        for first, second in itertools.pairwise(marks[1:])
    ]
    found = {
        "wall_us": [wall for wall, _ in spans],
        "cpu_us": [cpu for _, cpu in spans],
        "weights": sum(p.detach().double().abs().sum().item() for p in model.parameters()),
    }
    if result is None:
        print(json.dumps(found))
    else:
        result.write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
