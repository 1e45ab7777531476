"""Which process takes which samples."""

from __future__ import annotations

from collections import Counter

import pytest

pytestmark = pytest.mark.slow
EVERY = {"in order", "shuffled", "own", "batches"}


def test_each_sample_is_evaluated_once(ended):
    """Shares of an evaluation have no sample twice, and lack none, whatever the sampler."""
    first, second = ended.found("samplers")
    for name, (_, evaluated) in first.items():
        if name in ("replaced", "distributed"):
            continue
        for epoch in range(2):
            counts = Counter(evaluated[epoch] + second[name][1][epoch])
            samples = {"subset": [1, 3, 5, 7, 8]}.get(name, range(9))
            if name != "weighted":
                least = 8 if name == "dropped" else len(samples)
                assert len(counts) >= least, name
                assert set(counts.values()) == {1}, name


def test_shares_of_a_training_are_of_one_length(ended):
    """Samples are given twice to fill up, or with `drop_last` left out; orders change by epoch."""
    first, second = ended.found("samplers")
    for name, (trained, _) in first.items():
        for epoch in range(2):
            if name != "batches":
                assert len(trained[epoch]) == len(second[name][0][epoch]), name
            if name in EVERY:
                assert set(trained[epoch] + second[name][0][epoch]) == set(range(9)), name
    assert len(first["dropped"][0][0]) == 4
    for name in ("shuffled", "subset", "weighted", "own"):
        assert first[name][0][0] != first[name][0][1], name


def test_names_of_lightning(ended):
    """`trainer.strategy`, ranks and `Module.all_gather` return the same as Lightning's."""
    for rank, one in enumerate(ended.found("strategy_names")):
        assert one["gathered"] == [[0.0], [1.0]]
        assert one["nested"] == [0, 1]
        columns, dimensions = one["refused"]
        assert "different shapes or types: rank 0 (2, 1), rank 1 (2, 2)." in columns
        assert "rank 0 (2,), rank 1 (2, 2)." in dimensions
        assert one["broadcast"] == {"rank": 0}
        assert (one["mean"], one["sum"], one["any"], one["all"]) == (0.5, 1, True, False)
        assert one["names"] == [2, rank, rank, 0, 1, 2, [0, 1], rank == 0, 2, "cpu"]


def test_what_does_not_fit_is_refused_before_anything_starts(ended):
    """Options that contradict the ranks are errors with a cure."""
    for found in ended.found("refused"):
        assert "has 2 processes on this machine" in found["devices"]
        assert "each would train alone" in found["single"]
        assert "on 1 machine(s)" in found["nodes"]
        assert "needs GPUs" in found["batchnorm"]


def test_a_callback_of_rank_zero_is_heard_by_all(ended):
    """It takes part in the first process alone, and the stop that it asks for ends both."""
    first, second = ended.found("rank_zero")
    assert first == {"heard": 6, "batches": 6, "only": "done"}
    assert second == {"heard": 0, "batches": 6, "only": None}
