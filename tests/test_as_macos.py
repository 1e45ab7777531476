"""The package where the names and the rules of macOS hold; see `tests/support/as_macos.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_as_windows import PARTS, part

ROOT = Path(__file__).parents[1]
STAND_IN = ROOT / "tests" / "support" / "as_macos.py"


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(PARTS))
def test_fast_tests_pass(number, tmp_path, request) -> None:
    """But for those that use themselves what macOS lacks."""
    options = ["-q", "--no-rerun", "-m", "not slow", "--show-capture=no", "--basetemp"]
    ended = subprocess.run(
        [sys.executable, str(STAND_IN), *options, str(tmp_path / "base"), *part(number, request)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]


RULES = """
import as_macos
as_macos.begin()
import json, os, sys
from pathlib import Path
import torch
from torch.utils.data import DataLoader
from trainer_hooks import Trainer, _system
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.testing import TinyModule

found = {"stat": _system.process_fields(os.getpid()), "runs": _system.is_running(os.getpid())}

def fit(name, epochs, **more):
    saver = ModelCheckpoint(".", filename=name, enable_version_counter=False)
    trainer = Trainer(
        max_epochs=epochs, accelerator="cpu", plugins=False, logger=False, callbacks=[saver],
        enable_progress_bar=False,
    )
    trainer.fit(TinyModule(), **more)

fit("best", 1)
found["steps before"] = torch.load("BEST.ckpt", weights_only=True)["global_step"]
found["synced"] = len(as_macos.FULL_SYNCS)
fit("Best", 2, ckpt_path="BEST.ckpt")
found["files"] = sorted(path.name.lower() for path in Path().iterdir())
found["steps"] = torch.load("bEST.ckpt", weights_only=True)["global_step"]

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.ones(2)

try:
    Trainer(
        max_epochs=1, accelerator="cpu", plugins=False, logger=False, enable_checkpointing=False,
        enable_progress_bar=False,
    ).fit(TinyModule(), DataLoader(Samples(), num_workers=1))
except RuntimeError as error:
    found["notes"] = error.__notes__
print(json.dumps(found))
"""


@pytest.mark.exhaustive
def test_its_rules_are_kept(tmp_path) -> None:
    """No /proc, a sync that reaches the disk, names in any case, and data sets without a file.

    A save under the old name in other letters does not delete itself.
    """
    ended = subprocess.run(
        [sys.executable, "-"], input=RULES, cwd=tmp_path, check=False, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(STAND_IN.parent), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert (found["stat"], found["runs"]) == ([], True)
    assert found["synced"] >= 1
    assert "best.ckpt" in found["files"]
    assert found["steps"] == 2 * found["steps before"]
    assert "pass num_workers=0" in found["notes"][-1]
