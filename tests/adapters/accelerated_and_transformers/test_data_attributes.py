"""What callbacks of pytorch-accelerated read and change in a Trainer of trainer_hooks."""

from __future__ import annotations

import shutil

import pytest
import pytorch_accelerated as pa
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils.collate import default_collate

from trainer_hooks import Module, Trainer
from trainer_hooks.errors import CheckpointError, UsageError

pytestmark = pytest.mark.slow  # the import of the framework alone is

DATA = TensorDataset(torch.ones(8, 2), torch.ones(8, 1))


class Reads(pa.callbacks.TrainerCallback):
    """Notes the data sets and the collating function after each epoch."""

    def __init__(self):
        self.found = []

    def on_train_epoch_end(self, trainer, **kwargs):
        self.found.append((trainer.train_dataset, trainer.eval_dataset, trainer.collate_fn))


class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return (self.layer(batch[0]) - batch[1]).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("eval_loss_epoch", self.training_step(batch, batch_idx))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_data_sets_and_collate_function():
    """They are those of the loaders; where there is no data set, there is None."""
    loader, reads = DataLoader(DATA, batch_size=4), Reads()
    options = {"accelerator": "cpu", "max_epochs": 1, "logger": False, "plugins": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(callbacks=[reads], enable_checkpointing=False, **options, **quiet)
    trainer.fit(Line(), loader, loader)
    trainer.fit(Line(), [next(iter(loader))])
    assert reads.found[0] == (DATA, DATA, default_collate)
    assert reads.found[1][0] is None
    assert reads.found[1][2] is None


def _fit(callback):
    trainer = Trainer(callbacks=[callback], **QUIET_OPTIONS, max_epochs=1)
    trainer.fit(Line(), DataLoader(DATA, batch_size=4), DataLoader(DATA, batch_size=4))
    return trainer


def test_loaders_have_a_device():
    """As those of accelerate, from which callbacks take it."""
    found = []

    class Devices(pa.callbacks.TrainerCallback):
        def on_eval_epoch_start(self, trainer, **kwargs):
            found.append((trainer._train_dataloader.device, trainer._eval_dataloader.device))

    trainer = _fit(Devices())
    assert set(found) == {(trainer.device, trainer.device)}


def test_an_assigned_loss_that_would_be_ignored_is_refused():
    """The backward here is that of the module's loss, which a guest cannot replace."""

    class Weighs(pa.callbacks.TrainerCallback):
        def on_train_step_end(self, trainer, batch, batch_output, **kwargs):
            batch_output["loss"] = 2 * batch_output["loss"]

    with pytest.raises(UsageError, match=r"batch_output\['loss'\] was set .* Change the loss in"):
        _fit(Weighs())


def test_what_a_step_returns_beside_its_loss_is_asked_for_in_vain():
    """A training step ends before it returns there; an evaluation's entries are all there."""
    found = []

    class Returns(Line):
        def forward(self, x):
            return self.layer(x)

        def training_step(self, batch, batch_idx):
            logits = self(batch[0])
            return {"loss": logits.square().mean(), "logits": logits}

        def validation_step(self, batch, batch_idx):
            logits = self(batch[0])
            return {"loss": logits.square().mean(), "logits": logits}

    class Looks(pa.callbacks.TrainerCallback):
        def on_eval_step_end(self, trainer, batch_output, **kwargs):
            found.append(sorted(batch_output))

        def on_train_step_end(self, trainer, batch_output, **kwargs):
            found.append([*batch_output, batch_output["model_outputs"]])
            assert "logits" not in batch_output
            if trainer.run_history.current_epoch == 2:
                batch_output["logits"]

    trainer = Trainer(callbacks=[Looks()], max_epochs=2, **QUIET_OPTIONS)
    with pytest.raises(KeyError, match=r"batch_output\['logits'\] at 'on_train_step_end'"):
        trainer.fit(Returns(), DataLoader(DATA, batch_size=8), DataLoader(DATA, batch_size=8))
    step = ["loss", "model_outputs", "batch_size", None]
    assert found == [step, ["batch_size", "logits", "loss", "model_outputs"], step]


@pytest.mark.parametrize("name", ["_train_dataloader", "_eval_dataloader"])
def test_a_loader_that_a_guest_puts_in_is_refused(name):
    """Their Trainer goes on with the loader; here its place in the data would be lost."""
    given = DataLoader(DATA, batch_size=8)
    counts = []

    class Replaces(pa.callbacks.TrainerCallback):
        def on_training_run_start(self, trainer, **kwargs):
            setattr(trainer, name, given)

        def on_train_step_end(self, trainer, **kwargs):
            counts.append("train")

        def on_eval_step_end(self, trainer, **kwargs):
            counts.append("eval")

    layer = torch.nn.Linear(2, 1)
    theirs = pa.Trainer(
        layer, torch.nn.MSELoss(), torch.optim.SGD(layer.parameters(), 0.1), [Replaces()]
    )
    theirs.train(DATA, 1, DATA, per_device_batch_size=4)
    # one batch of the loader that was put in, and two of the other
    assert counts.count(name.split("_")[1]) == 1
    assert len(counts) == 3
    with pytest.raises(UsageError, match="put DataLoader in the place of a loader of a run"):
        _fit(Replaces())
    limit = pa.callbacks.LimitBatchesCallback(1)
    assert _fit(limit).global_step == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.callbacks.SaveTrainingStateCallback("states", save_every_n_epochs=1),
        lambda: Ends("states"),
    ],
)
def test_a_state_is_a_file_that_neither_trainer_resumes_from(make, tmp_path, monkeypatch):
    """There it is several files; here one, which theirs cannot read, and ours says what to take."""
    monkeypatch.chdir(tmp_path)
    layer = torch.nn.Linear(2, 1)

    def theirs(*callbacks):
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        return pa.Trainer(layer, torch.nn.MSELoss(), optimizer, callbacks)

    def states():
        return [
            (folder, sorted(path.name for path in folder.iterdir()))
            for folder in sorted((tmp_path / "states").rglob("*"))
            if folder.is_dir() and any(path.is_file() for path in folder.iterdir())
        ]

    theirs(make()).train(DATA, 1, DATA, per_device_batch_size=4)
    (folder, there), *_ = states()
    theirs().train(DATA, 1, DATA, per_device_batch_size=4, resume_from=folder)
    shutil.rmtree("states")
    options = {**QUIET_OPTIONS, "max_epochs": 1, "enable_checkpointing": True}
    Trainer(callbacks=[make()], **options).fit(
        Line(), DataLoader(DATA, batch_size=4), DataLoader(DATA, batch_size=4)
    )
    (folder, here), *_ = states()
    assert here == ["training_state.pt"] != there
    assert len(there) > 1
    with pytest.raises(FileNotFoundError, match=r"pytorch_model\.bin"):
        theirs().train(DATA, 1, DATA, per_device_batch_size=4, resume_from=folder)
    with pytest.raises(CheckpointError, match="is no trainer checkpoint"):
        Trainer(max_epochs=2, **QUIET_OPTIONS).fit(
            Line(), DataLoader(DATA, batch_size=4), ckpt_path=folder / here[0]
        )


class Ends(pa.callbacks.WSDCheckpointCallback):
    """The same, which saves a state at the end of the run and needs no schedule."""

    def on_training_run_start(self, trainer, **kwargs):
        pass

    def on_train_step_end(self, trainer, **kwargs):
        pass

    def on_training_run_end(self, trainer, **kwargs):
        self._save_pre_decay(trainer, 1)


def test_an_evaluation_in_an_overridden_end_of_a_step_comes_after_the_step():
    """There it sees the weights before the batch's step, as a plain callback of that class."""

    class Evaluates(pa.callbacks.StepBasedEvaluationCallback):
        def __init__(self):
            super().__init__(eval_every_n_steps=2)
            self.weights, self.evaluated = [], set()

        def on_train_step_start(self, trainer, **kwargs):
            self.weights.append(_weight_of(trainer.model))

        def on_train_step_end(self, trainer, step, **kwargs):
            super().on_train_step_end(trainer, step=step, **kwargs)

        def on_eval_step_start(self, trainer, **kwargs):
            if len(self.weights) < 4:  # the last evaluation is that of the epoch
                self.evaluated.add(_weight_of(trainer.model))

    theirs, here = Evaluates(), Evaluates()
    layer = torch.nn.Linear(2, 1)
    pa.Trainer(layer, torch.nn.MSELoss(), torch.optim.SGD(layer.parameters(), 0.1), [theirs]).train(
        DATA, 1, DATA, per_device_batch_size=2
    )
    assert theirs.evaluated == {theirs.weights[2]}
    loaders = DataLoader(DATA, batch_size=2), DataLoader(DATA, batch_size=2)
    Trainer(callbacks=[here], **QUIET_OPTIONS, max_epochs=1).fit(Line(), *loaders)
    assert here.evaluated == {here.weights[3]}


def _weight_of(model):
    return next(model.parameters()).detach().sum().item()


def test_a_guests_own_event_has_any_name():
    """One that begins with `on_` reaches the guest's method; a hook's name is refused."""
    found = []

    class Listens(pa.callbacks.TrainerCallback):
        def on_rows_counted(self, trainer, rows):
            found.append(rows)

        def on_train_epoch_end(self, trainer, **kwargs):
            trainer.callback_handler.call_event("on_rows_counted", trainer, rows=8)

    _fit(Listens())
    assert found == [8]
