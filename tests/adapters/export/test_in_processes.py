"""Our callbacks in other trainers: killed and resumed, and in two processes."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
import warm_python

pytestmark = pytest.mark.exhaustive

SCRIPT = Path(__file__).with_name("train_in_process.py")
HOSTS = {
    "InLightning": ("pytorch_lightning", "saved/4.ckpt"),
    "InTransformers": ("transformers", "there/checkpoint-4"),
    "InComposer": ("composer", "saved/ba4.pt"),
    "InAccelerated": ("pytorch_accelerated", "saved/1"),
    "InIgnite": ("ignite", ""),
}
"""By host: its package, and the checkpoint that a kill in the second epoch leaves."""

STAND_INS = Path(__file__).parents[1] / "composer" / "stand_ins"
IMPORTS = {
    "InLightning": ("pytorch_lightning",),
    "InTransformers": ("transformers.trainer",),
    "InComposer": (str(STAND_INS), "composer"),
}
"""The slow imports of a host, made once for all its processes."""


def train(folder: Path, host: str, target: str, *words: str, launcher: tuple[str, ...] = ()):
    folder.mkdir(exist_ok=True)
    outside = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    env = {name: value for name, value in os.environ.items() if name not in outside}
    return warm_python.run(
        [sys.executable, *launcher, str(SCRIPT), host, target, *words],
        cwd=folder, capture_output=True, text=True, timeout=280, check=False,
        env={**env, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
        imports=IMPORTS.get(host, ()), forks_children=bool(launcher),
    )  # fmt: skip


def result(folder: Path, target: str, rank: int = 0) -> dict:
    return json.loads((folder / f"{target}.{rank}").read_text(encoding="utf-8"))


def require(host: str) -> str:
    package, checkpoint = HOSTS[host]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    return checkpoint


@pytest.mark.parametrize("host", HOSTS)
def test_a_killed_run_goes_on_as_the_uncut_one(host, tmp_path):
    checkpoint = require(host)
    uncut = train(tmp_path / "uncut", host, "uncut")
    assert uncut.returncode == 0, uncut.stderr[-3000:]
    cut = tmp_path / "cut"
    killed = train(cut, host, "killed", "--kill-at", "14")
    assert killed.returncode == -9, killed.stderr[-3000:]
    # of Ignite the file has a number of its own in its name
    checkpoint = checkpoint or str(next((cut / "saved").glob("*.pt")).relative_to(cut))
    resumed = train(cut, host, "resumed", "--resume", checkpoint)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert result(cut, "resumed") == result(tmp_path / "uncut", "uncut")


@pytest.mark.parametrize("host", ["InLightning", "InTransformers", "InAccelerated"])
def test_two_processes_do_the_same(host, tmp_path):
    require(host)
    launcher = ("-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone")
    done = train(tmp_path, host, "done", launcher=launcher)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = result(tmp_path, "done", 0), result(tmp_path, "done", 1)
    assert first["weights"] == second["weights"]
    assert first["averaged"] == second["averaged"] == 6
    journal = (tmp_path / "journal" / "run.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["event"] for line in journal].count("start") == 1


REPORTED = """
import sys
sys.path[:0] = [{folder!r}]
import host_fits
from trainer_hooks.callbacks import RunManifest
fit = host_fits.{host}().fit(RunManifest({where!r}))
assert fit.error is None, fit.error
"""


@pytest.mark.parametrize(
    ("host", "folder", "where"), [("InTransformers", "there", None), ("InLightning", "log", "log")]
)
def test_a_report_is_made_of_a_run_of_theirs(host, folder, where, tmp_path):
    require(host)
    script = REPORTED.format(folder=str(SCRIPT.parent), host=host, where=where)
    for words in (("-c", script), ("-m", "trainer_hooks", "report", folder)):
        done = warm_python.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=200,
            check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
            imports=IMPORTS[host] if words[0] == "-c" else (),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / folder / "report.html").read_text(encoding="utf-8")
    assert "finished" in page
    if host == "InTransformers":
        assert "eval_loss" in page
