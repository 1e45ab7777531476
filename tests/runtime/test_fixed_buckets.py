"""The buckets in which gradients are reduced are laid out once, before the first step."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.runtime import gradient_sync
from trainer_hooks.runtime.gradient_sync import FixedBucketsDDP, lay_out_buckets


@pytest.fixture
def group(request):
    """The default process group: of this process alone, or of several ranks that are fakes."""
    ranks = getattr(request, "param", 1)
    backend, store = ("gloo", dist.HashStore()) if ranks == 1 else ("fake", FakeStore())
    dist.init_process_group(backend, store=store, rank=0, world_size=ranks)
    yield
    dist.destroy_process_group()


@pytest.fixture
def names_in_errors():
    """torch's debug level at which its errors name parameters."""
    before = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.INFO)
    yield
    dist.set_debug_level(before)


class Net(nn.Module):
    """Layers of several sizes, of which the forward can leave the middle one out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, inputs: torch.Tensor, *, skips: bool = False) -> torch.Tensor:
        hidden = self.first(inputs)
        return self.last(hidden if skips else self.middle(hidden))


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("views", [False, True])
def test_gradients_are_those_of_the_module_alone(group, static, views):
    """For each option, in the first step and after it; torch lays out no further buckets."""
    net = Net()
    wrapped = FixedBucketsDDP(
        net, static_graph=static, gradient_as_bucket_view=views, bucket_cap_mb=1e-5
    )
    assert wrapped._has_rebuilt_buckets
    for _ in range(3):
        inputs = torch.randn(4, 2)
        expected = torch.autograd.grad(net(inputs).sum(), list(net.parameters()))
        wrapped.zero_grad()
        wrapped(inputs).sum().backward()
        assert all(
            torch.equal(p.grad, grad) for p, grad in zip(net.parameters(), expected, strict=True)
        )
        assert not wrapped.reducer._rebuild_buckets()


def test_errors_name_the_parameters_that_got_no_gradient(group, names_in_errors):
    """torch numbers the parameters in its order, and looks names up by the numbers."""
    wrapped = FixedBucketsDDP(Net())
    wrapped(torch.ones(1, 2), skips=True).sum().backward()
    with pytest.raises(RuntimeError) as error:
        wrapped(torch.ones(1, 2))
    told = str(error.value)
    assert "middle.weight" in told
    assert "middle.bias" in told
    assert "first." not in told
    assert "last." not in told


def test_unused_parameters_are_found_in_torchs_own_order(group):
    """torch lays these buckets out at once, from the last parameter on, and never again."""
    net = Net()
    wrapped = FixedBucketsDDP(net, find_unused_parameters=True)
    wrapped(torch.ones(1, 2), skips=True).sum().backward()
    assert net.middle.weight.grad is None
    assert net.first.weight.grad is not None
    wrapped(torch.ones(1, 2)).sum().backward()
    assert net.middle.weight.grad is not None
    assert not wrapped._has_rebuilt_buckets
    assert [id(p) for p in wrapped._build_params_for_reducer()[0]] == [
        id(p) for p in net.parameters()
    ]


def test_sparse_tied_and_ignored_parameters(group):
    """Each keeps its role: the numbers of parameters are counted in the other direction."""
    net = nn.ModuleDict(
        {
            "table": nn.Embedding(4, 2, sparse=True),
            "layer": nn.Linear(2, 2),
            "tied": nn.Linear(2, 2),
            "ignored": nn.Linear(2, 2),
        }
    )
    net["tied"].weight = net["layer"].weight
    net.forward = lambda numbers: net["ignored"](
        net["tied"](net["layer"](net["table"](numbers)))
    ).sum()
    ignored = ["ignored.weight", "ignored.bias"]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ignored)
    wrapped = FixedBucketsDDP(net)
    for _ in range(2):
        wrapped.zero_grad()
        wrapped(torch.tensor([1, 3])).backward()
        assert net["table"].weight.grad.is_sparse
        assert not net["layer"].weight.grad.is_sparse
    assert len(wrapped._build_params_for_reducer()[0]) == 4


@pytest.mark.parametrize("lacks", ["a name", "the order"])
@pytest.mark.parametrize(
    ("group", "is_told"), [(1, False), (2, False), (3, True)], indirect=["group"]
)
def test_a_torch_without_the_private_names_is_told_once(group, lacks, is_told, monkeypatch):
    """Two ranks sum in one order only. torch then lays out the buckets after the first step."""
    if lacks == "a name":
        monkeypatch.setattr(
            gradient_sync, "lay_out_buckets", lambda _: lay_out_buckets(SimpleNamespace())
        )
    else:
        monkeypatch.delattr(FixedBucketsDDP, "_build_params_for_reducer")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        wrapped = FixedBucketsDDP(Net())
    assert not wrapped._has_rebuilt_buckets
    found = [str(one.message) for one in told if one.category is TrainerHooksWarning]
    assert len(found) == is_told
    assert all("may differ from an uncut one in the last bits" in text for text in found)
    if dist.get_backend() == "gloo":  # fakes reduce nothing
        for _ in range(2):
            wrapped(torch.ones(1, 2)).sum().backward()
        assert wrapped._has_rebuilt_buckets
