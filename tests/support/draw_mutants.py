"""Change a room at drawn places, one at a time, and list the changes that its tests do not notice.

    pip install -c constraints.txt cosmic-ray
    python tests/support/draw_mutants.py trainer_hooks/metrics tests/metrics --count 40 --seed 7

It works on a clone of the last commit, so that the files here stay as they are. A change that lives
is an equal program, or needs a test.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIG = """
[cosmic-ray]
module-path = "{room}"
timeout = {timeout}
test-command = "{python} -m pytest -x -q -p no:cacheprovider -m 'not slow' {tests}"
[cosmic-ray.distributor]
name = "local"
"""


def main() -> None:
    """Draw the mutants of a room, run its tests on each, and print cosmic-ray's report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("room", help="a folder or a file of the package")
    parser.add_argument("tests", nargs="+", help="its tests")
    parser.add_argument("--count", type=int, default=40, help="how many changes are drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds of the tests")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        config = CONFIG.format(
            room=options.room,
            timeout=options.timeout,
            python=sys.executable,
            tests=shlex.join(options.tests),
        )
        (clone / "mutants.toml").write_text(config, encoding="utf-8")

        def run(command: str, *words: str) -> None:
            environ = {**os.environ, "PYTHONPATH": str(clone)}
            program = Path(sys.executable).with_name(command)
            subprocess.run([program, *words, "mutants.sqlite"], cwd=clone, env=environ, check=True)

        run("cosmic-ray", "init", "mutants.toml")
        draw(clone / "mutants.sqlite", options.count, options.seed)
        run("cosmic-ray", "exec", "mutants.toml")
        run("cr-report", "--surviving-only", "--show-diff")


def draw(session: Path, count: int, seed: int) -> None:
    """Leave so many of a session's mutants, drawn by a seed, and delete the others."""
    with closing(sqlite3.connect(session)) as database, database:
        # their ids are random, so the order is that of their places
        rows = database.execute(
            "SELECT job_id, operator_name FROM mutation_specs ORDER BY module_path, "
            "start_pos_row, start_pos_col, operator_name, operator_args, occurrence"
        ).fetchall()
        # `|` stands in annotations, which nothing runs
        jobs = [job for job, operator in rows if "BinaryOperator_BitOr_" not in operator]
        drawn = random.Random(seed).sample(jobs, min(count, len(jobs)))
        left_out = [(job,) for job, _ in rows if job not in drawn]
        for table in ("mutation_specs", "work_items"):
            database.executemany(f"DELETE FROM {table} WHERE job_id = ?", left_out)


if __name__ == "__main__":
    main()
