from __future__ import annotations

import math

import pytest
import torch

from trainer_hooks import Callback, Module
from trainer_hooks.callbacks import GradientNormMonitor


class ScaledLayers(Module):
    """Two layers, a weight of its own, and a sparse embedding that can be put in."""

    def __init__(self, *, is_sparse=False):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(2, 3)
        self.last = torch.nn.Linear(3, 1, bias=False)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.unused = torch.nn.Parameter(torch.ones(1))
        self.table = torch.nn.Embedding(4, 2, sparse=True) if is_sparse else None

    def training_step(self, batch, batch_idx):
        if self.table is not None:
            batch = batch + self.table(torch.tensor([1, 1]))
        return (self.last(self.first(batch)) * self.scale).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Gradients(Callback):
    """Keeps the gradients of each step, before and after clipping."""

    def __init__(self):
        self.before, self.after = [], []

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.before.append(self._copied(module))

    def on_after_train_batch(self, trainer, module):
        self.after.append(self._copied(module))

    def _copied(self, module):
        named = module.named_parameters()
        return {
            name: p.grad.to_dense().detach().clone().flatten()
            for name, p in named
            if p.grad is not None
        }


def run(quiet_trainer, MemoryLogger, batches, monitor, module=None, **options):
    kept, logger = Gradients(), MemoryLogger()
    trainer = quiet_trainer(
        callbacks=[monitor, kept], logger=logger, **{"log_every_n_steps": 1, **options}
    )
    trainer.fit(module or ScaledLayers(), batches(4))
    rows = [{k: v for k, v in row.items() if "norm" in k} for _, row in logger.seen]
    return kept, [row for row in rows if row], trainer


def norm(gradients, order, pick=lambda name: True):
    entries = torch.cat([g for name, g in gradients.items() if pick(name)])
    return torch.linalg.vector_norm(entries, order).item()


@pytest.mark.parametrize("order", [1.0, 2.0, 3, math.inf])
def test_the_total_is_the_norm_of_all_gradients(quiet_trainer, MemoryLogger, batches, order):
    """Of each step it logs the norm of all gradients together, under Lightning's name."""
    monitor = GradientNormMonitor(order)
    kept, rows, trainer = run(quiet_trainer, MemoryLogger, batches, monitor)
    name = f"grad_{float(order)}_norm_total"
    expected = [{name: pytest.approx(norm(g, order), rel=1e-5)} for g in kept.before]
    assert len(rows) == 4
    assert rows == expected
    assert trainer.callback_metrics[name].item() == rows[-1][name]


def test_each_parameter(quiet_trainer, MemoryLogger, batches):
    """per_layer=True logs each weight and bias that has a gradient, beside the total."""
    kept, rows, _ = run(quiet_trainer, MemoryLogger, batches, GradientNormMonitor(per_layer=True))
    layers = {"first.weight", "first.bias", "last.weight", "scale"}
    for row, gradients in zip(rows, kept.before, strict=True):
        total = row.pop("grad_2.0_norm_total")
        assert total == pytest.approx(norm(gradients, 2), rel=1e-5)
        assert row == {
            f"grad_2.0_norm/{layer}": pytest.approx(norm(gradients, 2, layer.__eq__), rel=1e-5)
            for layer in layers
        }


def test_each_module(quiet_trainer, MemoryLogger, batches):
    """per_layer="module" takes a layer's weight and bias together; a bare parameter is alone."""
    monitor = GradientNormMonitor(per_layer="module")
    kept, rows, _ = run(quiet_trainer, MemoryLogger, batches, monitor)
    for row, gradients in zip(rows, kept.before, strict=True):
        assert row == {
            "grad_2.0_norm_total": pytest.approx(norm(gradients, 2), rel=1e-5),
            "grad_2.0_norm/first": pytest.approx(
                norm(gradients, 2, lambda name: name.startswith("first")), rel=1e-5
            ),
            "grad_2.0_norm/last": pytest.approx(norm(gradients, 2, "last.weight".__eq__), rel=1e-5),
            "grad_2.0_norm/scale": pytest.approx(norm(gradients, 2, "scale".__eq__), rel=1e-5),
        }


def test_names_choose_layers(quiet_trainer, MemoryLogger, batches):
    """Patterns choose which layers are logged; the total stays that of all gradients."""
    patterns = ["*.bias", "last.*"]
    monitor = GradientNormMonitor(per_layer=True, names=patterns)
    kept, rows, _ = run(quiet_trainer, MemoryLogger, batches, monitor)
    assert set(rows[0]) == {
        "grad_2.0_norm_total",
        "grad_2.0_norm/first.bias",
        "grad_2.0_norm/last.weight",
    }
    assert rows[0]["grad_2.0_norm_total"] == pytest.approx(norm(kept.before[0], 2), rel=1e-5)
    assert patterns == ["*.bias", "last.*"]


@pytest.mark.parametrize("clipping", ["before", "after", "both"])
@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_before_and_after_clipping(quiet_trainer, MemoryLogger, batches, clipping, algorithm):
    """What is measured before clipping and after it has names of its own, and its own value."""
    monitor = GradientNormMonitor(clipping=clipping)
    options = {"gradient_clip_val": 0.01, "gradient_clip_algorithm": algorithm}
    kept, rows, _ = run(quiet_trainer, MemoryLogger, batches, monitor, **options)
    expected = []
    for before, after in zip(kept.before, kept.after, strict=True):
        row = {
            "grad_2.0_norm_total": pytest.approx(norm(before, 2), rel=1e-5),
            "clipped_grad_2.0_norm_total": pytest.approx(norm(after, 2), rel=1e-5),
        }
        if clipping != "both":
            row.pop(
                "clipped_grad_2.0_norm_total" if clipping == "before" else "grad_2.0_norm_total"
            )
        expected.append(row)
    assert norm(kept.before[0], 2) > 2 * norm(kept.after[0], 2)
    assert rows == expected


def test_of_a_window_only_the_whole(quiet_trainer, MemoryLogger, batches):
    """Where gradients accumulate, the norm is that of the window's sum, once a window."""
    kept, rows, _ = run(
        quiet_trainer, MemoryLogger, batches, GradientNormMonitor(), accumulate_grad_batches=2
    )
    expected = [pytest.approx(norm(g, 2), rel=1e-5) for g in kept.before]
    assert [row["grad_2.0_norm_total"] for row in rows] == expected
    assert len(expected) == 2


def test_sparse_gradients(quiet_trainer, MemoryLogger, batches):
    """A sparse gradient has the norm of the dense one, entries that repeat added up."""
    kept, rows, _ = run(
        quiet_trainer, MemoryLogger, batches, GradientNormMonitor(), ScaledLayers(is_sparse=True)
    )
    assert "table.weight" in kept.before[0]
    assert [row["grad_2.0_norm_total"] for row in rows] == [
        pytest.approx(norm(g, 2), rel=1e-5) for g in kept.before
    ]


class TwoOptimizers(ScaledLayers):
    """Steps two optimizers by hand."""

    automatic_optimization = False

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    def configure_optimizers(self):
        return [
            torch.optim.SGD(self.first.parameters(), lr=0.1),
            torch.optim.SGD(self.last.parameters(), lr=0.1),
        ]


@pytest.mark.parametrize("clipping", ["before", "after"])
def test_several_optimizers(quiet_trainer, MemoryLogger, batches, clipping):
    """Each optimizer's gradients have a total of their own, and with manual optimization too."""
    monitor = GradientNormMonitor(per_layer=True, clipping=clipping)
    kept, rows, _ = run(quiet_trainer, MemoryLogger, batches, monitor, TwoOptimizers())
    first = kept.before[0]
    assert rows[0] == {
        "grad_2.0_norm_total/optimizer_0": pytest.approx(
            norm(first, 2, lambda name: name.startswith("first")), rel=1e-5
        ),
        "grad_2.0_norm_total/optimizer_1": pytest.approx(
            norm(first, 2, "last.weight".__eq__), rel=1e-5
        ),
        **{
            f"grad_2.0_norm/{name}": pytest.approx(norm(first, 2, name.__eq__), rel=1e-5)
            for name in ("first.weight", "first.bias", "last.weight")
        },
    }


def test_nothing_is_computed_unless_loggers_are_due(
    quiet_trainer, MemoryLogger, batches, monkeypatch
):
    """A norm is made for the steps that are logged, and for no other."""
    calls = []
    real = torch.linalg.vector_norm
    monkeypatch.setattr(
        torch.linalg,
        "vector_norm",
        lambda *args, **kwargs: calls.append(1) or real(*args, **kwargs),
    )
    logger = MemoryLogger()
    trainer = quiet_trainer(
        callbacks=[GradientNormMonitor()], logger=logger, log_every_n_steps=4, max_epochs=2
    )
    trainer.fit(ScaledLayers(), batches(6))
    logged = [step for step, row in logger.seen if "grad_2.0_norm_total" in row]
    assert logged == [3, 7, 11]
    assert len(calls) == 3 * 5  # four parameters with a gradient, and all together


def test_one_copy_where_a_logger_is_due(quiet_trainer, MemoryLogger, batches, host_copies):
    """A norm is copied to the host with the logged metrics, and never otherwise."""

    def copies(*callbacks):
        before = host_copies.count
        trainer = quiet_trainer(
            callbacks=list(callbacks), logger=MemoryLogger(), log_every_n_steps=5
        )
        with host_copies:
            trainer.fit(ScaledLayers(), batches(20))
        return host_copies.count - before

    without = copies()
    assert copies(GradientNormMonitor()) - without == 4


@pytest.mark.filterwarnings("ignore:the training loss is nan")
def test_a_broken_gradient_is_shown(quiet_trainer, MemoryLogger, batches):
    """NaN in a gradient makes the norm NaN, for that is what one looks for."""

    class Broken(ScaledLayers):
        def on_after_backward(self):
            self.scale.grad.fill_(math.nan)

    _, rows, _ = run(quiet_trainer, MemoryLogger, batches, GradientNormMonitor(), Broken())
    assert math.isnan(rows[0]["grad_2.0_norm_total"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_in_half_precision(quiet_trainer, MemoryLogger, batches):
    """With a scaled loss the norm is that of the unscaled gradients."""

    class SmallLoss(ScaledLayers):
        """Its scaled gradients are finite from the first step on."""

        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) * 1e-4

    def rows_of(**options):
        return run(
            quiet_trainer, MemoryLogger, batches, GradientNormMonitor(), SmallLoss(), **options
        )[1]

    rows = rows_of(accelerator="cuda", precision="16-mixed")
    plain = rows_of(accelerator="cpu")
    assert rows[-1]["grad_2.0_norm_total"] == pytest.approx(
        plain[-1]["grad_2.0_norm_total"], rel=0.05
    )
