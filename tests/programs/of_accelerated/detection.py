"""A detector that returns a dict of losses, whose predictions are gathered, counted and saved."""

import json
from collections import defaultdict
from pathlib import Path

import torch
from pytorch_accelerated import Trainer
from pytorch_accelerated.callbacks import TrainerCallback, get_default_callbacks
from pytorch_accelerated.schedulers import CosineLrScheduler
from pytorch_accelerated.tracking import LossTracker
from tiny_data import digits
from torch import nn
from torch.utils.data import Dataset

HOSTED = "its Trainer is a subclass of pytorch-accelerated's"
PADDING = -1
KEYS = ("box", "score")


class Objects(Dataset):
    """An image, the box around its bright pixels, and its number."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image = self.data[index][0]
        rows, columns = (image[0] > 0.5).nonzero().T
        box = torch.stack([columns.min(), rows.min(), columns.max(), rows.max()]) / 8
        return image, {"box": box}, torch.tensor(index)


def collate(samples):
    images, targets, numbers = zip(*samples, strict=True)
    return torch.stack(images), list(targets), torch.stack(numbers)


class Detector(nn.Module):
    """Gives its losses in training mode, and boxes with scores in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU())
        self.boxes, self.scores = nn.Linear(16, 4), nn.Linear(16, 1)

    def forward(self, images, targets=None):
        features = self.backbone(images)
        boxes, scores = self.boxes(features), self.scores(features)[:, 0]
        if self.training:
            wanted = torch.stack([target["box"] for target in targets])
            far = (boxes - wanted).abs().mean(1)
            near = (far.detach() < 0.2).float()
            return {
                "box": far.mean(),
                "score": nn.functional.binary_cross_entropy_with_logits(scores, near),
            }
        return [
            {"boxes": box[None], "scores": score.sigmoid()[None]}
            for box, score in zip(boxes, scores, strict=True)
            if score > -2
        ]


class DetectorTrainer(Trainer):
    def __init__(self, weights, **kwargs):
        super().__init__(**kwargs, loss_func=None)
        self.weights, self.trackers = weights, defaultdict(LossTracker)
        self.prefix = ""

    def reset_trackers(self):
        for key in KEYS:
            self.trackers[key].reset()

    def train_epoch_start(self):
        super().train_epoch_start()
        self.prefix = "train_epoch_"
        self.reset_trackers()

    def evaluation_run_start(self):
        self.prefix = "evaluation_epoch_"

    def eval_epoch_start(self):
        super().eval_epoch_start()
        self.reset_trackers()
        if self.prefix != "evaluation_epoch_":
            self.prefix = "eval_epoch_"

    def total(self, losses, size):
        for key in KEYS:
            self.trackers[key].update(self.gather(losses[key]).detach().mean().item(), size)
        return sum(weight * losses[key] for key, weight in self.weights.items())

    def calculate_train_batch_loss(self, batch):
        images, targets, _ = batch
        loss = self.total(self.model(images, targets), len(images))
        return {"loss": loss, "model_outputs": None, "batch_size": len(images)}

    def calculate_eval_batch_loss(self, batch):
        images, targets, numbers = batch
        with torch.no_grad():
            self.model.train()
            loss = self.total(self.model(images, targets), len(images))
            self.model.eval()
            rows = [
                torch.cat([box, score[None], number[None]])
                for found, number in zip(self.model(images), numbers, strict=False)
                for box, score in zip(found["boxes"], found["scores"], strict=True)
            ]
            rows = torch.stack(rows) if rows else torch.full((1, 6), PADDING, device=self.device)
            rows = self.gather(rows, padding_value=PADDING).detach().cpu()
        return {"loss": loss, "model_outputs": None, "predictions": rows, "batch_size": len(images)}

    def record_losses(self):
        for key in KEYS:
            self.run_history.update_metric(f"{self.prefix}{key}", self.trackers[key].average)

    train_epoch_end = eval_epoch_end = record_losses


class OverlapCallback(TrainerCallback):
    """Counts each image once, records how far its box is, and writes the predictions down."""

    def __init__(self, targets, folder):
        self.targets, self.folder = targets, Path(folder)
        self.seen, self.rows = set(), []

    def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
        for row in batch_output["predictions"].tolist():
            if row[-1] != PADDING and row[-1] not in self.seen:
                self.seen.add(row[-1])
                self.rows.append(row)

    def on_eval_epoch_end(self, trainer, **kwargs):
        if trainer.run_config.is_world_process_zero:
            self.folder.mkdir(exist_ok=True)
            (self.folder / "predictions.json").write_text(json.dumps(self.rows))
        far = [
            (torch.tensor(row[:4]) - self.targets[int(row[-1])][1]["box"]).abs().max().item()
            for row in self.rows
        ]
        trainer.run_history.update_metric("far", sum(far) / max(len(far), 1))
        self.seen, self.rows = set(), []


def main():
    torch.manual_seed(3)
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    train, held_out = Objects(digits(64)), Objects(digits(32))
    trainer = DetectorTrainer(
        weights={"box": 1.0, "score": 0.5}, model=model, optimizer=optimizer,
        callbacks=[
            OverlapCallback(held_out, "predicted"), *get_default_callbacks(progress_bar=True)
        ],
    )  # fmt: skip
    trainer.train(
        num_epochs=5, train_dataset=train, eval_dataset=held_out, per_device_batch_size=16,
        train_dataloader_kwargs={"shuffle": False, "num_workers": 0},
        eval_dataloader_kwargs={"num_workers": 0}, collate_fn=collate,
        create_scheduler_fn=CosineLrScheduler.create_scheduler_fn(
            num_warmup_epochs=1, num_cooldown_epochs=1
        ),
    )  # fmt: skip
    history = trainer.run_history
    before = {name: [float(v) for v in history.get_metric_values(name)]
              for name in sorted(history.get_metric_names())}  # fmt: skip
    trainer.evaluate(
        dataset=held_out,
        per_device_batch_size=8,
        collate_fn=collate,
        dataloader_kwargs={"num_workers": 0},
    )
    rows = json.loads(Path("predicted/predictions.json").read_text())
    return {"history": before, "far": float(history.get_latest_metric("far")), "rows": len(rows),
            "after": sorted(history.get_metric_names())}  # fmt: skip
