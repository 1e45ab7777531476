"""Buffers that no `state_dict` holds, and that a training changes, are resumed."""

from __future__ import annotations

import pytest
import torch
from own_loops import fit_by_run
from saving_callbacks import SaveEachStep
from torch import nn

from trainer_hooks import Callback, Module
from trainer_hooks.testing.nested_diff import nested_differences

BATCHES = [torch.arange(8.0).reshape(2, 4).sin() * number for number in range(1, 5)]
QUIET = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
    "enable_progress_bar": False, "enable_model_summary": False,
}  # fmt: skip


class Memory(nn.Module):
    """A queue in place, a mean that is made anew, and a mask that never changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", torch.zeros(5, 4), persistent=False)
        self.register_buffer("mean", None, persistent=False)
        self.register_buffer("mask", torch.ones(4), persistent=False)

    def forward(self, inputs):
        before = self.queue.mean(0) if self.mean is None else self.mean
        with torch.no_grad():
            self.queue.copy_(torch.cat([inputs * 2, self.queue])[:5])
            self.mean = self.queue[:3].mean(0)
        return inputs + before * self.mask


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.memory, self.layer = Memory(), nn.Linear(4, 1)
        nn.init.constant_(self.layer.weight, 0.3)
        nn.init.constant_(self.layer.bias, 0.1)
        self.seen: list[list[float]] = []

    def on_train_start(self) -> None:
        # as a resume does once more
        self.memory.queue.fill_(0.5)

    def training_step(self, batch, batch_idx):
        self.seen.append(self.memory.queue.flatten().tolist())
        return self.layer(self.memory(batch)).square().mean()

    def validation_step(self, batch, batch_idx) -> None:
        self.log("far", self.layer(self.memory(batch)).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class SaveInValidation(Callback):
    """Saves inside each validation, whose batches change the buffers."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def on_validation_batch_end(self, trainer, module, *_) -> None:
        if not trainer.sanity_checking:
            trainer.save_checkpoint(self.folder / f"{trainer.global_step}.ckpt")


@pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook")
@pytest.mark.parametrize("saver", [SaveEachStep, SaveInValidation])
@pytest.mark.parametrize("sanity_steps", [0, 1])
def test_a_run_is_resumed_at_each_step(bare, tmp_path, saver, sanity_steps) -> None:
    """With a sanity check, which leaves no trace, and from inside a validation."""
    options = {"max_epochs": 2, "num_sanity_val_steps": sanity_steps, "val_check_interval": 2}
    whole = Net()
    bare(saver(tmp_path), **options).fit(whole, BATCHES, BATCHES[:2])
    files = sorted(tmp_path.glob("*.ckpt"))
    assert len(files) > 3
    for path in files:
        resumed = Net()
        bare(**options).fit(resumed, BATCHES, BATCHES[:2], ckpt_path=path)
        steps = int(path.stem)
        assert resumed.seen == whole.seen[steps:]
        assert nested_differences(dict(whole.state_dict()), dict(resumed.state_dict())) == []


@pytest.mark.parametrize("name", ["own loop", "later fit"])
def test_other_ways_to_train_are_resumed(bare, tmp_path, name) -> None:
    """A loop by `Run`, and a file that is saved after a fit."""

    def fit(net, *callbacks, path=None, epochs=2):
        if name == "own loop":
            more = {"callbacks": callbacks, "ckpt_path": path, "max_epochs": epochs}
            return fit_by_run(net, BATCHES, BATCHES[:1], **more, **QUIET)
        trainer = bare(*callbacks, max_epochs=epochs)
        trainer.fit(net, BATCHES, BATCHES[:1], ckpt_path=path)
        return trainer

    whole, resumed = Net(), Net()
    if name == "later fit":
        fit(whole, epochs=1).save_checkpoint(tmp_path / "4.ckpt")
        whole = Net()
        fit(whole)
        steps = 4
    else:
        fit(whole, SaveEachStep(tmp_path))
        steps = 3
    fit(resumed, path=tmp_path / f"{steps}.ckpt")
    assert resumed.seen == whole.seen[steps:]
    assert torch.equal(whole.layer.weight, resumed.layer.weight)


def test_a_file_holds_the_changed_buffers_alone(bare, tmp_path) -> None:
    """Not among the weights, and not the mask."""
    bare(SaveEachStep(tmp_path)).fit(Net(), BATCHES)
    checkpoint = torch.load(tmp_path / "4.ckpt", weights_only=True)
    assert set(checkpoint["state_dict"]) == {"layer.weight", "layer.bias"}
    state = checkpoint["trainer_hooks"]["extra_buffers"]
    assert set(state["changed"]) == {"memory.queue", "memory.mean"}
    assert set(state["began"]) == {"memory.queue", "memory.mask"}
