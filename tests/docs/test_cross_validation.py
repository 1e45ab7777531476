"""The page on cross-validation: killed in a fold and started again, it ends as uncut."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest
import warm_python
from samples import one_in

PAGE = Path(__file__).parents[2] / "docs" / "cross-validation.md"
KILL = """
import os, signal
from trainer_hooks import Callback

class Kill(Callback):
    def __init__(self, name):
        self.name, self.steps = name, 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.steps += 1
        if os.environ.get("KILL") == f"{self.name}:{trainer.global_step}":
            os.kill(os.getpid(), signal.SIGKILL)

    def on_fit_end(self, trainer, module):
        print("trained", self.name, self.steps, flush=True)
"""


def run(script: Path, folder: Path, kill: str = "") -> list[str]:
    """Run the page in a folder, killed or not; return the lines of its output."""
    folder.mkdir(exist_ok=True)
    done = warm_python.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KILL": kill},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if kill else 0), done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("kill", one_in(2, ["fold_2:25", "seed_1:3"]))
def test_the_page_is_killed_and_started_again(tmp_path, kill) -> None:
    """What is done is not trained again, and mean and deviation are those of the uncut run."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    code = "\n".join(blocks)
    saver = "ModelCheckpoint(save_last=True)]"
    assert code.count(saver) == 1
    script = tmp_path / "train.py"
    script.write_text(KILL + code.replace(saver, f"Kill(name), {saver}"), encoding="utf-8")
    uncut = run(script, tmp_path / "uncut")
    trained = [line.split() for line in uncut if line.startswith("trained")]
    assert [name for _, name, _ in trained] == [
        *(f"fold_{fold}" for fold in range(5)),
        *(f"seed_{seed}" for seed in range(3)),
    ]
    assert {steps for _, _, steps in trained} == {"40"}
    names = [name for _, name, _ in trained]
    killed, step = kill.split(":")
    before = names.index(killed)
    assert (
        len([line for line in run(script, tmp_path / "cut", kill) if "trained" in line]) == before
    )
    again = run(script, tmp_path / "cut")
    saved = (int(step) - 1) // 10 * 10  # at the end of each epoch
    expected = [0] * before + [40 - saved] + [40] * (len(names) - before - 1)
    steps = [int(line.split()[2]) for line in again if line.startswith("trained")]
    assert steps == expected
    assert [line for line in again if "±" in line] == [line for line in uncut if "±" in line]
    assert len([line for line in again if "±" in line]) == 2
