"""A Trainer with mixup and averaged weights, which overrides the methods of a run."""

import copy

import torch
import torchmetrics
from tiny_data import digits
from pytorch_accelerated.callbacks import EarlyStoppingCallback, SaveBestModelCallback
from pytorch_accelerated.trainer import DEFAULT_CALLBACKS, Trainer
from torch import nn

HOSTED = "its Trainer is a subclass of pytorch-accelerated's"
KILLED = "its averaged weights and its count of updates are in no checkpoint"


class MixupTrainer(Trainer):
    def __init__(self, eval_loss_fn, num_classes, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.eval_loss_fn = eval_loss_fn
        self.num_updates = None
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=num_classes)
        self.ema_accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=num_classes)
        self.ema_model = None

    def create_scheduler(self):
        return torch.optim.lr_scheduler.CosineAnnealingLR(
            self.optimizer, T_max=self.run_config.num_epochs, eta_min=1e-6
        )

    def training_run_start(self):
        self.ema_model = copy.deepcopy(self._accelerator.unwrap_model(self.model)).eval()

    def train_epoch_start(self):
        super().train_epoch_start()
        self.num_updates = self.run_history.current_epoch * len(self._train_dataloader)

    def calculate_train_batch_loss(self, batch):
        xb, yb = batch
        soft = nn.functional.one_hot(yb, 10).float()
        mixed = 0.7 * xb + 0.3 * xb.flip(0), 0.7 * soft + 0.3 * soft.flip(0)
        return super().calculate_train_batch_loss(mixed)

    def train_epoch_end(self):
        with torch.no_grad():
            for mean, new in zip(self.ema_model.parameters(), self.model.parameters(), strict=True):
                mean.lerp_(new, 0.1)

    def scheduler_step(self):
        self.num_updates += 1

    def calculate_eval_batch_loss(self, batch):
        with torch.no_grad():
            xb, yb = batch
            outputs = self.model(xb)
            val_loss = self.eval_loss_fn(outputs, yb)
            self.accuracy.update(outputs.argmax(-1), yb)
            self.ema_accuracy.update(self.ema_model(xb).argmax(-1), yb)
        return {"loss": val_loss, "model_outputs": outputs, "batch_size": xb.size(0)}

    def eval_epoch_end(self):
        super().eval_epoch_end()
        if self.scheduler is not None:
            self.scheduler.step()
        self.run_history.update_metric("accuracy", self.accuracy.compute().cpu())
        self.run_history.update_metric("ema_model_accuracy", self.ema_accuracy.compute().cpu())
        self.accuracy.reset()
        self.ema_accuracy.reset()


def main():
    torch.manual_seed(8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    trainer = MixupTrainer(
        model=model, optimizer=optimizer, loss_func=nn.CrossEntropyLoss(label_smoothing=0.1),
        eval_loss_fn=nn.CrossEntropyLoss(), num_classes=10,
        callbacks=[*DEFAULT_CALLBACKS, EarlyStoppingCallback(early_stopping_patience=5),
                   SaveBestModelCallback(watch_metric="accuracy", greater_is_better=True)],
    )  # fmt: skip
    trainer.train(
        per_device_batch_size=16, train_dataset=digits(64), eval_dataset=digits(32), num_epochs=3,
        train_dataloader_kwargs={"drop_last": True, "num_workers": 0, "shuffle": False},
        eval_dataloader_kwargs={"num_workers": 0}, create_scheduler_fn=trainer.create_scheduler,
    )  # fmt: skip
    trainer.save_checkpoint("end.pt", save_optimizer=False)
    return {"updates": trainer.num_updates, "epoch": trainer.run_history.current_epoch,
            "accuracy": [float(v) for v in trainer.run_history.get_metric_values("accuracy")],
            "config": trainer.run_config.to_dict()["num_epochs"]}  # fmt: skip
