"""Batches go to a GPU on a stream of their own."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from trainer_hooks import Module, Trainer
from trainer_hooks.data.data_hooks import BatchTransfer, CopyStream
from trainer_hooks.runtime.precision import make_precision

META = torch.device("meta")


class Noting(torch.Tensor):
    """A tensor that notes by which stream it is kept."""

    def record_stream(self, stream):
        stream.told.append("keeps a tensor")


class Stream:
    def __init__(self, told) -> None:
        self.told = told

    def wait_stream(self, other):
        self.told.append("computing waits for the copies")


class Cuda:
    """What of `torch.cuda` is used, in words."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def Stream(self, device):
        return Stream(self.told)

    def current_stream(self, device):
        return Stream(self.told)

    @contextmanager
    def stream(self, stream):
        self.told.append("copies begin")
        yield
        self.told.append("copies are handed over")


def test_what_computes_waits_for_the_copy_and_keeps_its_memory():
    """A batch is moved on the other stream, and only then is the computing one let on."""
    cuda = Cuda()

    def move(batch):
        cuda.told.append("moves")
        return [tensor.to(META).as_subclass(Noting) for tensor in batch]

    moved = CopyStream(META, cuda)(move, [torch.ones(1), torch.ones(2)])
    assert [len(tensor) for tensor in moved] == [1, 2]
    assert cuda.told == [
        "copies begin", "moves", "copies are handed over", "computing waits for the copies",
        "keeps a tensor", "keeps a tensor",
    ]  # fmt: skip


def test_a_batch_that_lies_on_the_device_needs_no_stream():
    """It is not copied, so that nothing waits; one tensor elsewhere is enough for a copy."""
    cuda, there = Cuda(), torch.ones(1, device=META)
    stream = CopyStream(META, cuda)
    assert stream(list, [there, {"twice": (there,), "number": 3}])[0] is there
    assert cuda.told == []
    stream(lambda batch: None, [there, {"twice": (torch.ones(1),)}])
    assert cuda.told[0] == "copies begin"


def test_a_conversion_is_computed_on_the_stream_of_the_step():
    """Its input may be a kernel's result, for which only the stream of the step waits."""
    cuda = Cuda()

    class Precise:
        converts_batches = True

        def convert_batch(self, batch):
            cuda.told.append("converts")
            return batch.bfloat16()

    class Moves(Module):
        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            return batch.to(device).as_subclass(Noting)

    transfer = BatchTransfer(Moves(), None, META, Precise())
    transfer.copy_stream = CopyStream(META, cuda)
    assert transfer(torch.ones(2)).dtype is torch.bfloat16
    assert cuda.told == [
        "copies begin", "copies are handed over", "computing waits for the copies",
        "keeps a tensor", "converts",
    ]  # fmt: skip


def test_hooks_of_ones_own_stay_on_the_stream_of_the_step():
    """Who overrides a transfer hook computes in it, and on the CPU there are no streams."""

    class Own(Module):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            return batch

    for module, device in ((Own(), META), (Module(), torch.device("cpu"))):
        transfer = BatchTransfer(module, None, device, make_precision(None, torch.device("cpu")))
        assert transfer.copy_stream is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("pins", [True, False])
def test_batches_arrive_whole_on_a_gpu(pins):
    """While the GPU is kept busy, each batch that a step computes with is the loader's."""
    data = torch.arange(64 * 1000, dtype=torch.float32).view(64, 1000)
    sums = []

    class Busy(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1000, 1)

        def training_step(self, batch, batch_idx):
            sums.append(batch.double().sum())  # exact on either device
            torch.cuda._sleep(10_000_000)
            return self.layer(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=pins)
    trainer = Trainer(
        accelerator="cuda", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Busy(), loader)
    assert [value.item() for value in sums] == [
        batch.double().sum().item() for batch in data.split(4)
    ]
