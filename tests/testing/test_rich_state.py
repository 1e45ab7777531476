"""The kit follows states of every kind that a checkpoint may hold."""

from __future__ import annotations

import datetime as dt
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch

from trainer_hooks import Callback
from trainer_hooks.testing import check_callback, examine_callback
from trainer_hooks.testing.nested_diff import nested_differences


class Rich(Callback):
    """Keeps arrays, a deque of tensors, a path and a time."""

    def __init__(self) -> None:
        self.counts = np.zeros(2, dtype="int64")
        self.recent = deque(maxlen=2)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.counts += 1
        self.recent.append(torch.tensor(batch_idx))

    def state_dict(self):
        where = {"where": Path("a"), "when": dt.timedelta(1)}
        return {"counts": self.counts.copy(), "recent": deque(self.recent, 2), **where}

    def load_state_dict(self, state_dict):
        self.counts = state_dict["counts"]
        self.recent = state_dict["recent"]


class Lossy(Rich):
    """Takes its array back as another one."""

    state_key = "Rich"

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.counts = self.counts.astype("int32")


@pytest.mark.slow
def test_a_callback_with_such_a_state_passes():
    """Arrays and deques are compared item by item, through a file and over a resume."""
    assert check_callback(Rich).is_passed


@pytest.mark.slow
def test_an_array_that_comes_back_as_another_is_found():
    """A dtype that got lost is a difference like any other."""
    assert [check.name for check in examine_callback(Lossy).failed] == ["state_round_trip"]


def test_arrays_and_deques_are_compared():
    """Dtype, shape, values and length all count."""
    array = np.arange(4)
    assert nested_differences([array, np.float64(1)], [array.copy(), np.float64(1)]) == []
    for other in (array.astype("f8"), array.reshape(2, 2), array + 1):
        assert len(nested_differences({"a": array}, {"a": other})) == 1
    assert nested_differences(deque([torch.ones(2)]), deque([torch.ones(2)])) == []
    assert len(nested_differences(deque([torch.ones(2)]), deque([torch.zeros(2)]))) == 1
