from __future__ import annotations

import pytest
import torch

from trainer_hooks.compat.composer.callbacks import MemoryMonitor, memory_monitor
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.testing import TinyModule

STATS = {
    "active_bytes.all.current": 1_234_567_890,
    "active_bytes.all.peak": 2_000_000_000,
    "allocated_bytes.all.current": 1_234_512_345,
    "allocated_bytes.all.peak": 1_999_995_001,
    "allocation.all.current": 41,
    "inactive_split_bytes.all.current": 0,
    "inactive_split_bytes.all.peak": 512,
    "num_alloc_retries": 3,
    "num_ooms": 1,
    "reserved_bytes.all.current": 2_097_152,
    "reserved_bytes.all.peak": 85_899_345_920,
}
LOGGED = {
    "memory/current_allocated_mem": 1.2345,
    "memory/current_active_mem": 1.2346,
    "memory/current_inactive_mem": 0.0,
    "memory/current_reserved_mem": 0.0020972,
    "memory/peak_allocated_mem": 2.0,
    "memory/peak_active_mem": 2.0,
    "memory/peak_inactive_mem": 5.12e-07,
    "memory/peak_reserved_mem": 85.899,
    "memory/alloc_retries": 3,
}


def of(logger):
    """Return (step, metrics about memory) wherever there are some."""
    found = [(s, {n: v for n, v in m.items() if n.startswith("memory/")}) for s, m in logger.seen]
    return [(step, metrics) for step, metrics in found if metrics]


@pytest.fixture
def watch(bare, monkeypatch, MemoryLogger):
    """Fit six steps under a monitor where the allocator says STATS; return what was logged."""
    monkeypatch.setattr(memory_monitor, "is_allocator_readable", lambda *args, **options: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: STATS)

    def run(module=None, *, ckpt_path=None, callbacks=(), trainer=None, **options):
        logger = MemoryLogger()
        defaults = {"logger": logger, "log_every_n_steps": 2, "max_epochs": 2}
        made = bare(MemoryMonitor(**options), *callbacks, **{**defaults, **(trainer or {})})
        made.fit(module or TinyModule(), ckpt_path=ckpt_path)
        return of(logger)

    return run


def test_exactly_composers_names_are_logged(watch):
    """Where metrics are due, the nine names of Composer hold gigabytes of five digits."""
    assert watch() == [(1, LOGGED), (3, LOGGED), (5, LOGGED)]


def test_own_names(watch):
    """Other statistics can be chosen and named: of bytes gigabytes, of counts counts."""
    keys = {"num_ooms": "ooms", "allocated_bytes.all.peak": "top", "allocation.all.current": "n"}
    found = watch(memory_keys=keys)
    assert found[0] == (1, {"memory/ooms": 1, "memory/top": 2.0, "memory/n": 41})


def test_an_unknown_statistic_is_named(watch):
    """A statistic that torch does not have is an error that says which is near."""
    message = r"memory_keys 'num_oom' of MemoryMonitor: .* Did you mean 'num_ooms'\?"
    with pytest.raises(OptionError, match=message):
        watch(memory_keys={"num_oom": "x"})


@pytest.mark.parametrize("interval", [3, "3st", "3ba"])
def test_over_processes(watch, interval):
    """At an interval of its own each value is logged as mean, least and most; alone all equal."""
    found = watch(memory_keys={"num_ooms": "ooms"}, dist_aggregate_batch_interval=interval)
    over = {f"memory/ooms_{kind}": 1 for kind in ("avg", "min", "max")}
    own = {"memory/ooms": 1}
    assert found == [(1, own), (3, {**own, **over}), (5, own)]


def test_the_interval_goes_on_after_a_resume(watch, tmp_path):
    """A run that is cut right before the interval is over logs at it as the uncut one does."""
    options = {"memory_keys": {"num_ooms": "ooms"}, "dist_aggregate_batch_interval": 3}
    trainer = {"enable_checkpointing": True, "log_every_n_steps": 50}
    watch(trainer={**trainer, "max_epochs": 1}, **options)
    (path,) = tmp_path.rglob("*.ckpt")
    found = watch(trainer=trainer, ckpt_path=path, **options)
    assert [step for step, _ in found] == [3]


class ByHand(TinyModule):
    """Steps by itself, a number of times in each batch."""

    def __init__(self, num_steps):
        super().__init__()
        self.automatic_optimization = False
        self.num_steps = num_steps

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        for _ in range(self.num_steps):
            optimizer.zero_grad()
            self.manual_backward(self.loss(self(batch), batch))
            optimizer.step()


@pytest.mark.parametrize("num_steps", [0, 1, 2])
def test_a_module_that_steps_by_itself(watch, num_steps):
    """Each batch counts once, however often the module steps in it."""
    found = watch(ByHand(num_steps), trainer={"limit_val_batches": 0})
    assert found == [(1, LOGGED), (3, LOGGED), (5, LOGGED)]


class Searching(TinyModule):
    """Computes the gradients of a step several times."""

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), max_iter=3)


def test_an_optimizer_that_asks_several_times(watch):
    """A step is logged once, however often its gradients are computed."""
    assert [step for step, _ in watch(Searching())] == [1, 3, 5]


def test_without_cuda_it_warns_once(bare, MemoryLogger):
    """On the CPU there is one warning, that says what to do, and nothing is logged."""
    logger = MemoryLogger()
    trainer = bare(MemoryMonitor(), logger=logger, log_every_n_steps=1)
    message = r"MemoryMonitor does nothing: it needs a CUDA device, and the run is on 'cpu'\. Pass"
    with pytest.warns(TrainerHooksWarning, match=message):
        trainer.fit(TinyModule())
    trainer.fit(TinyModule())  # another warning would be an error
    assert of(logger) == []


@pytest.mark.parametrize(
    ("count", "gigabytes"),
    [(0, 0.0), (1, 1e-9), (123_456_789, 0.12346), (99_999_600_000, 100.0), (-512, -5.12e-07)],
)
def test_gigabytes_have_five_digits(count, gigabytes):
    """Bytes become gigabytes of five significant digits, whatever their size."""
    found = MemoryMonitor({"x_bytes.all.current": "x"})._named_statistics(
        {"x_bytes.all.current": count}
    )
    assert found == {"x": gigabytes}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device(bare, MemoryLogger):
    """On a CUDA device every default name is there, and the numbers are those of torch."""
    logger = MemoryLogger()
    monitor = MemoryMonitor(dist_aggregate_batch_interval=1)
    options = {"logger": logger, "log_every_n_steps": 1, "accelerator": "cuda", "devices": 1}
    bare(monitor, **options).fit(TinyModule())
    metrics = of(logger)[-1][1]
    assert set(LOGGED) <= set(metrics)
    assert 0 < metrics["memory/current_allocated_mem"] <= metrics["memory/peak_allocated_mem"]
    most = torch.cuda.max_memory_allocated() / 1e9
    assert metrics["memory/peak_allocated_mem"] <= most * 1.0001
