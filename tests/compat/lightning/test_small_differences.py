"""Small differences from Lightning that the page of differences has; each as it is here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS

import trainer_hooks.compat.lightning as pl
from trainer_hooks.compat.lightning.demos.boring_classes import BoringModel
from trainer_hooks.compat.lightning.tuner import Tuner
from trainer_hooks.errors import CheckpointError, ModuleError, OptionError


class Other(BoringModel):
    """Has a parameter more than the file, and says that this is all right."""

    def __init__(self):
        super().__init__()
        self.strict_loading = False
        self.more = torch.nn.Linear(1, 1)


def test_a_file_is_loaded_as_the_arguments_say(tmp_path):
    """A file of hyperparameters that is not there is an error; `strict=True` is strict."""
    trainer = pl.Trainer(max_steps=1, limit_val_batches=0, **QUIET_OPTIONS)
    trainer.fit(BoringModel())
    path = tmp_path / "saved.ckpt"
    trainer.save_checkpoint(path)
    with pytest.raises(ModuleError, match=r"missing\.yaml"):
        BoringModel.load_from_checkpoint(path, hparams_file="missing.yaml")
    assert isinstance(Other.load_from_checkpoint(path), Other)
    with pytest.raises(CheckpointError, match="more"):
        Other.load_from_checkpoint(path, strict=True)


def test_a_save_after_batches_has_the_metrics_of_their_validation(tmp_path):
    """Both are due after the same batch."""

    class Counts(BoringModel):
        count = 0

        def on_validation_epoch_end(self):
            self.count += 1
            self.log("v", float(self.count))

    saver = pl.callbacks.ModelCheckpoint(
        tmp_path, "{step}-{v:.0f}", "v", mode="max", every_n_train_steps=2, save_top_k=-1
    )
    pl.Trainer(
        max_epochs=1, limit_train_batches=4, limit_val_batches=1, val_check_interval=2,
        num_sanity_val_steps=0, callbacks=[saver],
        **{**QUIET_OPTIONS, "enable_checkpointing": True},
    ).fit(Counts())  # fmt: skip
    assert sorted(Path(path).name for path in saver.best_k_models) == [
        "step=2-v=1.ckpt", "step=4-v=2.ckpt",
    ]  # fmt: skip


def test_a_log_folder_in_another_store_is_refused_with_the_reason():
    """Also as the root folder of the default logger."""
    with pytest.raises(OptionError, match="must be a path: the logger appends to its files"):
        pl.loggers.CSVLogger("memory://logs")
    with pytest.raises(OptionError, match="logger writes to a local folder"):
        pl.Trainer(default_root_dir="memory://x")


def test_a_learning_rate_is_looked_for_in_as_many_steps_as_are_asked_for():
    """The data is gone through again where an epoch is shorter."""
    module = BoringModel()
    module.lr = 0.1
    trainer = pl.Trainer(max_epochs=1, limit_train_batches=5, limit_val_batches=0, **QUIET_OPTIONS)
    found = Tuner(trainer).lr_find(module, num_training=12, early_stop_threshold=None)
    assert len(found.results["lr"]) == 12


def test_operations_are_a_column_where_an_example_was_run():
    """Of nothing there are none."""
    columns = []

    class Sees(pl.callbacks.ModelSummary):
        @staticmethod
        def summarize(summary_data, *args, **kwargs):
            columns.append("FLOPs" in dict(summary_data))

    for example in (None, torch.zeros(2, 32)):
        module = BoringModel()
        module.example_input_array = example
        options = {**QUIET_OPTIONS, "enable_model_summary": True}
        pl.Trainer(max_steps=1, limit_val_batches=0, callbacks=[Sees()], **options).fit(module)
    assert columns == [False, True]
