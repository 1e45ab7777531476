"""`trainer.predict_loop.predictions` of a callback of Lightning, without a prediction writer."""

from __future__ import annotations

import pytest
import torch

import trainer_hooks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
]


def seen_by_a_callback(base, trainer_class, loaders, **options):
    """Return how many predictions a callback finds after each batch and at the end."""
    lightning = pytest.importorskip("pytorch_lightning")
    seen = []

    def count(trainer):
        predictions = trainer.predict_loop.predictions
        return [len(one) for one in predictions] if loaders > 1 else len(predictions)

    class Look(lightning.Callback):
        def on_predict_batch_end(self, trainer, pl_module, *_):
            seen.append(count(trainer))

        def on_predict_epoch_end(self, trainer, pl_module):
            seen.append(count(trainer))

    class Net(base):
        def predict_step(self, batch, batch_idx, dataloader_idx=0):
            return batch + 1

    data = torch.utils.data.DataLoader(torch.ones(6, 1), 2)
    trainer = trainer_class(
        callbacks=[Look()], accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.predict(Net(), [data] * loaders if loaders > 1 else data, **options)
    return seen


@pytest.mark.parametrize("loaders", [1, 2])
@pytest.mark.parametrize("options", [{}, {"return_predictions": False}])
def test_a_callback_finds_the_predictions_that_are_returned(loaders, options):
    """As many after each batch as in Lightning, and none if predict returns none."""
    lightning = pytest.importorskip("pytorch_lightning")
    there = seen_by_a_callback(lightning.LightningModule, lightning.Trainer, loaders, **options)
    here = seen_by_a_callback(trainer_hooks.Module, trainer_hooks.Trainer, loaders, **options)
    assert here == there
