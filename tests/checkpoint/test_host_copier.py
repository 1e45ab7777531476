"""What a copy of a state holds, and that its memory is used again."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

import pytest
import torch

from trainer_hooks.checkpoint.background import HostCopier


@pytest.fixture
def copier() -> HostCopier:
    return HostCopier()


def test_a_copy_is_by_value(copier) -> None:
    """What is changed afterwards, in a tensor or in any container, does not reach the copy."""
    state = {
        "weight": torch.arange(4.0),
        "list": [1, {"deep": torch.ones(2)}],
        "raw": bytearray(b"ab"),
        "ordered": OrderedDict(a=1),
        "counter": Counter("aab"),
        "queue": deque([1, 2], maxlen=2),
        "set": {1, 2},
    }
    copied = copier.copy(state)
    state["weight"].zero_()
    state["list"][1]["deep"].add_(5)
    state["list"].append(2)
    state["raw"][0] = 0
    state["ordered"]["b"] = 2
    state["counter"]["a"] = 9
    state["queue"].append(3)
    state["set"].add(3)
    assert copied["weight"].tolist() == [0, 1, 2, 3]
    assert copied["list"] == [1, {"deep": copied["list"][1]["deep"]}]
    assert copied["list"][1]["deep"].tolist() == [1, 1]
    assert copied["raw"] == b"ab"
    assert (copied["ordered"], copied["counter"]) == (OrderedDict(a=1), Counter(a=2, b=1))
    assert copied["queue"] == deque([1, 2])
    assert copied["queue"].maxlen == 2
    assert copied["set"] == {1, 2}


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(6.0)[2:4],
        torch.ones(1).expand(3),
        torch.tensor(3),
        torch.empty(0, 4),
        torch.ones(2, dtype=torch.bfloat16),
        torch.tensor([1 + 2j]).conj(),
        torch.eye(3).to_sparse(),
        torch.ones(2, requires_grad=True),
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
        torch.ones(2, requires_grad=True) * 2,
    ],
    ids=lambda tensor: f"{tensor.layout} {tuple(tensor.shape)} {tensor.dtype}",
)
def test_tensors_of_all_kinds(copier, tensor) -> None:
    """Shape, strides, type and values of a tensor are those of the original."""
    copied = copier.copy([tensor])[0]
    assert type(copied) is type(tensor)
    assert (copied.dtype, copied.shape, copied.layout) == (
        tensor.dtype,
        tensor.shape,
        tensor.layout,
    )
    assert copied.requires_grad == tensor.requires_grad
    if tensor.layout is torch.strided:
        assert copied.stride() == tensor.stride()
        assert copied.storage_offset() == tensor.storage_offset() or tensor.is_conj()
    assert torch.equal(copied.detach().to_dense(), tensor.detach().to_dense())


def test_tensors_that_share_memory_share_it_in_the_copy(copier) -> None:
    """Tied weights and views are stored once, and a container that is there twice too."""
    weight = torch.arange(6.0)
    shared = [weight]
    copied = copier.copy({"a": weight, "b": weight, "view": weight[2:], "x": shared, "y": shared})
    assert copied["a"] is copied["b"]
    assert copied["x"] is copied["y"]
    copied["a"][2] = 50
    assert copied["view"][0] == 50
    assert weight[2] == 2


def test_empty_tensors_stay_apart(copier) -> None:
    """Tensors without memory, which all have the same address, are not mixed up."""
    copied = copier.copy([torch.empty(0), torch.empty(0, 3, dtype=torch.int64)])
    assert [(tuple(t.shape), t.dtype) for t in copied] == [
        ((0,), torch.float32),
        ((0, 3), torch.int64),
    ]


def test_what_hangs_on_an_ordered_dict_is_kept(copier) -> None:
    """The versions of a module's parts, an attribute of its state, are copied with it."""
    state = torch.nn.BatchNorm1d(2).state_dict()
    assert copier.copy(state)._metadata == state._metadata


def test_the_memory_is_used_again(copier) -> None:
    """The next copy of the same shapes lies where the one before lay, tensor by tensor."""
    state = {"a": torch.ones(3), "b": torch.zeros(3), "c": torch.ones(5)}
    first = {name: tensor.data_ptr() for name, tensor in copier.copy(state).items()}
    state["a"].fill_(7)
    again = copier.copy(state)
    assert {name: tensor.data_ptr() for name, tensor in again.items()} == first
    assert [tensor[0].item() for tensor in again.values()] == [7, 0, 1]


def test_memory_that_no_copy_needs_is_let_go(copier) -> None:
    """Buffers of a size that the last copy did not need are not kept."""
    copier.copy([torch.ones(1000)])
    copier.copy([torch.ones(10), torch.ones(10)])
    held = {size: len(found) for (size, _), found in copier._buffers.items()}
    assert held == {40: 2}
    copier.release()
    assert copier._buffers == {}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_copied_to_pinned_memory(copier) -> None:
    """Tensors of a GPU come to the CPU into pinned memory, which is used again."""
    state = {"a": torch.arange(1e6, device="cuda"), "b": torch.ones(3)}
    first = copier.copy(state)
    expected = state["a"].cpu()
    state["a"].zero_()
    assert first["a"].is_pinned()
    assert not first["b"].is_pinned()
    assert torch.equal(first["a"], expected)
    place = first["a"].data_ptr()
    assert copier.copy(state)["a"].data_ptr() == place
