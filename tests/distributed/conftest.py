"""Real processes for the tests: one launch for the many cases that go through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import warm_python
from launchers import free_port, heed_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
THAT_GO_THROUGH = (
    "same_as_by_hand", "accumulates", "uneven_evaluation", "empty_share", "skips_batches",
    "skips_all", "stops_by_raising", "stops_by_asking", "asks_for_more", "ends_an_epoch",
    "reductions", "time_is_up", "unused_found", "manual", "closure", "microbatches",
    "unknown_length", "names_of_one",
    "step_values", "metric_objects", "unsynced_monitor", "resumes", "resumes_inside",
    "resumes_from_slots", "resumes_before_a_stop", "resumes_a_stop_that_waits",
    "resumes_before_requests",
    "samplers", "strategy_names", "comm_hooks", "guarded", "refused", "loggers_and_files",
    "rank_zero", "data_of_a_script",
    "predictions_kept",  # last: its refusal ends the run of a process, after which none begins
)  # fmt: skip
"""Cases that are run one after another by the same two processes."""

SHARDED = (
    "fsdp_by_hand", "fsdp_evaluates", "fsdp_skips", "fsdp_manual", "fsdp_resumes", "fsdp_parts",
    "fsdp_tensor_parallel", "fsdp_refused",
)  # fmt: skip
"""The same, where each process has a shard of the weights; other cases of these are drawn."""


@dataclass
class Ended:
    """Processes that have ended.

    Attributes:
        codes: their exit codes.
        output: what both have printed.
        folder: where they wrote.
    """

    codes: list[int]
    output: str
    folder: str

    def found(self, case: str) -> list[dict]:
        """Return the observations of each rank in a case."""
        places = [Path(self.folder, case) / f"rank{rank}.json" for rank in range(len(self.codes))]
        assert all(place.exists() for place in places), self.output[-6000:]
        return [json.loads(place.read_text()) for place in places]


def launch(folder: Path, *cases: str, processes: int = 2, timeout: float = 150) -> Ended:
    """Run cases in so many processes, and see to it that none is left."""
    common = {
        # a seed that a test before has left there is none of the cases'
        **{name: value for name, value in os.environ.items() if name != "PL_GLOBAL_SEED"},
        "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes),
        "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1", "TRAINER_HOOKS_DISABLE_PLUGINS": "1", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    outputs = [folder / f"output{rank}.txt" for rank in range(processes)]
    # two seconds in each process otherwise
    imports = ("torchmetrics",) if "metric_objects" in cases else ()
    started = []
    for rank, place in enumerate(outputs):
        own = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        command = [sys.executable, str(HERE / "worker.py"), str(folder), *cases]
        with place.open("w") as file:
            started.append(
                warm_python.Popen(command, env=own, stdout=file, stderr=file, imports=imports)
            )
    try:
        _wait(started, timeout)
    finally:
        for one in started:
            one.kill()
            one.wait()
    output = "\n".join(place.read_text() for place in outputs)
    return Ended([one.returncode for one in started], output, str(folder))


def _wait(started: list[subprocess.Popen], timeout: float) -> None:
    """Wait until all have ended, or so many seconds."""
    begun = time.monotonic()
    while any(process.poll() is None for process in started):
        if time.monotonic() - begun > timeout:
            return
        time.sleep(0.02)  # what is waited for are other processes: there is no event to wait on


@pytest.fixture(scope="session")
def ended(once) -> Ended:
    """What two processes found in all cases that go through."""
    return Ended(**once("two", lambda folder: asdict(launch(folder, *THAT_GO_THROUGH))))


@pytest.fixture(scope="session")
def sharded(once) -> Callable[[str], list[dict]]:
    """A function that returns the observations of two processes with shards of the weights.

    The cases in `SHARDED` have one launch, and any other has its own, which not each run needs.
    """

    def found(case: str) -> list[dict]:
        cases = SHARDED if case in SHARDED else (case,)
        name = f"shards-{cases[0]}"
        ended = once(name, lambda folder: asdict(launch(folder, *cases, timeout=240)))
        return Ended(**ended).found(case)

    return found


@pytest.fixture
def launched(tmp_path):
    """A function that runs cases in processes of their own."""
    return lambda *cases, **how: launch(tmp_path, *cases, **how)


def run(*command: str, program: str | None = None, start=subprocess.run, **more: str):
    """Run a program; return its exit code, its output, and the processes that it left.

    The processes that it starts are new interpreters, known by a variable. It is one itself unless
    `start` is `warm_python.run`, for tests to which an interpreter's end does not matter.
    """
    mark = uuid.uuid4().hex
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PYTEST"))},
        "MARK": mark, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1",
        "TRAINER_HOOKS_DISABLE_PLUGINS": "1", **more,
    }  # fmt: skip
    # children of `warm_python` heed it already
    heeds = {"preexec_fn": heed_ctrl_c} if start is subprocess.run else {}
    ended = start(
        [sys.executable, *command],
        env=environ, input=program, capture_output=True, text=True, timeout=250, cwd=HERE, **heeds,
    )  # fmt: skip
    return ended.returncode, ended.stdout + ended.stderr, left_behind(mark)


def left_behind(mark: str, seconds: float = 60) -> list[str]:
    """Return the processes that a program started and that are still there after a while."""
    deadline = time.monotonic() + seconds
    while True:
        found = []
        for place in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"MARK={mark}".encode() in place.read_bytes():
                    found.append((place.parent / "cmdline").read_text())
            except OSError:
                continue  # it has ended meanwhile
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)  # the ends of other processes: there is no event to wait on


@pytest.fixture(scope="session")
def ran():
    """`run`, for tests."""
    return run


@pytest.fixture
def mark():
    """A text for the environment of processes, which must have ended by the test's end."""
    text = uuid.uuid4().hex
    yield text
    assert left_behind(text) == []
