"""Loaders in messages: their contents, in one short line."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks.data.loaders import describe_loader

ROWS = [(torch.zeros(8, 32), {"mask": torch.zeros(8)})] * 500


@pytest.mark.parametrize(
    ("loader", "told"),
    [
        (ROWS, "[(Tensor(8, 32), {'mask': Tensor(8)}), (Tensor(8, 32), {'mask': Tensor(8)}), ...]"),
        ({"a": ROWS[:1]}, "{'a': [(Tensor(8, 32), {...})]}"),
        (3, "3"),
    ],
    ids=["list", "dict", "number"],
)
def test_tensors_are_told_by_their_shape(loader, told) -> None:
    """A list of five hundred batches is as short as one of two."""
    assert describe_loader(loader) == told


def test_an_object_is_told_as_it_tells_itself() -> None:
    """A DataLoader is known by its class and address."""
    loader = DataLoader(range(3))
    assert describe_loader(loader) == repr(loader)
