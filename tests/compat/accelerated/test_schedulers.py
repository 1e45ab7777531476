"""The schedulers of pytorch-accelerated: the rates of home at each step, and after a resume."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch.utils.data import TensorDataset

from trainer_hooks.compat import accelerated
from trainer_hooks.compat.accelerated import schedulers
from trainer_hooks.compat.accelerated.callbacks import WSDCheckpointCallback
from trainer_hooks.compat.accelerated.schedulers.wsd_scheduler import estimate_checkpoint_steps
from trainer_hooks.errors import OptionError

COSINE = [
    {"total_num_epochs": 5, "num_update_steps_per_epoch": 4, **options}
    for options in (
        {}, {"num_warmup_epochs": 1}, {"num_warmup_epochs": 1, "num_cooldown_epochs": 1},
        {"k_decay": 2.0, "lr_min": 0.01}, {"min_lr_ratio": 0.2, "num_cooldown_epochs": 2},
        {"num_warmup_epochs": 2, "warmup_starting_lr_ratio": 0.5, "min_lr_ratio": 0.1},
        {"num_warmup_epochs": 2, "warmup_starting_lr": 0.05},
    )
]  # fmt: skip
WSD = [
    {"num_epochs": 10, "num_update_steps_per_epoch": 4}, {"total_steps": 40},
    {"total_steps": 400, "num_warmup_steps": None}, {"total_steps": 40, "num_warmup_steps": 10},
    {"total_steps": 40, "use_inverse_sqrt_decay": False, "decay_phase_ratio": 0.5, "lr_min": 0.1},
    {"total_steps": 80, "num_checkpoints": 3, "decay_phase_ratio": 0.3, "num_warmup_steps": 5},
    {"total_steps": 80, "num_checkpoints": 2, "lr_min": 0.1},
    {"total_steps": 40, "num_warmup_steps": 9, "is_continuation_from_checkpoint": True},
    {"total_steps": 80, "num_checkpoints": 4, "is_continuation_from_checkpoint": True},
]  # fmt: skip
CASES = [("CosineLrScheduler", case) for case in COSINE] + [("WSDLrScheduler", c) for c in WSD]


def make(package, name, options):
    """Return a scheduler of two groups."""
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.02)]
    optimizer = torch.optim.SGD(groups)
    return getattr(package, name)(optimizer, **options)


def rates(scheduler, steps):
    """Return the rates of the groups before the first of some steps, and after each."""
    found = [[group["lr"] for group in scheduler.optimizer.param_groups]]
    for _ in range(steps):
        scheduler.step()
        found.append([group["lr"] for group in scheduler.optimizer.param_groups])
    return found


@pytest.mark.parametrize(("name", "options"), CASES)
def test_each_rate_is_that_of_home(name, options):
    """To the last bit, and beyond the end."""
    home = pytest.importorskip("pytorch_accelerated.schedulers")
    steps = options.get("total_steps", 40) + 9
    there, here = make(home, name, options), make(schedulers, name, options)
    assert rates(here, steps) == rates(there, steps)
    for method in ("get_decay_info", "get_checkpoint_steps", "get_current_phase_info"):
        if name == "WSDLrScheduler":
            assert getattr(here, method)() == getattr(there, method)()


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("cut", [1, 17, 38])
def test_it_goes_on_from_its_state(name, options, cut):
    whole = rates(make(schedulers, name, options), 60)
    first, second = (make(schedulers, name, options) for _ in range(2))
    rates(first, cut)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert rates(second, 60 - cut)[1:] == whole[cut + 1 :]


def test_a_continuation_begins_anew_without_a_warmup():
    """With the decay of the shorter training, the steps of the longer one, and once alone."""
    short = make(
        schedulers, "WSDLrScheduler",
        {"total_steps": 20, "num_warmup_steps": 5, "decay_phase_ratio": 0.5},
    )  # fmt: skip
    rates(short, 15)
    options = {"total_steps": 40, "is_continuation_from_checkpoint": True}
    longer, again = (make(schedulers, "WSDLrScheduler", options) for _ in range(2))
    longer.load_state_dict(short.state_dict())
    assert (longer.get_current_step(), longer.get_checkpoint_steps()) == (-1, [40])
    found = rates(longer, 30)
    assert [row[0] for row in found[1:21]] == [0.1] * 20
    again.load_state_dict(longer.state_dict())
    assert (again.get_current_step(), found[-1][0] < 0.1) == (29, True)


class Rates(accelerated.TrainerCallback):
    def __init__(self):
        self.found = []

    def on_train_step_end(self, trainer, **kwargs):
        self.found.append([group["lr"] for group in trainer.optimizer.param_groups])


@pytest.mark.parametrize("name", ["CosineLrScheduler", "WSDLrScheduler"])
def test_the_run_s_own_numbers_are_filled_in(name, monkeypatch, tmp_path):
    """By `create_scheduler_fn`, with warmup in epochs; the scheduler steps after the optimizer."""
    monkeypatch.chdir(tmp_path)
    heard = Rates()
    scheduled = getattr(schedulers, name).create_scheduler_fn(num_warmup_epochs=1)
    model = torch.nn.Linear(4, 1)
    trainer = accelerated.Trainer(
        model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), 0.1),
        callbacks=[heard, *([WSDCheckpointCallback("decays")] if name[0] == "W" else [])],
    )  # fmt: skip
    data = TensorDataset(torch.rand(16, 4), torch.rand(16, 1))
    trainer.train(
        data, eval_dataset=data, num_epochs=5, per_device_batch_size=4,
        create_scheduler_fn=scheduled,
    )  # fmt: skip
    options = (
        {"total_num_epochs": 5, "num_update_steps_per_epoch": 4, "num_warmup_epochs": 1}
        if name == "CosineLrScheduler"
        else {"total_steps": 20, "num_warmup_steps": 4}
    )
    expected = [[row[0]] for row in rates(make(schedulers, name, options), 19)]
    assert heard.found == expected
    saved = sorted(path.name for path in tmp_path.glob("decays/*"))
    names = ["checkpoint_18_wsd_pre_decay.ckpt", "checkpoint_20_wsd_post_decay.ckpt"]
    assert saved == (sorted(names) if name == "WSDLrScheduler" else [])


@pytest.mark.parametrize(("total", "most"), list(itertools.product([7, 40, 81], [1, 2, 3, 5])))
def test_models_are_taken_at_the_steps_of_home(total, most):
    home = pytest.importorskip("pytorch_accelerated.schedulers.wsd_scheduler")
    assert estimate_checkpoint_steps(total, most) == home.estimate_checkpoint_steps(total, most)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "total_steps=None"), ({"total_steps": 0}, "total_steps=0"),
        ({"total_steps": 9, "num_epochs": 1, "num_update_steps_per_epoch": 2}, "left out"),
        ({"total_steps": 9, "decay_phase_ratio": 2.0}, "from 0 to 1"),
        ({"total_steps": 9, "decay_phase_ratio": 0.5, "num_checkpoints": 2}, "from 0 to 0.333"),
        ({"total_steps": 9, "num_checkpoints": 0}, "num_checkpoints=0"),
        ({"total_steps": 9, "lr_min": -1.0}, "lr_min=-1.0"),
        ({"total_steps": 9, "warmup_starting_lr": 1.0}, "the highest rate, 0.1"),
    ],
)  # fmt: skip
def test_an_argument_outside_its_rule_is_refused(options, word):
    with pytest.raises(OptionError, match=word):
        make(schedulers, "WSDLrScheduler", options)


def test_a_field_that_the_groups_lack_is_refused():
    class Momentum(schedulers.StatefulSchedulerBase):
        def get_updated_values(self, num_updates):
            return 0.5

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1, momentum=0.9)
    with pytest.raises(OptionError, match=r"'beta' of .*Momentum: group 0"):
        Momentum(optimizer, "beta")
    scheduler = Momentum(optimizer, "momentum")
    scheduler.step()
    assert optimizer.param_groups[0]["momentum"] == 0.5
    assert scheduler.base_lr_values == [0.9]
