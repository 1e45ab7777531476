"""States of callbacks that were in `trainer_hooks.callbacks` before they moved."""

from __future__ import annotations

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Trainer
from trainer_hooks.compat.accelerated import callbacks as accelerated
from trainer_hooks.compat.composer import callbacks as composer
from trainer_hooks.testing import TinyModule

QUIET = {**QUIET_OPTIONS, "num_sanity_val_steps": 0}
KEYS = {
    "CheckpointSaver{'save_interval': \"every('1ep')\", "
    "'filename': 'ep{epoch}-ba{batch}-rank{rank}.pt'}": composer.CheckpointSaver,
    "EarlyStopper{'monitor': 'val_loss', 'dataloader_label': 'eval'}": (
        lambda: composer.EarlyStopper("val_loss", "eval")
    ),
    "EarlyStoppingCallback{'watch_metric': 'eval_loss_epoch', 'mode': 'min'}": (
        lambda: accelerated.EarlyStoppingCallback()
    ),
    "NaNMonitor": composer.NaNMonitor,
    "OptimizerMonitor{'log_optimizer_metrics': True, 'when': \"every('10st')\"}": (
        lambda: composer.OptimizerMonitor()
    ),
    "SaveBestModelCallback{'watch_metric': 'eval_loss_epoch', 'mode': 'min', 'name': "
    "'best_model.pt'}": accelerated.SaveBestModelCallback,
    "SaveTrainingStateCallback{'save_every_n_epochs': 1, 'save_every_n_steps': None}": (
        lambda: accelerated.SaveTrainingStateCallback(save_every_n_epochs=1)
    ),
    "TerminateOnNaNCallback": accelerated.TerminateOnNaNCallback,
    "ThresholdStopper{'monitor': 'val_loss', 'dataloader_label': 'eval'}": (
        lambda: composer.ThresholdStopper("val_loss", "eval", 9.0)
    ),
}
"""The keys that older checkpoints have, and who reads them now."""


@pytest.mark.parametrize("key", KEYS)
def test_the_key_of_a_state_is_the_one_of_older_files(key: str) -> None:
    """A callback that moved finds its state in checkpoints of before."""
    assert KEYS[key]().state_key == key


def test_a_checkpoint_of_before_goes_on(tmp_path) -> None:
    """A fit that resumes a file with the state of a moved class goes on with what was seen."""
    path = tmp_path / "old.ckpt"
    Trainer(max_epochs=1, **QUIET).fit(module := TinyModule())
    trainer = Trainer(max_epochs=1, **QUIET)
    trainer.fit(module)
    trainer.save_checkpoint(path)
    saved = torch.load(path, weights_only=True)
    saved["callbacks"]["EarlyStopper{'monitor': 'val_loss', 'dataloader_label': 'eval'}"] = {
        "best": -5.0,
        "best_occurred": {"iter": 0, "ep": 0, "ba": 1, "st": 1, "sp": 1, "tok": 0},
        "is_stopped": False,
    }
    saved["callbacks"]["TerminateOnNaNCallback"] = {
        "events": [], "skipped_steps": 0, "rollbacks": 0, "in_a_row": 0,
        "loss_is_broken": None, "is_unchecked": False, "snapshot": None,
    }  # fmt: skip
    torch.save(saved, path)
    stopper, guard = composer.EarlyStopper("val_loss", "eval"), accelerated.TerminateOnNaNCallback()
    resumed = Trainer(max_epochs=3, callbacks=[stopper, guard], **QUIET)
    resumed.fit(TinyModule(), ckpt_path=path)
    assert stopper.best == -5.0
    assert resumed.stop_reason.startswith("EarlyStopper: val_loss did not improve in 2ep")


def test_the_adapter_says_where_it_went() -> None:
    """The place where `TrainerCallback` was names the new one."""
    with pytest.raises(
        ImportError, match=r"from trainer_hooks\.compat\.accelerated import Trainer"
    ):
        exec("from trainer_hooks.adapters.accelerated import TrainerCallback")
