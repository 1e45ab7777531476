"""WeightAveraging and EMAWeightAveraging in runs."""

from __future__ import annotations

import itertools

import pytest
import torch
from samples import one_in
from torch.optim.swa_utils import get_ema_avg_fn

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import (
    EarlyStopping,
    EMAWeightAveraging,
    ModelCheckpoint,
    StochasticWeightAveraging,
    WeightAveraging,
)
from trainer_hooks.errors import CallbackError, TrainerHooksWarning
from trainer_hooks.testing import TinyModule

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


def test_the_mean_of_all_steps(quiet_trainer, weights, mean) -> None:
    """By default each step's weights are averaged in, and the module has the mean at the end."""
    module = TinyModule()
    averaging = WeightAveraging()
    quiet_trainer(callbacks=[averaging, weights], max_epochs=2).fit(module)
    assert averaging.num_averaged == len(weights.steps) == 6
    torch.testing.assert_close(module.layer.weight.detach(), mean(weights.steps))
    assert not torch.equal(module.layer.weight, weights.steps[-1])


def test_validation_is_of_the_average_and_training_is_not(quiet_trainer, weights, mean) -> None:
    """The averaged weights are in the module while fit validates, and only then."""
    plain = TinyModule()
    quiet_trainer(max_epochs=2).fit(plain)
    last = plain.layer.weight.detach()
    quiet_trainer(callbacks=[WeightAveraging(), weights], max_epochs=2).fit(TinyModule())
    torch.testing.assert_close(weights.validated[0], mean(weights.steps[:3]))
    torch.testing.assert_close(weights.validated[-1], mean(weights.steps))
    assert torch.equal(weights.epochs[-1], last)  # trained as it would have been


def test_accumulated_batches_are_one_step(quiet_trainer, weights) -> None:
    """With accumulation there is one update a step, the short window at the end included."""
    averaging = WeightAveraging()
    quiet_trainer(callbacks=[averaging, weights], accumulate_grad_batches=2).fit(TinyModule())
    assert averaging.num_averaged == len(weights.steps) == 2


def test_a_window_that_the_loader_cuts_short_is_averaged(quiet_trainer, weights) -> None:
    """Where the loader ends in a window without having said so, its step counts too."""
    asked = []

    class Asking(WeightAveraging):
        def should_update(self, step_idx=None, epoch_idx=None):
            asked.append((step_idx, epoch_idx))
            return super().should_update(step_idx, epoch_idx)

    def batches():
        yield from TinyModule().train_dataloader()

    class Endless:
        def __iter__(self):
            return itertools.islice(batches(), 3)

    averaging = Asking()
    trainer = quiet_trainer(
        callbacks=[averaging, weights], accumulate_grad_batches=2, limit_val_batches=0
    )
    trainer.fit(TinyModule(), Endless())
    assert averaging.num_averaged == len(weights.steps) == 2
    assert asked == [(0, None), (1, None), (None, 0)]


def test_each_step_is_asked_about_once(quiet_trainer) -> None:
    """should_update may count: it is asked once about each step and each epoch."""
    asked = []

    class Never(WeightAveraging):
        def should_update(self, step_idx=None, epoch_idx=None):
            asked.append((step_idx, epoch_idx))
            return False

    quiet_trainer(callbacks=[Never()], accumulate_grad_batches=2, max_epochs=2).fit(TinyModule())
    assert asked == [(0, None), (1, None), (None, 0), (2, None), (3, None), (None, 1)]


def test_before_the_first_update_nothing_changes(quiet_trainer, weights, tmp_path) -> None:
    """An average of nothing is never evaluated, saved as the weights, or given to the module."""

    class Never(WeightAveraging):
        def should_update(self, step_idx=None, epoch_idx=None):
            return False

    module = TinyModule()
    trainer = quiet_trainer(callbacks=[Never(), weights])
    trainer.fit(module)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    assert torch.equal(weights.validated[-1], weights.steps[-1])
    assert torch.equal(module.layer.weight, weights.steps[-1])
    saved = torch.load(tmp_path / "x.ckpt", weights_only=True)
    assert torch.equal(saved["state_dict"]["layer.weight"], weights.steps[-1])


class EachEpoch(WeightAveraging):
    def should_update(self, step_idx=None, epoch_idx=None):
        return epoch_idx is not None


def test_epochs(quiet_trainer, weights, mean) -> None:
    """should_update may choose the ends of epochs."""
    module = TinyModule()
    quiet_trainer(callbacks=[EachEpoch(), weights], max_epochs=3).fit(module)
    torch.testing.assert_close(module.layer.weight.detach(), mean(weights.epochs))


def test_a_checkpoint_remembers_the_epoch(quiet_trainer, tmp_path) -> None:
    """A checkpoint tells which epoch was averaged in last, and a resume takes it back."""
    trainer = quiet_trainer(callbacks=[EachEpoch()], max_epochs=2)
    trainer.fit(TinyModule())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    saved = torch.load(tmp_path / "x.ckpt", weights_only=True)
    assert saved["callbacks"]["EachEpoch"] == {
        "latest_update_step": 0,
        "latest_update_epoch": 1,
        "latest_step": 6,
    }
    again = EachEpoch()
    resumed = quiet_trainer(callbacks=[again], max_epochs=3)
    resumed.fit(TinyModule(), ckpt_path=tmp_path / "x.ckpt")
    assert again.state_dict()["latest_update_epoch"] == 2
    assert again.num_averaged == 3


def test_a_checkpoint_holds_both(quiet_trainer, weights, tmp_path, mean) -> None:
    """state_dict is the average and loads into a plain module; the current weights are beside."""
    saver = ModelCheckpoint(dirpath=tmp_path, save_last=True)
    quiet_trainer(
        callbacks=[WeightAveraging(), weights, saver], enable_checkpointing=True, max_epochs=2
    ).fit(TinyModule())
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    torch.testing.assert_close(saved["state_dict"]["layer.weight"], mean(weights.steps))
    assert torch.equal(saved["current_model_state"]["layer.weight"], weights.steps[-1])
    assert saved["averaging_state"]["n_averaged"].item() == 6
    plain = TinyModule.load_from_checkpoint(tmp_path / "last.ckpt")
    torch.testing.assert_close(plain.layer.weight.detach(), mean(weights.steps))


def test_the_best_checkpoint_does_what_it_was_chosen_for(quiet_trainer, tmp_path) -> None:
    """What ModelCheckpoint and EarlyStopping go by is what the saved weights give again."""
    saver = ModelCheckpoint(dirpath=tmp_path, monitor="val_loss")
    stopping = EarlyStopping("val_loss", patience=5)
    averaging = EMAWeightAveraging(decay=0.5)
    module = TinyModule()
    trainer = quiet_trainer(
        callbacks=[saver, stopping, averaging], enable_checkpointing=True, max_epochs=3
    )
    trainer.fit(module)
    best = TinyModule.load_from_checkpoint(saver.best_model_path)
    (metrics,) = quiet_trainer().validate(best, verbose=False)
    assert metrics["val_loss"] == pytest.approx(saver.best_model_score.item(), abs=1e-7)
    assert stopping.best_score.item() == saver.best_model_score.item()
    (again,) = trainer.validate(module, ckpt_path="best", verbose=False)
    assert again == pytest.approx(metrics)


def test_weights_alone_are_the_averaged_ones(quiet_trainer, weights, tmp_path, mean) -> None:
    """A file that cannot be resumed from holds what is to be used, and nothing of the rest."""
    trainer = quiet_trainer(callbacks=[WeightAveraging(), weights])

    class Save(Callback):
        def on_batch_checkpoint(self, trainer, module):
            trainer.save_checkpoint(tmp_path / "x.ckpt", weights_only=True)

    trainer.add_callback(Save())
    trainer.fit(TinyModule())
    saved = torch.load(tmp_path / "x.ckpt", weights_only=True)
    torch.testing.assert_close(saved["state_dict"]["layer.weight"], mean(weights.steps))
    assert "current_model_state" not in saved


def test_a_checkpoint_from_inside_a_validation(quiet_trainer, weights, tmp_path, mean) -> None:
    """Saved while the average is in the module, the two are not confused."""

    class Save(Callback):
        def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx):
            trainer.save_checkpoint(tmp_path / "x.ckpt")

    quiet_trainer(callbacks=[WeightAveraging(), Save(), weights]).fit(TinyModule())
    saved = torch.load(tmp_path / "x.ckpt", weights_only=True)
    torch.testing.assert_close(saved["state_dict"]["layer.weight"], mean(weights.steps))
    assert torch.equal(saved["current_model_state"]["layer.weight"], weights.steps[-1])


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_a_validation_leaves_the_current_weights(
    kind, quiet_trainer, weights, tmp_path, mean
) -> None:
    """What is saved then, and what is left in the module, are the weights of training."""

    class Broken(TinyModule):
        def on_validation_batch_end(self, outputs, batch, batch_idx):
            raise kind("on purpose")

    module = Broken()
    saver = ModelCheckpoint(dirpath=tmp_path, save_on_exception=True)
    trainer = quiet_trainer(
        callbacks=[WeightAveraging(), weights, saver], enable_checkpointing=True
    )
    with pytest.raises(kind):
        trainer.fit(module)
    assert torch.equal(module.layer.weight, weights.steps[-1])
    (path,) = tmp_path.glob("*.ckpt")
    saved = torch.load(path, weights_only=True)
    assert torch.equal(saved["current_model_state"]["layer.weight"], weights.steps[-1])
    torch.testing.assert_close(saved["state_dict"]["layer.weight"], mean(weights.steps))


def test_a_stop_in_a_validation(quiet_trainer, weights, mean) -> None:
    """StopTraining between the hooks of a validation does not leave the two exchanged."""

    class Stop(Callback):
        def on_validation_epoch_end(self, trainer, module):
            raise StopTraining("enough")

    module = TinyModule()
    quiet_trainer(callbacks=[WeightAveraging(), Stop(), weights], max_epochs=3).fit(module)
    torch.testing.assert_close(module.layer.weight.detach(), mean(weights.steps))


def test_an_evaluation_of_its_own_is_of_the_module_given(quiet_trainer) -> None:
    """validate() of another module, or of another checkpoint's weights, is not of the average."""
    trainer = quiet_trainer(callbacks=[WeightAveraging()])
    trainer.fit(TinyModule())
    other = TinyModule()
    (expected,) = quiet_trainer().validate(TinyModule(), verbose=False)
    assert trainer.validate(other, verbose=False) == [expected]
    assert torch.equal(other.layer.weight, TinyModule().layer.weight)


def test_another_checkpoint_evaluated_and_saved(quiet_trainer, tmp_path) -> None:
    """Weights that a checkpoint put into the module are saved, and not the average."""
    fresh = quiet_trainer()
    fresh.validate(TinyModule(), verbose=False)
    fresh.save_checkpoint(tmp_path / "fresh.ckpt", weights_only=True)
    module = TinyModule()
    trainer = quiet_trainer(callbacks=[WeightAveraging()])
    trainer.fit(module)
    trainer.validate(module, ckpt_path=tmp_path / "fresh.ckpt", verbose=False)
    trainer.save_checkpoint(tmp_path / "again.ckpt")
    saved = torch.load(tmp_path / "again.ckpt", weights_only=True)
    assert torch.equal(saved["state_dict"]["layer.weight"], TinyModule().layer.weight)


def test_a_checkpoint_without_an_average(quiet_trainer, tmp_path) -> None:
    """It can be resumed from; a warning says that the average begins there."""
    trainer = quiet_trainer()
    trainer.fit(TinyModule())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    averaging = WeightAveraging()
    with pytest.warns(TrainerHooksWarning) as told:
        quiet_trainer(callbacks=[averaging], max_epochs=2).fit(
            TinyModule(), ckpt_path=tmp_path / "x.ckpt"
        )
    assert any("holds no average" in str(warning.message) for warning in told)
    assert averaging.num_averaged == 3


def test_another_training_begins_anew(quiet_trainer, weights, mean) -> None:
    """A fit of another module averages that module's weights alone."""
    averaging = WeightAveraging()
    trainer = quiet_trainer(callbacks=[averaging])
    trainer.fit(TinyModule())
    trainer.add_callback(weights)
    second = TinyModule(lr=0.5)
    trainer.fit(second)
    assert averaging.num_averaged == 3
    torch.testing.assert_close(second.layer.weight.detach(), mean(weights.steps))


def test_ema(quiet_trainer, weights) -> None:
    """Each update moves the average by the share that decay leaves."""
    module = TinyModule()
    quiet_trainer(callbacks=[EMAWeightAveraging(decay=0.75), weights], max_epochs=2).fit(module)
    expected = weights.steps[0]
    for step in weights.steps[1:]:
        expected = 0.75 * expected + 0.25 * step
    torch.testing.assert_close(module.layer.weight.detach(), expected)


def test_avg_fn_is_used(quiet_trainer) -> None:
    """WeightAveraging with torch's EMA function is EMAWeightAveraging."""
    first, second = TinyModule(), TinyModule()
    quiet_trainer(callbacks=[WeightAveraging(avg_fn=get_ema_avg_fn(0.75))]).fit(first)
    quiet_trainer(callbacks=[EMAWeightAveraging(decay=0.75)]).fit(second)
    torch.testing.assert_close(first.layer.weight, second.layer.weight)


@pytest.mark.parametrize(
    ("arguments", "steps", "epochs"),
    [
        ({}, range(6), []),
        ({"update_every_n_steps": 2}, [0, 2, 4], []),
        ({"update_every_n_steps": 2, "update_starting_at_step": 3}, [4], []),
        ({"update_starting_at_step": 4}, [4, 5], []),
        ({"update_every_n_steps": 0, "update_starting_at_epoch": 1}, [], [1, 2]),
        ({"update_every_n_steps": 4, "update_starting_at_epoch": 2}, [0, 4], [2]),
    ],
)
def test_when_ema_updates(arguments, steps, epochs) -> None:
    """Steps and epochs are chosen by their indices, and add up."""
    averaging = EMAWeightAveraging(**arguments)
    assert [i for i in range(6) if averaging.should_update(step_idx=i)] == list(steps)
    assert [i for i in range(3) if averaging.should_update(epoch_idx=i)] == list(epochs)


def test_statistics_are_averaged_too_unless_not_wanted(quiet_trainer, normed) -> None:
    """use_buffers decides whether BatchNorm's statistics are averaged or those of the last step."""
    plain, first, second = normed(), normed(), normed()
    torch.manual_seed(0)
    quiet_trainer().fit(plain)
    torch.manual_seed(0)
    quiet_trainer(callbacks=[WeightAveraging()]).fit(first)
    torch.manual_seed(0)
    quiet_trainer(callbacks=[WeightAveraging(use_buffers=False)]).fit(second)
    assert torch.equal(second.norm.running_mean, plain.norm.running_mean)
    assert not torch.equal(first.norm.running_mean, plain.norm.running_mean)
    assert torch.equal(first.norm.num_batches_tracked, plain.norm.num_batches_tracked)


@pytest.mark.parametrize("other", [EMAWeightAveraging, lambda: StochasticWeightAveraging(0.1)])
def test_two_that_average_are_refused(other, quiet_trainer) -> None:
    """Each would put its own weights into the module; the error names both."""
    trainer = quiet_trainer(callbacks=[WeightAveraging(), other()])
    with pytest.raises(CallbackError, match="WeightAveraging beside"):
        trainer.fit(TinyModule())


def test_a_module_that_builds_itself_late(quiet_trainer) -> None:
    """The average is of all layers, those that configure_model makes included."""

    class Late(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.late = None

        def configure_model(self):
            if self.late is None:
                self.late = torch.nn.Linear(2, 2)

        def forward(self, batch):
            return self.late(self.layer(batch[0]))

    averaging = WeightAveraging()
    quiet_trainer(callbacks=[averaging]).fit(Late())
    assert averaging.averaged_module.late.weight.shape == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "factory",
    one_in(
        3,
        [WeightAveraging, lambda: EMAWeightAveraging(decay=0.5, use_buffers=False), EachEpoch],
    ),
)
def test_an_exact_resume_with_statistics(factory, normed, callback_contract) -> None:
    """With BatchNorm and dropout too, a run that was cut at any batch ends bit-equal."""
    callback_contract(factory, module=normed)
