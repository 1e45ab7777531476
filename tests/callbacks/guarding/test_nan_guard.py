from __future__ import annotations

import copy
import logging
import math

import pytest
import torch

from trainer_hooks import Callback, Module
from trainer_hooks.callbacks import NaNGuard
from trainer_hooks.errors import NonFiniteError


class BreaksInBatches(Module):
    """A net with a mask of infinities, whose loss, gradients or weights break in given batches."""

    def __init__(self, breaks=None, *, value=math.nan, optimizer=torch.optim.Adam):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(2, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.last = torch.nn.Linear(3, 1)
        self.register_buffer("mask", torch.full((2,), -math.inf))
        self.breaks = breaks or {}
        self.value = value
        self.optimizer_class = optimizer
        self.automatic_optimization = True

    def what(self, batch_idx):
        return self.breaks.get(batch_idx + self.trainer.current_epoch * 100, "")

    def training_step(self, batch, batch_idx):
        loss = self.last(self.norm(self.layer(batch))).square().mean()
        if self.what(batch_idx) == "loss":
            loss = loss * self.value
        self.number = batch_idx
        return loss

    def on_after_backward(self):
        if self.what(self.number) == "gradients":
            self.last.weight.grad[0, 1] = self.value

    def on_before_zero_grad(self, optimizer):
        if self.what(self.trainer.progress.batches_in_epoch) == "parameters":
            with torch.no_grad():
                self.layer.bias[1] = self.value

    def configure_optimizers(self):
        return self.optimizer_class(self.parameters(), lr=0.01)


def data(count=8):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, 2, generator=generator) for _ in range(count)]


def state_of(trainer, module):
    optimizers = [o.state_dict()["state"] for o in trainer.optimizers]
    return copy.deepcopy(({**module.state_dict()}, optimizers))


def same(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    return True


class States(Callback):
    """Keeps weights and optimizer states after each batch."""

    def __init__(self):
        self.after = []

    def on_train_batch_end(self, trainer, module, *args):
        self.after.append(state_of(trainer, module))


def is_whole(module):
    learned = (*module.parameters(), module.norm.running_mean, module.norm.running_var)
    return all(tensor.isfinite().all() for tensor in learned)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("loss", r"NaN or infinity in the loss, the gradients of layer\.weight, "),
        ("gradients", r"NaN or infinity in the gradients of last\.weight \(epoch 0, up to "),
        ("parameters", r"the parameters of layer\.bias"),
    ],
)
def test_it_raises_at_the_step(quiet_trainer, what, value, message):
    """With an interval of 1, what broke is named before the optimizer steps with it."""
    module = BreaksInBatches({3: what}, value=value)
    trainer = quiet_trainer(callbacks=[NaNGuard(check_every_n_steps=1)])
    with pytest.raises(NonFiniteError, match=message):
        trainer.fit(module, data())
    assert trainer.global_step == 3


@pytest.mark.parametrize("what", ["loss", "gradients", "parameters"])
def test_it_raises_at_the_next_look(quiet_trainer, what):
    """With an interval, what broke in between is found at the look that follows."""
    trainer = quiet_trainer(callbacks=[NaNGuard(check_every_n_steps=4)])
    with pytest.raises(NonFiniteError, match="up to optimizer step 8"):
        trainer.fit(BreaksInBatches({4: what}), data(12))
    trainer = quiet_trainer(callbacks=[NaNGuard()], log_every_n_steps=3)
    with pytest.raises(NonFiniteError, match="up to optimizer step 6"):
        trainer.fit(BreaksInBatches({3: what}), data(12))


@pytest.mark.parametrize("what", ["loss", "gradients", "parameters"])
def test_nothing_broken_is_validated_or_saved_at_an_epochs_end(quiet_trainer, what, tmp_path):
    """However long the interval, the epoch's end is looked at before its validation."""

    class Validated(BreaksInBatches):
        def validation_step(self, batch, batch_idx):
            raise AssertionError("validated")

    trainer = quiet_trainer(
        callbacks=[NaNGuard(check_every_n_steps=1000)], enable_checkpointing=True
    )
    with pytest.raises(NonFiniteError, match="NaN or infinity in"):
        trainer.fit(Validated({6: what}), data(), data(1))
    assert not list(tmp_path.rglob("*.ckpt"))


def test_an_infinite_loss_without_a_trace_is_found(quiet_trainer):
    """A loss that was broken and left gradients whole is found, in the middle of an interval."""

    class Traceless(BreaksInBatches):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return loss + math.inf if batch_idx == 2 else loss

    trainer = quiet_trainer(callbacks=[NaNGuard(check_every_n_steps=6)])
    with pytest.raises(NonFiniteError, match=r"in the loss \(epoch 0, up to optimizer step 6\)"):
        trainer.fit(Traceless(), data())
    quiet_trainer(callbacks=[NaNGuard(check=["gradients", "parameters"])]).fit(Traceless(), data())


def test_what_is_not_to_be_checked_is_not(quiet_trainer):
    """Only what `check` names is looked at; infinity in a mask is nothing broken."""
    guard = NaNGuard(check="parameters", check_every_n_steps=1)
    trainer = quiet_trainer(callbacks=[guard])
    with pytest.raises(NonFiniteError, match=r"in the parameters of layer\.weight, layer\.bias"):
        trainer.fit(BreaksInBatches({2: "loss"}), data())
    assert trainer.global_step == 3
    quiet_trainer(callbacks=[NaNGuard(check_every_n_steps=1)]).fit(BreaksInBatches(), data())


def test_many_names_are_cut_short(quiet_trainer):
    """Of a large net the first names are told, and how many more there are."""
    trainer = quiet_trainer(callbacks=[NaNGuard(check="gradients", check_every_n_steps=1)])
    message = (
        r"layer\.weight, layer\.bias, norm\.weight, norm\.bias, last\.weight and 1 more \(epoch 0"
    )
    with pytest.raises(NonFiniteError, match=message):
        trainer.fit(BreaksInBatches({0: "loss"}), data())


@pytest.mark.parametrize("what", ["loss", "gradients"])
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_a_skipped_step_changes_no_weight_and_no_optimizer(quiet_trainer, what, optimizer, caplog):
    """Parameters and what the optimizer remembers are as before the step; then it goes on."""
    guard, states = NaNGuard("skip"), States()
    module = BreaksInBatches({3: what, 5: what}, optimizer=optimizer)
    trainer = quiet_trainer(callbacks=[guard, states])
    trainer.fit(module, data())
    names = [name for name, _ in module.named_parameters()]
    for broken in (3, 5):
        (before, optimizers_before), (after, optimizers_after) = states.after[
            broken - 1 : broken + 1
        ]
        assert same([before[n] for n in names], [after[n] for n in names])
        assert same(optimizers_before, optimizers_after)
    assert not torch.equal(states.after[4][0]["last.weight"], states.after[3][0]["last.weight"])
    assert is_whole(module)
    assert guard.skipped_steps == 2
    assert [event["step"] for event in guard.events] == [3, 5]
    assert guard.events[0]["action"] == "skip"
    assert what in guard.events[0]["found"]
    assert trainer.global_step == 8
    assert "the step is skipped" in caplog.messages[0]


def test_a_window_with_one_broken_batch_is_skipped_whole(quiet_trainer):
    """Where gradients accumulate, the step of the window is left out, and no other."""
    guard, states = NaNGuard("skip"), States()
    trainer = quiet_trainer(callbacks=[guard, states], accumulate_grad_batches=2)
    trainer.fit(BreaksInBatches({2: "loss"}), data())
    weights = [state["last.weight"] for state, _ in states.after]
    assert torch.equal(weights[3], weights[1])
    assert not torch.equal(weights[5], weights[3])
    assert guard.skipped_steps == 1


@pytest.mark.parametrize("algorithm", ["value", "norm"])
@pytest.mark.parametrize("action", ["skip", "rollback"])
def test_clipping_does_not_hide_what_is_broken(quiet_trainer, algorithm, action):
    """Infinity is seen before clipping by value would make a number of it, and is not stepped."""
    guard, states = NaNGuard(action, check_every_n_steps=1, snapshot_every_n_steps=1), States()
    trainer = quiet_trainer(
        callbacks=[guard, states], gradient_clip_val=0.1, gradient_clip_algorithm=algorithm
    )
    trainer.fit(BreaksInBatches({2: "gradients"}, value=math.inf), data(4))
    assert guard.skipped_steps + guard.rollbacks == 1
    back_to = 1 if action == "skip" else 0
    assert torch.equal(states.after[2][0]["last.weight"], states.after[back_to][0]["last.weight"])


def test_broken_weights_cannot_be_skipped(quiet_trainer):
    """With action "skip", broken parameters raise: no later step would be whole."""
    trainer = quiet_trainer(callbacks=[NaNGuard("skip")])
    with pytest.raises(NonFiniteError, match=r"the parameters of layer\.bias.*NaNGuard\('rollback"):
        trainer.fit(BreaksInBatches({2: "parameters"}), data())


@pytest.mark.parametrize("what", ["loss", "gradients", "parameters"])
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.Adagrad])
def test_a_rollback_is_exact(quiet_trainer, what, optimizer, caplog):
    """Weights, buffers and optimizer states are bit for bit those of the copy, and it goes on."""
    guard, states = NaNGuard("rollback", check_every_n_steps=1, snapshot_every_n_steps=2), States()
    module = BreaksInBatches({5: what}, optimizer=optimizer)
    trainer = quiet_trainer(callbacks=[guard, states])
    trainer.fit(module, data())
    # looks at steps 1, 2, ... copy what was there before each: after 0, 2 and 4 steps
    tensors, optimizers = states.after[5]
    before, optimizers_before = states.after[3]
    buffers = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    names = [name for name in tensors if name not in buffers]
    assert same([before[n] for n in names], [tensors[n] for n in names])
    assert same(optimizers_before, optimizers)
    # the copy is made when the loss of the batch is known to be whole, so that batch is in them
    assert tensors["norm.num_batches_tracked"] == 5
    assert same(tensors["norm.running_mean"], states.after[4][0]["norm.running_mean"])
    assert not torch.equal(states.after[6][0]["last.weight"], tensors["last.weight"])
    assert is_whole(module)
    assert guard.rollbacks == 1
    assert "went back to the weights of step 4" in caplog.messages[0]


def test_a_rollback_before_any_copy_goes_back_to_the_start(quiet_trainer):
    """If the first batch is broken, the weights are those that the training began with."""
    module = BreaksInBatches({0: "loss"})
    first = copy.deepcopy(module.state_dict())
    guard = NaNGuard("rollback", check_every_n_steps=1)
    quiet_trainer(callbacks=[guard], max_steps=1).fit(module, data())
    assert same({**first}, {**module.state_dict()})
    assert guard.rollbacks == 1


def test_a_late_rollback_leaves_nothing_broken(quiet_trainer):
    """Found late or at the epoch's end, what broke is undone, momentum and buffers too."""
    for breaks, interval in (({4: "loss"}, 4), ({6: "gradients"}, 1000), ({9: "parameters"}, 6)):
        guard = NaNGuard("rollback", check_every_n_steps=interval, snapshot_every_n_steps=1)
        module = BreaksInBatches(breaks)
        trainer = quiet_trainer(callbacks=[guard])
        trainer.fit(module, data(10))
        assert guard.rollbacks == 1
        assert is_whole(module)
        moments = [value for s in trainer.optimizers[0].state.values() for value in s.values()]
        assert all(torch.isfinite(value).all() for value in moments)


def test_learning_rates_stay_on_their_schedule(quiet_trainer):
    """A rollback leaves the optimizer's options alone, so a schedule is where it would be."""

    class Scheduled(BreaksInBatches):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=1e-3)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    rates = []
    for breaks in ({}, {4: "loss"}):
        guard = NaNGuard("rollback", check_every_n_steps=1, snapshot_every_n_steps=3)
        trainer = quiet_trainer(callbacks=[guard])
        trainer.fit(Scheduled(breaks), data())
        rates.append(trainer.optimizers[0].param_groups[0]["lr"])
    assert rates == [1e-3 * 0.5**8] * 2
    assert guard.rollbacks == 1


@pytest.mark.parametrize("action", ["skip", "rollback"])
def test_patience(quiet_trainer, action):
    """So many findings in a row are borne; one more raises. A good step in between starts anew."""
    options = {"check_every_n_steps": 1, "patience": 3}
    good = {0: "loss", 1: "loss", 2: "loss", 4: "loss", 5: "loss"}
    guard = NaNGuard(action, **options)
    quiet_trainer(callbacks=[guard]).fit(BreaksInBatches(good), data())
    assert guard.skipped_steps + guard.rollbacks == 5
    guard = NaNGuard(action, **options)
    with pytest.raises(NonFiniteError, match="found 4 times in a row, and patience=3 of NaNGuard"):
        quiet_trainer(callbacks=[guard]).fit(BreaksInBatches({**good, 3: "loss"}), data())


class Manual(BreaksInBatches):
    """Steps two optimizers by hand."""

    def __init__(self, breaks):
        super().__init__(breaks)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        for optimizer in self.optimizers():
            optimizer.step()

    def configure_optimizers(self):
        ahead = [*self.layer.parameters(), *self.norm.parameters()]
        return [torch.optim.Adam(ahead, lr=0.01), torch.optim.SGD(self.last.parameters(), lr=0.01)]


@pytest.mark.parametrize("action", ["raise", "skip", "rollback"])
def test_manual_optimization(quiet_trainer, action):
    """Steps that the module makes by itself are guarded, whichever optimizer makes them."""
    guard = NaNGuard(action, check_every_n_steps=1)
    module = Manual({3: "gradients"})
    trainer = quiet_trainer(callbacks=[guard])
    if action == "raise":
        with pytest.raises(NonFiniteError, match=r"the gradients of last\.weight"):
            trainer.fit(module, data())
        return
    trainer.fit(module, data())
    assert guard.skipped_steps + guard.rollbacks == 1
    assert is_whole(module)


def test_an_optimizer_that_evaluates_the_loss_itself(quiet_trainer):
    """LBFGS is guarded inside its closure."""
    options = {"optimizer": torch.optim.LBFGS}
    with pytest.raises(NonFiniteError):
        quiet_trainer(callbacks=[NaNGuard(check_every_n_steps=1)]).fit(
            BreaksInBatches({2: "loss"}, **options), data()
        )


@pytest.mark.parametrize(("action", "expected"), [("raise", 2), ("rollback", 3), ("skip", 20)])
def test_how_often_it_waits_for_the_device(quiet_trainer, host_copies, action, expected):
    """One number is copied at each look and at the epoch's end, and nothing at any other step.

    Whoever means to go back looks once before the first copy, too.
    """

    def copies(*callbacks):
        before = host_copies.count
        trainer = quiet_trainer(callbacks=list(callbacks), log_every_n_steps=12)
        with host_copies:
            trainer.fit(BreaksInBatches(optimizer=torch.optim.SGD), data(20))
        return host_copies.count - before

    assert copies(NaNGuard(action, snapshot_every_n_steps=1)) - copies() == expected


@pytest.mark.parametrize("save_snapshot", [True, False])
@pytest.mark.parametrize("cut", [1, 4, 6, 7])
def test_a_rollback_after_a_resume_is_that_of_the_uncut_run(
    quiet_trainer, tmp_path, cut, save_snapshot
):
    """Cut between copy and rollback, the resumed run goes back to the same weights."""

    class Cuts(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed == cut:
                trainer.save_checkpoint(tmp_path / "cut.ckpt")

    def fit(*callbacks, ckpt_path=None):
        options = {"check_every_n_steps": 2, "snapshot_every_n_steps": 3}
        guard = NaNGuard("rollback", save_snapshot=save_snapshot, **options)
        trainer = quiet_trainer(callbacks=[guard, *callbacks], max_epochs=2)
        module = BreaksInBatches({6: "gradients", 103: "loss"})
        trainer.fit(module, data(), ckpt_path=ckpt_path)
        return guard, state_of(trainer, module)

    whole, end = fit(Cuts())
    if cut == 7 and not save_snapshot:  # the weights broke at that step, and nobody had looked
        with pytest.raises(NonFiniteError, match=r"the parameters of .* before the first batch: "):
            fit(ckpt_path=tmp_path / "cut.ckpt")
        return
    resumed, end_of_resumed = fit(ckpt_path=tmp_path / "cut.ckpt")
    assert whole.rollbacks == resumed.rollbacks == 2
    if save_snapshot:
        assert same(end, end_of_resumed)
        assert list(whole.events) == list(resumed.events)
        assert same(whole.state_dict()["snapshot"], resumed.state_dict()["snapshot"])
    else:
        assert resumed.state_dict()["snapshot"] is None


def test_new_arguments_count_in_a_resumed_run(quiet_trainer, tmp_path):
    """What was found comes back; how much is borne, and how often it looks, is this run's."""
    trainer = quiet_trainer(callbacks=[NaNGuard("skip", patience=9)])
    trainer.fit(BreaksInBatches({2: "loss", 6: "loss", 7: "loss"}), data())
    trainer.save_checkpoint(tmp_path / "cut.ckpt")
    guard = NaNGuard("skip", patience=2)
    trainer = quiet_trainer(callbacks=[guard], max_epochs=2)
    with pytest.raises(NonFiniteError, match="found 3 times in a row, and patience=2"):
        trainer.fit(BreaksInBatches({100: "loss"}), data(), ckpt_path=tmp_path / "cut.ckpt")
    assert guard.skipped_steps == 3


def test_a_new_training_forgets(quiet_trainer):
    """A fit of another module starts with nothing found, and a copy of its own."""
    guard = NaNGuard("rollback", check_every_n_steps=1)
    trainer = quiet_trainer(callbacks=[guard])
    trainer.fit(BreaksInBatches({3: "loss"}), data())
    assert (guard.rollbacks, len(guard.events)) == (1, 1)
    other = BreaksInBatches({1: "loss"}, optimizer=torch.optim.SGD)
    torch.nn.init.ones_(other.last.weight)
    quiet_trainer(callbacks=[guard]).fit(other, data(2))
    assert (guard.rollbacks, len(guard.events)) == (1, 1)
    assert torch.equal(other.last.weight, torch.ones(1, 3))


def test_the_copy_can_lie_elsewhere(quiet_trainer):
    """`snapshot_device` is where the copy is kept, and going back works from there."""
    guard = NaNGuard(
        "rollback", check_every_n_steps=1, snapshot_every_n_steps=1, snapshot_device="cpu"
    )
    module = BreaksInBatches({3: "loss"})
    quiet_trainer(callbacks=[guard]).fit(module, data())
    assert is_whole(module)


def test_findings_are_told_in_the_log(quiet_trainer, caplog):
    """Each finding that is borne is a warning in the log, with what was done."""
    caplog.set_level(logging.WARNING, logger="trainer_hooks")
    quiet_trainer(callbacks=[NaNGuard("skip")]).fit(BreaksInBatches({2: "gradients"}), data())
    [message] = caplog.messages
    place = "the gradients of last.weight (epoch 0, up to optimizer step 3)"
    assert message == f"NaNGuard: NaN or infinity in {place}; the step is skipped"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("device", [None, "cpu"])
def test_on_a_gpu(quiet_trainer, device):
    """On a GPU too a rollback leaves weights, buffers and moments whole, where they were."""
    guard = NaNGuard("rollback", check_every_n_steps=2, snapshot_device=device)
    module = BreaksInBatches({5: "loss"})
    trainer = quiet_trainer(callbacks=[guard], accelerator="cuda")
    trainer.fit(module, data())
    assert guard.rollbacks == 1
    moments = [s["exp_avg"] for s in trainer.optimizers[0].state.values()]
    assert all(moment.device.type == "cuda" and moment.isfinite().all() for moment in moments)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_loss_scale_that_is_too_large_is_nothing_broken(quiet_trainer):
    """With 16-mixed the scaler finds its scale by overflowing, and the guard lets it."""
    trainer = quiet_trainer(
        callbacks=[NaNGuard(check_every_n_steps=1)], accelerator="cuda", precision="16-mixed"
    )
    trainer.fit(BreaksInBatches(), data())
