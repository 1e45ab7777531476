"""ModelEmaCallback in runs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import (
    Checkpoint,
    EarlyStopping,
    EMAWeightAveraging,
    ModelCheckpoint,
)
from trainer_hooks.compat.accelerated.callbacks import (
    EarlyStoppingCallback,
    ModelEmaCallback,
    SaveBestModelCallback,
)
from trainer_hooks.errors import (
    CallbackError,
    MetricError,
    OptionError,
    StateKeyError,
    UsageError,
)
from trainer_hooks.hooks.relay import RelayMember
from trainer_hooks.hooks.spec import HOOKS
from trainer_hooks.testing import TinyModule


def test_callbacks_that_are_none_are_refused() -> None:
    """They are checked where they are given."""
    with pytest.raises(CallbackError, match="must be an instance"):
        ModelEmaCallback(callbacks=[3])
    with pytest.raises(StateKeyError):
        ModelEmaCallback(callbacks=[EarlyStopping("val_loss"), EarlyStopping("val_loss")])


@pytest.fixture
def quiet_trainer(quiet_trainer):
    """Make trainers as everywhere, which may save if they were given what saves."""

    def make(**options):
        saves = any(isinstance(one, Checkpoint) for one in options.get("callbacks", ()))
        return quiet_trainer(enable_checkpointing=saves, **options)

    return make


def path_in(tmp_path, name="ema.pt"):
    return str(tmp_path / name)


class Shadow(nn.Module):
    """Averages as classes of other libraries do: from the first weights on."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__()
        self.module = copy.deepcopy(module)
        self.decay = decay

    def update(self, module: nn.Module) -> None:
        for kept, now in zip(self.module.parameters(), module.parameters(), strict=True):
            kept.lerp_(now, 1 - self.decay)


@pytest.mark.parametrize("options", [{}, {"model_ema": Shadow}], ids=["own", "another class"])
def test_the_average_is_updated_once_an_epoch(quiet_trainer, weights, tmp_path, options) -> None:
    """It is decay times itself plus the rest of the weights, from the initial weights on.

    A class that is called with the module and decay= may keep it, and is used as it is.
    """
    ema = ModelEmaCallback(0.75, save_path=path_in(tmp_path), **options)
    trainer = quiet_trainer(callbacks=[ema, weights], max_epochs=3)
    trainer.fit(TinyModule())
    assert isinstance(ema.ema_model, options.get("model_ema", nn.Module))
    assert "ema_model_val_loss" in trainer.callback_metrics
    expected = TinyModule().layer.weight.detach()
    for later in weights.epochs:
        expected = 0.75 * expected + 0.25 * later
    torch.testing.assert_close(ema.ema_model.module.layer.weight.detach(), expected)
    assert ema.num_averaged == 3


def test_the_average_is_validated_under_names_of_its_own(quiet_trainer, normed, tmp_path) -> None:
    """`ema_model_val_loss` is the loss of the averaged weights on the validation data."""
    module, ema = normed(), ModelEmaCallback(0.5, save_path=path_in(tmp_path))
    trainer = quiet_trainer(callbacks=[ema], max_epochs=3)
    trainer.fit(module)
    average = normed()
    average.load_state_dict(ema.ema_model.module.state_dict())
    (found,) = quiet_trainer().validate(average, verbose=False)
    assert trainer.callback_metrics["ema_model_val_loss"].item() == found["val_loss"]
    (own,) = quiet_trainer().validate(module, verbose=False)
    assert trainer.callback_metrics["val_loss"].item() == own["val_loss"] != found["val_loss"]
    assert len(trainer.history.get_metric_values("ema_model_val_loss")) == 3


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
def test_the_training_is_as_without_it(quiet_trainer, normed, tmp_path, seen) -> None:
    """Weights, buffers and metrics are bit for bit those of a run without it, at the end too."""
    plain, module = normed(), normed()
    torch.manual_seed(0)
    first = quiet_trainer(max_epochs=3)
    first.fit(plain)
    torch.manual_seed(0)
    ema = ModelEmaCallback(0.5, seen, path_in(tmp_path))
    second = quiet_trainer(callbacks=[ema], max_epochs=3)
    second.fit(module)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, module.state_dict()[name]), name
    for name, value in first.callback_metrics.items():
        assert torch.equal(value, second.callback_metrics[name]), name


class Losses(TinyModule):
    """Logs a scripted loss for the average, and another one for its own weights."""

    losses = (3.0, 1.0, 2.0, 1.5, 1.2)

    def validation_step(self, batch, batch_idx):
        is_own = torch.equal(self.layer.weight, self.own)
        self.log("val_loss", 9.0 if is_own else self.losses[self.trainer.current_epoch])

    def on_validation_batch_end(self, *args):
        pass

    def on_train_batch_end(self, *args):
        self.own = self.layer.weight.detach().clone()


def test_the_best_average_is_saved(quiet_trainer, tmp_path) -> None:
    """The file holds the averaged weights of the best epoch alone, and a plain module loads it."""
    path, kept = path_in(tmp_path), []

    class Keep(Callback):
        def on_epoch_checkpoint(self, trainer, module) -> None:
            kept.append(copy.deepcopy(ema.ema_model.module.state_dict()))

    ema = ModelEmaCallback(0.5, save_path=path)
    options = {"max_epochs": 5}
    # the first average is the weights themselves
    quiet_trainer(callbacks=[ema, Keep()], **options).fit(Losses())
    assert ema.best_model_score == 1.0
    assert ema.best_model_path == path
    loaded = TinyModule.load_from_checkpoint(path)
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, kept[1][name]), name
    assert "optimizer_states" not in torch.load(path, weights_only=True)


def test_unseen_the_file_is_replaced_after_each_epoch(quiet_trainer, tmp_path) -> None:
    """Nothing is validated again, no metric is asked for, and the newest average is in the file."""
    ema = ModelEmaCallback(0.5, False, path_in(tmp_path), watch_metric="nothing of that name")
    options = {"max_epochs": 3, "limit_val_batches": 0}
    trainer = quiet_trainer(callbacks=[ema], **options)
    trainer.fit(TinyModule())
    loaded = TinyModule.load_from_checkpoint(path_in(tmp_path))
    assert torch.equal(loaded.layer.weight, ema.ema_model.module.layer.weight)
    assert not [name for name in trainer.callback_metrics if name.startswith("ema_model_")]


def test_only_the_given_callbacks_see_it(quiet_trainer, weights, tmp_path) -> None:
    """Early stopping, bars and savers of the trainer see one validation an epoch."""

    class Seeing(Callback):
        def __init__(self) -> None:
            self.weights = []

        def on_validation_start(self, trainer, module) -> None:
            self.weights.append(module.layer.weight.detach().clone())

    inside, outside = Seeing(), Seeing()
    ema = ModelEmaCallback(0.5, save_path=path_in(tmp_path), callbacks=inside)
    quiet_trainer(callbacks=[outside, ema, weights], max_epochs=3).fit(TinyModule())
    assert len(inside.weights) == len(outside.weights) == 3
    average = TinyModule().layer.weight.detach()
    for later in weights.epochs:
        average = 0.5 * average + 0.5 * later
    torch.testing.assert_close(inside.weights[2], average)
    assert torch.equal(outside.weights[2], weights.epochs[2])


@pytest.mark.parametrize(
    "stopper",
    [
        lambda: EarlyStopping("ema_model_val_loss", patience=1, check_on_train_epoch_end=True),
        lambda: EarlyStoppingCallback(1, watch_metric="ema_model_eval_loss_epoch"),
    ],
)
def test_a_fit_may_stop_by_the_averages_metric(quiet_trainer, tmp_path, stopper) -> None:
    """It is there for what looks at the end of the epoch, in any order of the list."""
    ema = ModelEmaCallback(0.5, save_path=path_in(tmp_path))
    trainer = quiet_trainer(callbacks=[stopper(), ema], max_epochs=5)
    trainer.fit(Losses())
    assert trainer.current_epoch == 3  # 9.0 at first, as the average is the weights; then 1.0, 2.0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, StopTraining])
def test_the_weights_come_back_whatever_happens(quiet_trainer, weights, tmp_path, error) -> None:
    """An error, Ctrl-C or a stop in its validation leaves the training weights in the module."""

    class Breaking(Callback):
        def on_validation_batch_end(self, trainer, module, *args) -> None:
            if trainer.current_epoch == 1:
                raise error("now")

    plain, module = TinyModule(), TinyModule()
    quiet_trainer(max_epochs=2).fit(plain)
    ema = ModelEmaCallback(0.5, save_path=path_in(tmp_path), callbacks=Breaking())
    trainer = quiet_trainer(callbacks=[ema], max_epochs=4)
    if error is StopTraining:
        trainer.fit(module)
    else:
        with pytest.raises(error):
            trainer.fit(module)
    assert torch.equal(module.layer.weight, plain.layer.weight)
    assert not torch.equal(module.layer.weight, ema.ema_model.module.layer.weight)


def test_it_costs_nothing_per_batch() -> None:
    """It listens to no hook of a training batch, nor of a validation batch."""
    ema = ModelEmaCallback()
    member = RelayMember(ema, "the average", routes_events=ema.routes_events)
    listened = [hook for hook in HOOKS if member.listener(hook) is not None]
    assert [hook for hook in listened if "batch" in hook] == []
    assert "on_train_epoch_end" in listened
    assert "on_epoch_checkpoint" in listened


def test_an_epoch_without_a_validation_has_none_of_the_average(quiet_trainer, tmp_path) -> None:
    """The average follows the trainer's validations, and is updated all the same."""
    ema = ModelEmaCallback(0.5, save_path=path_in(tmp_path))
    options = {"check_val_every_n_epoch": 2}
    trainer = quiet_trainer(callbacks=[ema], max_epochs=4, **options)
    trainer.fit(TinyModule())
    assert len(trainer.history.get_metric_values("ema_model_val_loss")) == 2
    assert ema.num_averaged == 4


def test_validations_inside_the_epoch_count(quiet_trainer, tmp_path) -> None:
    """An epoch whose validations come amid its batches has one of the average at its end."""
    ema = ModelEmaCallback(0.5, save_path=path_in(tmp_path))
    trainer = quiet_trainer(callbacks=[ema], max_epochs=2, val_check_interval=2)
    trainer.fit(TinyModule())
    assert len(trainer.history.get_metric_values("ema_model_val_loss")) == 2


@pytest.mark.parametrize("make", [lambda module, decay: module, lambda module, decay: Shadow])
def test_a_class_that_keeps_no_average_is_refused(quiet_trainer, tmp_path, make) -> None:
    """The error says what it must be."""
    ema = ModelEmaCallback(save_path=path_in(tmp_path), model_ema=make)
    with pytest.raises(OptionError, match=r"model_ema .* it must return an nn\.Module"):
        quiet_trainer(callbacks=[ema]).fit(TinyModule())


def test_without_anything_to_validate_it_says_so(quiet_trainer, tmp_path) -> None:
    """Before the first batch."""
    ema = ModelEmaCallback(save_path=path_in(tmp_path))
    with pytest.raises(UsageError, match="evaluate_during_training=True of ModelEmaCallback"):
        quiet_trainer(callbacks=[ema], limit_val_batches=0).fit(TinyModule())


def test_a_metric_that_was_not_logged_is_an_error(quiet_trainer, tmp_path) -> None:
    """It names the metric, and those that there are."""
    ema = ModelEmaCallback(save_path=path_in(tmp_path), watch_metric="ema_model_val_f1")
    with pytest.raises(MetricError, match="'ema_model_val_f1'"):
        quiet_trainer(callbacks=[ema]).fit(TinyModule())


def test_two_with_a_prefix_each(quiet_trainer, tmp_path) -> None:
    """Each averages, validates and saves for itself; with one prefix they are refused."""
    slow = ModelEmaCallback(
        0.9, True, path_in(tmp_path, "slow.pt"), "slow_eval_loss_epoch", prefix="slow_"
    )
    fast = ModelEmaCallback(0.1, save_path=path_in(tmp_path, "fast.pt"))
    options = {"max_epochs": 3}
    trainer = quiet_trainer(callbacks=[slow, fast], **options)
    trainer.fit(TinyModule())
    found = trainer.callback_metrics
    assert found["slow_val_loss"] != found["ema_model_val_loss"]
    assert slow.best_model_score == min(trainer.history.get_metric_values("slow_val_loss"))
    same = ModelEmaCallback(0.5, save_path=path_in(tmp_path, "same.pt"))
    with pytest.raises(CallbackError, match="two ModelEmaCallback with the prefix 'ema_model_'"):
        quiet_trainer(callbacks=[fast, same]).fit(TinyModule())


@pytest.mark.parametrize("other", [EMAWeightAveraging])
def test_another_that_replaces_weights_is_refused(quiet_trainer, tmp_path, other) -> None:
    """Both would have their own weights in the module."""
    ema = ModelEmaCallback(save_path=path_in(tmp_path))
    with pytest.raises(CallbackError, match="ModelEmaCallback beside EMAWeightAveraging"):
        quiet_trainer(callbacks=[ema, other()]).fit(TinyModule())


def test_it_is_the_last_of_the_savers(quiet_trainer, tmp_path) -> None:
    """The one that saves what can be resumed from is the trainer's first checkpoint callback."""
    ema, saver = ModelEmaCallback(save_path=path_in(tmp_path)), ModelCheckpoint(tmp_path)
    trainer = quiet_trainer(callbacks=[ema, saver])
    assert trainer.checkpoint_callbacks == [saver, ema]
    assert isinstance(ema, SaveBestModelCallback)


def test_a_checkpoint_saved_on_request_holds_the_average(quiet_trainer, tmp_path) -> None:
    """Beside the best, as its weights are those that it saves."""

    class Asking(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
            if trainer.current_epoch == 2 and batch_idx == 0:
                trainer.request_checkpoint()

    averages = []

    class Keep(Callback):
        def on_train_epoch_start(self, trainer, module) -> None:
            averages.append(copy.deepcopy(ema.ema_model.module.layer.weight))

    ema = ModelEmaCallback(0.5, save_path=path_in(tmp_path))
    options = {"max_epochs": 3}
    quiet_trainer(callbacks=[ema, Asking(), Keep()], **options).fit(TinyModule())
    loaded = TinyModule.load_from_checkpoint(path_in(tmp_path, "ema-v1.pt"))
    assert torch.equal(loaded.layer.weight, averages[2])


def test_a_second_fit_goes_on_and_another_module_begins_anew(quiet_trainer, tmp_path) -> None:
    """The average belongs to the training of one module."""
    ema, module = ModelEmaCallback(0.5, save_path=path_in(tmp_path)), TinyModule()
    trainer = quiet_trainer(callbacks=[ema], max_epochs=2)
    trainer.fit(module)
    trainer.max_epochs = 3
    trainer.fit(module)
    assert ema.num_averaged == 3
    trainer.fit(TinyModule())
    assert ema.num_averaged == 3
    assert trainer.current_epoch == 3
