"""Buffers that no `state_dict` holds: a change is found, and what never changes is not read."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.runtime import buffers
from trainer_hooks.runtime.buffers import BufferRecord, load_buffers

LARGE = 70_000
"""Numbers of a buffer that is not read as a whole at each save."""


def holder(**values: torch.Tensor | None) -> nn.Module:
    part = nn.Linear(1, 1)
    for name, value in values.items():
        part.register_buffer(name, value, persistent=False)
    part.register_buffer("saved", torch.zeros(2))
    return nn.Sequential(part)


def begun(module: nn.Module) -> BufferRecord:
    record = BufferRecord()
    record.begin(module)
    return record


def add_one(part: nn.Module) -> None:
    part.bank += 1


def write_element(part: nn.Module) -> None:
    part.bank.view(-1)[-1] = 5.0


def write_through_data(part: nn.Module) -> None:
    part.bank.data.mul_(2).add_(3)


def write_through_numpy(part: nn.Module) -> None:
    part.bank.numpy()[:] += 1


def assign(part: nn.Module) -> None:
    part.bank = part.bank + 1


def grow(part: nn.Module) -> None:
    part.bank = torch.cat([part.bank, part.bank])


def swap(part: nn.Module) -> None:
    part.bank = part.bank.flip(0)


def empty(part: nn.Module) -> None:
    part.bank = None


@pytest.mark.parametrize("size", [9, LARGE])
@pytest.mark.parametrize(
    "change",
    [
        add_one, write_element, write_through_data, write_through_numpy, assign, grow, swap, empty,
    ],
)  # fmt: skip
def test_each_change_is_found_and_restored(change, size) -> None:
    """Bit for bit, in another module; other buffers are left as they are."""
    make = lambda: holder(bank=torch.arange(float(size)), mask=torch.ones(3))  # noqa: E731
    module, other = make(), make()
    record = begun(module)
    assert record.changed(module) == {}
    change(module[0])
    for _ in range(2):  # the second look finds nothing new, and has not forgotten the first
        assert list(record.changed(module)) == ["0.bank"]
    state = pickle.loads(pickle.dumps(record.state_dict(module)))
    begun(other).load_state_dict(other, state, warns=True)
    if module[0].bank is None:
        assert other[0].bank is None
    else:
        assert torch.equal(module[0].bank, other[0].bank)
    assert "0.bank" not in other.state_dict()


def test_a_buffer_in_place_stays_the_same_object() -> None:
    """Others may hold it."""
    module = holder(bank=torch.zeros(4))
    held = module[0].bank
    load_buffers(module, {"0.bank": torch.ones(4)})
    assert held.tolist() == [1.0] * 4


def test_buffers_that_come_later_are_found_and_registered() -> None:
    """One that was None, one that a step registers, and one of inference mode."""
    make = lambda: holder(late=None)  # noqa: E731
    module, other = make(), make()
    record = begun(module)
    module[0].late = torch.full((2,), 2.0)
    with torch.inference_mode():
        module[0].register_buffer("newer", torch.full((1, 2), 3.0), persistent=False)
    changed = record.changed(module)
    assert set(changed) == {"0.late", "0.newer"}
    for _ in range(2):  # in place where there is one already, but for one of inference mode
        load_buffers(other, copy.deepcopy({k: v.clone() for k, v in changed.items()}))
        assert other[0].late.tolist() == [2.0, 2.0]
        assert other[0].newer.tolist() == [[3.0, 3.0]]
    assert set(other.state_dict()) == set(make().state_dict())


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(12).reshape(3, 4).T,
        torch.tensor([1 + 2j, 3j]).conj(),
        torch.tensor(3.0, dtype=torch.bfloat16),
        torch.eye(3).to_sparse(),
        torch.zeros(0, 3),
        torch.arange(9, dtype=torch.uint8)[1:],
        torch.arange(1.0, 4.0)[None, :][:, 1],
        torch.tensor(1.5).expand(1),
    ],
    ids=["transposed", "conjugated", "scalar", "sparse", "empty", "view", "column", "expanded"],
)
def test_tensors_of_all_kinds_are_compared(value) -> None:
    """Written anew with the same values they count as unchanged, with others as changed."""
    module = holder(bank=value)
    record = begun(module)
    module[0].bank = value.clone()
    assert record.changed(module) == {}
    module[0].bank = value + value
    assert bool(record.changed(module)) is (value.numel() > 0)


def test_an_expanded_buffer_is_read_as_it_lies_in_memory() -> None:
    """Each element once: here a trillion stand in one number."""
    module = holder(bank=torch.ones(1).expand(10**6, 10**6))
    record = begun(module)
    assert record.changed(module) == {}
    module[0].bank = torch.zeros(1).expand(10**6, 10**6)
    assert list(record.changed(module)) == ["0.bank"]


def test_every_bit_and_place_counts() -> None:
    """-0.0, a NaN of another payload, two elements that change their places."""
    digests = {
        buffers._digest(torch.tensor(bits, dtype=torch.int64).view(torch.float64))
        for bits in ([0, 1], [1, 0], [-(1 << 63), 1], [2, -1], [0x7FF8 << 48, 1], [0x7FF9 << 48, 1])
    }
    assert len(digests) == 6


def test_a_large_buffer_that_nobody_writes_to_is_read_once(monkeypatch) -> None:
    """A save reads a sample of it; the whole where torch has counted a change, once for each."""
    module = holder(mask=torch.ones(1000, 1000))
    record = begun(module)
    record.changed(module)
    read = []
    mix = buffers._mix
    monkeypatch.setattr(buffers, "_mix", lambda part: read.append(part.numel()) or mix(part))
    for _ in range(3):
        assert record.changed(module) == {}
    assert read
    assert max(read) < 10_000
    read.clear()
    module[0].mask.copy_(torch.ones(1000, 1000))  # as DistributedDataParallel does
    for _ in range(3):
        assert record.changed(module) == {}
    assert read.count(1_000_000) == 1


def test_a_record_can_be_copied() -> None:
    """With the trainer that holds it."""
    module = holder(bank=torch.zeros(2))
    record = begun(module)
    module[0].bank.add_(1)
    assert list(record.changed(module)) == ["0.bank"]
    for other in (copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert list(other.changed(module)) == ["0.bank"]


def test_buffers_that_are_built_otherwise_are_told() -> None:
    """Where the run had not changed them, so that no file holds them; also a part that is gone."""
    module = holder(directions=torch.ones(2), bank=torch.zeros(2))
    record = begun(module)
    module[0].bank.add_(1)
    state = record.state_dict(module)
    other = holder(directions=torch.zeros(2), bank=torch.ones(2))
    with pytest.warns(TrainerHooksWarning, match=r"'0.directions'\. They stay"):
        begun(other).load_state_dict(other, state, warns=True)
    with pytest.warns(TrainerHooksWarning, match="no part 'gone'"):
        load_buffers(other, {"gone.bank": torch.ones(1)})
