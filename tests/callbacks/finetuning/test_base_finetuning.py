"""BaseFinetuning: what it freezes, groups, and finds again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainer_hooks import Callback
from trainer_hooks.callbacks import BaseFinetuning
from trainer_hooks.errors import CheckpointError, OptionError, TrainerHooksWarning


class Later(BaseFinetuning):
    """Trains the backbone from epoch 1 on."""

    def freeze_before_training(self, pl_module):
        self.freeze(pl_module.backbone)

    def finetune_function(self, pl_module, epoch, optimizer):
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.backbone[0], optimizer)


class Parent(nn.Module):
    """Has a parameter of its own, and children."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.norm = nn.BatchNorm1d(2)
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.Tanh())


def test_flatten_modules() -> None:
    """Leaves, and parents with parameters of their own, each once, of anything nested."""
    parent = Parent()
    expected = [parent, parent.norm, parent.inner[0], parent.inner[1]]
    assert BaseFinetuning.flatten_modules(parent) == expected
    assert BaseFinetuning.flatten_modules([[parent], parent.inner]) == expected
    both = nn.ModuleDict({"a": parent.norm, "b": parent.inner})
    assert BaseFinetuning.flatten_modules(both) == expected[1:]
    assert BaseFinetuning.flatten_modules(m for m in parent.inner) == expected[2:]


def test_freeze() -> None:
    """Everything is frozen, but BatchNorm only where it is asked for."""
    parent = Parent()
    BaseFinetuning.freeze(parent)
    trained = {name for name, p in parent.named_parameters() if p.requires_grad}
    assert trained == {"norm.weight", "norm.bias"}
    assert parent.norm.track_running_stats
    BaseFinetuning.freeze(parent, train_bn=False)
    assert not any(p.requires_grad for p in parent.parameters())
    assert not parent.norm.track_running_stats
    BaseFinetuning.make_trainable(parent)
    assert all(p.requires_grad for p in parent.parameters())
    assert parent.norm.track_running_stats


def test_freeze_module_is_of_one_alone() -> None:
    """A module's children are not frozen with it."""
    parent = Parent()
    BaseFinetuning.freeze_module(parent)
    assert not parent.scale.requires_grad
    assert parent.inner[0].weight.requires_grad


def test_filter_params() -> None:
    """By whether they are trained, and with or without BatchNorm."""
    parent = Parent()
    BaseFinetuning.freeze(parent.inner)
    frozen = list(BaseFinetuning.filter_params(parent, requires_grad=False))
    assert [p is q for p, q in zip(frozen, parent.inner[0].parameters(), strict=True)] == [True] * 2
    (scale,) = BaseFinetuning.filter_params(parent, train_bn=False)
    assert scale is parent.scale
    assert len(list(BaseFinetuning.filter_params(parent))) == 3


def test_filter_on_optimizer_goes_by_the_parameter_and_not_by_its_values() -> None:
    """Two parameters of equal values, as two biases of zeros are, are two."""
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([first], lr=0.1)
    (found,) = BaseFinetuning.filter_on_optimizer(optimizer, [second])
    assert found is second
    with pytest.warns(TrainerHooksWarning, match="1 of 2 parameters"):
        (found,) = BaseFinetuning.filter_on_optimizer(optimizer, [first, second])
    assert found is second


def test_the_new_group() -> None:
    """It has a learning rate of its own, or a share of the first group's."""
    parent = Parent()
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    BaseFinetuning.freeze(parent, train_bn=False)
    BaseFinetuning.unfreeze_and_add_param_group(parent.inner, optimizer)
    BaseFinetuning.unfreeze_and_add_param_group(parent.norm, optimizer, lr=0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.05, 0.25]
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 2, 2]
    assert parent.norm.track_running_stats
    assert not parent.scale.requires_grad


def test_batch_norm_that_is_not_trained_follows_its_statistics() -> None:
    """With train_bn=False no optimizer gets its parameters; its statistics move."""
    parent = Parent()
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    BaseFinetuning.freeze(parent, train_bn=False)
    BaseFinetuning.unfreeze_and_add_param_group(parent, optimizer, train_bn=False)
    assert parent.norm.weight.requires_grad
    assert parent.norm.track_running_stats
    assert len(optimizer.param_groups[1]["params"]) == 3


@pytest.mark.parametrize("arguments", [{"lr": -1.0}, {"lr": "0.1"}, {"initial_denom_lr": 0}])
def test_rates_that_make_no_sense(arguments) -> None:
    """They are refused by name."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    with pytest.raises(OptionError, match=next(iter(arguments))):
        BaseFinetuning.unfreeze_and_add_param_group(Parent(), optimizer, **arguments)


def test_both_methods_must_be_defined(quiet_trainer, split) -> None:
    """The error names the one that is not."""
    with pytest.raises(NotImplementedError, match=r"BaseFinetuning\.freeze_before_training"):
        quiet_trainer(callbacks=[BaseFinetuning()]).fit(split())


class Watch(Callback):
    """Notes at each epoch's end whether the backbone has moved, and the optimizer's groups."""

    def __init__(self) -> None:
        self.moved = []
        self.groups = []

    def on_train_epoch_start(self, trainer, module):
        self.before = module.backbone[0].weight.detach().clone()

    def on_train_epoch_end(self, trainer, module):
        self.moved.append(not torch.equal(self.before, module.backbone[0].weight))
        groups = trainer.optimizers[0].param_groups
        self.groups.append([len(group["params"]) for group in groups])


def test_it_trains_later(quiet_trainer, split) -> None:
    """What is frozen does not move before its epoch, and does from then on."""
    watch = Watch()
    quiet_trainer(callbacks=[Later(), watch], max_epochs=3).fit(split())
    assert watch.moved == [False, True, True]
    # layer's two and BatchNorm's two, which is trained from the start
    assert watch.groups == [[4], [4, 2], [4, 2]]


def test_a_module_that_builds_itself_late(quiet_trainer, split) -> None:
    """Layers that configure_model makes are frozen, and out of the optimizer, all the same."""

    class Late(split):
        def __init__(self) -> None:
            super().__init__()
            self.kept, self.backbone = self.backbone, None

        def configure_model(self):
            self.backbone = self.kept

    watch = Watch()
    quiet_trainer(callbacks=[Later(), watch], max_epochs=2).fit(Late())
    assert watch.moved == [False, True]


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_resume_goes_on_with_what_was_trained(epochs, quiet_trainer, split, tmp_path) -> None:
    """After the epoch of unfreezing, a resumed run trains the backbone and has its group."""
    whole, module = Watch(), split()
    quiet_trainer(callbacks=[Later(), whole], max_epochs=4).fit(module)
    trainer = quiet_trainer(callbacks=[Later()], max_epochs=epochs)
    trainer.fit(split())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    rest, resumed = Watch(), split()
    quiet_trainer(callbacks=[Later(), rest], max_epochs=4).fit(
        resumed, ckpt_path=tmp_path / "x.ckpt"
    )
    assert rest.moved == [True] * (4 - epochs)
    assert rest.groups == whole.groups[epochs:]
    assert torch.equal(resumed.backbone[0].weight, module.backbone[0].weight)


def test_a_second_fit_does_not_freeze_again(quiet_trainer, split) -> None:
    """A training that goes on in a second fit of the trainer goes on with all of it."""
    watch, module = Watch(), split()
    trainer = quiet_trainer(callbacks=[Later(), watch], max_epochs=2)
    trainer.fit(module)
    trainer.max_epochs = 3
    trainer.fit(module)
    assert watch.moved == [False, True, True]


def test_an_evaluation_freezes_nothing(quiet_trainer, split) -> None:
    """validate leaves the module as it is."""
    module = split()
    quiet_trainer(callbacks=[Later()]).validate(module, verbose=False)
    assert all(p.requires_grad for p in module.parameters())


def test_back_to_an_earlier_checkpoint(quiet_trainer, split, tmp_path) -> None:
    """The trainer that had gone on is put back to a checkpoint with fewer groups."""
    whole, module, watch = split(), split(), Watch()
    quiet_trainer(callbacks=[Later()], max_epochs=2).fit(whole)
    trainer = quiet_trainer(callbacks=[Later(), watch])
    trainer.fit(module)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    trainer.max_epochs = 2
    trainer.fit(module)
    trainer.fit(module, ckpt_path=tmp_path / "x.ckpt")
    assert watch.groups == [[4], [4, 2], [4, 2]]
    assert torch.equal(module.backbone[0].weight, whole.backbone[0].weight)


def test_a_checkpoint_of_another_module(quiet_trainer, split, tmp_path) -> None:
    """A group of parameters that the module does not have is told by their name."""
    trainer = quiet_trainer(callbacks=[Later()], max_epochs=2)
    trainer.fit(split())
    trainer.save_checkpoint(tmp_path / "x.ckpt")

    class Renamed(split):
        strict_loading = False  # or the weights are refused before

        def __init__(self) -> None:
            super().__init__()
            self.body = self.backbone[0]
            self.__dict__["backbone"] = nn.Sequential(self.body)
            del self._modules["backbone"]

    with pytest.raises(CheckpointError, match=r"parameter 'backbone\.0\.weight'"):
        quiet_trainer(callbacks=[Later()], max_epochs=3).fit(
            Renamed(), ckpt_path=tmp_path / "x.ckpt"
        )


def test_groups_and_flags_of_lightning(quiet_trainer, split, tmp_path) -> None:
    """Lightning's state names the groups alone: their parameters are trained."""
    trainer = quiet_trainer(callbacks=[Later()], max_epochs=2)
    trainer.fit(split())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    checkpoint = torch.load(tmp_path / "x.ckpt", weights_only=True)
    state = checkpoint["callbacks"]["Later"]
    assert [group["params"] for group in state["internal_optimizer_metadata"][0]] == [
        ["layer.weight", "layer.bias", "backbone.1.weight", "backbone.1.bias"],
        ["backbone.0.weight", "backbone.0.bias"],
    ]
    checkpoint["callbacks"]["Later"] = {
        "internal_optimizer_metadata": state["internal_optimizer_metadata"]
    }
    torch.save(checkpoint, tmp_path / "theirs.ckpt")
    watch = Watch()
    quiet_trainer(callbacks=[Later(), watch], max_epochs=3).fit(
        split(), ckpt_path=tmp_path / "theirs.ckpt"
    )
    assert watch.moved == [True]


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
        lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4),
    ],
    ids=["exponential", "cosine"],
)
def test_schedulers_drive_the_new_group_too(make, quiet_trainer, split) -> None:
    """A scheduler that was made before the group steps on with it."""

    class Scheduled(split):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            return [optimizer], [make(optimizer)]

    trainer = quiet_trainer(callbacks=[Later()], max_epochs=3)
    trainer.fit(Scheduled())
    first, second = trainer.optimizers[0].param_groups
    assert first["lr"] < 0.5
    assert second["lr"] < 0.05
