"""`Trainer(devices=2)` starts the other process itself, and leaves none behind."""

from __future__ import annotations

import json
import subprocess
from itertools import starmap
from pathlib import Path

import pytest
import warm_python
from samples import one_in

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


def test_a_script_trains_in_the_processes_that_it_asks_for(ran, tmp_path):
    """Both run the command again, wherever it is by then, and have the trained model after fit."""
    command = ("-W", "ignore::ImportWarning", "-m", "package", str(tmp_path), "goes_through", "a b")
    code, output, left = ran(*command)
    assert code == 0, output
    assert left == []
    first, second = (json.loads((tmp_path / f"rank{r}.json").read_text()) for r in (0, 1))
    assert [first["ranks"], second["ranks"]] == [[0, 0, 0, 2, 2], [1, 1, 0, 2, 2]]
    assert first["weights"] == second["weights"] != first["before"]
    assert first["before"] == second["before"]
    assert (first["other"], first["loss"]) == (second["other"], second["loss"])
    assert first["steps"] == [16, 8]
    assert first["world"] == 2
    assert first["argv"] == second["argv"] == [str(tmp_path), "goes_through", "a b"]
    assert first["flags"] == second["flags"] == ["ignore::ImportWarning"]
    line = "2 processes (gloo, CPU), started by this script because devices=2"
    assert output.count(line) == 1


@pytest.mark.exhaustive
def test_the_processes_may_have_shards_of_the_weights(ran, tmp_path):
    """A script with `devices=2` and FSDP trains, and its parts make one checkpoint."""
    code, output, left = ran(
        str(HERE / "package/__main__.py"), str(tmp_path), "shards", start=warm_python.run
    )
    assert code == 0, output
    assert left == []
    first, second = (json.loads((tmp_path / f"rank{r}.json").read_text()) for r in (0, 1))
    assert first["weights"] == second["weights"]
    assert sum(first["own"]) + sum(second["own"]) == len(first["weights"])
    assert first["steps"] == second["steps"] == 16


@pytest.mark.parametrize(
    ("case", "codes", "texts"),
    one_in(
        13,  # an error is tried always
        starmap(
            pytest.param,
            [
                (("fail", "1"), (1,), ["rank 1 of 2 failed: ValueError: a bad hook of rank 1"]),
                (("fail", "0"), (1,), ["rank 0 of 2 failed: ValueError: a bad hook of rank 0"]),
                (("kill", "1"), (1,), ["rank 0: rank 1 of 2 was killed by SIGKILL, perhaps"]),
                (("kill", "0"), (-9,), []),
                # 1 where `tabulate` is installed: torch uses it at the exit, and Python forgets
                # the Ctrl-C
                (("interrupted", "0"), (130, -2, 1), ["KeyboardInterrupt"]),
                (("after_the_run",), (1,), ["ValueError: after the run"]),
                (
                    ("fails_after_the_run",),
                    (1,),
                    ["ValueError: only here", "rank 0: rank 1 of 2 has ended with exit code 1"],
                ),
                (("exits_after_the_run",), (7,), ["rank 1 of 2 has ended with exit code 7"]),
                (("killed_after_the_run",), (137,), ["rank 1 of 2 was killed by SIGKILL"]),
                (("terminated", "0"), (143,), ["made way for SIGTERM"]),
                (("terminated", "1"), (143,), ["made way for SIGTERM"]),
                (
                    ("before_the_run",),
                    (1,),
                    [
                        "ValueError: before the run",
                        "rank 1 of 2 has ended with exit code 1 before it came",
                    ],
                ),
                (("alone",), (1,), ["would train this one alone"]),
            ],
        ),
    ),
)
def test_what_ends_one_process_ends_both(ran, tmp_path, case, codes, texts):
    """An error or a kill of either, at any time, leaves no process, and names the rank."""
    # what the interpreter does as it ends is part of these
    start = subprocess.run if case[0].endswith("after_the_run") else warm_python.run
    code, output, left = ran(str(HERE / "package/__main__.py"), str(tmp_path), *case, start=start)
    assert code in codes, output
    assert left == [], output
    for text in texts:
        assert text in output
