"""What becomes of copies and pickles of a trainer, and of what refers to one."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import EarlyStopping, RichProgressBar, TQDMProgressBar
from trainer_hooks.loggers import CSVLogger

RULE = r"a Trainer cannot be copied or pickled in its fit: .* save_checkpoint"


class Logged(Module):
    """Can be pickled, unlike a class inside a test."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


class Keeps(Callback):
    """Keeps the trainer that it takes part in, as many callbacks do."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.counts = [0]

    def setup(self, trainer, module, stage):
        self.trainer = trainer

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.counts[0] += 1

    def state_dict(self):
        return {"counts": self.counts}

    def load_state_dict(self, state_dict):
        self.counts = state_dict["counts"]


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps], ids=["deepcopy", "pickle"])
def test_a_trainer_is_not_copied_in_a_run(copied, bare, Tiny, batches) -> None:
    """One sentence says why, and what to do instead; the run goes on."""
    told = []

    class Copies(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            with pytest.raises(TypeError, match=RULE) as caught:
                copied(trainer)
            told.append(caught.value)

    trainer = bare(Copies())
    trainer.fit(Tiny(), batches(2))
    assert (len(told), trainer.global_step) == (2, 2)


def test_a_trainer_is_not_copied_in_part(bare) -> None:
    """Both would train the same module by the same counters."""
    with pytest.raises(TypeError, match=r"cannot be copied in part.*deepcopy"):
        copy.copy(bare())


@pytest.mark.parametrize("bar", [TQDMProgressBar, RichProgressBar])
@pytest.mark.parametrize("fits", [0, 1])
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["deepcopy", "pickle"]
)
def test_a_copy_at_rest_goes_on_by_itself(copied, fits, bar, bare, batches, tmp_path) -> None:
    """It has counters, metrics, callbacks, optimizers and weights, and trains as the original."""
    options = {"max_epochs": 1, "logger": CSVLogger(tmp_path), "log_every_n_steps": 1}
    trainer = bare(bar(), EarlyStopping("loss"), enable_progress_bar=True, **options)
    module = Logged()
    if fits:
        trainer.fit(module, batches(3))
    made = copied(trainer)
    pickle.dumps(trainer.progress_bar_callback)
    assert (made.global_step, made.current_epoch) == (3 * fits, fits)
    assert (made.state, made.max_epochs) == (trainer.state, 1)
    assert made.callback_metrics == trainer.callback_metrics
    assert [type(each) for each in made.callbacks] == [type(each) for each in trainer.callbacks]
    assert not {id(each) for each in made.callbacks} & {id(each) for each in trainer.callbacks}
    if fits:
        assert made.module is not module
        assert made.optimizers[0].param_groups[0]["params"][0] is made.module.layer.weight
    else:
        torch.manual_seed(1)
        module = Logged()
    others = made.module or copy.deepcopy(module)
    for one, net in ((made, others), (trainer, module)):
        one.max_epochs = 2
        one.fit(net, batches(3))
    assert made.global_step == trainer.global_step == 6
    assert torch.equal(module.layer.weight, others.layer.weight)


def test_a_copy_of_a_callback_refers_to_the_same_trainer(bare, Tiny, batches) -> None:
    """A callback that keeps the trainer can be copied, and everything else of it is its own."""
    keeps = Keeps()
    trainer = bare(keeps)
    trainer.fit(Logged(), batches(2))
    made = copy.deepcopy(keeps)
    assert made.trainer is trainer
    assert (made.counts, made.counts is keeps.counts) == ([2], False)
    assert pickle.loads(pickle.dumps(keeps)).trainer.global_step == 2


def test_the_state_of_a_callback_that_keeps_the_trainer_is_saved(
    bare, Tiny, batches, tmp_path
) -> None:
    """Its state is its own affair, in a file that is written at once and in one of a thread."""
    trainer = bare(Keeps())
    trainer.fit(Tiny(), batches(2))
    trainer.save_checkpoint(tmp_path / "at once.ckpt")
    trainer.save_in_background(tmp_path / "later.ckpt")
    trainer.finish_saves()
    for path in tmp_path.glob("*.ckpt"):
        saved = torch.load(path, weights_only=True)["callbacks"]["Keeps"]
        assert saved == {"counts": [2]}


def test_rehearsals_and_trials_are_run_by_twins(bare, Tiny, batches) -> None:
    """A trainer still makes others like itself, of its own class and with its attributes."""

    class Mine(Trainer):
        mark = "none"

    trainer = Mine(logger=False, plugins=False, enable_checkpointing=False, accelerator="cpu")
    trainer.mark = "kept"
    twin = trainer.rehearsal()
    assert (type(twin), twin.mark, twin is trainer) == (Mine, "kept", False)


def test_a_copy_of_the_callbacks_is_a_plain_list(bare, batches) -> None:
    """Copied, deep-copied or pickled they register with nobody."""
    keeps = Keeps()
    trainer = bare(keeps)
    for made in (trainer.callbacks.copy(), copy.copy(trainer.callbacks)):
        assert type(made) is list
        assert keeps in made
        made.clear()
    made = copy.deepcopy(trainer.callbacks)
    assert [type(one) for one in made] == [type(one) for one in trainer.callbacks]
    assert not any(one is keeps for one in made)
    made.append(Keeps())
    assert keeps in trainer.callbacks
    assert len(trainer.callbacks) == len(made) - 1
    pickle.loads(pickle.dumps(trainer.callbacks))
