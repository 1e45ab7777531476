"""Callbacks with an interval: cut anywhere and resumed, they act where the uncut run does."""

from __future__ import annotations

import pytest
import torch
from samples import one_in

from trainer_hooks import Callback, Trainer, every
from trainer_hooks.callbacks import (
    ActivationMonitor,
    Generate,
    ImageVisualizer,
    LearningRateMonitor,
)
from trainer_hooks.compat.composer.callbacks import OptimizerMonitor
from trainer_hooks.loggers import InMemoryLogger
from trainer_hooks.testing import TinyModule

pytestmark = [
    pytest.mark.slow,  # a training for each cut of each callback and interval
    # some are cut where callbacks whose turn is over are not asked again, which these are not
    pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook"),
]

INTERVALS = {
    "batches": "3ba",
    "steps": "2st",
    "samples": "4sp",
    "epochs": "1ep",
    "filter": every("5ba") | every("4ba"),
    "function": lambda c: c.batches == 5,
}
CALLBACKS = {
    "ActivationMonitor": lambda when: ActivationMonitor(when, only_log_wandb=False),
    "Generate": lambda when: Generate("a", when),
    "ImageVisualizer": lambda when: ImageVisualizer(when, num_images=1),
    "LearningRateMonitor": LearningRateMonitor,
    "OptimizerMonitor": lambda when: OptimizerMonitor(batch_log_interval=when),
}


class LearnsAndWrites(TinyModule):
    """Learns from pictures, and writes."""

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0].flatten(1)[:, :2]).square().mean()

    def generate(self, prompts):
        return [f"{self.layer.weight.sum():.4f}" for _ in prompts]


class Saver(Callback):
    """Saves after each batch, and notes how much was logged by then."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.done: dict[int, int] = {}

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        trainer.save_checkpoint(self.folder / f"{trainer.clock.batches}.ckpt")
        self.done[trainer.clock.batches] = len(trainer.logger.seen)


class Watch(InMemoryLogger):
    """Notes when what was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, str]] = []
        self.trainer: Trainer | None = None

    def _note(self, kind: str) -> None:
        self.seen.append((self.trainer.clock.batches, kind))

    def log_metrics(self, metrics, step=None) -> None:
        kinds = {n.split("/")[0] for n in metrics if n.startswith(("activ", "l2_", "lr-"))}
        for kind in sorted(kinds):
            self._note(kind)

    def log_table(self, *args, **kwargs) -> None:
        self._note("table")

    def log_image(self, *args, **kwargs) -> None:
        self._note("image")


def run(*callbacks, ckpt_path=None):
    logger = Watch()
    logger.trainer = Trainer(
        callbacks=callbacks,
        logger=logger,
        max_epochs=3,
        accumulate_grad_batches=2,
        limit_val_batches=0,
        accelerator="cpu",
        plugins=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        enable_run_manifest=False,
    )
    batches = [[torch.full((2, 1, 4, 4), n / 5), torch.zeros(2)] for n in range(5)]
    torch.manual_seed(0)
    logger.trainer.fit(LearnsAndWrites(), batches, ckpt_path=ckpt_path)
    return logger.seen


@pytest.mark.parametrize(
    ("name", "interval"),
    one_in(5, [
        pytest.param(name, interval, id=f"{name}-{kind}")
        for name in CALLBACKS
        for kind, interval in INTERVALS.items()
    ]),
)  # fmt: skip
def test_a_cut_run_acts_where_the_uncut_one_does(name, interval, tmp_path):
    """What became due just before a checkpoint, and was not done yet, is done after the resume."""
    make, saver = CALLBACKS[name], Saver(tmp_path)
    whole = run(make(interval), saver)
    assert whole
    for cut in (2, 3, 4, 5, 8, 9):
        resumed = run(make(interval), ckpt_path=tmp_path / f"{cut}.ckpt")
        assert resumed == whole[saver.done[cut] :]
