"""A loop by Run in two processes: gradients, stops, resumes and signals."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import warm_python

pytestmark = pytest.mark.slow


@pytest.fixture
def results(launched):
    """A function that runs a case and returns what each rank observed."""

    def run(case: str) -> list[dict]:
        return launched(case).found(case)

    return run


def test_gradients_are_those_of_a_plain_loop(results) -> None:
    """The weights are those of DistributedDataParallel written by hand, accumulated or not."""
    for one in results("own_same_as_by_hand"):
        for ours, theirs in one.values():
            assert ours == pytest.approx(theirs, abs=1e-6)


def test_all_ranks_stop_at_the_same_batch(results) -> None:
    """A stop that one rank asks for, in a hook or in the loop, ends both at one batch."""
    first, second = results("own_stops")
    assert first == second
    assert first["in a hook"] == [3]
    assert first["in the loop"] == 4


def test_resumes_are_exact(results) -> None:
    """With whole weights and with shards, at a window's end and inside one."""
    for one in results("own_resumes"):
        for name, (uncut, resumed) in one.items():
            assert uncut == resumed, name
            assert uncut[1][0] == "0.weight", name


def test_sharded_models_train_as_whole_ones(results) -> None:
    """Two models with two optimizers, with FSDP of layers or of models alone, and with DDP."""
    first, second = results("own_fsdp_by_hand")
    assert first == second
    layers, models, whole = first.values()
    assert list(whole) == ["first.weight", "first.bias", "last.weight", "last.bias"]
    for name, values in whole.items():
        assert layers[name] == pytest.approx(values, abs=1e-6)
        assert models[name] == pytest.approx(values, abs=1e-6)


def test_a_signal_to_one_rank_ends_all_in_order(launched) -> None:
    """SIGTERM to rank 1 leaves one checkpoint, and both exit with the signal's code."""
    ended = launched("own_leaves_by_signal", timeout=60)
    assert ended.codes == [143, 143], ended.output
    saved = Path(ended.folder, "own_leaves_by_signal", "saved")
    assert [path.name for path in saved.glob("preempted*")] == ["preempted-epoch=0-step=3.ckpt"]


@pytest.fixture
def torchrun(tmp_path):
    """A function that runs the program under torchrun's own command, with some restarts."""
    here = Path(__file__).parent

    def run(name: str, *words: str, restarts: int = 0) -> tuple[int, str, Path]:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        ended = warm_python.run(
            [
                sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                "2", "--max-restarts", str(restarts), str(here / "own_loop_run.py"), str(folder),
                *words,
            ],
            env={
                **os.environ, "OMP_NUM_THREADS": "1", "TRAINER_HOOKS_DISABLE_PLUGINS": "1",
                "PYTHONPATH": str(here.parents[1]),
            },
            capture_output=True, text=True, timeout=150, forks_children=True,
        )  # fmt: skip
        return ended.returncode, ended.stdout + ended.stderr, folder

    return run


@pytest.mark.exhaustive
def test_torchrun_starts_a_killed_loop_again(torchrun) -> None:
    """A rank is killed in a batch; the attempt after it ends with the weights of the uncut loop."""
    code, output, whole = torchrun("whole")
    assert code == 0, output
    code, output, killed = torchrun("killed", "SIGKILL", restarts=1)
    assert code == 0, output
    assert (killed / "told").exists()
    assert (killed / "weights.txt").read_text() == (whole / "weights.txt").read_text()


@pytest.mark.exhaustive
def test_ctrl_c_in_both_ranks_is_gone_on_with(torchrun) -> None:
    """Both end, in order, and the same command goes on to the weights of the uncut loop."""
    code, output, whole = torchrun("whole")
    assert code == 0, output
    code, output, cut = torchrun("cut", "SIGINT")
    assert code != 0, output
    assert "was interrupted (Ctrl-C)" in output
    assert not (cut / "weights.txt").exists()
    code, output, cut = torchrun("cut", "SIGINT")
    assert code == 0, output
    assert (cut / "weights.txt").read_text() == (whole / "weights.txt").read_text()
