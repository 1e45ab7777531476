"""SaveTrainingStateCallback in runs."""

from __future__ import annotations

import torch

from trainer_hooks import Trainer
from trainer_hooks.compat.accelerated.callbacks import SaveTrainingStateCallback
from trainer_hooks.testing import TinyModule


def test_training_states_are_named_and_the_newest_kept(trained, tmp_path) -> None:
    """Files are named after what is done, and only so many are kept beside the final one."""
    trained(SaveTrainingStateCallback(tmp_path / "all", 1, 2))
    assert {file.name for file in (tmp_path / "all").iterdir()} == {
        "epoch_1.ckpt", "epoch_2.ckpt", "epoch_3.ckpt",
        "step_2.ckpt", "step_4.ckpt", "step_6.ckpt", "step_8.ckpt", "final.ckpt",
    }  # fmt: skip
    trained(SaveTrainingStateCallback(tmp_path / "few", save_every_n_steps=2, max_checkpoints=2))
    kept = {file.name for file in (tmp_path / "few").iterdir()}
    assert kept == {"step_6.ckpt", "step_8.ckpt", "final.ckpt"}


def test_a_run_resumed_from_a_training_state_ends_as_if_uncut(trained, quiet, tmp_path) -> None:
    """From `epoch_2` a fit of three epochs trains one, and keeps to the number of files."""
    whole, resumed = TinyModule(), TinyModule()
    options = {"save_every_n_epochs": 1, "max_checkpoints": 2, "save_at_end": False}
    trained(SaveTrainingStateCallback(tmp_path, **options), whole)
    (tmp_path / "epoch_3.ckpt").unlink()
    callbacks = [SaveTrainingStateCallback(tmp_path, **options)]
    trainer = Trainer(max_epochs=3, callbacks=callbacks, **{**quiet, "enable_checkpointing": True})
    trainer.fit(resumed, ckpt_path=tmp_path / "epoch_2.ckpt")
    assert trainer.current_epoch == 3
    assert torch.equal(whole.layer.weight, resumed.layer.weight)
    assert {file.name for file in tmp_path.iterdir()} == {"epoch_2.ckpt", "epoch_3.ckpt"}
