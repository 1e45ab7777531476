"""One process of several: run the cases that are named, and write down what each found.

It is started by `conftest.launch`, never by hand: worker.py FOLDER CASE...
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import torch
from cases import CASES
from many_ranks_cases import CASES as MANY_RANKS
from own_loop_cases import CASES as OWN_LOOPS
from sharded_cases import CASES as SHARDED


def main(folder: str, names: list[str]) -> None:
    """Run each case in a folder of its own."""
    import os

    rank = int(os.environ["RANK"])
    for name in names:
        place = Path(folder, name)
        place.mkdir(exist_ok=True)
        torch.manual_seed(0)
        found = {**CASES, **SHARDED, **OWN_LOOPS, **MANY_RANKS}[name](place)
        Path(place, f"rank{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except BaseException:
        traceback.print_exc()
        raise
