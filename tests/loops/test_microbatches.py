"""Trainer(microbatch_size=...): microbatches give the results of the whole batch."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module
from trainer_hooks.errors import DataError, OptimizationError, UsageError


def make_data(count=22):
    source = torch.Generator().manual_seed(2)
    return TensorDataset(
        torch.randn(count, 3, generator=source), torch.randn(count, 1, generator=source)
    )


def loader():
    return DataLoader(make_data(), batch_size=8)  # three batches, the last one of six samples


class LogsEachReduction(Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.sizes = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.sizes.append(len(x))
        loss = (self.net(x) - y).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("worst", loss, on_step=True, reduce_fx="max")
        self.log("count", float(len(x)), on_step=True, reduce_fx="sum")
        return {"loss": loss, "predictions": self.net(x), "batch_idx": batch_idx}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Watch(Callback):
    def __init__(self) -> None:
        self.hooks, self.outputs, self.metrics, self.batches = [], [], [], []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.hooks.append("batch")
        self.batches.append(len(batch[0]))

    def on_before_train_batch(self, trainer, module):
        self.hooks.append("window")

    def on_before_zero_grad(self, trainer, module, optimizer):
        self.hooks.append("clear")

    def on_before_backward(self, trainer, module, loss):
        self.hooks.append("backward")

    def on_after_optimizer_step(self, trainer, module, optimizer):
        self.hooks.append("step")

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.outputs.append(outputs)
        self.metrics.append({k: v.item() for k, v in trainer.callback_metrics.items()})


def weights_of(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def trained(trainer, **options):
    module, watch = LogsEachReduction(), Watch()
    trainer(watch, max_epochs=2, **options).fit(module, loader())
    return module, watch


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 4, 8, 100])
def test_training_is_that_of_whole_batches(bare, size, accumulate) -> None:
    """Gradients of parts add up to those of the batch, uneven parts and windows too."""
    whole, _ = trained(bare, accumulate_grad_batches=accumulate)
    parts, _ = trained(bare, accumulate_grad_batches=accumulate, microbatch_size=size)
    assert torch.allclose(weights_of(whole), weights_of(parts), atol=1e-6)
    assert max(parts.sizes) <= size


def test_training_is_that_of_the_loop_written_by_hand(bare) -> None:
    """The weights have the bits of a loop that adds up the parts' shares of the gradient."""
    module, _ = trained(bare, microbatch_size=4)
    expected = LogsEachReduction()
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    for _ in range(2):
        for x, y in loader():
            optimizer.zero_grad()
            for part_x, part_y in zip(x.split(4), y.split(4), strict=True):
                loss = (expected.net(part_x) - part_y).square().mean()
                (loss / (len(x) / len(part_x))).backward()
            optimizer.step()
    assert torch.equal(weights_of(module), weights_of(expected))


def test_hooks_of_a_part_and_hooks_of_a_batch(bare) -> None:
    """Backward hooks fire for each part, batch hooks once, with the whole batch."""
    _, watch = trained(bare, microbatch_size=4)
    batch = ["batch", "window", "clear", "backward", "backward", "step"]
    assert watch.hooks == batch * 6
    assert watch.batches == [8, 8, 6] * 2


def test_forward_and_loss_hooks_fire_for_each_part(bare) -> None:
    """With the default step each part has its forward and its loss."""

    class Default(Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(3, 1)

        def forward(self, batch):
            return self.net(batch[0])

        def loss(self, outputs, batch):
            return (outputs - batch[1]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    seen = []

    class Parts(Callback):
        def on_after_forward(self, trainer, module, outputs):
            seen.append(len(outputs))

        def on_after_loss(self, trainer, module, loss):
            seen.append("loss")

    trainer = bare(Parts(), max_epochs=1, microbatch_size=5)
    trainer.fit(Default(), loader())
    assert seen == [5, "loss", 3, "loss"] * 2 + [5, "loss", 1, "loss"]


def test_outputs_and_logged_values_are_those_of_the_whole(bare) -> None:
    """Means count by samples, sums add up; outputs of samples are put together again."""
    _, whole = trained(bare)
    _, parts = trained(bare, microbatch_size=5)
    for one, other in zip(whole.outputs, parts.outputs, strict=True):
        assert torch.allclose(one["loss"], other["loss"], atol=1e-6)
        assert torch.allclose(one["predictions"], other["predictions"], atol=1e-6)
        assert other["batch_idx"] == [one["batch_idx"]] * 2
    for one, other in zip(whole.metrics, parts.metrics, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], abs=1e-6)
        assert other["count"] == one["count"]
        assert other["worst"] >= one["worst"] - 1e-6


def test_a_value_of_one_part_alone_counts_once(bare) -> None:
    """What the first part logged, and no other, is not added for the others."""

    class LogsAtFirst(LogsEachReduction):
        def training_step(self, batch, batch_idx):
            if len(self.sizes) % 2 == 0:
                self.log("first", 7.0, on_step=True, reduce_fx="sum")
            return super().training_step(batch, batch_idx)

    watch = Watch()
    bare(watch, microbatch_size=5).fit(LogsAtFirst(), loader())
    assert [metrics["first"] for metrics in watch.metrics] == [7.0] * 3


class Small(LogsEachReduction):
    """Has a memory for so many samples, and no more."""

    room = 3

    def training_step(self, batch, batch_idx):
        self.drawn = torch.rand(())  # random numbers are drawn before it is known
        loss = super().training_step(batch, batch_idx)
        if len(batch[0]) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return loss


def test_auto_halves_until_it_fits_and_says_so(bare, caplog) -> None:
    """The size that fits is found once, logged, and gives the same as if set from the start."""
    module, watch = Small(), Watch()
    trainer = bare(watch, max_epochs=2, microbatch_size="auto")
    with caplog.at_level(logging.WARNING, logger="trainer_hooks"):
        torch.manual_seed(1)
        trainer.fit(module, loader())
    assert "8 samples do not fit into the memory: going on with 4" in caplog.text
    assert "4 samples do not fit into the memory: going on with 2" in caplog.text
    assert trainer.progress.microbatch_size == 2
    same = Small()
    torch.manual_seed(1)
    other = Watch()
    bare(other, max_epochs=2, microbatch_size=2).fit(same, loader())
    assert torch.equal(weights_of(module), weights_of(same))
    assert torch.equal(module.drawn, same.drawn)
    assert watch.metrics == other.metrics
    assert module.sizes == [8, 4, *same.sizes]


def test_auto_puts_a_window_back_in_the_middle(bare) -> None:
    """Gradients of earlier batches of a window stay; those of a failed batch go, buffers too."""

    class Late(LogsEachReduction):
        """Runs out of memory in the second part of the second batch, once."""

        def __init__(self):
            super().__init__()
            self.net.insert(1, nn.BatchNorm1d(4))
            self.tries = 0

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.tries += 1
            if self.fails and self.tries == 2:
                raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
            return loss

    failing, fine = Late(), Late()
    failing.fails, fine.fails = True, False
    options = {"max_epochs": 1, "accumulate_grad_batches": 3}
    bare(microbatch_size="auto", **options).fit(failing, loader())

    class Sized(Late):
        def split_batch(self, batch, microbatch_size):
            size = 8 if self.tries == 0 else 4
            return super().split_batch(batch, size)

    by_hand = Sized()
    by_hand.fails = False
    bare(microbatch_size=8, **options).fit(by_hand, loader())
    assert failing.sizes == [8, 8, 4, 4, 4, 2]
    assert torch.equal(weights_of(failing), weights_of(by_hand))
    for name, buffer in by_hand.named_buffers():
        assert torch.equal(buffer, dict(failing.named_buffers())[name]), name


def test_auto_gives_up_at_one_sample(bare) -> None:
    """If not even one sample fits, the error leaves fit, with a note that says so."""
    module = Small()
    module.room = 0
    with pytest.raises(torch.OutOfMemoryError) as caught:
        bare(max_epochs=1, microbatch_size="auto").fit(module, loader())
    assert any("not even a single sample fits" in note for note in caught.value.__notes__)


def test_auto_leaves_other_errors_alone(bare) -> None:
    """An error that is not about memory is not tried again."""

    class Broken(LogsEachReduction):
        def training_step(self, batch, batch_idx):
            self.sizes.append(len(batch[0]))
            raise RuntimeError("shape mismatch")

    module = Broken()
    with pytest.raises(RuntimeError, match="shape mismatch"):
        bare(max_epochs=1, microbatch_size="auto").fit(module, loader())
    assert module.sizes == [8]


@pytest.mark.parametrize("size", [2, "auto"])
def test_closures_are_run_in_parts(bare, size) -> None:
    """An optimizer that evaluates the loss itself gets the gradient of all parts."""

    class Closing(LogsEachReduction):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)

    whole, parts = Closing(), Closing()
    bare(max_epochs=1).fit(whole, loader())
    bare(max_epochs=1, microbatch_size=size).fit(parts, loader())
    assert torch.allclose(weights_of(whole), weights_of(parts), atol=1e-4)


@pytest.mark.parametrize(
    "option", [{"microbatch_size": 4}, {"microbatch_size": 1}, {"gradient_clip_val": 1.0}], ids=str
)
def test_manual_optimization_is_refused(bare, option) -> None:
    """A module that optimizes by itself splits its batches and clips by itself."""

    class Manual(LogsEachReduction):
        automatic_optimization = False

    with pytest.raises(OptimizationError, match=rf"{next(iter(option))}=.*manual optimization"):
        bare(max_epochs=1, **option).fit(Manual(), loader())


@pytest.mark.filterwarnings("ignore:the first dimensions of the tensors in a batch disagree")
def test_a_module_may_split_its_batches_itself(bare) -> None:
    """split_batch is the module's to override; without that a strange batch is an error."""

    class Ragged(LogsEachReduction):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch[:2], batch_idx)

    def ragged():
        return [(x, y, torch.zeros(3)) for x, y in loader()]

    with pytest.raises(DataError, match="split_batch"):
        bare(max_epochs=1, microbatch_size=4).fit(Ragged(), ragged())

    class Split(Ragged):
        def split_batch(self, batch, microbatch_size):
            x, y, other = batch
            pairs = zip(x.split(microbatch_size), y.split(microbatch_size), strict=True)
            return [(a, b, other) for a, b in pairs]

    module = Split()
    bare(max_epochs=1, microbatch_size=4).fit(module, ragged())
    assert module.sizes == [4, 4, 4, 4, 4, 2]


class LeavesOut(Callback):
    """Leaves batches out in a part of them."""

    def __init__(self, wanted, part) -> None:
        self.wanted, self.part = wanted, part
        self.number = self.batch = -1
        self.run = []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.batch, self.number = batch_idx, -1

    def on_before_backward(self, trainer, module, loss):
        self.number += 1
        self.run.append((self.batch, self.number))
        if self.batch in self.wanted and self.number == self.part:
            trainer.skip_batch()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx in self.wanted:
            assert outputs == {}


class Without(Callback):
    """Leaves whole batches out before they are run."""

    def __init__(self, wanted) -> None:
        self.wanted = wanted

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if batch_idx in self.wanted:
            trainer.skip_batch()


@pytest.mark.parametrize("part", [0, 1, 3])
@pytest.mark.parametrize("wanted", [{0}, {1}, {2}, {0, 1}, {0, 1, 2}], ids=str)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_batch_left_out_in_a_part_is_left_out_whole(bare, part, wanted, accumulate) -> None:
    """The weights are those of a run without the batch, and its other parts are not run."""
    if part == 3:
        wanted = wanted - {2}  # the last batch has three parts
    options = {"accumulate_grad_batches": accumulate, "microbatch_size": 2, "max_epochs": 2}
    leaving = LeavesOut(wanted, part)
    whole, cut = LogsEachReduction(), LogsEachReduction()
    first = bare(Without(wanted), **options)
    first.fit(whole, loader())
    second = bare(leaving, **options)
    second.fit(cut, loader())
    for one, other in zip(whole.parameters(), cut.parameters(), strict=True):
        assert torch.equal(one, other)
    assert first.global_step == second.global_step
    for batch in wanted:
        assert {number for b, number in leaving.run if b == batch} == set(range(part + 1))


@pytest.mark.parametrize("size", [2, "auto"])
def test_gradients_that_a_module_keeps_are_taken_back_to(bare, size) -> None:
    """Where a module clears its gradients itself, those from before the batch are there again."""

    class Keeps(LogsEachReduction):
        def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
            pass

    memory = Watch()
    whole, cut = Keeps(), Keeps()
    bare(Without({1}), memory, microbatch_size=size).fit(whole, loader())
    bare(LeavesOut({1}, 0 if size == "auto" else 2), microbatch_size=size).fit(cut, loader())
    for one, other in zip(whole.parameters(), cut.parameters(), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one.grad, other.grad)


def test_a_later_part_left_out_by_the_step_itself_is_refused(bare) -> None:
    """Without the hook there is no copy of the gradients; the error names where to call it."""

    class Leaves(LogsEachReduction):
        def training_step(self, batch, batch_idx):
            if len(self.sizes) == 1:
                self.trainer.skip_batch()
            return super().training_step(batch, batch_idx)

    with pytest.raises(UsageError, match="nobody listens to on_before_backward"):
        bare(microbatch_size=2).fit(Leaves(), loader())
