"""Resumes that users of other trainers asked for in public reports; docs/elsewhere.md has these."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from trainer_hooks import Callback
from trainer_hooks.callbacks import (
    BackboneFinetuning,
    BaseFinetuning,
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    ModelCheckpoint,
    StochasticWeightAveraging,
)


def shuffled(kit):
    """Return a shuffled loader of five batches."""
    return DataLoader(kit.Samples(), kit.BATCH_SIZE, shuffle=True)


def validation(kit):
    """Return a validation loader of two batches."""
    return DataLoader(kit.Samples(7), kit.BATCH_SIZE)


def among(*names):
    """Return whether a slot is one of these."""
    return lambda name: name in names


def weights_in(path):
    """Return the module's weights in a checkpoint."""
    return torch.load(path, weights_only=True)["state_dict"]


class UnfreezesLater(BaseFinetuning):
    """Freezes the backbone until the second epoch."""

    def freeze_before_training(self, pl_module):
        self.freeze(pl_module.backbone)

    def finetune_function(self, pl_module, current_epoch, optimizer):
        if current_epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.backbone, optimizer, lr=0.02)


@pytest.mark.parametrize("make", [UnfreezesLater, lambda: BackboneFinetuning(1)])
def test_a_backbone_trains_on_after_its_unfreezing(make, lab, kit):
    """A resume inside or after the epoch that unfroze the backbone trains it, bit for bit."""

    class WithBackbone(kit.Net):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

        def loss_of(self, batch):
            return super().loss_of((self.backbone(batch[0]), *batch[1:]))

        def configure_optimizers(self):
            trained = [each for each in self.parameters() if each.requires_grad]
            return torch.optim.SGD(trained, 0.05, momentum=0.9)

    cuts = ("batch-07", "epoch-01")
    assert lab.check(
        lambda: kit.Setup(WithBackbone(), shuffled(kit), validation(kit), callbacks=[make()]),
        cuts=among(*cuts),
    ) == len(cuts)
    for cut in cuts:
        before = weights_in(lab.folder / "uncut" / f"{cut}.ckpt")["backbone.0.weight"]
        after = weights_in(lab.folder / f"resumed-{cut}" / "end.ckpt")["backbone.0.weight"]
        assert not torch.equal(before, after)


class Interrupts(Callback):
    """Presses Ctrl-C after a batch.

    Args:
        batch: the number of trained batches; 0 for never.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.progress.batches_completed == self.batch:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("handlers")
@pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook")
def test_four_interruptions_inside_windows(lab, kit):
    """The losses of a chain of resumes, each from Ctrl-C in a window, are those of the uncut run.

    Of an epoch's five batches three are one window, and two the next.
    """

    def train(name, interrupted_at=0, path=None):
        saver = ModelCheckpoint(lab.folder / "saved", save_top_k=0, save_on_exception=True)
        losses = []

        class Noted(kit.Net):
            def training_step(self, batch, batch_idx):
                losses.append(super().training_step(batch, batch_idx))
                return losses[-1]

        def make():
            options = {"accumulate_grad_batches": 3}
            callbacks = [Interrupts(interrupted_at), saver]
            return kit.Setup(Noted(), shuffled(kit), validation(kit), options, callbacks)

        if interrupted_at:
            with pytest.raises(KeyboardInterrupt):
                lab.run(make, name, path)
            (saved,) = (lab.folder / "saved").glob("exception-*.ckpt")
            path = saved.rename(lab.folder / f"{name}.ckpt")
        else:
            lab.run(make, name, path)
        return [loss.item() for loss in losses], path

    expected, path = train("uncut")
    losses = []
    for batch in (1, 4, 7, 12):
        found, path = train(f"until-{batch}", batch, path)
        losses += found
    assert losses + train("rest", path=path)[0] == expected
    ends = (lab.folder / name / "end.ckpt" for name in ("uncut", "rest"))
    assert kit.differences(*map(weights_in, ends)) == []


@pytest.mark.slow
def test_a_schedule_of_accumulation_is_resumed_at_each_step(lab, kit):
    """The number of batches to accumulate changes by a dict, and each slot is resumed exactly."""

    def make():
        schedule = GradientAccumulationScheduler({0: 3, 1: 2, 2: 4})
        return kit.Setup(kit.Net(), shuffled(kit), callbacks=[schedule])

    assert lab.check(make, drawn=None) == 18


def test_swa_with_a_lambda_is_resumed_before_and_after_it_began(lab, kit):
    """SWA replaces a LambdaLR by its own schedule in the second epoch; cuts lie on both sides."""

    def by_lambda(net):
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        return [optimizer], [LambdaLR(optimizer, lambda epoch: 0.9**epoch)]

    def make():
        swa = StochasticWeightAveraging(0.02, swa_epoch_start=2, annealing_epochs=2)
        options = {"max_epochs": 4}
        return kit.Setup(kit.Net(by_lambda), shuffled(kit), validation(kit), options, [swa])

    cuts = ("batch-03", "epoch-00", "batch-07", "epoch-01", "epoch-02")
    assert lab.check(make, cuts=among(*cuts)) == len(cuts)


def test_a_file_that_a_monitor_saved_with_averaged_weights(lab, kit):
    """The training goes on from the raw weights, from each file that a validation saved."""

    def make():
        saver = ModelCheckpoint(
            lab.folder / "saved", "{step}", monitor="val_loss", save_top_k=-1,
            enable_version_counter=False,
        )  # fmt: skip
        averaging = EMAWeightAveraging(decay=0.5)
        options = {"val_check_interval": 2}
        return kit.Setup(kit.Net(), shuffled(kit), validation(kit), options, [averaging, saver])

    uncut = lab.run(make, "uncut")
    # each resume saves to the same folder
    files = sorted(shutil.copytree(lab.folder / "saved", lab.folder / "files").glob("*.ckpt"))
    assert len(files) == 6
    for path in files:
        resumed = lab.run(make, f"resumed-{path.stem}", path, seed=77)
        assert kit.differences(uncut.end, resumed.end) == [], path.name


def test_a_resume_in_the_last_shorter_window(lab, kit):
    """Of five batches the last window of three has two; the cut lies between these two."""

    def make():
        options = {"accumulate_grad_batches": 3}
        return kit.Setup(kit.Net(), shuffled(kit), validation(kit), options)

    cuts = ("batch-04", "batch-09", "batch-14")
    assert lab.check(make, cuts=among(*cuts)) == len(cuts)


# torchdata calls it when it makes a loader
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_a_stateful_loader_saved_at_an_epochs_end_begins_the_next_whole(lab, kit):
    """The next epoch has all of its batches, and in the order of the uncut run."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def make():
        loader = stateful.StatefulDataLoader(kit.Samples(), kit.BATCH_SIZE, shuffle=True)
        return kit.Setup(kit.Net(), loader, validation(kit))

    cuts = ("batch-05", "epoch-00", "batch-10", "epoch-01")
    assert lab.check(make, cuts=among(*cuts)) == len(cuts)


def test_two_savers_keep_their_best_scores(lab, kit):
    """Resumed from the last file of the first saver, the second still has its best score and file.

    Its metric rises after the first epoch, so that no later save replaces the best.
    """

    class Worsening(kit.Net):
        def validation_step(self, batch, batch_idx):
            super().validation_step(batch, batch_idx)
            self.log("error", float(self.current_epoch + 1))

    def make(max_epochs):
        folder = lab.folder / "saved"
        savers = [
            ModelCheckpoint(folder, "each-{epoch}", save_top_k=-1, save_last=True),
            ModelCheckpoint(folder, "best-{epoch}", monitor="error"),
        ]
        options = {"max_epochs": max_epochs}
        return kit.Setup(Worsening(), shuffled(kit), validation(kit), options, savers)

    lab.run(lambda: make(2), "first")
    resumed = lab.run(lambda: make(4), "resumed", lab.folder / "saved" / "last.ckpt")
    best = resumed.trainer.checkpoint_callbacks[1]
    assert best.best_model_score == 1.0
    assert best.best_model_path == str(lab.folder / "saved" / "best-epoch=0.ckpt")
    names = [path.name for path in (lab.folder / "saved").glob("best-*.ckpt")]
    assert names == ["best-epoch=0.ckpt"]
