"""Checkpoints of Lightning 2.x are gone on from, and Lightning reads ours.

The stored files were written by Lightning itself, see examples/make_lightning.py: three epochs of
five batches, saved inside the second epoch, at its end, and at the end of all.
"""

from __future__ import annotations

import importlib.util
import warnings

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks.early_stopping import EarlyStopping, EarlyStoppingReason
from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning

EPOCH_END, INSIDE, END = "lightning-epoch-end.ckpt", "lightning-inside.ckpt", "lightning-end.ckpt"


class OneCycleRegression(Module):
    """The module of the stored files, as it would be written here."""

    def __init__(self, width: int = 3, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Linear(width, 1))
        self.seen = []

    def loss(self, batch):
        return self.layers(batch[0]).sub(1).square().mean()

    def training_step(self, batch, batch_idx):
        self.seen.append((self.current_epoch, batch_idx, self.global_step, batch[0][0, 0].item()))
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.rate, total_steps=15)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Counter(Callback):
    """A user's callback, of the name that it had there."""

    count = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state_dict):
        self.count = state_dict["count"]


@pytest.fixture
def resume(tmp_path, examples):
    """Return a function that goes on from a stored file, and returns the trainer."""

    def go_on(name, *callbacks, shuffle=False, generator=None, module=None, **options):
        trainer = Trainer(
            callbacks=callbacks,
            accelerator="cpu",
            default_root_dir=tmp_path,
            plugins=False,
            logger=False,
            enable_checkpointing=any(isinstance(item, ModelCheckpoint) for item in callbacks),
            enable_progress_bar=False,
            enable_model_summary=False,
            **{"max_epochs": 3, **options},
        )
        data = TensorDataset(torch.arange(20.0).reshape(10, 2) / 20)
        train = DataLoader(data, batch_size=2, shuffle=shuffle, generator=generator)
        module = OneCycleRegression() if module is None else module
        trainer.fit(module, train, DataLoader(data, batch_size=5), ckpt_path=examples / name)
        return trainer

    return go_on


@pytest.fixture
def stored(examples):
    """Return a function that reads a stored file as it is."""
    return lambda name: torch.load(examples / name, weights_only=True)


def test_a_module_is_made_from_it(examples, stored):
    """load_from_checkpoint finds the weights and the hyperparameters."""
    module = OneCycleRegression.load_from_checkpoint(examples / END)
    assert module.hparams == {"width": 3, "rate": 0.1}
    for name, value in module.state_dict().items():
        assert torch.equal(value, stored(END)["state_dict"][name])


def test_from_an_epochs_end_it_goes_on_as_lightning_would_have(resume, stored):
    """The next epoch follows, and the run ends on the weights of the run that was never cut.

    The checkpoint was saved after the epoch's validation, before Lightning counted the epoch.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainerHooksWarning)  # the callbacks of the file
        trainer = resume(EPOCH_END)
    assert [place[:3] for place in trainer.module.seen] == [(2, i, 10 + i) for i in range(5)]
    assert (trainer.current_epoch, trainer.global_step) == (3, 15)
    end = stored(END)
    for name, value in trainer.module.state_dict().items():
        torch.testing.assert_close(value, end["state_dict"][name])
    schedule = trainer.lr_scheduler_configs[0].scheduler.state_dict()
    assert schedule["_last_lr"] == pytest.approx(end["lr_schedulers"][0]["_last_lr"])
    assert trainer.progress.batches_completed == trainer.progress.batches_stepped == 15


def test_from_inside_an_epoch_it_goes_on_there_with_one_warning(resume, stored):
    """The epoch's next batch follows: in a fixed order the run is the one that was never cut."""
    with pytest.warns(TrainerHooksWarning) as said:
        trainer = resume(INSIDE)
    told = [
        text for text in map(str, (item.message for item in said)) if "was saved inside" in text
    ]
    assert len(told) == 1
    assert "was saved inside epoch 1, after 2 batches" in told[0]
    assert trainer.module.seen[0] == (1, 2, 7, pytest.approx(0.4))
    assert len(trainer.module.seen) == 8
    assert trainer.global_step == 15
    for name, value in trainer.module.state_dict().items():
        torch.testing.assert_close(value, stored(END)["state_dict"][name])


@pytest.mark.filterwarnings("ignore::trainer_hooks.errors.TrainerHooksWarning")
@pytest.mark.parametrize("own", [True, False], ids=["generator", "global"])
def test_orders_of_a_shuffled_loader_differ_after_a_cut(resume, own):
    """A shuffling loader has a new order in the epoch that was cut, and another in the next."""
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(1) if own else None
    # a validation would draw on the random numbers too
    seen = resume(INSIDE, shuffle=True, generator=generator, limit_val_batches=0).module.seen
    orders = [[first for epoch, *_, first in seen if epoch == number] for number in (1, 2)]
    assert [len(order) for order in orders] == [3, 5]
    assert orders[0] != orders[1][2:]
    assert len(set(orders[1])) == 5


@pytest.mark.filterwarnings("ignore::trainer_hooks.errors.TrainerHooksWarning")
def test_random_numbers_after_the_cut_are_not_those_of_the_order(resume):
    """What the rest of the epoch draws is not what its order was drawn with."""
    own = {}

    class Looking(Callback):
        def on_load_checkpoint(self, trainer, module, checkpoint):
            own.update(checkpoint["trainer_hooks"])

    resume(INSIDE, Looking())
    assert not torch.equal(own["rng"]["torch"], own["stream"]["opened_with"]["rng"]["torch"])


def test_from_the_end_there_is_more_with_more_epochs(resume):
    """A finished run goes on with the next epoch if there is to be one."""

    class Free(OneCycleRegression):
        def configure_optimizers(self):
            optimizers, schedules = super().configure_optimizers()
            schedules[0]["frequency"] = 100  # it knows no more than 15 steps
            return optimizers, schedules

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainerHooksWarning)
        trainer = resume(END, module=Free(), max_epochs=4)
    assert [place[:3] for place in trainer.module.seen] == [(3, i, 15 + i) for i in range(5)]


def test_callbacks_with_its_keys_take_their_states_back(resume, examples, stored, caplog):
    """EarlyStopping, ModelCheckpoint and a user's own are restored; what is left is reported."""
    stopping, counter = EarlyStopping("val_loss"), Counter()
    saver = ModelCheckpoint(
        stored(EPOCH_END)["callbacks"][
            "ModelCheckpoint{'monitor': 'val_loss', 'mode': 'min', 'every_n_train_steps': 0, "
            "'every_n_epochs': 1, 'train_time_interval': None}"
        ]["dirpath"],
        monitor="val_loss",
    )
    seen = {}

    class Looking(Callback):
        def on_fit_start(self, trainer, module):
            seen.update(best=stopping.best_score.item(), count=counter.count)
            seen.update(kept=len(saver.best_k_models), reason=stopping.stopping_reason)
            trainer.stop()

    caplog.set_level("INFO", "trainer_hooks")
    with pytest.warns(TrainerHooksWarning, match="differ: state without a callback: 'Gone'"):
        trainer = resume(EPOCH_END, stopping, counter, saver, Looking())
    state = stored(EPOCH_END)["callbacks"]
    assert seen == {
        "best": state[stopping.state_key]["best_score"].item(),
        "count": 10,
        "kept": 2,
        "reason": EarlyStoppingReason.NOT_STOPPED,
    }
    report = trainer.load_report
    assert set(report.restored) == {stopping.state_key, saver.state_key, "Counter"}
    assert "Gone" in report.unexpected
    assert report.missing == ()
    [told] = [line for line in caplog.messages if line.startswith("resuming from")]
    assert f"{EPOCH_END}' at epoch 2, step 10" in told


@pytest.mark.parametrize("number", range(5))
def test_lightnings_numbers_for_reasons_are_ours(number):
    """EarlyStopping saves its reason as Lightning does, and takes it back."""
    stopping = EarlyStopping("val_loss")
    stopping.load_state_dict({**EarlyStopping("val_loss").state_dict(), "stopping_reason": number})
    assert stopping.stopping_reason is list(EarlyStoppingReason)[number]
    assert stopping.state_dict()["stopping_reason"] == number


def test_evaluation_takes_it(examples, stored):
    """validate loads its weights, and says nothing of the training's place."""
    trainer = Trainer(accelerator="cpu", plugins=False, logger=False, enable_checkpointing=False)
    module = OneCycleRegression()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainerHooksWarning)
        trainer.validate(module, torch.ones(1, 1, 1, 2), ckpt_path=examples / INSIDE, verbose=False)
    weight = stored(INSIDE)["state_dict"]["layers.0.weight"]
    assert torch.equal(module.layers[0].weight, weight)


def test_accumulation_windows_keep_their_places(resume, tmp_path):
    """After a cut inside a window the steps of the epoch are as many as they would have been."""
    with pytest.warns(TrainerHooksWarning):
        trainer = resume(INSIDE, accumulate_grad_batches=4, max_epochs=2)
    steps = [step for _, _, step, _ in trainer.module.seen]
    assert steps == [7, 7, 8]  # after the fourth batch of the epoch, and after the last


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.pop("loops"),
        lambda c: c["loops"]["fit_loop"].pop("epoch_progress"),
        lambda c: c["loops"].update(fit_loop=None),
        lambda c: c.pop("global_step"),
    ],
    ids=["loops", "progress", "fit_loop", "global_step"],
)
def test_a_file_that_does_not_say_where_it_stood_is_refused(stored, tmp_path, resume, change):
    """A file of a version before 2.0 has weights, and no place to go on from."""
    checkpoint = stored(INSIDE)
    change(checkpoint)
    torch.save(checkpoint, tmp_path / "old.ckpt")
    with pytest.raises(CheckpointError, match="does not say where its training stood"):
        resume(tmp_path / "old.ckpt")


def test_its_weights_alone_are_refused(stored, tmp_path, resume):
    """A Lightning file saved with save_weights_only cannot be resumed from."""
    checkpoint = stored(END)
    for key in ("callbacks", "optimizer_states", "lr_schedulers"):
        del checkpoint[key]
    torch.save(checkpoint, tmp_path / "weights.ckpt")
    with pytest.raises(CheckpointError, match="it holds weights alone"):
        resume(tmp_path / "weights.ckpt")


def test_another_number_of_optimizers_is_refused(examples, resume):
    """What does not fit is refused as for a file of our own."""

    class Two(OneCycleRegression):
        def configure_optimizers(self):
            return [torch.optim.Adam(layer.parameters()) for layer in self.layers]

        automatic_optimization = False

    with pytest.raises(CheckpointError, match="holds 1 entries under 'optimizer_states'"):
        resume(END, module=Two())


@pytest.fixture
def ours(tmp_path):
    """Our checkpoints of the same run, one after each epoch and one at the end, and the module."""

    class Saver(Callback):
        def on_epoch_checkpoint(self, trainer, module):
            trainer.save_checkpoint(tmp_path / f"epoch-{trainer.current_epoch}.ckpt")

    torch.manual_seed(0)
    data = TensorDataset(torch.arange(20.0).reshape(10, 2) / 20)
    trainer = Trainer(
        callbacks=[Saver(), EarlyStopping("val_loss"), Counter()], max_epochs=3, **QUIET_OPTIONS
    )
    trainer.fit(
        OneCycleRegression(), DataLoader(data, batch_size=2), DataLoader(data, batch_size=5)
    )
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    return trainer.module


def test_our_loops_have_the_form_of_lightnings(ours, stored, tmp_path):
    """Where a run stood is written in Lightning's form too, with the same numbers."""
    for mine, theirs in (("end.ckpt", END), ("epoch-1.ckpt", EPOCH_END)):
        found = torch.load(tmp_path / mine, weights_only=True)["loops"]["fit_loop"]
        expected = stored(theirs)["loops"]["fit_loop"]
        assert set(found) == set(expected)
        assert found["epoch_progress"] == expected["epoch_progress"]
        assert found["epoch_loop.state_dict"] == expected["epoch_loop.state_dict"]
        progress = "epoch_loop.batch_progress"
        assert found[progress]["total"] == expected[progress]["total"]
        assert found[progress]["is_last_batch"] is expected[progress]["is_last_batch"]
        assert {*flat(found)} == {*flat(expected)}


def flat(tree, path=""):
    """Return the paths of a tree of dicts."""
    for key, value in tree.items():
        yield f"{path}/{key}"
        if isinstance(value, dict):
            yield from flat(value, f"{path}/{key}")


def test_lightning_goes_on_from_ours(ours, tmp_path, examples):
    """Lightning's load_from_checkpoint and fit take our file, where Lightning is installed."""
    pytest.importorskip("lightning.pytorch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import lightning.pytorch as lightning

        spec = importlib.util.spec_from_file_location("made", examples / "make_lightning.py")
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        module = made.Net.load_from_checkpoint(tmp_path / "end.ckpt")
        assert dict(module.hparams) == {"width": 3, "rate": 0.1}
        assert torch.equal(module.layers[0].weight, ours.layers[0].weight)
        trainer = lightning.Trainer(
            max_epochs=3,
            accelerator="cpu",
            logger=False,
            default_root_dir=tmp_path,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[lightning.callbacks.EarlyStopping("val_loss"), made.Counter()],
        )
        data = TensorDataset(torch.arange(20.0).reshape(10, 2) / 20)
        module = made.Net()
        trainer.fit(
            module,
            DataLoader(data, batch_size=2),
            DataLoader(data, batch_size=5),
            ckpt_path=tmp_path / "epoch-1.ckpt",
        )
    assert trainer.global_step == 15
    assert torch.equal(module.layers[0].weight, ours.layers[0].weight)
