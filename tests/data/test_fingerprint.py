"""Fingerprints distinguish batches, and ignore parts that cannot be compared."""

from __future__ import annotations

from zlib import crc32

import pytest
import torch

from trainer_hooks.data.resume_checks import (
    LastBatch,
    _weighted_sum,
    differing_part,
    fingerprint,
)


def differing(first, second) -> str:
    return differing_part(fingerprint(first), fingerprint(second))


def batch(value=1.0):
    return {"x": [torch.full((2, 3), value), (torch.arange(3), "text", value, None)], 4: True}


def test_equal_batches_have_equal_fingerprints() -> None:
    """Tensors, numbers and strings are looked at in dicts, lists and tuples."""
    assert fingerprint(batch()) == fingerprint(batch())
    assert list(fingerprint(batch())) == [
        "batch['x'][0]",
        "batch['x'][1][0]",
        "batch['x'][1][1]",
        "batch['x'][1][2]",
        "batch[4]",
    ]


def test_a_sample_of_a_column_has_the_fingerprint_of_its_number() -> None:
    """The last batch may hold one sample, and be a column of a table: it does not lie alone."""
    column = torch.arange(6.0).reshape(2, 3)[:1, 1]
    assert fingerprint(column) == fingerprint(torch.tensor([1.0])) != fingerprint(column + 1)


@pytest.mark.parametrize("kind", ["drawn", "largest"])
@pytest.mark.parametrize("size", [0, 1, 1023, 2**15 - 1, 2**15, 2**15 + 1, 100_003, 2**22])
def test_a_large_tensor_has_the_sum_of_the_plain_formula(size, kind) -> None:
    """Checkpoints hold the sum: each version must come to the same."""
    drawn = torch.randint(0, 256, (size,), generator=torch.Generator().manual_seed(size))
    content = (drawn if kind == "drawn" else torch.full((size,), 255)).to(torch.uint8)
    total = int((content.long() * torch.arange(1, size + 1)).sum())
    digest = crc32(f"torch.uint8 ({size},) {total}".encode())
    # of a tensor of more than 16,384 numbers, every n-th is read
    if size < 2**14:
        assert fingerprint(content) == {"batch": [0, digest]}
    assert _weighted_sum(content) == total


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.bool, torch.complex64],
    ids=str,
)
def test_one_number_more_or_less_is_another_tensor(dtype) -> None:
    """In any type, in any place, and whether the numbers lie together or not."""
    first = torch.zeros(5, 4).to(dtype)
    second = torch.zeros(4, 5).to(dtype).T
    assert second.stride() != first.stride()
    assert not differing([first], [second])
    second = torch.eye(20)[13].reshape(5, 4)
    assert differing([first], [second.to(dtype)]) == "batch[0]"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.zeros(4), torch.zeros(2, 2)),
        (torch.zeros(4), torch.zeros(4, dtype=torch.int32)),
        (torch.tensor(0.0), torch.tensor(-0.0)),
        (torch.zeros(0), torch.zeros(0, 3)),
        (torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])),
        ("a", "b"),
        (1, 2),
        (1.0, 1.5),
    ],
    ids=repr,
)
def test_what_tells_two_apart(first, second) -> None:
    """Shape, type, sign and order count, and values of numbers and strings."""
    assert differing((first,), (second,)) == "batch[0]"
    assert not differing((first,), (first,))


def test_nan_is_the_same_as_nan() -> None:
    """Bits are compared, and not values."""
    assert not differing([torch.tensor([float("nan")])], [torch.tensor([float("nan")])])


@pytest.mark.slow
def test_of_a_large_tensor_numbers_from_all_over_are_looked_at() -> None:
    """Other values all over are seen in a tensor of millions."""
    first = torch.zeros(3_000_000)
    second = torch.cat([torch.zeros(2_000_000), torch.ones(1_000_000)])
    assert differing(first, second) == "batch"


def test_what_was_changed_in_place_tells_nothing() -> None:
    """Training may scale its inputs where they are: that is no other batch."""
    changed = torch.ones(3)
    before = fingerprint([changed, 1])
    changed.mul_(2)
    assert not differing_part(fingerprint([changed, 1]), before)
    assert differing_part(fingerprint([changed, 2]), before) == "batch[1]"


def test_what_only_one_has_tells_nothing() -> None:
    """Parts that were taken out or put in are not compared."""
    assert not differing({"x": 1, "y": 2}, {"x": 1, "z": 3})
    assert not differing({}, {"x": 1})


@pytest.mark.parametrize(
    "part",
    [
        torch.zeros(2, 2).to_sparse(),
        torch.zeros(2, device="meta"),
        object(),
        {1, 2},
        range(3),
    ],
    ids=lambda part: type(part).__name__,
)
def test_other_kinds_are_left_out(part) -> None:
    """What has no plain numbers to read has no fingerprint."""
    assert fingerprint([part]) == {}


def test_tensors_that_count_no_changes() -> None:
    """Tensors made in inference mode have a fingerprint, too."""
    with torch.inference_mode():
        made = torch.ones(2)
    assert not differing([made], [torch.ones(2)])


@pytest.mark.parametrize("make", [list, dict], ids=["list", "dict"])
def test_the_last_batch_is_kept_as_it_was_given(make) -> None:
    """A part that a step replaced is not in the fingerprint of the loader's batch."""
    given = make({0: 1, 1: 2}) if make is dict else [1, 2]
    last = LastBatch()
    last.keep(given)
    given[0] = 7
    assert last.fingerprint == fingerprint(make({0: 1, 1: 2}) if make is dict else [1, 2])
    last.forget()
    assert last.fingerprint == {}
