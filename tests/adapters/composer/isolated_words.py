"""The words of Composer's Trainer mean the same there as what the table has for them here."""

from __future__ import annotations

import pytest
import torch
from words_table import RATE, Net, loader, net, options_of, train_here

from trainer_hooks.callbacks import ModelCheckpoint

pytest.importorskip("composer", reason="needs tests/adapters/composer/requirements.txt")

import composer

pytestmark = pytest.mark.filterwarnings("ignore")

IMPORTS = ("tests/adapters/composer/stand_ins", "composer")

WORDS = {
    "train_subset_num_batches": 4, "eval_subset_num_batches": 1,
    "device_train_microbatch_size": 2, "save_interval": "3ba",
    "save_num_checkpoints_to_keep": 2,
}  # fmt: skip


class Theirs(composer.ComposerModel):
    """The layer with the mean squared error."""

    def __init__(self, evaluated):
        super().__init__()
        self.layer, self.evaluated = net(), evaluated

    def forward(self, batch):
        return self.layer(batch[0])

    def loss(self, outputs, batch):
        return (outputs - batch[1]).square().mean()

    def eval_forward(self, batch, outputs=None):
        self.evaluated.append(len(batch[0]))
        return self.forward(batch)

    def get_metrics(self, is_train):
        return {}

    def update_metric(self, batch, outputs, metric):
        pass


class Ours(Net):
    """The same here."""

    def __init__(self, evaluated):
        super().__init__()
        self.evaluated = evaluated

    def validation_step(self, batch, batch_idx):
        self.evaluated.append(len(batch[0]))


def test_a_training_by_the_table_is_the_same(tmp_path, quiet_trainer):
    """Limits, microbatches, and the files that are kept."""
    theirs, ours = [], []
    model = Theirs(theirs)
    composer.Trainer(
        model=model, train_dataloader=loader(), eval_dataloader=loader(8), max_duration="3ep",
        optimizers=torch.optim.SGD(model.parameters(), RATE), progress_bar=False, device="cpu",
        save_folder=str(tmp_path / "there"), save_filename="{batch}.pt", save_latest_filename=None,
        **WORDS,
    ).fit()  # fmt: skip
    options, saving = options_of(WORDS)
    saver = ModelCheckpoint(tmp_path / "here", "{step}", **saving)
    module = Ours(ours)
    weights, _ = train_here(
        quiet_trainer, [], saver, module=module, enable_checkpointing=True, max_epochs=3,
        **options,
    )  # fmt: skip
    assert weights == pytest.approx(model.layer.weight.flatten().tolist(), rel=1e-6)
    assert ours == theirs == [4] * 3
    there = sorted(int(path.stem) for path in (tmp_path / "there").glob("*.pt"))
    here = sorted(int(path.stem.partition("=")[2]) for path in (tmp_path / "here").iterdir())
    assert here == there == [9, 12]
