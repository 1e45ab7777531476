"""A resume restores what happened, never what was chosen, and all of it before on_fit_start."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader

from trainer_hooks import Callback
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.errors import TrainerHooksWarning

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


def setup(kit, callbacks=(), net=None, **options):
    train = DataLoader(kit.Samples(), batch_size=4, shuffle=True)
    val = DataLoader(kit.Samples(7), batch_size=4)
    return kit.Setup(net or kit.Net(), train, val, options, list(callbacks))


@pytest.fixture
def saved(lab, kit):
    """Make a run of so many epochs and return its checkpoints by name."""

    def run(make, name="first", **kwargs):
        outcome = lab.run(make, name, at_slots=True, **kwargs)
        return {path.stem: path for path, _ in outcome.cutter.cuts} | {
            "end": lab.folder / name / "end.ckpt"
        }

    return run


@pytest.mark.slow
def test_everything_is_there_on_fit_start(lab, kit, saved):
    """Weights, optimizers, schedulers, counters, metrics and states are back at the first hook."""
    found = {}

    class Looking(Callback):
        count = 0

        def on_fit_start(self, trainer, module):
            progress = trainer.progress
            found.update(
                weights={name: value.clone() for name, value in module.state_dict().items()},
                optimizer=copy.deepcopy([o.state_dict() for o in trainer.optimizers]),
                counters=(progress.epochs_completed, progress.batches_completed),
                stage=progress.stage,
                metrics={k: v.item() for k, v in trainer.callback_metrics.items()},
                count=self.count,
                is_reported=trainer.load_report is not None,
            )

        def on_train_batch_end(self, *args):
            self.count += 1

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state_dict):
            self.count = state_dict["count"]

    files = saved(lambda: setup(kit, [Looking()]))
    checkpoint = torch.load(files["batch-07"], weights_only=True)
    lab.run(lambda: setup(kit, [Looking()]), "resumed", files["batch-07"])
    assert kit.differences(dict(checkpoint["state_dict"]), found["weights"]) == []
    assert kit.differences(checkpoint["optimizer_states"], found["optimizer"]) == []
    assert (found["counters"], found["stage"], found["count"]) == ((1, 7), "batches", 7)
    own = checkpoint["trainer_hooks"]["metrics"]["callback_metrics"]
    assert kit.differences({k: v.item() for k, v in own.items()}, found["metrics"]) == []
    assert {"val_loss", "loss_epoch", "loss_step"} <= found["metrics"].keys()
    assert found["is_reported"]


@pytest.mark.slow
def test_this_runs_length_counts(lab, kit, saved):
    """A new max_epochs or max_steps wins over that of the run that was cut."""
    files = saved(lambda: setup(kit, max_epochs=2))
    longer = lab.run(lambda: setup(kit, max_epochs=4), "longer", files["end"])
    assert longer.trainer.progress.epochs_completed == 4
    shorter = lab.run(lambda: setup(kit, max_steps=8), "shorter", files["batch-06"])
    assert shorter.trainer.progress.batches_completed == 8


@pytest.mark.slow
def test_a_longer_run_is_the_run_that_was_long_from_the_start(lab, kit, saved):
    """Resumed with more epochs, a short run ends as one that was asked for them at once."""
    uncut = lab.run(lambda: setup(kit, max_epochs=4), "uncut")
    files = saved(lambda: setup(kit, max_epochs=2))
    longer = lab.run(lambda: setup(kit, max_epochs=4), "longer", files["end"])
    for part in ("state_dict", "optimizer_states", "loops"):
        assert kit.differences(uncut.end[part], longer.end[part]) == []
    assert uncut.metrics == longer.metrics


@pytest.mark.slow
def test_a_new_patience_counts(lab, kit, saved):
    """With more patience a run that had stopped goes on; what it has waited is not forgotten."""

    def make(patience):
        stopping = EarlyStopping("val_loss", patience=patience, min_delta=100.0)
        return setup(kit, [stopping], max_epochs=9)

    files = saved(lambda: make(1))
    assert torch.load(files["end"], weights_only=True)["epoch"] == 2
    patient = lab.run(lambda: make(4), "patient", files["end"])
    assert patient.trainer.progress.epochs_completed == 5
    stopping = patient.trainer.early_stopping_callback
    assert (stopping.patience, stopping.wait_count) == (4, 4)


@pytest.mark.slow
def test_a_plateau_finds_its_monitor(lab, kit, saved):
    """A value that was logged before the cut is what a plateau scheduler watches after it."""

    def make():
        def optimizers(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            plateau = ReduceLROnPlateau(optimizer, patience=0, threshold=9.0)
            return {"optimizer": optimizer, "lr_scheduler": plateau, "monitor": "val_loss"}

        return setup(kit, net=kit.Net(optimizers), max_epochs=4, check_val_every_n_epoch=2)

    # val_loss is of the second epoch; the plateau asks for it in the third, after the cut
    def late(make=make):
        made = make()
        made.module.make_optimizers = _from_epoch(2, made.module.make_optimizers)
        return made

    files = saved(late)
    resumed = lab.run(late, "resumed", files["batch-11"])
    uncut = torch.load(files["end"], weights_only=True)
    assert kit.differences(uncut["lr_schedulers"], resumed.end["lr_schedulers"]) == []
    assert "val_loss" in resumed.metrics


def _from_epoch(epoch, make):
    """Return optimizers whose plateau steps only every `epoch` epochs."""

    def made(net):
        found = make(net)
        plateau = {"scheduler": found["lr_scheduler"], "monitor": "val_loss", "frequency": epoch}
        return {"optimizer": found["optimizer"], "lr_scheduler": plateau}

    return made


@pytest.mark.slow
def test_accumulation_may_change_between_windows(lab, kit, saved):
    """A new accumulate_grad_batches is this run's choice where no window is open."""
    files = saved(lambda: setup(kit, accumulate_grad_batches=2))
    with pytest.warns(TrainerHooksWarning, match="accumulate_grad_batches=2, and this run has 5"):
        resumed = lab.run(lambda: setup(kit, accumulate_grad_batches=5), "r", files["epoch-00"])
    assert resumed.trainer.progress.steps_completed == 3 + 2


@pytest.mark.parametrize("place", ["batch-01", "epoch-00"])
def test_a_checkpoint_of_several_processes(lab, kit, saved, place):
    """In another number of processes an epoch goes on after as many samples as all had done."""
    files = saved(lambda: setup(kit, max_epochs=1))
    checkpoint = torch.load(files[place], weights_only=True)
    assert checkpoint["trainer_hooks"]["world_size"] == 1
    checkpoint["trainer_hooks"]["world_size"] = 2
    torch.save(checkpoint, files[place])
    with pytest.warns(
        TrainerHooksWarning, match="saved by 2 processes, and this run has 1"
    ) as told:
        resumed = lab.run(lambda: setup(kit, max_epochs=2), "resumed", files[place])
    progress = resumed.trainer.progress
    if place.startswith("epoch"):
        assert progress.steps_completed == 2 * 5
        return
    done = checkpoint["trainer_hooks"]["progress"]["batches_in_epoch"]
    assert f"goes on at batch {2 * done} of each" in str(told[0].message)
    assert progress.steps_completed == progress.batches_completed == done + (5 - 2 * done) + 5


def test_a_window_that_other_processes_left_open_begins_anew(lab, kit, saved):
    """Its gradients are each process's own: its batches are trained with again."""
    files = saved(lambda: setup(kit, max_epochs=1, accumulate_grad_batches=2))
    checkpoint = torch.load(files["batch-03"], weights_only=True)
    progress = checkpoint["trainer_hooks"]["progress"]
    assert (progress["batches_in_epoch"], progress["batches_in_window"]) == (3, 1)
    checkpoint["trainer_hooks"]["world_size"] = 2
    torch.save(checkpoint, files["batch-03"])
    with pytest.warns(TrainerHooksWarning, match="goes on at batch 4 of each"):
        resumed = lab.run(
            lambda: setup(kit, max_epochs=1, accumulate_grad_batches=2), "r", files["batch-03"]
        )
    assert resumed.trainer.progress.batches_completed == 3
    assert resumed.trainer.progress.steps_completed == 2


@pytest.mark.parametrize(
    "hook", ["on_after_dataloader", "on_train_batch_start", "on_before_optimizer_step"]
)
def test_a_checkpoint_from_inside_a_batch_says_what_it_is(lab, kit, hook):
    """What is saved in the middle of a batch can be resumed, and one warning says how exactly."""
    path = lab.folder / "inside.ckpt"

    class Saving(Callback):
        def run_event(self, event, *args):
            if event == hook and args[0].progress.batches_completed == 7:
                args[0].save_checkpoint(path)

    lab.run(lambda: setup(kit, [Saving()]), "first")
    with pytest.warns(TrainerHooksWarning) as said:
        resumed = lab.run(lambda: setup(kit), "resumed", path)
    (warning,) = said
    assert "was saved inside batch 2 of epoch 1, before that was done" in str(warning.message)
    assert "between two batches" in str(warning.message)
    assert resumed.trainer.progress.batches_completed == 15


def test_a_checkpoint_from_before_a_batch_is_taken_is_exact(lab, kit):
    """Just before a batch nothing has moved on: no warning, and the same end."""
    path = lab.folder / "before.ckpt"

    class Saving(Callback):
        def on_before_dataloader(self, trainer, module):
            if trainer.progress.batches_completed == 7:
                trainer.save_checkpoint(path)

    uncut = lab.run(lambda: setup(kit, [Saving()]), "first")
    resumed = lab.run(lambda: setup(kit), "resumed", path)
    assert kit.differences(uncut.end["state_dict"], resumed.end["state_dict"]) == []


@pytest.mark.slow
def test_a_metric_object_that_is_kept_nowhere_is_named(lab, kit, saved):
    """An object that only a closure knows is not found again: the name it was logged by is told."""
    torchmetrics = pytest.importorskip("torchmetrics")

    def make():
        hidden = torchmetrics.MeanMetric()

        class Measured(kit.Net):
            def training_step(self, batch, batch_idx):
                loss = super().training_step(batch, batch_idx)
                hidden.update(loss.detach())
                self.log("hidden", hidden, on_epoch=True)
                return loss

        return setup(kit, net=Measured(), max_epochs=1)

    files = saved(make)
    with pytest.warns(TrainerHooksWarning) as said:
        lab.run(make, "resumed", files["batch-03"])
    (warning,) = said
    assert "the metric objects logged as 'hidden' were not found" in str(warning.message)
    assert "keep each as an attribute of the module" in str(warning.message)


@pytest.mark.slow
def test_a_schedulers_place_comes_back(lab, kit, saved):
    """What a scheduler has done is restored; the learning rate goes on from there."""

    def make():
        def optimizers(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            return [optimizer], [StepLR(optimizer, 1, 0.5)]

        return setup(kit, net=kit.Net(optimizers))

    files = saved(make)
    resumed = lab.run(make, "resumed", files["epoch-01"])
    assert resumed.trainer.optimizers[0].param_groups[0]["lr"] == 0.1 * 0.5**3
