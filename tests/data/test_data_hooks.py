"""Batch transfer: whose hooks are called, in which order, and when at all."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple

import pytest
import torch

from trainer_hooks import DataModule, Module
from trainer_hooks.data.data_hooks import BatchTransfer
from trainer_hooks.errors import DataError
from trainer_hooks.runtime.nested_tensors import map_tensors, move_to_device
from trainer_hooks.runtime.precision import make_precision

CPU, META = torch.device("cpu"), torch.device("meta")
STEPS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


def transfer(module, datamodule=None, device=CPU, precision=None) -> BatchTransfer:
    return BatchTransfer(module, datamodule, device, make_precision(precision, CPU))


def noting(base, *names):
    """A class that notes its name, the step's and the loader's in each batch it is given."""

    def method(name):
        def note(self, batch, *rest):
            return [*batch, (base.__name__, name, rest[-1])]

        return note

    return type("Noting", (base,), {name: method(name) for name in names})


@pytest.mark.parametrize("datamodule", [None, DataModule()])
def test_nothing_is_done_where_nothing_can_change(datamodule) -> None:
    """On the CPU without hooks of one's own the transfer is left out."""
    assert not transfer(Module(), datamodule).is_needed
    assert transfer(Module(), datamodule, META).is_needed
    assert transfer(Module(), datamodule, precision="64-true").is_needed


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("base", [Module, DataModule])
def test_any_hook_makes_it_needed(base, name) -> None:
    """One overridden hook, of the module or the data module, is enough."""
    noter = noting(base, name)()
    module, datamodule = (noter, None) if base is Module else (Module(), noter)
    needed = transfer(module, datamodule)
    assert needed.is_needed
    assert needed([], 3) == [(base.__name__, name, 3)]


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("base", [Module, DataModule])
def test_a_hook_that_is_set_on_an_instance_counts(base, name) -> None:
    """A function that is assigned to an instance is called like a method."""
    owner = base()
    setattr(owner, name, lambda batch, *rest: "changed")
    module, datamodule = (owner, None) if base is Module else (Module(), owner)
    needed = transfer(module, datamodule)
    assert needed.is_needed
    assert needed("batch") == "changed"


def test_the_order() -> None:
    """Before, move, after: with the loader's number, and the device in the middle."""
    found = transfer(noting(Module, *STEPS)())([], 2)
    assert found == [("Module", name, 2) for name in STEPS]


def test_the_data_module_goes_first() -> None:
    """The data module's overrides are called, and the module's for the other hooks."""
    datamodule = noting(DataModule, STEPS[0], STEPS[2])()
    found = transfer(noting(Module, *STEPS)(), datamodule)([], 0)
    assert [owner for owner, _, _ in found] == ["DataModule", "Module", "DataModule"]


def test_a_move_of_the_users_own_is_given_the_device() -> None:
    """transfer_batch_to_device gets the run's device."""
    given = []

    class NotesDevice(Module):
        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            given.append(device)
            return super().transfer_batch_to_device(batch, device, dataloader_idx)

    batch = transfer(NotesDevice(), device=META)({"x": torch.zeros(2)})
    assert given == [META]
    assert batch["x"].device == META


def test_double_precision_comes_last() -> None:
    """Floating-point tensors become 64 bits after the hooks, and others stay."""

    class ExpectsSinglePrecision(Module):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            assert batch[0].dtype == torch.float32
            return batch

    x, index = transfer(ExpectsSinglePrecision(), precision="64-true")(
        [torch.zeros(2), torch.tensor([1])]
    )
    assert (x.dtype, index.dtype) == (torch.float64, torch.int64)


Point = namedtuple("Point", "x y")


class Numbers(list):
    """A list of a type of its own."""


@dataclasses.dataclass(frozen=True)
class Sample:
    x: torch.Tensor
    name: str
    total: int = dataclasses.field(init=False, default=0)


class Movable:
    """What is no tensor and can be moved."""

    def __init__(self, device=CPU) -> None:
        self.device = device

    def to(self, device):
        return Movable(device)


def zeros() -> torch.Tensor:
    return torch.zeros(2)


NESTED = {
    "tensor": (zeros(), lambda b: b),
    "list": ([1, zeros()], lambda b: b[1]),
    "tuple": ((zeros(), "a"), lambda b: b[0]),
    "named tuple": (Point(1, zeros()), lambda b: b.y),
    "list of a type": (Numbers([zeros()]), lambda b: b[0]),
    "dict": ({"a": {"b": [zeros()]}}, lambda b: b["a"]["b"][0]),
    "ordered dict": (OrderedDict(a=zeros()), lambda b: b["a"]),
    "default dict": (defaultdict(list, a=zeros()), lambda b: b["a"]),
    "user dict": (UserDict(a=zeros()), lambda b: b["a"]),
    "dataclass": (Sample(zeros(), "n"), lambda b: b.x),
    "packed sequence": (
        torch.nn.utils.rnn.pack_sequence([torch.zeros(2, 1)]),
        lambda b: b.data,
    ),
    "movable": ([Movable()], lambda b: b[0]),
}


@pytest.mark.parametrize("name", NESTED)
def test_tensors_are_moved_wherever_they_are(name: str) -> None:
    """Tensors in containers of every kind are moved; the containers keep their types."""
    batch, pick = NESTED[name]
    moved = move_to_device(batch, META)
    assert type(moved) is type(batch)
    assert pick(moved).device == META
    assert pick(batch).device == CPU


@pytest.mark.parametrize("batch", ["text", 5, None, {1, 2}, Counter("aab"), b"x", range(3)])
def test_what_holds_no_tensor_stays(batch) -> None:
    """Everything else comes out as it went in."""
    moved = move_to_device(batch, META)
    assert moved == batch
    assert type(moved) is type(batch)


def test_a_default_dict_keeps_its_default() -> None:
    """What a missing key gives is not lost on the way."""
    moved = map_tensors(defaultdict(lambda: 7, a=zeros()), torch.Tensor.double)
    assert moved["missing"] == 7
    assert moved["a"].dtype == torch.float64


def test_hooks_in_runs(Tiny, quiet_trainer, batches) -> None:
    """In every stage the step and the hooks of its batches see the transferred batch."""
    seen = []

    class NotesEachBatch(Tiny):
        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            return batch * 10

        def on_train_batch_start(self, batch, batch_idx):
            seen.append(("start", batch[0, 0].item()))

        def training_step(self, batch, batch_idx):
            seen.append(("train", batch[0, 0].item()))
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            seen.append(("validate", batch[0, 0].item()))

        def test_step(self, batch, batch_idx):
            seen.append(("test", batch[0, 0].item()))

        def predict_step(self, batch, batch_idx):
            return batch[0, 0].item()

    trainer, net = quiet_trainer(), NotesEachBatch()
    trainer.fit(net, batches(1), batches(1))
    trainer.test(net, batches(1), verbose=False)
    assert trainer.predict(net, batches(2)) == [10.0, 20.0]
    assert seen == [(what, 10.0) for what in ("start", "train", "validate", "test")]


@pytest.mark.parametrize("hook", STEPS)
def test_a_hook_that_returns_no_batch_is_named(hook) -> None:
    """A forgotten `return batch` is the hook's fault, and not the loader's."""
    Forgets = type("Forgets", (Module,), {hook: lambda self, *_: None})
    with pytest.raises(DataError, match=rf"Forgets\.{hook} returned None: .*`return batch`"):
        transfer(Forgets())(torch.zeros(2))
    # a loader's own None is what it is
    assert transfer(Forgets())(None) is None
