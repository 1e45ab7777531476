"""Optimizers that hooks wrap, replace or give groups: resumed exactly, or refused as a whole."""

from __future__ import annotations

import copy
import gc
from types import SimpleNamespace

import changing_optimizers
import pytest
import torch
from changing_optimizers import Wrapper
from samples import one_in
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, DataModule, Module, Trainer
from trainer_hooks.callbacks import BaseFinetuning, ModelSummary
from trainer_hooks.errors import CheckpointError, OptimizationError

OURS = SimpleNamespace(
    Module=Module,
    Callback=Callback,
    BaseFinetuning=BaseFinetuning,
    OurCallback=Callback,
    Trainer=Trainer,
    more=[],
)


@pytest.mark.slow
@pytest.mark.parametrize("first", one_in(2, range(0, 40, 10)))
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
            if trainer.progress.is_new_training:
                trainer.save_checkpoint(tmp_path / "x.ckpt")

    torch.manual_seed(1)
    module, trainer = Net(later=1), quiet_trainer(callbacks=[SavesFirst()], plugins=False)
    trainer.fit(module, rows())
    once = [value.clone() for value in module.state_dict().values()]
    trainer.fit(module, rows(), ckpt_path=tmp_path / "x.ckpt")
    assert all(map(torch.equal, once, module.state_dict().values()))
    assert [len(group["params"]) for group in trainer.optimizers[0].param_groups] == [2, 2]


class Counts(Callback):
    """Counts fits; its state outlives a resume that is refused."""

    fits = 0

    def on_train_start(self, trainer, module):
        self.fits += 1

    def state_dict(self):
        return {"fits": self.fits}

    def load_state_dict(self, state_dict):
        self.fits = state_dict["fits"]


class Data(DataModule):
    """Has a state."""

    def train_dataloader(self):
        return rows()

    def state_dict(self):
        return {"rows": 6}


def notes_of_refusal(trainer, module, data, path) -> str:
    with pytest.raises(CheckpointError) as caught:
        trainer.fit(module, data, ckpt_path=path)
    return "".join(getattr(caught.value, "__notes__", []))


def test_a_refusal_names_the_parts_that_keep_a_state(quiet_trainer, saved, tmp_path) -> None:
    """Where a hook may change optimizers, the states of others are loaded before the refusal."""
    callback = Counts()
    trainer = quiet_trainer(callbacks=[callback], plugins=False)
    trainer.fit(Net(), Data())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    again = quiet_trainer(callbacks=[Counts(), Idle()], plugins=False, max_epochs=2)
    notes = notes_of_refusal(again, Net(later=1), Data(), tmp_path / "x.ckpt")
    assert again.callbacks[0].fits == 1
    assert (
        f"the resume from '{tmp_path / 'x.ckpt'}' failed, and the data module and the callbacks "
        "may have taken states from it: make new ones before another fit." in notes
    )


def test_a_refusal_before_any_state_is_loaded(quiet_trainer, tmp_path) -> None:
    """Where no hook may change optimizers, nothing is loaded, and nothing has to be made anew."""
    trainer = quiet_trainer(callbacks=[Counts()], plugins=False)
    trainer.fit(Net(), rows())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    again = quiet_trainer(callbacks=[Counts()], plugins=False, max_epochs=2)
    assert "taken states" not in notes_of_refusal(again, Net(later=1), rows(), tmp_path / "x.ckpt")
    assert again.callbacks[0].fits == 0


class Large(Module):
    """Counts the tensors of its weight's size that are there as its optimizer is restored."""

    SIZE = 12_347

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(self.SIZE))
        self.copies: list[int] = []

    def training_step(self, batch, batch_idx):
        return self.weight.mean() * batch[0].mean()

    def count(self) -> int:
        gc.collect()
        large = [x for x in gc.get_objects() if type(x) in (torch.Tensor, torch.nn.Parameter)]
        return len({x.data_ptr() for x in large if x.numel() == self.SIZE})

    def configure_optimizers(self):
        module = self

        class Counting(torch.optim.SGD):
            def load_state_dict(self, state_dict):
                module.copies.append(module.count())
                super().load_state_dict(state_dict)

        return Counting(self.parameters(), 0.1)

    def on_train_start(self):
        self.copies.append(self.count())


class OwnSummary(ModelSummary):
    """Does not inherit what the built-in callback declares of its hook."""

    def on_fit_start(self, trainer, module):
        super().on_fit_start(trainer, module)


@pytest.mark.slow
@pytest.mark.parametrize(("callback", "most"), [(ModelSummary, 2), (Idle, 3), (OwnSummary, 3)])
def test_the_weights_are_copied_only_for_a_refusal(quiet_trainer, tmp_path, callback, most) -> None:
    """Besides the module and the file's content, there is one only where hooks may refuse later."""
    gc.freeze()  # what other tests made, of which `Large.count` would look at each object
    trainer = quiet_trainer(plugins=False)
    trainer.fit(Large(), rows())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    del trainer
    module = Large()
    options = {"callbacks": [callback()], "enable_model_summary": None}
    again = quiet_trainer(**options, plugins=False, max_epochs=2)
    again.fit(module, rows(), ckpt_path=tmp_path / "x.ckpt")
    assert module.copies[0] == most
    assert module.copies[-1] == 2


def rates_after_a_resume(framework, folder) -> tuple[list[float], float]:
    """Return the rates at each batch of a resumed run, whose callback sets one in on_fit_start."""
    trainers = {"trainer_hooks": OURS.Trainer, "lightning": None}
    Trainer, Base, Hooks = trainers[framework], OURS.Module, OURS.Callback
    if framework == "lightning":
        pl = pytest.importorskip("pytorch_lightning")
        Trainer, Base, Hooks = pl.Trainer, pl.LightningModule, pl.Callback

    class Decaying(Base):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), 0.1)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            return [optimizer], [schedule]

    class Sets(Hooks):
        def __init__(self):
            self.rates = []

        def on_fit_start(self, trainer, pl_module):
            for group in trainer.optimizers[0].param_groups:
                group["lr"] = 0.8

        def on_train_batch_start(self, trainer, *_):
            self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    def fit(epochs, **options):
        sets = Sets()
        trainer = Trainer(
            callbacks=[sets], max_epochs=epochs, accelerator="cpu", logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Decaying(), rows(), **options)
        trainer.save_checkpoint(folder / "x.ckpt")
        return sets.rates

    uncut = fit(3)
    fit(2)
    return uncut[6:], fit(3, ckpt_path=folder / "x.ckpt")


@pytest.mark.parametrize("framework", ["trainer_hooks", "lightning"])
@pytest.mark.filterwarnings("ignore:::pytorch_lightning")
def test_a_rate_that_a_hook_sets_before_the_training(framework, tmp_path) -> None:
    """In a resume the checkpoint's counts, as in Lightning: the uncut run had gone on from it."""
    uncut, resumed = rates_after_a_resume(framework, tmp_path)
    assert uncut == resumed == [0.8 * 0.5**2] * 3


def test_a_group_that_is_added_at_each_start(quiet_trainer, tmp_path) -> None:
    """A group that `on_train_start` adds always is there already, and the error says so."""

    class Adds(Net):
        def on_train_epoch_start(self):
            pass

        def on_train_start(self):
            if self.trainer.current_epoch == 0 or not self.is_careful:
                self.trainer.optimizers[0].add_param_group({"params": self.second.parameters()})

    def fit(*, is_careful, **options):
        module = Adds(later=1)
        module.is_careful = is_careful
        trainer = quiet_trainer(plugins=False, **options)
        return module, trainer

    module, trainer = fit(is_careful=True)
    trainer.fit(module, rows())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    module, trainer = fit(is_careful=False, max_epochs=2)
    with pytest.raises(ValueError, match="more than one parameter group") as caught:
        trainer.fit(module, rows(), ckpt_path=tmp_path / "x.ckpt")
    notes = "\n".join(caught.value.__notes__)
    assert "the resume has added the group again that a hook had added before" in notes
    assert "only if trainer.progress.is_new_training" in notes
    module, trainer = fit(is_careful=True, max_epochs=2)
    trainer.fit(module, rows(), ckpt_path=tmp_path / "x.ckpt")
    assert [len(group["params"]) for group in trainer.optimizers[0].param_groups] == [2, 2]
