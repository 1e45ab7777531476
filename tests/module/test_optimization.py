"""What configure_optimizers may return, and what a fit makes of it."""

from __future__ import annotations

import io
from typing import ClassVar

import pytest
import torch
from small_modules import UnoptimizedLinear
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, ReduceLROnPlateau, StepLR

from trainer_hooks import Band, Callback, Module, TrainerHooksWarning
from trainer_hooks.errors import MetricError, ModuleError, OptimizationError
from trainer_hooks.module.optimization import LRSchedulerConfig, needs_closure, parse_optimizers

SOURCE = "Net.configure_optimizers returned"


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(2))]


def sgd() -> SGD:
    return SGD(parameters(), lr=1.0)


# --- what is refused ---


def refusal(returned: object) -> str:
    """Return the message with which a value is refused."""
    with pytest.raises(OptimizationError) as caught:
        parse_optimizers(returned, SOURCE)
    message = str(caught.value)
    assert "Net.configure_optimizers" in message
    return message


@pytest.mark.parametrize("returned", [5, "adam", SGD, object(), True])
def test_something_else_altogether(returned: object) -> None:
    """What is no optimizer and no container of them is refused with what was found."""
    message = refusal(returned)
    assert repr(returned) in message
    assert "it must return an optimizer, a list of them, a dict" in message


@pytest.mark.parametrize("wrong", [None, "sgd", SGD, 3])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: [sgd(), x],
        lambda x: (x, sgd()),
        lambda x: {"optimizer": x},
        lambda x: [{"optimizer": x}],
        lambda x: ([x], []),
    ],
)
def test_no_optimizer_where_one_belongs(wrap, wrong) -> None:
    """A place for an optimizer that holds something else is refused with that."""
    message = refusal(wrap(wrong))
    assert f"{wrong!r} of type {type(wrong).__name__}" in message
    assert "torch.optim.Optimizer" in message


def test_a_dict_without_an_optimizer() -> None:
    """A dict needs the key `optimizer`."""
    assert "None of type NoneType" in refusal({})


@pytest.mark.parametrize(
    ("key", "hint"), [("lr_schedulers", "'lr_scheduler'"), ("optim", "'optimizer'"), ("zzz", "")]
)
def test_an_unknown_key(key: str, hint: str) -> None:
    """A dict with an unknown key is refused with the known ones and the nearest."""
    message = refusal({"optimizer": sgd(), key: 1})
    assert f"the key {key!r}" in message
    assert "lr_scheduler, monitor, optimizer" in message
    assert (f"Did you mean {hint}?" in message) == bool(hint)


@pytest.mark.parametrize(("key", "hint"), [("freq", "'frequency'"), ("intervall", "'interval'")])
def test_an_unknown_key_of_a_scheduler_dict(key: str, hint: str) -> None:
    """A scheduler dict with an unknown key is refused with the nearest."""
    optimizer = sgd()
    scheduler = {"scheduler": StepLR(optimizer, 1), key: 1}
    message = refusal({"optimizer": optimizer, "lr_scheduler": scheduler})
    assert f"scheduler dict with the key {key!r}" in message
    assert f"Did you mean {hint}?" in message


def test_a_scheduler_dict_without_a_scheduler() -> None:
    """A scheduler dict needs the key `scheduler`."""
    message = refusal({"optimizer": sgd(), "lr_scheduler": {"interval": "step"}})
    assert "without the key 'scheduler'" in message


@pytest.mark.parametrize("wrong", ["step", 5, StepLR, [1]])
def test_no_scheduler_where_one_belongs(wrong: object) -> None:
    """A place for a scheduler that holds something else is refused with that."""
    for returned in (
        {"optimizer": sgd(), "lr_scheduler": wrong},
        {"optimizer": sgd(), "lr_scheduler": {"scheduler": wrong}},
        ([sgd()], [wrong]),
    ):
        message = refusal(returned)
        assert f"returned {wrong!r} as a scheduler" in message
        assert "it must be a torch scheduler" in message


def test_a_pair_of_optimizer_and_scheduler() -> None:
    """(optimizer, scheduler) without lists, a common slip, is told how to be written."""
    optimizer = sgd()
    message = refusal((optimizer, StepLR(optimizer, 1)))
    assert "StepLR" in message
    assert "([optimizer], [scheduler])" in message


@pytest.mark.parametrize("interval", ["batch", None, "", 1])
def test_an_unknown_interval(interval: object) -> None:
    """A scheduler's interval is `epoch` or `step`."""
    optimizer = sgd()
    scheduler = {"scheduler": StepLR(optimizer, 1), "interval": interval}
    message = refusal({"optimizer": optimizer, "lr_scheduler": scheduler})
    assert f"a scheduler with interval={interval!r}: it must be 'epoch' or 'step'" in message


@pytest.mark.parametrize("frequency", [0, -1, 1.0, True, "1", None])
def test_a_frequency_that_is_no_count(frequency: object) -> None:
    """A scheduler's frequency is an integer of at least 1."""
    optimizer = sgd()
    scheduler = {"scheduler": StepLR(optimizer, 1), "frequency": frequency}
    message = refusal({"optimizer": optimizer, "lr_scheduler": scheduler})
    assert f"frequency={frequency!r}" in message
    assert "at least 1" in message


def test_a_plateau_without_a_monitor() -> None:
    """ReduceLROnPlateau needs a monitor wherever it stands, and the message shows how."""
    optimizer = sgd()
    plateau = ReduceLROnPlateau(optimizer)
    for returned in (
        {"optimizer": optimizer, "lr_scheduler": plateau},
        {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau}},
        ([optimizer], [plateau]),
    ):
        message = refusal(returned)
        assert "ReduceLROnPlateau without a monitor" in message
        assert "'monitor': 'val_loss'" in message


def test_a_scheduler_of_another_optimizer() -> None:
    """A scheduler that drives an optimizer that was not returned would do nothing."""
    message = refusal({"optimizer": sgd(), "lr_scheduler": StepLR(sgd(), 1)})
    assert "StepLR" in message
    assert "give that optimizer too" in message


# --- what is taken ---


def test_every_form() -> None:
    """Each form that Lightning documents gives its optimizers and schedulers, in order."""
    one, two = sgd(), Adam(parameters())
    steps, decays = StepLR(one, 1), ExponentialLR(two, 0.9)
    forms = [
        (None, [], []),
        (one, [one], []),
        ([one], [one], []),
        ([one, two], [one, two], []),
        ((one, two), [one, two], []),
        ([], [], []),
        (([], []), [], []),
        ({"optimizer": one}, [one], []),
        ({"optimizer": one, "lr_scheduler": None}, [one], []),
        ({"optimizer": one, "lr_scheduler": steps}, [one], [steps]),
        ({"optimizer": one, "lr_scheduler": {"scheduler": steps}}, [one], [steps]),
        (([one], [steps]), [one], [steps]),
        ([[one], [steps]], [one], [steps]),
        (([one, two], [steps, decays]), [one, two], [steps, decays]),
        (([one, two], [{"scheduler": decays}, steps]), [one, two], [decays, steps]),
        (([one, two], []), [one, two], []),
        (
            [{"optimizer": one, "lr_scheduler": steps}, {"optimizer": two}],
            [one, two],
            [steps],
        ),
        (
            ({"optimizer": one, "lr_scheduler": steps}, {"optimizer": two, "lr_scheduler": decays}),
            [one, two],
            [steps, decays],
        ),
        ([one, {"optimizer": two, "lr_scheduler": decays}], [one, two], [decays]),
    ]
    for returned, optimizers, schedulers in forms:
        found = parse_optimizers(returned, SOURCE)
        assert [id(o) for o in found.optimizers] == [id(o) for o in optimizers], returned
        assert [id(c.scheduler) for c in found.schedulers] == [id(s) for s in schedulers], returned


def test_the_settings_of_a_scheduler() -> None:
    """Every key of a scheduler dict is kept, and what is left out has Lightning's default."""
    optimizer = sgd()
    scheduler = StepLR(optimizer, 1)
    given = {
        "scheduler": scheduler,
        "name": "mine",
        "interval": "step",
        "frequency": 3,
        "reduce_on_plateau": True,
        "monitor": "acc",
        "strict": False,
    }
    [config] = parse_optimizers(([optimizer], [given]), SOURCE).schedulers
    assert config == LRSchedulerConfig(**given)
    [config] = parse_optimizers(([optimizer], [scheduler]), SOURCE).schedulers
    assert config == LRSchedulerConfig(scheduler, None, "epoch", 1, False, None, True)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda plateau: {"lr_scheduler": plateau, "monitor": "acc"},
        lambda plateau: {"lr_scheduler": {"scheduler": plateau, "monitor": "acc"}},
        lambda plateau: {"lr_scheduler": {"scheduler": plateau}, "monitor": "acc"},
        lambda plateau: {
            "lr_scheduler": {"scheduler": plateau, "monitor": "acc"},
            "monitor": "other",
        },
    ],
)
def test_the_monitor_may_stand_at_both_places(wrap) -> None:
    """A plateau's monitor stands in its own dict, which counts more, or beside the optimizer."""
    optimizer = sgd()
    returned = {"optimizer": optimizer, **wrap(ReduceLROnPlateau(optimizer))}
    [config] = parse_optimizers(returned, SOURCE).schedulers
    assert config.reduce_on_plateau
    assert config.monitor == "acc"


def test_a_scheduler_of_the_users_own() -> None:
    """Anything with step, state_dict and load_state_dict may be a scheduler."""

    class Own:
        def step(self): ...

        def state_dict(self):
            return {}

        def load_state_dict(self, state): ...

    own = Own()
    [config] = parse_optimizers(([sgd()], [own]), SOURCE).schedulers
    assert config.scheduler is own


def test_what_was_returned_is_not_changed() -> None:
    """The user's dicts stay as they were."""
    optimizer = sgd()
    scheduler = {"scheduler": ReduceLROnPlateau(optimizer)}
    returned = {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "acc"}
    parse_optimizers(returned, SOURCE)
    assert set(scheduler) == {"scheduler"}
    assert set(returned) == {"optimizer", "lr_scheduler", "monitor"}


def test_only_an_optimizer_that_evaluates_the_loss_needs_a_closure() -> None:
    """LBFGS needs a closure; others take one but do not need it."""
    assert needs_closure(torch.optim.LBFGS(parameters()))
    assert not needs_closure(sgd())
    assert not needs_closure(Adam(parameters()))


def test_the_number_of_states_must_fit() -> None:
    """States of other numbers of optimizers or schedulers are refused with both numbers."""
    one = parse_optimizers(sgd(), SOURCE)
    two = parse_optimizers([sgd(), sgd()], SOURCE)
    with pytest.raises(OptimizationError, match=r"holds 2 entries under 'optimizer_states'.*1"):
        one.require_same(two.state_dict())
    optimizer = sgd()
    scheduled = parse_optimizers(([optimizer], [StepLR(optimizer, 1)]), SOURCE)
    with pytest.raises(OptimizationError, match=r"holds 0 entries under 'lr_schedulers'"):
        scheduled.require_same(one.state_dict())


def test_states_go_into_the_same_places() -> None:
    """What state_dict returns is taken back by optimizers and schedulers in order."""
    optimizer, other = SGD(parameters(), lr=1.0), SGD(parameters(), lr=1.0)
    saved = parse_optimizers(([optimizer], [StepLR(optimizer, 1, gamma=0.5)]), SOURCE)
    optimizer.step()
    saved.schedulers[0].scheduler.step()
    target = parse_optimizers(([other], [StepLR(other, 1, gamma=0.5)]), SOURCE)
    target.load_state_dict(saved.state_dict())
    assert other.param_groups[0]["lr"] == 0.5
    assert target.schedulers[0].scheduler.last_epoch == 1


OPTIMIZERS = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and kind is not torch.optim.Optimizer
)


class Stepping:
    """A parameter with an optimizer, and gradients that are the same for all."""

    def __init__(self, kind: str, dtype: torch.dtype, **options: object) -> None:
        self.weight = torch.nn.Parameter(torch.linspace(-1, 2, 6, dtype=dtype).reshape(2, 3))
        self.is_sparse = kind == "SparseAdam"
        optimizer = getattr(torch.optim, kind)([self.weight], **{"lr": 0.01, **options})
        self.optimization = parse_optimizers(optimizer, SOURCE)

    def step(self) -> None:
        grad = self.weight.detach() ** 2 - 0.5
        self.weight.grad = grad.to_sparse(1) if self.is_sparse else grad
        [optimizer] = self.optimization.optimizers
        optimizer.step(lambda: (self.weight**2).sum())

    def states(self) -> list:
        [state] = self.optimization.state_dict()["optimizer_states"]
        return _leaves(state["state"])


def _leaves(value) -> list:
    if isinstance(value, dict):
        return [leaf for key in value for leaf in _leaves(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _same(one, other) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_state_survives_a_save_and_a_load(kind, dtype) -> None:
    """Each tensor of each of torch's optimizers keeps its type and its bits, and so do steps."""
    one, other = Stepping(kind, dtype), Stepping(kind, dtype)
    for _ in range(3):
        one.step()
    file = io.BytesIO()
    torch.save({**one.optimization.state_dict(), "state_dict": {"weight": one.weight}}, file)
    file.seek(0)
    other.optimization.load_state_dict(torch.load(file, weights_only=True))
    other.weight.data.copy_(one.weight.data)
    for _ in range(2):
        saved, loaded = one.states(), other.states()
        assert len(saved) == len(loaded)
        assert all(map(_same, saved, loaded))
        one.step()
        other.step()
    assert torch.equal(one.weight, other.weight)


def test_states_take_the_type_of_parameters_that_have_another_one_now() -> None:
    """A training that goes on in another precision has states in it, as torch makes them."""
    one, other = Stepping("NAdam", torch.float32), Stepping("NAdam", torch.float64)
    one.step()
    other.optimization.load_state_dict(
        {**one.optimization.state_dict(), "state_dict": {"weight": one.weight}}
    )
    [state] = other.optimization.optimizers[0].state.values()
    assert state["exp_avg"].dtype is state["mu_product"].dtype is torch.float64
    other.step()


def test_states_stay_as_saved_where_the_file_holds_an_average_of_another_type() -> None:
    """The average of a callback takes the place of the weights, and may be of another type."""
    one, other = Stepping("NAdam", torch.float64), Stepping("NAdam", torch.float64)
    one.step()
    other.optimization.load_state_dict(
        {**one.optimization.state_dict(), "state_dict": {"weight": one.weight.float()}}
    )
    assert all(map(_same, one.states(), other.states()))
    [state] = other.optimization.optimizers[0].state.values()
    assert (state["exp_avg"].dtype, state["mu_product"].dtype) == (torch.float64, torch.float32)


def test_a_resume_in_double_precision_is_exact(quiet_trainer, tmp_path) -> None:
    """An optimizer that keeps a number in another type than the weights goes on bit for bit."""

    class NAdamRegression(Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, batch_idx):
            return (self.layer(batch) - 1).square().mean()

        def configure_optimizers(self):
            return torch.optim.NAdam(self.parameters(), lr=0.01)

    class Save(Callback):
        band = Band.SAVE

        def on_batch_checkpoint(self, trainer, module):
            if trainer.global_step == 5:
                trainer.save_checkpoint(tmp_path / "x.ckpt")

    def trained(
        *callbacks: Callback, precision: str = "64-true", **options: object
    ) -> torch.Tensor:
        module = NAdamRegression()
        trainer = quiet_trainer(callbacks=callbacks, precision=precision, max_epochs=6)
        trainer.fit(module, list(torch.arange(4.0).reshape(4, 1, 1)), **options)
        return module.layer.weight

    assert torch.equal(trained(Save()), trained(ckpt_path=tmp_path / "x.ckpt"))
    # and in another precision it goes on, its states in that
    trained(Save(), precision="32-true")
    with pytest.warns(TrainerHooksWarning, match="precision 32-true -> 64-true"):
        assert trained(ckpt_path=tmp_path / "x.ckpt").dtype is torch.float64


# --- in a fit ---


@pytest.fixture
def Scheduled(Tiny):
    """A module that returns what it was given a function for, and notes its learning rates."""

    class Scheduled(Tiny):
        def __init__(self, make, logs=()) -> None:
            super().__init__()
            self.make, self.logs, self.rates = make, dict(logs), []

        def training_step(self, batch, batch_idx):
            self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
            return super().training_step(batch, batch_idx)

        def on_train_epoch_end(self):
            for name, values in self.logs.items():
                self.log(name, values[self.current_epoch])

        def configure_optimizers(self):
            return self.make(SGD(self.parameters(), lr=1.0))

    return Scheduled


def halving(optimizer, **settings):
    """Halve the rate at each step of the scheduler."""
    scheduler = LambdaLR(optimizer, lambda count: 0.5**count)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, **settings}}


@pytest.mark.parametrize(
    ("settings", "options", "rates"),
    [
        ({}, {}, [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5]),
        ({"interval": "epoch", "frequency": 2}, {}, [1] * 8),
        ({"interval": "step"}, {}, [0.5**n for n in range(8)]),
        ({"interval": "step", "frequency": 3}, {}, [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]),
        (
            {"interval": "step"},
            {"accumulate_grad_batches": 2},
            [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125],
        ),
        (
            {"interval": "step"},
            {"accumulate_grad_batches": 3},
            [1, 1, 1, 0.5, 0.25, 0.25, 0.25, 0.125],
        ),
        ({"interval": "epoch"}, {"max_epochs": 3}, [1] * 4 + [0.5] * 4 + [0.25] * 4),
    ],
)
def test_interval_and_frequency(Scheduled, quiet_trainer, batches, settings, options, rates):
    """A scheduler steps after so many epochs or optimizer steps as it says, and no others."""
    module = Scheduled(lambda optimizer: halving(optimizer, **settings))
    quiet_trainer(**{"max_epochs": 2, **options}).fit(module, batches(4))
    assert module.rates == rates


def test_a_plateau_watches_its_monitor(Scheduled, quiet_trainer, batches) -> None:
    """ReduceLROnPlateau is given the epoch's value of its monitor, logged at that epoch's end."""

    def make(optimizer):
        plateau = ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        return {"optimizer": optimizer, "lr_scheduler": plateau, "monitor": "score"}

    module = Scheduled(make, {"score": [3.0, 2.0, 2.0, 1.0, 1.0]})
    quiet_trainer(max_epochs=5).fit(module, batches(1))
    assert module.rates == [1.0, 1.0, 1.0, 0.5, 0.5]


def test_a_plateau_may_watch_validation(Scheduled, quiet_trainer, batches) -> None:
    """The validation of an epoch is done when the plateau looks."""
    looked = []

    class PlateauOnValidation(Scheduled):
        def validation_step(self, batch, batch_idx):
            self.log("val", float(self.current_epoch))

        def lr_scheduler_step(self, scheduler, metric):
            looked.append(metric.item())
            super().lr_scheduler_step(scheduler, metric)

    def make(optimizer):
        plateau = {"scheduler": ReduceLROnPlateau(optimizer), "monitor": "val"}
        return {"optimizer": optimizer, "lr_scheduler": plateau}

    quiet_trainer(max_epochs=3).fit(PlateauOnValidation(make), batches(1), batches(1))
    assert looked == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("interval", ["epoch", "step"])
def test_a_strict_plateau_must_find_its_monitor(
    Scheduled, quiet_trainer, batches, interval
) -> None:
    """A monitor that was not logged is an error that lists what was and what to do."""

    def make(optimizer):
        scheduler = ReduceLROnPlateau(optimizer)
        plateau = {"scheduler": scheduler, "monitor": "val_los", "interval": interval}
        return {"optimizer": optimizer, "lr_scheduler": plateau}

    class LogsMonitorInTraining(Scheduled):
        def training_step(self, batch, batch_idx):
            self.log("val_loss", 1.0)
            return super().training_step(batch, batch_idx)

    with pytest.raises(MetricError) as caught:
        quiet_trainer().fit(LogsMonitorInTraining(make), batches(1))
    for words in (
        "ReduceLROnPlateau",
        "'val_los'",
        "logged are val_loss",
        "Did you mean 'val_loss'?",
        "self.log('val_los'",
        "'strict': False",
    ):
        assert words in str(caught.value)


def test_a_plateau_that_is_not_strict_waits(Scheduled, quiet_trainer, batches) -> None:
    """With strict False a missing monitor is a warning, and the scheduler does not step."""

    def make(optimizer):
        plateau = {"scheduler": ReduceLROnPlateau(optimizer), "monitor": "x", "strict": False}
        return {"optimizer": optimizer, "lr_scheduler": plateau}

    module = Scheduled(make)
    with pytest.warns(TrainerHooksWarning, match=r"ReduceLROnPlateau monitors 'x'.*no metrics"):
        quiet_trainer().fit(module, batches(1))
    assert module.trainer.lr_scheduler_configs[0].scheduler.last_epoch == 0


def test_several_optimizers_need_manual_optimization(Tiny, quiet_trainer, batches) -> None:
    """With automatic optimization several optimizers are refused, with both ways out."""

    class Net(Tiny):
        def configure_optimizers(self):
            return [SGD(self.parameters(), lr=0.1), Adam(self.parameters())]

    with pytest.raises(OptimizationError) as caught:
        quiet_trainer().fit(Net(), batches(1))
    for words in (
        "Net.configure_optimizers returned 2",
        "automatic_optimization = False",
        "groups",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"), [("gradient_clip_val", 0.5), ("accumulate_grad_batches", 2)]
)
def test_options_that_manual_optimization_has_no_use_for(
    Tiny, quiet_trainer, batches, option, value
) -> None:
    """Clipping and accumulating are the module's to do; the option is refused and not ignored."""

    class Net(Tiny):
        automatic_optimization = False

    with pytest.raises(OptimizationError) as caught:
        quiet_trainer(**{option: value}).fit(Net(), batches(1))
    for words in (f"Trainer({option}={value!r})", "manual optimization", "Net", "training_step"):
        assert words in str(caught.value)


def test_no_configure_optimizers(quiet_trainer, batches) -> None:
    """A module without configure_optimizers is refused with what to write."""
    from trainer_hooks import Module

    class Net(Module):
        def training_step(self, batch, batch_idx):
            return batch.mean()

    with pytest.raises(ModuleError, match=r"Net has no configure_optimizers: .*Adam\(self\.para"):
        quiet_trainer().fit(Net(), batches(1))


def test_training_without_an_optimizer(quiet_trainer, batches) -> None:
    """None means that gradients are computed and nothing steps; limits of steps are kept."""

    module = UnoptimizedLinear()
    before = module.layer.weight.clone()
    trainer = quiet_trainer()
    trainer.fit(module, batches(3))
    assert torch.equal(module.layer.weight, before)
    assert trainer.global_step == trainer.progress.batches_completed == 3
    assert trainer.optimizers == []
    trainer = quiet_trainer(max_epochs=None, max_steps=4)
    trainer.fit(UnoptimizedLinear(), batches(3))
    assert trainer.global_step == 4


def test_lbfgs_is_given_a_closure(quiet_trainer) -> None:
    """An optimizer that evaluates the loss itself finds the minimum of a parabola."""
    from trainer_hooks import Module

    class ApproachesTarget(Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = torch.nn.Parameter(torch.tensor([5.0, -3.0]))
            self.evaluations = 0

        def training_step(self, batch, batch_idx):
            self.evaluations += 1
            return (self.x - batch[0]).square().sum()

        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), line_search_fn="strong_wolfe")

    module, trainer = ApproachesTarget(), quiet_trainer()
    trainer.fit(module, [torch.tensor([[1.0, 2.0]])])
    assert torch.allclose(module.x, torch.tensor([1.0, 2.0]), atol=1e-4)
    assert trainer.global_step == 1
    assert module.evaluations > 1


def test_lbfgs_in_half_precision_is_refused(Tiny, quiet_trainer, batches) -> None:
    """Gradients inside an optimizer cannot be unscaled, so 16-mixed is refused with a way out."""

    class OptimizedByLBFGS(Tiny):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters())

    with pytest.raises(OptimizationError, match=r"16-mixed.*LBFGS.*bf16-mixed"):
        quiet_trainer(precision="16-mixed").fit(OptimizedByLBFGS(), batches(1))


def test_a_plateau_without_a_monitor_in_manual_optimization() -> None:
    """The module steps it itself."""
    optimizer = sgd()
    plateau = ReduceLROnPlateau(optimizer)
    found = parse_optimizers(([optimizer], [plateau]), SOURCE, is_manual=True)
    assert found.schedulers[0].scheduler is plateau


class _Takes(torch.optim.SGD):
    taken: ClassVar[list[object]] = []

    def step(self, closure=None, extra=None):
        self.taken.append(extra)
        return super().step(closure)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_manual_step_passes_its_arguments_on(precision, quiet_trainer, batches) -> None:
    """`optimizer.step(extra=5)` reaches the optimizer's own step."""

    class Manual(Module):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.layer = torch.nn.Linear(2, 1)

        def configure_optimizers(self):
            return _Takes(self.parameters(), 0.1)

        def training_step(self, batch, batch_idx):
            self.manual_backward(self.layer(batch[0]).mean())
            self.optimizers().step(extra=5)

    _Takes.taken.clear()
    rows = [(torch.ones(2, 2),)] * 2
    trainer = quiet_trainer(precision=precision)
    trainer.fit(Manual(), rows)
    assert _Takes.taken == [5, 5]
    assert trainer.global_step == 2


def test_one_scheduler_needs_no_list_beside_a_list_of_optimizers() -> None:
    """As in Lightning; two optimizers in a tuple stay two optimizers."""
    optimizer = sgd()
    found = parse_optimizers(([optimizer], StepLR(optimizer, 1)), SOURCE)
    assert found.optimizers == [optimizer]
    assert [type(config.scheduler) for config in found.schedulers] == [StepLR]
    assert len(parse_optimizers((sgd(), sgd()), SOURCE).optimizers) == 2
