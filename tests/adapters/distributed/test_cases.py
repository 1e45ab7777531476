"""Callbacks of other frameworks in a run of two processes, which gloo connects."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
import warm_python
from launchers import free_port

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("cases.py")
STAND_INS = ROOT / "tests" / "adapters" / "composer" / "stand_ins"

pytestmark = pytest.mark.exhaustive


def two(
    folder: Path, cases: list[str], *path: Path, imports: tuple[str, ...] = ()
) -> dict[str, list[dict]]:
    """Run cases in two processes, and return what each process found in each.

    Args:
        folder: where they write.
        cases: functions of the script.
        path: folders that they import from.
        imports: the slow imports of both, made once.
    """
    common = {
        **{name: value for name, value in os.environ.items() if name != "PL_GLOBAL_SEED"},
        "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1",
        "TRAINER_HOOKS_DISABLE_PLUGINS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))),
    }  # fmt: skip
    outputs = [folder / f"output{rank}.txt" for rank in range(2)]
    started = []
    for rank, place in enumerate(outputs):
        own = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        with place.open("w") as file:
            command = [sys.executable, str(SCRIPT), str(folder), *cases]
            process = warm_python.Popen(command, env=own, stdout=file, stderr=file, imports=imports)
            started.append(process)
    try:
        for one in started:
            one.wait(timeout=100)
    finally:
        for one in started:
            one.kill()
            one.wait()
    assert [one.returncode for one in started] == [0, 0], outputs[0].read_text()[-3000:]
    found = {}
    for case in cases:
        places = [folder / case / f"rank{rank}.json" for rank in range(2)]
        found[case] = [json.loads(place.read_text(encoding="utf-8")) for place in places]
        assert not [one["raised"] for one in found[case] if "raised" in one]
    return found


CASES = {
    "transformers_callback": ("accelerate", "transformers.trainer"),
    "ignite_handlers": ("ignite.handlers",),
    "accelerated_callbacks": ("pytorch_accelerated",),
}
"""The cases that one launch runs, with the modules that they need."""


def test_callbacks_know_their_process(tmp_path) -> None:
    """One rank's stop ends both in order, what is asked once is done once, and ranks are right."""
    cases = [
        case
        for case, needed in CASES.items()
        if all(importlib.util.find_spec(name.partition(".")[0]) for name in needed)
    ]
    imports = tuple(name for case in cases for name in CASES[case])
    found = two(tmp_path, cases, imports=imports)  # one launch for all, as is one import
    if "transformers_callback" in found:
        first, second = found["transformers_callback"]
        assert (first["steps"], second["steps"]) == (7, 7)
        assert first["seen"] == [True, True, 0, 2]
        assert second["seen"] == [False, False, 1, 2]
        assert first["saved"] == second["saved"] == ["epoch=0-step=3.ckpt"]
    if "ignite_handlers" in found:
        first, second = found["ignite_handlers"]
        assert (first["steps"], second["steps"]) == (7, 7)
        assert (first["seen"], second["seen"]) == ([0, 2], [1, 2])
        assert first["saved"] == second["saved"] == ["layer_6.pt"]
    if "accelerated_callbacks" in found:
        first, second = found["accelerated_callbacks"]
        assert (first["steps"], second["steps"]) == (3, 3)
        assert first["seen"] == [True, True, 2, True, 0]
        assert second["seen"] == [False, True, 2, False, 1]
        assert first["saved"]
        assert first["gathered"] == [[[0, 7], [1, 7], [1, 8]], [0, 1]] == second["gathered"]


@pytest.mark.skipif(
    not any(importlib.metadata.distributions(name="mosaicml")), reason="needs mosaicml"
)
def test_callbacks_and_models_of_composer_know_their_process(tmp_path) -> None:
    """One rank's stop ends both, though a saver waits for all; a model's metrics are shared."""
    cases = ["composer_callbacks", "composer_evaluations", "composer_model"]
    found = two(tmp_path, cases, STAND_INS)
    first, second = found["composer_callbacks"]
    assert (first["steps"], second["steps"]) == (7, 7)
    assert (first["seen"], second["seen"]) == ([0, 2, 0], [1, 2, 1])
    files = ["ep0-ba2-rank0.pt", "ep0-ba4-rank0.pt", "ep1-ba6-rank0.pt", "latest-rank0.pt"]
    assert first["saved"] == second["saved"] == files
    first, second = found["composer_evaluations"]
    ends = [["eval_end", label, 2] for label in ("eval_0", "eval_1")]
    batches = ["eval_start", "eval_batch_end", "eval_batch_end"]
    assert first == second == [*batches, *batches, *ends]
    first, second = found["composer_model"]
    assert first == second
    assert (first["steps"], first["label"]) == (12, ["metrics/eval/mean"])
