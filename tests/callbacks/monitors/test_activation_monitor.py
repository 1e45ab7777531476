from __future__ import annotations

import pytest
import torch

from trainer_hooks import Module
from trainer_hooks.callbacks import ActivationMonitor


class CountsForwardHooks(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.act = torch.nn.ReLU()
        self.forwards = []

    def training_step(self, batch, batch_idx):
        self.forwards.append(len(self.layer._forward_hooks))
        return self.act(self.layer(batch)).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def run(quiet_trainer, MemoryLogger, monitor, module, batches, **options):
    logger = MemoryLogger()
    quiet_trainer(callbacks=[monitor], logger=logger, **options).fit(module, batches)
    found = [(s, {n: v for n, v in m.items() if "activations" in n}) for s, m in logger.seen]
    return [(step, metrics) for step, metrics in found if metrics]


def test_what_is_logged(quiet_trainer, MemoryLogger):
    """Norm, mean, kurtosis and largest entry of a layer's input are those of its definition."""
    batch = torch.tensor([[1.0, 3.0], [0.0, 2.0]])
    monitor = ActivationMonitor("1ba", ["ReLU"], only_log_wandb=False)
    seen = run(quiet_trainer, MemoryLogger, monitor, CountsForwardHooks(), [batch, batch])
    assert [step for step, _ in seen] == [1]  # one batch is done, the next is watched
    kinds = ("l2_norm", "average", "kurtosis", "max")
    sides = ("input", "output")
    assert set(seen[0][1]) == {f"activations/{k}/layer_{s}.0" for k in kinds for s in sides}
    values = [seen[0][1][f"activations/{kind}/layer_input.0"] for kind in kinds]
    assert values == pytest.approx([14**0.5, 1.5, 1.0, 2.5])


def test_only_one_forward_is_watched(quiet_trainer, MemoryLogger, batches):
    """Between the intervals, and in the rest of a window, the module has no forward hooks."""
    module = CountsForwardHooks()
    monitor = ActivationMonitor("2ba", only_log_wandb=False)
    run(quiet_trainer, MemoryLogger, monitor, module, batches(6), accumulate_grad_batches=2)
    assert module.forwards == [0, 0, 1, 0, 1, 0]


def test_without_wandb_nothing_is_watched(quiet_trainer, MemoryLogger, batches):
    """By default only Weights & Biases is given the values, so that without it there are none."""
    module = CountsForwardHooks()
    assert not run(quiet_trainer, MemoryLogger, ActivationMonitor("1ba"), module, batches(3))
    assert module.forwards == [0, 0, 0]


def test_an_error_leaves_nothing_behind(quiet_trainer, MemoryLogger, batches):
    """A training that breaks in a watched forward leaves no hook on the module."""

    class Breaking(CountsForwardHooks):
        def training_step(self, batch, batch_idx):
            if batch_idx == 1:
                raise ZeroDivisionError
            return super().training_step(batch, batch_idx)

    module = Breaking()
    monitor = ActivationMonitor("1ba", only_log_wandb=False)
    with pytest.raises(ZeroDivisionError):
        run(quiet_trainer, MemoryLogger, monitor, module, batches(3))
    assert not module.layer._forward_hooks
