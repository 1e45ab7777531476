"""A package whose callbacks of ours register in Lightning's Trainer by themselves."""

from __future__ import annotations

import importlib.util
import json

import pytest

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
    ),
    pytest.mark.slow,
]

FACTORIES = """
    import sys
    from trainer_hooks import Callback
    from trainer_hooks.adapters import lightning_factory

    class Batches(Callback):
        def __init__(self):
            self.count = 0

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.count += 1
            self.log("batches", self.count)

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    def make():
        return [Batches()]

    for_lightning = lightning_factory(make)
    assert "pytorch_lightning" not in sys.modules
"""

PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import in_lightning.factories
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def fit(epochs, **options):
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=epochs, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Net(), DataLoader(torch.rand(8, 4), batch_size=2), **options)
    return trainer

first = fit(1)
first.save_checkpoint(sys.argv[1])
second = fit(2, ckpt_path=sys.argv[1])
import trainer_hooks
ours = trainer_hooks.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
print(json.dumps({
    "there": [type(callback).__name__ for callback in first.callbacks],
    "logged": float(second.callback_metrics["batches"]),
    "here": [type(callback).__name__ for callback in ours.callbacks if "Batches" in repr(callback)],
}))
"""


def test_it_takes_part_in_both(installed, run_with_plugins, tmp_path) -> None:
    """One more line in the package's pyproject, and both Trainers find it, with its state."""
    installed.declare(
        "in lightning",
        (
            "in-lightning", "1.0", {"factories": FACTORIES},
            {
                "trainer_hooks.callbacks_factory": {"batches": "factories:make"},
                "pytorch_lightning.callbacks_factory": {"batches": "factories:for_lightning"},
            },
        ),
    )  # fmt: skip
    done = run_with_plugins(PROGRAM, "in lightning", arguments=(str(tmp_path / "cut.ckpt"),))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["there"].count("Batches") == 1
    assert found["logged"] == 8
    assert found["here"] == ["Batches"]
