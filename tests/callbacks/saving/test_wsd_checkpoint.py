"""WSDCheckpointCallback in runs."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks import Callback, Trainer
from trainer_hooks.callbacks import WSDCheckpointCallback
from trainer_hooks.errors import OptimizationError
from trainer_hooks.testing import TinyModule


class _Decays(torch.optim.lr_scheduler.LambdaLR):
    def get_checkpoint_steps(self):
        return [4, 8]

    decay_phase_ratio = 0.25


class _Decaying(TinyModule):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = _Decays(optimizer, lambda step: 0.5**step)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def test_files_before_and_after_each_decay(trained, tmp_path) -> None:
    """A full one before each decay, and after it one with as much as was asked for."""
    trained(WSDCheckpointCallback(tmp_path, False, False), _Decaying())
    names = {
        "checkpoint_3_wsd_pre_decay", "checkpoint_4_wsd_post_decay",
        "checkpoint_7_wsd_pre_decay", "checkpoint_8_wsd_post_decay",
    }  # fmt: skip
    assert {file.stem for file in tmp_path.iterdir()} == names
    for name in names:
        saved = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)
        assert saved["global_step"] == int(name.split("_")[1])
        assert ("optimizer_states" in saved) == ("pre" in name)


def test_a_new_training_begins_with_what_was_decayed(trained, quiet, tmp_path) -> None:
    """Weights and schedule are those of the file, and the counters begin at 0."""
    trained(WSDCheckpointCallback(tmp_path), _Decaying())
    path = tmp_path / "checkpoint_8_wsd_post_decay.ckpt"
    saved, begun = torch.load(path, weights_only=True), []

    class Looking(Callback):
        def on_train_start(self, trainer, module):
            begun.append((trainer.global_step, trainer.optimizers[0].param_groups[0]["lr"]))
            assert torch.equal(module.layer.weight, saved["state_dict"]["layer.weight"])

    callback = WSDCheckpointCallback(tmp_path / "more", initial_checkpoint=path)
    options = {**quiet, "enable_checkpointing": True}
    Trainer(max_epochs=1, callbacks=[callback, Looking()], **options).fit(_Decaying())
    assert begun == [(0, pytest.approx(0.1 * 0.5**8))]


def test_a_schedule_without_phases_is_refused(trained, tmp_path) -> None:
    """The error names the schedulers that there are."""
    with pytest.raises(OptimizationError, match="StepLR"):
        trained(WSDCheckpointCallback(tmp_path))
