"""Resumes in three ranks and more are the uncut run, bit for bit."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def require_exact(ended, *cases: str) -> None:
    """Check each resume of each way to train, in each rank."""
    assert not any(ended.codes), ended.output[-6000:]
    for case in cases:
        for rank, found in enumerate(ended.found(case)):
            assert found
            for name, files in found.items():
                assert len(files) == 3
                assert not any(files.values()), f"{case}, {name}, rank {rank}: {files}"


def test_three_ranks_reduce_in_the_same_buckets_from_the_first_step_on(launched):
    """The last layers come first, as their gradients do; and so a resume is exact.

    A rank without a batch to validate comes to the same collectives as the others.
    """
    ended = launched("exact_plain", "few_to_validate", "buckets", processes=3)
    require_exact(ended, "exact_plain")
    first, *others_found = ended.found("few_to_validate")
    assert {"val_loss", "loss_epoch", "high"} <= set(first)
    assert all(found["val_loss"] == first["val_loss"] for found in others_found)
    last, *others = "net.3.bias net.3.weight", "net.0.bias", "net.0.weight"
    for found in ended.found("buckets"):
        assert found == {
            "small": [[last, *others]] * 4,
            "large": [[" ".join([last, *others])]] * 4,
        }


def test_what_cannot_be_exact_is_told(launched):
    """Of a hook's state that no file holds, and of a static graph that is to be accumulated."""
    ended = launched("comm_states", "static_accumulates", processes=2)
    assert not any(ended.codes), ended.output[-6000:]
    for rank, found in enumerate(ended.found("comm_states")):
        assert found["group"] == [[], []]
        first, resumed = found["power"]
        assert not first
        assert len(resumed) == (rank == 0)
        assert all("no checkpoint holds the PowerSGDState" in message for message in resumed)
    for found in ended.found("static_accumulates"):
        assert "static_graph=True) cannot be used with accumulated gradients" in found["error"]
        assert found["steps"] == 0


@pytest.mark.exhaustive
def test_buffers_that_no_state_dict_holds_are_restored(launched):
    """Those that changed, in place or made anew, in one file and in a file for each rank."""
    require_exact(launched("exact_buffers", processes=2), "exact_buffers")


@pytest.mark.exhaustive
def test_another_scheduler_or_optimizer_is_taken(launched):
    """Rates are those of a run that had the scheduler from the start, and later resumes exact."""
    for found in launched("replaced", processes=2).found("replaced"):
        assert len(found) == 6
        assert all(all(values.values()) for values in found.values()), found


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("processes", "cases"),
    [
        (3, ["exact_ddp"]),
        (3, ["exact_own_loop", "exact_shards"]),
        (4, ["exact_shards", "exact_planned"]),
        (8, ["exact_plain"]),
    ],
    ids=["3 ddp", "3 others", "4 shards", "8 ranks"],
)
def test_resumes_are_exact_in_many_ranks(launched, processes, cases):
    """From the first batch, from the end of an epoch, and from the inside of the next.

    Weights, states of optimizers, random numbers and metrics are the uncut run's, in each rank.
    """
    require_exact(launched(*cases, processes=processes), *cases)
