"""What ends one of two processes ends both, soon, and by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PHASES = (
    "train_dataloader", "val_dataloader", "sanity check", "training", "validation", "validate",
    "test", "predict",
)  # fmt: skip


@pytest.fixture(scope="module")
def early(results_of):
    """By case the exit codes and the output of ranks that ended early.

    A rank that does not end by itself is ended after a while, and has another exit code.
    """
    return results_of(HERE / "early_ends.py", HERE)


@pytest.mark.parametrize(
    "case", [*(f"{phase} of ddp" for phase in PHASES), "training of fsdp", "validation of fsdp"]
)
def test_an_error_in_one_ranks_loader_is_named_by_all(early, case):
    """In every phase: both ranks tell whose error it was, and none ends by another one."""
    codes, output = early[case]
    assert codes == [1, 1], output
    batch = "" if "_dataloader" in case else r"in .*, while it was loaded\n"
    assert re.search(rf"ValueError: a bad sample of rank 1\n{batch}in rank 1 of 2", output)
    assert "rank 1 of 2 failed: ValueError: a bad sample of rank 1" in output
    assert "KeyError" not in output


def test_a_rank_that_dies_in_its_first_sharded_save_ends_the_other(early):
    """Killed in the writer's thread, it leaves no rank waiting for a process group."""
    codes, output = early["dies in its first save"]
    assert codes == [-9, 1], output


def test_a_wait_for_a_rank_that_is_gone_ends_on_sigterm(early):
    """The rank is stopped, with its connections open: it does not answer the watchdog."""
    codes, output = early["vanishes"]
    assert codes[0] == 1, output
    assert "rank 1 of 2 did not answer rank 0 within" in output
    assert "after SIGTERM" in output


def test_a_second_sigterm_ends_a_wait_at_once(early):
    """Also where the other rank is there, and is not through with a hook."""
    codes, output = early["sleeps"]
    assert codes == [143, 1], output
    assert "rank 0 of 2 got SIGTERM twice, while it waited for" in output


def test_a_second_sigterm_ends_a_wait_in_the_set_up_at_once(early):
    """There, too, a rank that waits for another one calls no handler, and yet it ends."""
    codes, output = early["sleeps in its set-up"]
    assert codes == [143, 1], output
    assert "rank 0 of 2 got SIGTERM twice" in output


def test_a_start_that_failed_is_told_at_the_next_one(early):
    """It failed in rank 1 before a batch was trained; "auto" takes the checkpoint with a word."""
    assert early["saves"][0] == [0, 0], early["saves"][1]
    assert early["fails"][0] == early["fails again"][0] == [1, 1]
    assert "once more" not in early["fails"][1]
    told = early["fails again"][1].partition("last.ckpt' once more, although the last start")[2]
    assert "rank 1 of 2 failed: ValueError: a bad stream of rank 1" in told


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        (
            "fails_in_hook",
            ["rank 1 of 2 failed: ValueError: a bad hook of rank 1", "'on_train_batch_end'"],
        ),
        ("fails_in_step", ["rank 1 of 2 failed: ValueError: a bad batch of rank 1"]),
        ("fails_unused", ["spare.weight, spare.bias of Unused got no gradient"]),
        ("fails_unused_manually", ["strategy='ddp_find_unused_parameters_true'"]),
        ("dies", ["rank 0: rank 1 of 2 has ended without an error: its process "]),
    ],
)
def test_an_error_of_one_rank_ends_all(launched, case, texts):
    """Both processes end by themselves, and the other one names whose error it was."""
    found = launched(case, timeout=60)
    assert found.codes == [1, -9 if case == "dies" else 1], found.output
    for text in texts:
        assert text in found.output
    # of a lost connection, whose text is long and names nobody
    assert "Connection" not in found.output.partition(texts[0])[0], found.output


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
