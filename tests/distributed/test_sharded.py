"""Training with sharded weights equals a loop written by hand, and DDP."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def test_the_weights_are_those_of_a_loop_by_hand(sharded):
    """Two ranks end with the bits of a loop around fully_shard, with windows and clipping, too.

    DDP sums the norm of whole gradients: the last bit depends on the processor's vectors.
    """
    for one in sharded("fsdp_by_hand"):
        for name, steps in (("1", 16), ("3", 6)):
            assert one[name]["ours"] == one[name]["theirs"]
            assert one[name]["ours"] == pytest.approx(one[name]["ddp"], rel=1e-6, abs=1e-7)
            assert one[name]["steps"] == steps
            assert all(key.startswith("net.") for key in one[name]["names"])


@pytest.mark.exhaustive
def test_every_way_to_shard_trains_the_same(sharded):
    """Policies, meshes, offload, recomputed activations and a module's own shards are DDP's run."""
    first, second = sharded("fsdp_options")
    assert first == second
    expected = first.pop("ddp")
    for name, found in first.items():
        close = 0.02 if name == "half" else 1e-5
        assert found["weights"] == pytest.approx(expected["weights"], abs=close), name
        assert found["names"] == expected["names"]
    counts = {name: found["sharded"] for name, found in first.items()}
    layers = dict.fromkeys(counts, 3)
    assert counts == {**layers, "name": 1, "mesh": 1, "size": 2, "own": 2}


def test_uneven_shares_are_evaluated_exactly(sharded):
    """A rank with fewer batches, or none, neither hangs the others nor counts a sample twice."""
    for one in sharded("fsdp_evaluates"):
        assert one["uneven"] == one["uneven again"] == pytest.approx(one["expected"])
        assert one["one"] == one["one again"]
        assert one["one"][0] == 1
    counts = [one["uneven predicted"] for one in sharded("fsdp_evaluates")]
    assert sum(counts) == 5


def test_batches_that_all_leave_out_are_left_out(sharded):
    """Batches without a loss in all ranks make the steps that they make with DDP."""
    for one in sharded("fsdp_skips"):
        for when in (False, True):
            assert one[f"fsdp {when}"] == pytest.approx(one[f"ddp {when}"], abs=1e-6)


def test_manual_optimization_reduces_each_backward(sharded):
    """A module that optimizes by itself learns as with DDP."""
    for one in sharded("fsdp_manual"):
        assert one["FSDP"] == pytest.approx(one["ddp"], abs=1e-6)


@pytest.mark.parametrize(
    "case", ["full", "full inside", "from ddp", "from ddp inside", "to ddp", "to ddp inside"]
)
def test_a_resume_is_exact(sharded, case):
    """Weights, metrics and each rank's random numbers are the uncut run's, inside windows, too."""
    for one in sharded("fsdp_resumes"):
        assert one[case]["resumed"] == one[case]["uncut"]
        assert not one[case]["is_folder"]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("class", ["no layer of Net is meant", "It has Dropout, Linear"]),
        ("shared", ["second.weight is first.weight", "Name a layer that has both"]),
        ("lbfgs", ["LBFGS cannot be used with FSDP", "Use DDP"]),
        ("swa", ["StochasticWeightAveraging with FSDP", "Take it out"]),
        ("rollback", ["NaNGuard with FSDP"]),
        ("mesh", ["(3, 1)", "there are 2 processes"]),
        ("meta", ["has no reset_parameters()", "ckpt_path"]),
        ("holder", ["ModuleList"]),
        ("unused", ["spare.weight, spare.bias", "find_unused_parameters=True"]),
        ("elsewhere", ["'memory://saved'", "this machine alone"]),
    ],
)
def test_what_cannot_be_right_is_refused(sharded, case, words):
    """Options that do not work with sharded weights are errors with a cure."""
    for one in sharded("fsdp_refused"):
        assert all(word in one[case] for word in words), one[case]


@pytest.mark.parametrize(
    "case",
    [
        "parts", "parts inside", "parts to ddp", "parts to ddp inside", "full to parts",
        "other layers",
    ],
)  # fmt: skip
def test_a_resume_from_a_folder_is_exact(sharded, case):
    """A folder resumes bit for bit, with other layers sharded and with DDP, too."""
    for one in sharded("fsdp_parts"):
        assert one[case]["resumed"] == one[case]["uncut"]
        assert one[case]["is_folder"] is (case != "full to parts")


@pytest.mark.exhaustive
@pytest.mark.parametrize("when", ["now", "later"])
def test_folders_are_found_and_rotated(sharded, when):
    """Savers keep the best and the last, at once or in the background, and both are found."""
    for one in sharded("fsdp_finds"):
        assert one[when]["is_same"]
        assert one[when]["steps"] == 16
        assert one[when]["names"] == ["last.ckpt", "step=14.ckpt", "step=16.ckpt"]
        assert one[when]["are_folders"]
        assert one[when]["best"] == 0


@pytest.mark.exhaustive
def test_a_process_keeps_half_of_the_bytes(sharded):
    """Weights and optimizer states are half of DDP's, and so where the module began on meta."""
    for one in sharded("fsdp_memory"):
        assert one["fsdp"]["bytes"] < 0.51 * one["ddp"]["bytes"]
        assert one["meta"]["bytes"] == one["fsdp"]["bytes"]
        assert one["fsdp"]["weights"] == one["ddp"]["weights"]
        assert one["meta"]["finite"]
        assert one["filled"]


def test_a_plan_of_tensor_parallelism_is_taken(sharded):
    """Two processes that share each batch train as one process does."""
    for one in sharded("fsdp_tensor_parallel"):
        assert one["weights"] == pytest.approx(one["alone"], abs=1e-5)
        assert one["steps"] == 16
        assert one["is_divided"]


def test_a_kill_in_a_save_leaves_the_old_folder_whole(launched, tmp_path):
    """A rank that dies with its part written ends the other, and the older checkpoint resumes."""
    from trainer_hooks.checkpoint.file import summarize, verify_checkpoint

    two = launched("fsdp_dies_in_save")
    assert two.codes[1] == -9
    assert two.codes[0] != 0
    old = tmp_path / "fsdp_dies_in_save" / "old.ckpt"
    verify_checkpoint(old)
    assert summarize(str(old)).batches == 2


def test_a_batch_that_one_rank_leaves_out_is_told(launched):
    """The others wait for it no longer than the watch does, and each hears why."""
    two = launched("fsdp_one_skips")
    assert all(two.codes)
    assert "a batch without a loss, which FSDP has all leave out or none" in two.output
