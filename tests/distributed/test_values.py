"""Logged values of two processes."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow


def test_an_uneven_evaluation_is_that_of_one_process(ended):
    """Sums, means, least and most over five samples count each once; the rest is rank 0's."""
    for one in ended.found("uneven_evaluation"):
        found = one["found"]
        assert [found[n] for n in ("count", "mean", "low", "high")] == pytest.approx(
            one["expected"], rel=1e-7
        )
        assert found["own"] == pytest.approx(one["own"])


def test_a_rank_without_samples_takes_part(ended):
    """One sample for two ranks: both see the same values, and can watch them."""
    first, second = ended.found("empty_share")
    assert first["found"] == second["found"]
    assert first["found"]["mean"] == pytest.approx(first["mean"])


def test_a_name_of_one_rank_is_told_and_no_hang(ended):
    """It is named with the rank, and its value is found in all; `rank_zero_only` needs no word."""
    first, second = ended.found("names_of_one")
    assert first["found"] == second["found"] == {"mine": 3.0, "zero": 4.0}
    assert [text for text in first["told"] if "rank 1 and not in the others" in text]
    assert not [text for text in first["told"] if "'zero'" in text]
    assert second["told"] == []


def test_predictions_of_two_ranks_are_in_one_file(ended):
    """In the order of the data, each sample once, whatever sampler has shared or repeated them."""
    numbers = {
        "shared": range(5), "shuffled": range(5), "padded": range(5), "one sample": range(1),
        "several": [*range(5), *range(5)],
    }  # fmt: skip
    for found in ended.found("predictions_kept"):
        for name, expected in numbers.items():
            expected = [float(number) for number in expected]
            assert found[name]["npz"] == found[name]["pt"] == expected, name
            header, *lines = found[name]["csv"].splitlines()
            assert header == ("dataloader,prediction" if name == "several" else "prediction")
            assert [float(line.split(",")[-1]) for line in lines] == expected
            rows = [json.loads(line) for line in found[name]["jsonl"].splitlines()]
            assert [row["n"] for row in rows] == expected
            assert [len(row["ragged"]) for row in rows] == [int(number) % 3 for number in expected]
        loaders = [
            json.loads(line)["dataloader"] for line in found["several"]["jsonl"].splitlines()
        ]
        assert loaders == [0] * 5 + [1] * 5
        assert "there is no folder" in found["refused"]
        assert found["left"] == []


def test_values_of_steps_are_reduced_as_they_are_handed_over(ended):
    """With `sync_dist` both ranks' history holds the mean, else each its own."""
    first, second = ended.found("step_values")
    assert first["both"] == second["both"] == [float(batch + 1) for batch in range(8)]
    assert (first["own"], second["own"]) == ([0.0] * 8, [1.0] * 8)


def test_metric_objects_are_reduced(ended):
    """Objects of torchmetrics compute over all samples, also where one rank has none."""
    for one in ended.found("metric_objects"):
        assert [one["found"][n] for n in ("total", "average")] == pytest.approx(one["expected"])
        assert [one["one"][n] for n in ("total", "average")] == pytest.approx(
            [one["expected_one"]] * 2
        )
        averages = [one["of_several"][f"average/dataloader_idx_{index}"] for index in range(3)]
        assert averages == pytest.approx(one["expected_averages"])
        assert one["of_several"]["all_average"] == pytest.approx(one["expected_all"])


def test_a_monitor_that_is_not_reduced_is_rank_zeros(ended):
    """What rises in rank 1 and falls in rank 0 is watched and ranked by rank 0's values."""
    first, second = ended.found("unsynced_monitor")
    assert first == second
    assert (first["epochs"], first["score"]) == (4, -3.0)
    assert len(first["files"]) == 1
