"""What ends one of two processes ends both, soon, and by name."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        (
            "fails_in_hook",
            ["rank 1 of 2 failed: ValueError: a bad hook of rank 1", "'on_train_batch_end'"],
        ),
        ("fails_in_step", ["rank 1 of 2 failed: ValueError: a bad batch of rank 1"]),
        ("fails_unused", ["spare.weight, spare.bias of Unused got no gradient"]),
        ("dies", ["rank 0"]),
    ],
)
def test_an_error_of_one_rank_ends_all(launched, case, texts):
    """Both processes are gone within ten seconds, and the other one names whose error it was."""
    found = launched(case, timeout=60)
    assert all(found.codes), found.output
    assert found.seconds < 10, found.output
    for text in texts:
        assert text in found.output


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("locks", "a barrier (of rank 1 alone)"),
        ("locks_in_torch", "torch.distributed.all_reduce"),
        ("locks_in_reduce", "a reduction"),
    ],
)
def test_a_collective_of_one_rank_alone_is_found(launched, case, what):
    """It ends all ranks, and names each with its wait, the hook and the callback."""
    found = launched(case, timeout=60)
    assert all(found.codes), found.output
    assert "the processes wait for each other" in found.output
    assert "rank 0 for the gradients" in found.output
    told = found.output.partition(f"rank 1 for {what} in on_train_batch_end of ")[2]
    assert "'At'" in told.partition("All must come")[0], found.output


def test_a_rank_that_is_at_work_is_waited_for(launched):
    """A hook that takes longer than the patience on one rank ends no run."""
    found = launched("works_long", timeout=60)
    assert found.codes == [0, 0], found.output


def test_a_signal_to_one_rank_ends_all_in_order(launched):
    """SIGTERM to rank 1 leaves one checkpoint, and both exit with the signal's code."""
    found = launched("leaves_by_signal", timeout=60)
    assert found.codes == [143, 143], found.output
    files = [path.name for path in Path(found.folder, "leaves_by_signal").glob("*.ckpt")]
    assert files == ["preempted-epoch=0-step=4.ckpt"]
