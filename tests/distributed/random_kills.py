"""Kill ranks under torchrun at random; each run must end as if no rank was killed.

python tests/distributed/random_kills.py [--kills 20] [--at-once 4] [--seed 0] [--strategy ddp]
    [--ranks 2]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "support"))

import warm_python  # noqa: E402


@dataclass
class Outcome:
    """What a training under torchrun came to.

    Attributes:
        code: torchrun's exit code.
        output: what it and the ranks have printed.
        found: what each rank ended with, if it did; its calls before the training, and in all.
        rows: the lines of the run's metrics.
        left: hidden files that are left in the folder, but those of checkpoints.
    """

    code: int
    output: str
    found: list[list]
    rows: list[str]
    left: list[str]


def train(
    folder: Path, strategy: str, kills: list[str], ranks: int = 2, timeout: float = 150
) -> Outcome:
    """Train under torchrun with as many restarts as kills, and leave no process behind."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(ranks), "--max-restarts", str(len(kills)),
        str(HERE / "elastic_run.py"), str(folder), strategy, *kills,
    ]  # fmt: skip
    environ = {
        **os.environ, "OMP_NUM_THREADS": "1", "TRAINER_HOOKS_DISABLE_PLUGINS": "1",
        "PYTHONPATH": str(HERE.parents[1]),
    }  # fmt: skip
    place = folder / "output.txt"
    with place.open("w") as file:
        agent = warm_python.Popen(
            command, env=environ, stdout=file, stderr=file, forks_children=True
        )
    try:
        agent.wait(timeout)
    except subprocess.TimeoutExpired:
        agent.send_signal(signal.SIGTERM)  # it ends the ranks
        agent.wait()
    found = [folder / f"found{rank}.json" for rank in range(ranks)]
    rows = [line for path in folder.rglob("metrics.csv") for line in path.read_text().splitlines()]
    return Outcome(
        agent.returncode,
        place.read_text(),
        [json.loads(path.read_text()) for path in found if path.exists()],
        rows,
        [path.name for path in folder.rglob(".*") if path.name != ".metadata"],
    )


def random_kills(many: int, whole: Outcome, seed: int) -> list[str]:
    """Return kills of any rank at any call that it makes, three of four in the training."""
    drawn = random.Random(seed)
    kills = []
    for _ in range(many):
        rank = drawn.randrange(len(whole.found))
        _, before, calls = whole.found[rank]
        begin, end = (before, calls) if drawn.random() < 0.75 else (1, before)
        kills.append(f"{rank}:{drawn.randrange(begin, end)}")
    return kills


def differences(whole: Outcome, killed: Outcome) -> list[str]:
    """Return the differences from the training without kills."""
    if killed.code or len(killed.found) < len(whole.found):
        return [f"exit code {killed.code}: {killed.output[-3000:]}"]
    told = [
        f"{name} of rank {rank}"
        for rank, (one, other) in enumerate(zip(whole.found, killed.found, strict=True))
        for name in one[0]
        if one[0][name] != other[0][name]
    ]
    told += ["the logged metrics"] if whole.rows != killed.rows else []
    return told + [f"left behind: {name}" for name in killed.left]


def main() -> None:
    """Kill, and say where the outcome differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4, help="kills of one training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name, "whole")
        place.mkdir()
        whole = train(place, options.strategy, [], options.ranks)
        print(f"calls a rank: {[one[1:] for one in whole.found]}", flush=True)
        bad = 0
        for number in range(0, options.kills, options.at_once):
            kills = random_kills(options.at_once, whole, options.seed + number)
            place = Path(name, str(number))
            place.mkdir()
            killed = train(place, options.strategy, kills, options.ranks)
            found = differences(whole, killed)
            bad += bool(found)
            print(f"{' '.join(kills)}: {found or 'the same'}", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
