"""The helpers of pytorch-accelerated, as they are at home."""

from __future__ import annotations

import os

import pytest
import torch
from torch.utils.data import TensorDataset

from trainer_hooks.compat import accelerated
from trainer_hooks.compat.accelerated import utils
from trainer_hooks.errors import OptionError

ROWS = TensorDataset(torch.arange(48.0).reshape(12, 4) / 48, torch.arange(12.0)[:, None] / 12)


@pytest.fixture
def home():
    return pytest.importorskip("pytorch_accelerated.utils")


def averages(package):
    """Return the average of a model after each update, and after it was set."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    average, found = package.ModelEma(model, decay=0.8), []
    for number in range(4):
        model(torch.randn(5, 4)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        (average.set if number == 2 else average.update)(model)
        found.append({name: value.clone() for name, value in average.state_dict().items()})
    return found, average.module.training, [p.requires_grad for p in average.parameters()]


def test_an_average_is_that_of_home(home) -> None:
    """Each update gives the same weights and buffers, bit for bit, under the same names."""
    (there, *modes), (here, *ours) = averages(home), averages(utils)
    assert modes == ours
    for expected, found in zip(there, here, strict=True):
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert not torch.equal(here[0]["module.0.weight"], here[1]["module.0.weight"])


@pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 2, 3)])
def test_padding_is_removed_as_at_home(home, shape) -> None:
    """Rows of padding alone go; a row that holds some padding stays."""
    rows = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    rows[1] = rows[4] = -1
    rows.view(-1)[0] = -1
    assert torch.equal(home.remove_padding(rows, -1), utils.remove_padding(rows, -1))
    assert len(utils.remove_padding(rows, -1)) < 6


def steps_in(package, trainer_class, limit) -> int:
    model, calls = torch.nn.Linear(4, 1), []

    class Counts(trainer_class):
        def calculate_train_batch_loss(self, batch):
            calls.append(len(batch[0]))
            return super().calculate_train_batch_loss(batch)

    with package.LimitBatches(limit) as context:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        trainer = Counts(model, torch.nn.MSELoss(), optimizer, callbacks=[])
    assert context.num_batches == limit
    trainer.train(
        ROWS, num_epochs=2, per_device_batch_size=2, train_dataloader_kwargs={"num_workers": 0}
    )
    return len(calls)


def test_batches_are_limited_in_the_context(home, monkeypatch) -> None:
    """A Trainer that is made in the context, or under its variable, trains on fewer batches."""
    from pytorch_accelerated import Trainer

    assert steps_in(home, Trainer, 2) == steps_in(utils, accelerated.Trainer, 2) == 4
    made = accelerated.Trainer(torch.nn.Linear(1, 1), None, None, callbacks=[])
    assert [type(callback).__name__ for callback in made.callbacks].count(
        "LimitBatchesCallback"
    ) == 0
    monkeypatch.setenv(utils.LIMIT_BATCHES_ENV_VAR, "None")
    accelerated.Trainer(torch.nn.Linear(1, 1), None, None, callbacks=[])
    for package in (home, utils):
        monkeypatch.setenv(utils.LIMIT_BATCHES_ENV_VAR, "3")
        with package.LimitBatches(2):
            pass
        assert utils.LIMIT_BATCHES_ENV_VAR not in os.environ


@pytest.mark.parametrize("limit", ["many", "0", "1.5", ""])
def test_a_limit_in_the_environment_that_is_no_number_is_refused(limit, monkeypatch) -> None:
    """The message names the variable, its value and the rule."""
    monkeypatch.setenv(utils.LIMIT_BATCHES_ENV_VAR, limit)
    message = f"^PT_ACC_LIMIT_BATCHES={limit!r} in the environment: it must be a whole number"
    with pytest.raises(OptionError, match=message):
        accelerated.Trainer(torch.nn.Linear(1, 1), None, None, callbacks=[])


def test_a_slice_of_a_loader_has_its_length() -> None:
    """It gives the first batches, each time anew."""
    part = utils.DataLoaderSlice([1, 2, 3, 4], 3)
    assert (list(part), list(part), len(part)) == ([1, 2, 3], [1, 2, 3], 3)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("world_process_zero_only", None),
        ("local_process_zero_only", None),
        ("local_process_zero_first", 5),
    ],
)
def test_a_decorated_function_runs_on_its_ranks(monkeypatch, name, others) -> None:
    """Alone it runs; on another rank it gives None, or runs after the first one's barrier."""
    calls = []

    @getattr(utils, name)
    def add(first, second=0):
        calls.append("run")
        return first + second

    assert add(2, second=3) == 5
    assert calls == ["run"]
    assert add.__name__ == "add"
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    monkeypatch.setattr("torch.distributed.barrier", lambda: calls.append("barrier"))
    calls.clear()
    assert add(2, second=3) == others
    assert calls == ["barrier", *(["run"] if others else [])]


def test_a_worker_gets_a_seed_of_its_own() -> None:
    """The numbers differ from call to call, and not by the worker's number alone."""
    before = torch.random.get_rng_state()
    try:
        assert utils.worker_init_fn(1) - utils.worker_init_fn(1) != 0
    finally:
        torch.random.set_rng_state(before)


def test_a_tracker_has_the_mean_of_home(home) -> None:
    """After each update and after a reset, its numbers are those of pytorch-accelerated's."""
    from pytorch_accelerated.tracking import LossTracker

    from trainer_hooks.compat.accelerated import tracking

    found = []
    for made in (LossTracker(), tracking.LossTracker()):
        rows = [made.average]
        for loss, size in ((0.5, 4), (0.25, 2), (3.0, 1)):
            made.update(loss, size)
            rows += [made.average, made.loss_value, made.total_loss, made.running_count]
        made.reset()
        found.append([*rows, made.average, made.running_count])
    assert found[0] == found[1]
    assert len({*found[0]}) > 5
