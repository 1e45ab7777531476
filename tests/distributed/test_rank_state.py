"""The state of each rank in one checkpoint: what a rank selects is what it had."""

from __future__ import annotations

import copy
import math
import pickle
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from samples import one_in

from trainer_hooks.checkpoint.parts import UnfitPartError, restoring_part
from trainer_hooks.runtime import rng
from trainer_hooks.trainer.ranks.gathered_checkpoint import (
    gather_into_checkpoint,
    select_rank_state,
)


class Exchange:
    """The collectives of one rank after the other, rank 0 first for what it broadcasts."""

    def __init__(self) -> None:
        self.told: Any = None
        self.sent: list[Any] = []
        self.is_global_zero = True

    def broadcast(self, obj: Any) -> Any:
        self.told = obj if self.is_global_zero else self.told
        return pickle.loads(pickle.dumps(self.told))

    def gather_to_zero(self, obj: Any) -> list[Any]:
        self.sent.append(pickle.loads(pickle.dumps(obj)))
        return []


def gathered(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rank 0's checkpoint with the states that the ranks sent."""
    exchange, names = Exchange(), list(ranks[0])
    checkpoints = [{"trainer_hooks": dict(one), "callbacks": {}} for one in ranks]
    for rank, checkpoint in enumerate(checkpoints):
        exchange.is_global_zero = rank == 0
        gather_into_checkpoint(checkpoint, exchange, names)
    checkpoints[0]["trainer_hooks"] |= {"processes": exchange.sent, "world_size": len(ranks)}
    return checkpoints[0]


def selected(checkpoint: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return the parts that a rank restores."""
    world_size = checkpoint["trainer_hooks"]["world_size"]
    group = SimpleNamespace(is_distributed=True, global_rank=rank, world_size=world_size)
    own = dict(select_rank_state(checkpoint, group)["trainer_hooks"])  # type: ignore[arg-type]
    del own["processes"], own["world_size"]
    return own


def is_equal(one: Any, other: Any) -> bool:
    """Return whether nested values are equal, with the same types and bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        bits = [pickle.dumps(t.resolve_conj().flatten().tolist()) for t in (one, other)]
        return bits[0] == bits[1]
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return repr(one) == repr(other)


DTYPES = [
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8,
    torch.bool, torch.complex64,
]  # fmt: skip


def drawn(draw: random.Random, depth: int = 0) -> Any:
    """Draw a nested value."""
    kind = draw.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return draw.choice([None, True, 1, 0.5, -0.0, math.nan, "a", "\ud800", b"x", 2**70])
    if kind < 6:
        shape = draw.choice([(), (0,), (3,), (2, 3), (2, 0)])
        tensor = (torch.rand(shape) * 3).to(draw.choice(DTYPES))
        return tensor.t() if tensor.ndim == 2 else tensor[::2] if tensor.ndim else tensor
    items = [drawn(draw, depth + 1) for _ in range(draw.randrange(4))]
    if items and draw.random() < 0.2:
        items.append(items[0])  # shared
    keyed = dict(zip("abcde", items, strict=False))
    return draw.choice([items, tuple(items), keyed])


def varied(value: Any, draw: random.Random) -> Any:
    """Return a rank's variant of a value: other values of tensors, rarely another structure."""
    if draw.random() < 0.02:
        return drawn(draw, 2)
    if isinstance(value, torch.Tensor):
        other = (torch.rand(value.shape) * 3).to(value.dtype)
        return other if draw.random() < 0.5 else value.clone()
    if isinstance(value, dict):
        return {key: varied(item, draw) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([varied(item, draw) for item in value])
    return value


def random_states(draw: random.Random, rank: int) -> dict[str, Any]:
    """Return random states: drawn from or not, with a seed of its own or a common one."""
    with rng.isolated():
        rng.reseed(5 + rank * draw.randrange(2))
        if draw.random() < 0.3:
            torch.rand(3)
        if draw.random() < 0.3:
            random.gauss(0, 1)
        if draw.random() < 0.3:
            np.random.standard_normal(3)
        states = rng.capture()
    if draw.random() < 0.2:
        del states["numpy"]
    return states


@pytest.mark.parametrize("seed", one_in(30, range(300)))
def test_each_rank_selects_what_it_had(seed) -> None:
    """Whatever the parts are, and however they differ from rank 0's."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    first = {name: drawn(draw) for name in ("metrics", "stream", "gradients", "generators")}
    first["own_buffers"] = {"large": torch.rand(1 << 18) if seed % 10 else torch.rand(1 << 19)}
    ranks = [first, *(varied(first, draw) for _ in range(2))]
    ranks = [
        one if isinstance(one, dict) and one.keys() == first.keys() else first for one in ranks
    ]
    ranks = [{**one, "rng": random_states(draw, rank)} for rank, one in enumerate(ranks)]
    expected = copy.deepcopy(ranks)
    checkpoint = gathered(ranks)
    for rank, one in enumerate(expected):
        own = selected(checkpoint, rank)
        for name in one:
            if name == "rng":  # the order of libraries says nothing
                assert is_equal(dict(sorted(own[name].items())), dict(sorted(one[name].items())))
            else:
                assert is_equal(own[name], one[name]), name


def states_of(rank: int) -> dict[str, Any]:
    """Return the state of a rank that logs ten metrics and draws from torch's generator."""
    with rng.isolated():
        rng.reseed(rank)
        torch.rand(1)
        states = rng.capture()
    names = range(10)
    epoch = [
        {"name": f"metric_{n}", "weights": [4] * 9, "value": torch.rand(()), "rows": torch.rand(9)}
        for n in names
    ]
    return {"metrics": {"epoch": epoch}, "own_stop": None, "rng": states}


def test_only_what_differs_is_in_the_file() -> None:
    """A rank's state takes the values of its tensors, and the seeds of unused generators."""
    one = gathered([states_of(0), states_of(1)])["trainer_hooks"]["processes"][1]
    assert one["changed"] == ["metrics", "rng/torch"]
    assert one["parts"] == {"rng/python": {"seed": 1}, "rng/numpy": {"seed": 1}}
    assert one["values"].numel() == 10 * (1 + 9) * 4 + 5056
    assert len(pickle.dumps(one)) < 6200


def test_equal_states_take_nothing() -> None:
    """Of a rank that has what rank 0 has nothing is kept."""
    state = states_of(0)
    one = gathered([state, copy.deepcopy(state)])["trainer_hooks"]["processes"][1]
    assert one == {"parts": {}, "callbacks": {}}


def test_gradients_are_always_there() -> None:
    """A sharded checkpoint reads each rank's gradients under their names here."""
    state = {"gradients": {"w": torch.empty(0)}, "rng": rng.capture()}
    one = gathered([state, state])["trainer_hooks"]["processes"][1]
    assert list(one["parts"]["gradients"]) == ["w"]


DAMAGES = [
    {"values": torch.zeros(3, dtype=torch.uint8)},
    {"values": torch.zeros(9000, dtype=torch.uint8)},
    {"values": torch.zeros(5456)},
    {"values": None},
    {"values": 3},
    {"changed": ["unknown"]},
    {"changed": [[]]},
    {"changed": None},
    {"changed": ["metrics"]},
    {"parts": None},
    {"parts": {"rng/python": {"seed": "x"}}},
    {"parts": {"rng/python": {"seed": -1}}},
    {"parts": {"rng/python": {"seed": True}}},
]


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_a_damaged_state_is_one_clear_error(damage) -> None:
    """It names the part of the file."""
    checkpoint = gathered([states_of(0), states_of(1)])
    checkpoint["trainer_hooks"]["processes"][1].update(damage)
    with (
        pytest.raises(UnfitPartError, match="its part 'processes' does not fit"),
        restoring_part("processes", "a.ckpt"),
    ):
        selected(checkpoint, 1)
