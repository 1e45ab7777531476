"""A loop by Run in two processes: gradients, stops, resumes and signals."""

from __future__ import annotations

from pathlib import Path

import pytest

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
