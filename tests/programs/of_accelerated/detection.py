"""A detector: a loss with parameters, gathered predictions, augmentation that ends, averages."""

from functools import partial

import torch
from tiny_data import digits
from pytorch_accelerated.callbacks import (
    EarlyStoppingCallback,
    ModelEmaCallback,
    ProgressBarCallback,
    SaveBestModelCallback,
    TrainerCallback,
    get_default_callbacks,
)
from pytorch_accelerated.trainer import Trainer
from torch import nn
from torch.utils.data import Dataset

HOSTED = "its Trainer is a subclass of pytorch-accelerated's"
PADDING = -2.0


class Boxes(Dataset):
    """An image, the box around its bright pixels, its number, and its size."""

    def __init__(self, data, training=False):
        self.data, self.is_shifting = data, training

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image = self.data[index][0]
        if self.is_shifting:
            image = image.roll(index % 2, -1)
        rows, columns = (image[0] > 0.5).nonzero().T
        box = torch.stack([columns.min(), rows.min(), columns.max(), rows.max()]) / 8
        return image, box, torch.tensor(index), torch.tensor(image.shape[1:])


class BoxLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weights", torch.tensor([1.0, 1.0, 2.0, 2.0]))
        self.modes = []

    def forward(self, outputs, targets, images=None):
        self.modes.append((self.training, images is not None))
        losses = (outputs - targets).abs() * self.weights
        return losses.mean(), losses.detach().mean(0)


class BoxTrainer(Trainer):
    clip = None

    def training_run_start(self):
        self.loss_func.to(self.device)

    evaluation_run_start = training_run_start

    def train_epoch_start(self):
        super().train_epoch_start()
        self.loss_func.train(mode=True)

    def eval_epoch_start(self):
        super().eval_epoch_start()
        self.loss_func.train(mode=False)

    def calculate_train_batch_loss(self, batch):
        found = self.model(batch[0])
        return {"loss": self.loss_func(found, batch[1], batch[0])[0], "batch_size": len(found)}

    @torch.no_grad()
    def calculate_eval_batch_loss(self, batch):
        images, boxes, numbers, sizes = batch
        found = self.model(images)
        rows = self.get_model().postprocess(found) * sizes.repeat(1, 2)
        rows = torch.cat([rows if self.clip is None else self.clip(rows), numbers[:, None]], 1)
        return {"loss": self.loss_func(found, boxes)[0], "batch_size": len(found),
                "rows": self.gather(rows, padding_value=PADDING).cpu()}  # fmt: skip


class OverlapCallback(TrainerCallback):
    def __init__(self, boxes):
        self.boxes, self.predictions = boxes, []

    def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
        found = batch_output["rows"]
        self.predictions.extend(found[found[:, -1] != PADDING])

    def on_eval_epoch_end(self, trainer, **kwargs):
        trainer._accelerator.wait_for_everyone()
        if trainer.run_config.is_world_process_zero:
            far = [
                (row[:4] / 8 - self.boxes[int(row[4])][1]).abs().max() for row in self.predictions
            ]
            trainer.run_history.update_metric("far", torch.stack(far).mean())
        self.predictions = []


class LastEpochsAreStill(TrainerCallback):
    count = 2

    def on_train_epoch_start(self, trainer, **kwargs):
        if trainer.run_config.num_epochs - trainer.run_history.current_epoch == self.count:
            trainer.print("the images stand still")
            trainer.train_dataset.is_shifting = False


class Detector(nn.Sequential):
    def postprocess(self, outputs):
        return outputs.sigmoid().clamp(0.01, 0.99)


def main():
    torch.manual_seed(3)
    model = Detector(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)
    )
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 1e-3},
        {"params": [p for p in model.parameters() if p.ndim == 1]},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True)
    train, held_out = Boxes(digits(64), training=True), Boxes(digits(32))
    overlap, loss_func = OverlapCallback(held_out), BoxLoss()
    trainer = BoxTrainer(
        model=model, loss_func=loss_func, optimizer=optimizer,
        callbacks=[
            overlap,
            ModelEmaCallback(decay=0.9, evaluate_during_training=False),
            LastEpochsAreStill(),
            SaveBestModelCallback(watch_metric="far", greater_is_better=False),
            EarlyStoppingCallback(watch_metric="far", greater_is_better=False,
                                  early_stopping_patience=3),
            *[one for one in get_default_callbacks(progress_bar=True)
              if one is not ProgressBarCallback],
        ],
    )  # fmt: skip
    trainer.clip = partial(torch.clamp, min=0.05)
    trainer.train(
        train_dataloader_kwargs={"shuffle": False, "num_workers": 0},
        num_epochs=5, train_dataset=train, eval_dataset=held_out, per_device_batch_size=16,
        create_scheduler_fn=partial(
            torch.optim.lr_scheduler.OneCycleLR, max_lr=0.1, epochs=5, steps_per_epoch=2
        ),
        gradient_accumulation_steps=2, gradient_clip_value=1.0,
    )  # fmt: skip
    trainer.evaluate(dataset=held_out, per_device_batch_size=8)
    history = trainer.run_history
    return {"far": [float(v) for v in history.get_metric_values("far")],
            "shifting": train.is_shifting, "modes": sorted(set(loss_func.modes)),
            "epoch": history.current_epoch}  # fmt: skip
