"""Training on two ranks equals a loop written by hand, whatever the batches return."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", ["same_as_by_hand", "accumulates"])
def test_the_weights_are_those_of_a_loop_by_hand(ended, case):
    """Two ranks end with the very bits of a loop around DistributedDataParallel."""
    found = ended.found(case)
    for one in found:
        assert one["ours"] == one["theirs"]
        assert not [name for name in one["names"] if not name.startswith("net.")]
    assert found[0]["ours"] == found[1]["ours"]
    assert found[0]["steps"] == (16 if case == "same_as_by_hand" else 6)


@pytest.mark.parametrize("case", ["skips_batches", "unused_found", "closure", "microbatches"])
def test_all_ranks_end_with_the_same_weights(ended, case):
    """Batches left out, unused parameters, LBFGS and microbatches keep the ranks together."""
    first, second = ended.found(case)
    assert first == second


def test_batches_that_are_left_out_do_not_cut_a_step(ended):
    """A window counts if any rank has gradients in it, and with the rest as zeros."""
    found = ended.found("skips_batches")[0]
    assert found["find False"][1:] == found["find True"][1:] == [4, 8]


def test_a_window_that_all_leave_out_makes_no_step(ended):
    """Where no rank has a loss, none steps."""
    first, second = ended.found("skips_all")
    assert first == second
    assert first["steps"] == 6


def test_what_one_rank_finds_broken_all_go_back_from(ended):
    """A loss that is NaN in one rank makes all go back, skip the step, or end."""
    first, second = ended.found("guarded")
    for action in ("rollback", "skip"):
        assert first[action] == second[action]
        assert not any(number != number for number in first[action]["weights"])
    assert (first["rollback"]["back"], first["skip"]["skipped"]) == (1, 1)
    assert all("NaN or infinity in the loss" in one["raise"]["fault"] for one in (first, second))


def test_gradients_are_averaged_by_a_function_of_the_users(ended):
    """torch's hooks give a manual loop's bits; with any hook, requests reach all ranks."""
    first, second = ended.found("comm_hooks")
    assert first == second
    assert first["fp16"]["ours"] == first["fp16"]["theirs"]
    assert [first[name]["batches"] for name in ("own", "power")] == [5, 5]
    assert first["buckets"] >= 5


def test_parts_of_a_batch_make_the_step_of_the_whole(ended):
    """Gradients are averaged with a batch's last part alone."""
    found = ended.found("microbatches")[0]
    assert found["3"] == pytest.approx(found["None"], abs=1e-5)


def test_manual_optimization_averages_each_backward(ended):
    """Two optimizers in turn learn as from the batches of both ranks in one process."""
    first, second = ended.found("manual")
    assert first["weights"] == second["weights"]
    assert first["weights"] == pytest.approx(first["expected"], abs=1e-5)


def test_raising_to_stop_in_one_rank_ends_all_after_the_batch(ended):
    """The others make the step of that batch, this rank with gradients of zero, and all stop."""
    first, second = ended.found("stops_by_raising")
    assert (first.pop("reason"), second.pop("reason")) == ("enough (on rank 1)", "enough")
    assert first == second
    assert first["batches"] == 4
    assert first["val"]


def test_what_one_rank_asks_all_do(ended):
    """What rank 1 asks after a batch happens everywhere at once, after the next one."""
    first, second = ended.found("stops_by_asking")
    assert first == {"batches": 5, "reason": "enough (on rank 1)"}
    assert second == {"batches": 5, "reason": "enough"}
    for one in ended.found("asks_for_more"):
        assert one["validated"] == [5, 8]
        assert one["saved"] == [5]


def test_an_epoch_that_one_rank_ends_all_end(ended):
    """`end_epoch` of rank 1 ends the epoch everywhere, when the window is done."""
    first, second = ended.found("ends_an_epoch")
    assert first == second
    assert (first["batches"], first["steps"], first["validated"]) == (6, 3, [6])


def test_steps_need_no_reduction_of_their_own(ended):
    """As much is exchanged besides gradients in four steps as in 32: at the ends of an epoch."""
    for one in ended.found("reductions"):
        assert one["found"][0] == one["found"][1] <= 6


def test_the_clock_is_one(ended):
    """Limits and intervals of wall time end and validate at the same batches in all ranks."""
    first, second = ended.found("time_is_up")
    assert first == second
    assert 0 < first["duration"][0] < 800
    assert first["interval"][1]


def test_loaders_of_unequal_length_end_together(ended):
    """All take as many batches as the one with fewest has, known before or not."""
    first, second = ended.found("unknown_length")
    assert (first["batches"], first["steps"], first["known"]) == (6, 4, 6)
    assert (second["batches"], second["steps"], second["known"]) == (6, 4, 6)
    assert [batches for batches, _ in first["limited"]] == [6, 6, 6, 6]
    assert all(one == first["limited"][0] for one in first["limited"] + second["limited"])
    assert any("[5, 3] batches: each takes 3" in text for text in first["told"])
    assert second["told"] == []
    assert [found["sampler"] for found in (first, second)] == [
        {"num_replicas": 2, "rank": rank} for rank in (0, 1)
    ]


def test_what_cannot_be_shared_is_told_once(ended):
    """A list of batches is given to all, with a word; random numbers differ, the weights do not."""
    first, second = ended.found("data_of_a_script")
    assert any("cannot be shared among processes" in text for text in first["told"])
    assert second["told"] == []
    assert first["drawn"] != second["drawn"]
    assert first["weights"] == second["weights"]
