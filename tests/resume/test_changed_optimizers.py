"""Optimizers that hooks wrap, replace or give groups: resumed exactly, or refused as a whole."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import changing_optimizers
import pytest
import torch
from changing_optimizers import Wrapper
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module
from trainer_hooks.callbacks import BaseFinetuning
from trainer_hooks.errors import CheckpointError, OptimizationError

OURS = SimpleNamespace(
    Module=Module, Callback=Callback, BaseFinetuning=BaseFinetuning, OurCallback=Callback, more=[]
)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_drawn_plans_are_resumed_exactly(first, tmp_path) -> None:
    """Wherever they are cut, weights, states, rates, schedulers and losses are the same bits."""
    for seed in range(first, first + 10):
        changing_optimizers.check(seed, OURS, tmp_path)


def test_a_failing_plan_is_made_small() -> None:
    """Only what the failure needs stays of a plan."""
    plan = {**changing_optimizers.draw(3), "wraps": "opaque", "scheduler": "by step"}
    small = changing_optimizers.shrink(plan, lambda p: p["wraps"] == "opaque")
    simplest = {name: values[0] for name, values in changing_optimizers.SPACE.items()}
    assert {**small, "cuts": None} == {**simplest, "wraps": "opaque", "cuts": None}
    assert len(small["cuts"]) == 1


# --- refused ---


class Net(Module):
    def __init__(self, *, names=("first", "second"), later=None) -> None:
        super().__init__()
        for name in names:
            setattr(self, name, torch.nn.Linear(2, 2))
        self.names, self.later = names, later

    def training_step(self, batch, batch_idx):
        (x,) = batch
        for name in self.names:
            x = getattr(self, name)(x)
        return x.square().mean()

    def configure_optimizers(self):
        groups = [getattr(self, name).parameters() for name in self.names]
        made = groups if self.later is None else groups[: self.later]
        return torch.optim.Adam([{"params": list(group)} for group in made], 0.1)

    def on_train_epoch_start(self):
        if self.later is not None and self.trainer.current_epoch == 0:
            for name in self.names[self.later :]:
                parameters = list(getattr(self, name).parameters())
                self.trainer.optimizers[0].add_param_group({"params": parameters})


class Wraps(Callback):
    """Puts a wrapper in the optimizer's place."""

    is_opaque = True

    def on_fit_start(self, trainer, module):
        wrapped = [Wrapper(o, is_opaque=self.is_opaque) for o in trainer.optimizers]
        trainer.optimizers = wrapped


class Idle(Callback):
    """Has an `on_fit_start`, which might change optimizers."""

    def on_fit_start(self, trainer, module):
        pass


def rows() -> DataLoader:
    return DataLoader(TensorDataset(torch.arange(12.0).reshape(6, 2) / 12), batch_size=2)


@pytest.fixture
def saved(quiet_trainer, tmp_path):
    """A function that trains an epoch, and returns the path of its checkpoint."""

    def save(module, *callbacks):
        trainer = quiet_trainer(callbacks=list(callbacks), plugins=False)
        trainer.fit(module, rows())
        trainer.save_checkpoint(tmp_path / "x.ckpt")
        return tmp_path / "x.ckpt"

    return save


@pytest.fixture
def refuse(quiet_trainer):
    """A function that resumes, and returns the error's text; the run is as it was before."""

    def attempt(path, module, *callbacks, error=CheckpointError):
        trainer = quiet_trainer(callbacks=list(callbacks), plugins=False, max_epochs=2)
        before = copy.deepcopy(module.state_dict())
        with pytest.raises(error) as caught:
            trainer.fit(module, rows(), ckpt_path=path)
        for name, value in module.state_dict().items():
            assert torch.equal(before[name], value)
        assert trainer.progress == type(trainer.progress)()
        (optimizer,) = trainer.optimizers
        assert type(optimizer) is torch.optim.Adam
        assert not optimizer.state
        # the trainer is free for a run from the start
        trainer.callbacks.clear()
        trainer.fit(module, rows())
        assert trainer.progress.epochs_completed == 2
        return str(caught.value)

    return attempt


@pytest.mark.parametrize("callbacks", [(), (Idle,)], ids=["nobody", "somebody who may"])
def test_groups_that_nobody_adds(callbacks, saved, refuse) -> None:
    """Other groups are refused in the same words, whether or not a hook could have added them."""
    path = saved(Net())
    text = refuse(path, Net(later=1), *(kind() for kind in callbacks))
    assert (
        f"checkpoint '{path}' cannot be resumed from: Adam had parameter groups of [2, 2]" in text
    )
    assert "and has groups of [2] now: they must be the same to go on" in text


def test_another_class_where_a_hook_might_have_replaced_it(saved, refuse) -> None:
    """Another class is refused, too."""

    class Other(Net):
        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 0.1)

    path = saved(Other())
    text = refuse(path, Net(), Idle())
    assert "optimizer 0 was torch.optim.adamw.AdamW when it was saved, and is torch.optim" in text


def test_a_wrapper_that_is_gone(saved, refuse) -> None:
    """A state in a form of its own is not handed to an optimizer of torch."""
    text = refuse(saved(Net(), Wraps()), Net(), Idle())
    assert "Adam cannot load the saved state, a dict with the keys 'inner', 'count', 'slow'" in text
    assert "let it do so in on_fit_start of this run, too" in text


def test_a_wrapper_that_is_new(saved, refuse) -> None:
    """What a wrapper raises as it loads another's state is told, and nothing is half restored."""
    text = refuse(saved(Net()), Net(), Wraps())
    assert "optimizer 0, changing_optimizers.Wrapper, cannot load the saved state, a dict" in text
    assert "KeyError: 'inner'" in text


def test_a_parameter_of_an_added_group_is_gone(saved, refuse) -> None:
    """A group that cannot be added again is named."""

    class Renamed(Net):
        strict_loading = False

    path = saved(Net(later=1))
    text = refuse(path, Renamed(names=("first", "third"), later=1))
    assert "a hook had added a group of the parameters 'second.weight', 'second.bias'" in text
    assert "the module has no parameter 'second.weight'" in text


def test_an_error_in_a_hook_of_the_restore(saved, refuse) -> None:
    """So it is where a hook between the weights and the training raises an error."""

    class Fails(Callback):
        def on_fit_start(self, trainer, module):
            assert trainer.progress.epochs_completed == 1
            raise ZeroDivisionError("on purpose")

    assert "on purpose" in refuse(saved(Net()), Net(), Fails(), error=ZeroDivisionError)


def test_a_wrapper_without_groups_is_refused(quiet_trainer) -> None:
    """An object that is no optimizer is refused where it is set, with what it lacks."""

    class Bare:
        def step(self, closure=None):
            pass

        def zero_grad(self):
            pass

        def state_dict(self):
            return {}

    class Sets(Callback):
        def on_fit_start(self, trainer, module):
            trainer.optimizers = [Bare()]

    with pytest.raises(OptimizationError) as caught:
        quiet_trainer(callbacks=[Sets()]).fit(Net(), rows())
    assert "Bare, which has no load_state_dict, param_groups: a run needs step" in str(caught.value)


def test_a_refused_resume_of_a_trained_module(quiet_trainer, saved, tmp_path) -> None:
    """A trainer whose second fit is refused goes on as if there had been none."""
    path = saved(Net(), Wraps())

    def train(*, is_refused):
        torch.manual_seed(3)
        module, trainer = Net(later=1), quiet_trainer(callbacks=[Idle()], plugins=False)
        trainer.fit(module, rows())
        trainer.max_epochs = 3
        if is_refused:
            with pytest.raises(CheckpointError, match="cannot load the saved state"):
                trainer.fit(module, rows(), ckpt_path=path)
        trainer.fit(module, rows())
        weights = [value.clone() for value in module.state_dict().values()]
        return weights, trainer.progress, trainer.history.state_dict()

    refused, control = train(is_refused=True), train(is_refused=False)
    assert all(map(torch.equal, refused[0], control[0]))
    assert refused[1:] == control[1:]


def test_a_checkpoint_that_is_saved_before_they_are_restored(
    quiet_trainer, saved, tmp_path
) -> None:
    """Saved in `on_fit_start` of a resumed run, it holds the states that are to be restored."""
    path = saved(Net(), Wraps())

    class Saves(Callback):
        def on_fit_start(self, trainer, module):
            trainer.save_checkpoint(tmp_path / "again.ckpt")

    quiet_trainer(callbacks=[Saves(), Wraps()], plugins=False, max_epochs=2).fit(
        Net(), rows(), ckpt_path=path
    )
    before, again = (
        torch.load(file, weights_only=True)["optimizer_states"][0]
        for file in (path, tmp_path / "again.ckpt")
    )
    assert before["count"] == again["count"] == 3
    assert all(map(torch.equal, before["slow"], again["slow"]))


def test_back_to_a_checkpoint_from_before_a_group_was_added(quiet_trainer, tmp_path) -> None:
    """A second fit of a trainer goes back to fewer groups, and a hook adds them again."""

    class SavesFirst(Callback):
        def on_fit_start(self, trainer, module):
            if trainer.progress.is_fresh:
                trainer.save_checkpoint(tmp_path / "x.ckpt")

    torch.manual_seed(1)
    module, trainer = Net(later=1), quiet_trainer(callbacks=[SavesFirst()], plugins=False)
    trainer.fit(module, rows())
    once = [value.clone() for value in module.state_dict().values()]
    trainer.fit(module, rows(), ckpt_path=tmp_path / "x.ckpt")
    assert all(map(torch.equal, once, module.state_dict().values()))
    assert [len(group["params"]) for group in trainer.optimizers[0].param_groups] == [2, 2]
