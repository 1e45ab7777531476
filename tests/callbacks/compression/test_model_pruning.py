"""ModelPruning in runs."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from trainer_hooks import Band, Callback, Module
from trainer_hooks.callbacks import ModelCheckpoint, ModelPruning, WeightAveraging
from trainer_hooks.errors import CallbackError, OptionError
from trainer_hooks.testing import TinyModule

L1 = "l1_unstructured"
STRUCTURED = {"use_global_unstructured": False}


class Wide(TinyModule):
    """A tiny module with eight weights in each of two layers, and a buffer named as a mask is."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 4)
        self.last = nn.Linear(4, 2)
        self.register_buffer("causal_mask", torch.ones(2))
        with torch.no_grad():
            for seed, parameter in enumerate(self.parameters(), start=1):
                values = torch.arange(1.0, parameter.numel() + 1) * seed
                parameter.copy_(values.sin().reshape(parameter.shape))

    def forward(self, batch):
        return self.last(self.first(batch[0]).tanh()) + 0 * self.layer(batch[0])


def zeros(module, *names) -> list[int]:
    return [int((module.get_parameter(name) == 0).sum()) for name in names]


WEIGHTS = {"parameter_names": ["weight"], "use_lottery_ticket_hypothesis": False}


def test_the_share_is_of_all_together(quiet_trainer) -> None:
    """A global method ranks all parameters together; afterwards the module is a plain one."""
    module, pruning = Wide(), ModelPruning(L1, amount=0.5, **WEIGHTS)
    quiet_trainer(callbacks=[pruning]).fit(module)
    assert sum(zeros(module, "layer.weight", "first.weight", "last.weight")) == 10
    assert not prune.is_pruned(module)
    assert set(dict(module.named_parameters())) == set(dict(Wide().named_parameters()))


class Falling(Module):
    """One layer of three weights, of which each step takes 0.2 from the second."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1, bias=False)
        self.layer.weight.data = torch.tensor([[1.0, 1.3, 0.0]])

    def training_step(self, batch, batch_idx):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2)


FALLS = [torch.tensor([[0.0, 1.0, 0.0]])]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (L1, {}),
        (L1, STRUCTURED),
        ("ln_structured", {"pruning_dim": 1, "pruning_norm": 1, **STRUCTURED}),
    ],
)
def test_the_weights_of_now_are_ranked(method, options, quiet_trainer) -> None:
    """What the last step made the smallest is pruned, in the first pruning and in a later one."""
    module = Falling()
    pruning = ModelPruning(method, amount=1, **WEIGHTS, **options)
    quiet_trainer(callbacks=[pruning], max_epochs=2).fit(module, FALLS)
    # after the first epoch [1, 1.1, 0], after the second [1, 0.9, 0]
    assert module.layer.weight.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.slow
def test_a_resume_at_the_last_batch_ranks_the_weights_that_were_saved(
    quiet_trainer, tmp_path
) -> None:
    """Between the epoch's last batch and its pruning nothing is computed, and nothing is lost."""

    class Save(Callback):
        band = Band.SAVE

        def on_batch_checkpoint(self, trainer, module):
            trainer.save_checkpoint(tmp_path / f"{trainer.progress.batches_completed}.ckpt")

    def make():
        return ModelPruning(L1, amount=1, **WEIGHTS)

    whole, resumed = Falling(), Falling()
    resumed.layer.weight.data = torch.tensor([[0.1, 5.0, 7.0]])
    quiet_trainer(callbacks=[make(), Save()], max_epochs=2).fit(whole, FALLS)
    quiet_trainer(callbacks=[make()], max_epochs=2).fit(
        resumed, FALLS, ckpt_path=tmp_path / "2.ckpt"
    )
    assert resumed.layer.weight.tolist() == whole.layer.weight.tolist() == [[1.0, 0.0, 0.0]]


def test_each_on_its_own(quiet_trainer) -> None:
    """Without ranking all together, each parameter loses its share."""
    module = Wide()
    pruning = ModelPruning(L1, amount=0.5, use_global_unstructured=False, **WEIGHTS)
    quiet_trainer(callbacks=[pruning]).fit(module)
    assert zeros(module, "layer.weight", "first.weight", "last.weight") == [2, 4, 4]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("random_unstructured", {}),
        (prune.RandomUnstructured, {}),
        ("random_structured", {"pruning_dim": 0, **STRUCTURED}),
        ("LN_structured", {"pruning_dim": 1, "pruning_norm": 2, **STRUCTURED}),
    ],
)
def test_all_methods(method, options, quiet_trainer) -> None:
    """Every method of torch takes its share of what it prunes."""
    module = Wide()
    arguments = {**WEIGHTS, **options, "parameters_to_prune": [(module.first, "weight")]}
    torch.manual_seed(0)
    quiet_trainer(callbacks=[ModelPruning(method, amount=0.5, **arguments)]).fit(module)
    assert zeros(module, "first.weight", "last.weight") == [4, 0]
    if "pruning_dim" in options:
        whole = (module.first.weight == 0).all(dim=1 - options["pruning_dim"])
        assert int(whole.sum()) == {0: 2, 1: 1}[options["pruning_dim"]]


def test_biases_are_left_out_of_structured_methods(quiet_trainer) -> None:
    """By default a structured method prunes what has slices."""
    pruning = ModelPruning("random_structured", amount=1, pruning_dim=0, **STRUCTURED)
    quiet_trainer(callbacks=[pruning]).fit(Wide())
    assert {name for _, name in pruning.parameters_to_prune} == {"weight"}


def test_a_number_takes_no_more_than_is_left(quiet_trainer) -> None:
    """A number of weights at each epoch ends with all of them pruned, and not in an error."""
    module, seen = Wide(), []

    class Look(Callback):
        def on_epoch_checkpoint(self, trainer, module):
            seen.append(pruning.sparsity)

    pruning = ModelPruning(L1, [(module.first, "weight")], amount=3, **WEIGHTS)
    quiet_trainer(callbacks=[pruning, Look()], max_epochs=4).fit(module)
    assert seen == [3 / 8, 6 / 8, 1.0, 1.0]


def test_functions_of_the_epoch(quiet_trainer) -> None:
    """amount, apply_pruning and the lottery ticket may be decided anew each epoch."""
    asked = {"amount": [], "apply": [], "lottery": []}

    def note(what, value):
        return lambda epoch: (asked[what].append(epoch), value(epoch))[1]

    pruning = ModelPruning(
        L1,
        amount=note("amount", lambda epoch: 0.0 if epoch == 1 else 0.5),
        apply_pruning=note("apply", lambda epoch: epoch > 0),
        use_lottery_ticket_hypothesis=note("lottery", lambda epoch: False),
    )
    quiet_trainer(callbacks=[pruning], max_epochs=3).fit(Wide())
    assert asked == {"amount": [1, 2], "apply": [0, 1, 2], "lottery": [2]}
    broken = ModelPruning(L1, amount=lambda epoch: 2.0)
    with pytest.raises(OptionError, match=r"amount 2\.0 of ModelPruning in epoch 0"):
        quiet_trainer(callbacks=[broken]).fit(Wide())


def test_the_lottery_ticket(quiet_trainer) -> None:
    """What is left after pruning has the values of before the training."""
    module, first = Wide(), Wide()
    pruning = ModelPruning(L1, amount=0.5, parameter_names=["weight"])
    quiet_trainer(callbacks=[pruning], max_epochs=2).fit(module)
    for name in ("first.weight", "last.weight"):
        value, start = module.get_parameter(name), first.get_parameter(name)
        assert torch.equal(value, start * (value != 0))
    assert not torch.equal(module.first.bias, first.first.bias)


def test_resampled(quiet_trainer) -> None:
    """With resample_parameters they are new values, of the layer's own making."""
    module, first = Wide(), Wide()
    torch.manual_seed(3)
    pruning = ModelPruning(
        L1, [(module.first, "weight"), (module.first, "bias")], amount=0.25,
        resample_parameters=True,
    )  # fmt: skip
    quiet_trainer(callbacks=[pruning]).fit(module)
    torch.manual_seed(3)
    drawn = nn.Linear(2, 4)
    for name in ("weight", "bias"):
        value = module.get_parameter(f"first.{name}")
        assert torch.equal(value, drawn.get_parameter(name) * (value != 0))
    assert not torch.equal(module.first.weight, first.first.weight)


def test_a_checkpoint_is_of_a_plain_module(quiet_trainer, tmp_path) -> None:
    """Masks are resolved in what is saved, and nothing else is changed, whatever it is called."""
    saver = ModelCheckpoint(dirpath=tmp_path, save_last=True)
    trainer = quiet_trainer(
        callbacks=[ModelPruning(L1, amount=0.5, **WEIGHTS), saver],
        enable_checkpointing=True,
        max_epochs=2,
    )
    trainer.fit(Wide())
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    assert set(saved) == set(Wide().state_dict())
    plain = Wide.load_from_checkpoint(tmp_path / "last.ckpt")
    assert sum(zeros(plain, "layer.weight", "first.weight", "last.weight")) == 15
    assert plain.causal_mask.tolist() == [1.0, 1.0]


def test_masks_may_be_kept(quiet_trainer, tmp_path) -> None:
    """Without make_pruning_permanent they stay in the module and in the checkpoint, which loads."""
    module = Wide()
    options = {**WEIGHTS, "make_pruning_permanent": False}
    trainer = quiet_trainer(callbacks=[ModelPruning(L1, amount=0.5, **options)])
    trainer.fit(module)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    assert prune.is_pruned(module)
    saved = torch.load(tmp_path / "x.ckpt", weights_only=True)["state_dict"]
    assert {"first.weight_orig", "first.weight_mask"} <= set(saved)
    (expected,) = trainer.validate(module, verbose=False)
    other = quiet_trainer(callbacks=[ModelPruning(L1, **options)])
    assert other.validate(Wide(), ckpt_path=tmp_path / "x.ckpt", verbose=False) == [expected]


@pytest.mark.parametrize("is_permanent", [True, False])
def test_what_is_pruned_stays_so_after_a_resume(is_permanent, quiet_trainer, tmp_path) -> None:
    """A resumed training goes on with its masks: between two prunings nothing grows back."""
    options = {**WEIGHTS, "make_pruning_permanent": is_permanent}

    class Save(Callback):
        def on_epoch_checkpoint(self, trainer, module):
            trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}.ckpt")

    def make():
        return ModelPruning(L1, amount=0.25, apply_pruning=lambda epoch: epoch == 0, **options)

    whole = Wide()
    quiet_trainer(callbacks=[make(), Save()], max_epochs=3).fit(whole)
    resumed, pruning = Wide(), make()
    quiet_trainer(callbacks=[pruning], max_epochs=3).fit(resumed, ckpt_path=tmp_path / "0.ckpt")
    names = ("layer.weight", "first.weight", "last.weight")
    if is_permanent:
        assert sum(zeros(resumed, *names)) == 5
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_at_the_end_of_validations(quiet_trainer) -> None:
    """It prunes after the validations of fit instead, and of fit alone."""
    module, seen = Wide(), []

    class Look(Callback):
        def on_train_epoch_end(self, trainer, module):
            seen.append(pruning.sparsity)

    options = {**WEIGHTS, "make_pruning_permanent": False}
    pruning = ModelPruning(L1, amount=0.5, prune_on_train_epoch_end=False, **options)
    trainer = quiet_trainer(callbacks=[Look(), pruning], num_sanity_val_steps=1)
    trainer.fit(module)
    assert seen == [0.5]
    trainer.validate(module, verbose=False)
    assert pruning.sparsity == 0.5


def test_the_report(quiet_trainer, caplog) -> None:
    """Verbose 1 tells the sparsity, 2 that of each parameter too."""
    module = Wide()
    arguments = {**WEIGHTS, "parameters_to_prune": [(module.first, "weight")]}
    with caplog.at_level(logging.INFO, "trainer_hooks"):
        quiet_trainer(callbacks=[ModelPruning(L1, amount=0.25, verbose=2, **arguments)]).fit(module)
    assert "l1_unstructured pruned 0/8 (0.00%) -> 2/8 (25.00%)" in caplog.text
    assert "first.weight by 0.25: 0 (0.00%) -> 2 (25.00%)" in caplog.text


def test_a_subclass_may_choose(quiet_trainer) -> None:
    """filter_parameters_to_prune takes from what was found; the given list is not changed."""

    class LastAlone(ModelPruning):
        def filter_parameters_to_prune(self, parameters_to_prune=()):
            return [pair for pair in parameters_to_prune if pair[0].in_features == 4]

    module = Wide()
    given = [(module.first, "weight"), (module.last, "weight")]
    quiet_trainer(callbacks=[LastAlone(L1, given, amount=0.5, **WEIGHTS)]).fit(module)
    assert zeros(module, "first.weight", "last.weight") == [0, 4]
    assert given == [(module.first, "weight"), (module.last, "weight")]


def test_parameters_of_another_module(quiet_trainer) -> None:
    """What is no part of the trained module is refused before the training."""
    pruning = ModelPruning(L1, [(nn.Linear(2, 2), "weight")])
    with pytest.raises(CallbackError, match="it is no part of it"):
        quiet_trainer(callbacks=[pruning]).fit(Wide())
    module = Wide()
    with pytest.raises(CallbackError, match="it has no parameter 'gain'"):
        quiet_trainer(callbacks=[ModelPruning(L1, [(module.first, "gain")])]).fit(module)


def test_an_average_of_pruned_weights_is_refused(quiet_trainer) -> None:
    """The average would not be pruned."""
    with pytest.raises(CallbackError, match="beside"):
        quiet_trainer(callbacks=[ModelPruning(L1), WeightAveraging()]).fit(Wide())


def test_two_tell_each_other_apart() -> None:
    """Two methods, or weights and biases, have a key each."""
    keys = {
        ModelPruning(L1).state_key,
        ModelPruning(L1, parameter_names=["weight"]).state_key,
        ModelPruning("random_unstructured").state_key,
    }
    assert len(keys) == 3
