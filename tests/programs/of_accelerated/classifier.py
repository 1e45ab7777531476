"""The first program of the documentation: a Trainer as it is, with callbacks of both kinds."""

import torch
from tiny_data import digits
from pytorch_accelerated import Trainer
from pytorch_accelerated.callbacks import (
    EarlyStoppingCallback,
    SaveBestModelCallback,
    TrainerCallback,
)
from torch import nn
from torch.utils.data import Subset


DIFFERENCES = {
    "hosted:runs.0.metrics": "has the values of an epoch's training when the epoch is over",
}


class GradientNorms(TrainerCallback):
    """Notes the norm of the gradients at each step, and what each evaluation gave."""

    def __init__(self):
        self.norms, self.losses, self.events = [], [], []

    def on_training_run_start(self, trainer, **kwargs):
        self.events.append("run_start")

    def on_train_epoch_start(self, trainer, **kwargs):
        self.events.append("epoch_start")

    def on_train_step_end(self, trainer, batch_output=None, **kwargs):
        grads = [p.grad for p in trainer.model.parameters() if p.grad is not None]
        self.norms.append(float(sum(g.square().sum() for g in grads)) if grads else 0.0)

    def on_training_run_epoch_end(self, trainer, **kwargs):
        self.losses.append(float(trainer.run_history.get_latest_metric("eval_loss_epoch")))

    def on_training_run_end(self, trainer, **kwargs):
        self.events.append("run_end")


def parts():
    torch.manual_seed(8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01), GradientNorms()


def callbacks(noting):
    return [
        noting,
        EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=0.001),
        SaveBestModelCallback(save_path="best_model.pt", watch_metric="eval_loss_epoch"),
    ]


def hosted():
    import trainer_hooks

    model, optimizer, noting = parts()

    class Classifier(trainer_hooks.Module):
        def __init__(self):
            super().__init__()
            for name, part in model.named_children():
                self.add_module(name, part)

        def forward(self, x):
            return model(x)

        def training_step(self, batch, batch_idx):
            loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
            self.log("train_loss_epoch", loss, on_step=False, on_epoch=True)
            return loss

        def validation_step(self, batch, batch_idx):
            loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
            self.log("eval_loss_epoch", loss)

        def configure_optimizers(self):
            return optimizer

    data = digits(96)
    train = torch.utils.data.DataLoader(Subset(data, range(64)), 16)
    evaluation = torch.utils.data.DataLoader(Subset(data, range(64, 96)), 16)
    trainer = trainer_hooks.Trainer(
        max_epochs=3, callbacks=callbacks(noting), logger=False, enable_progress_bar=False,
        num_sanity_val_steps=0, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Classifier(), train, evaluation)
    return {"events": noting.events, "losses": noting.losses}


def main():
    model, optimizer, noting = parts()
    data = digits(96)
    trainer = Trainer(
        model=model, loss_func=nn.CrossEntropyLoss(), optimizer=optimizer,
        callbacks=callbacks(noting),
    )  # fmt: skip
    trainer.train(
        train_dataset=Subset(data, range(64)), eval_dataset=Subset(data, range(64, 96)),
        num_epochs=3, per_device_batch_size=16,
        train_dataloader_kwargs={"shuffle": False, "num_workers": 0},
        eval_dataloader_kwargs={"num_workers": 0},
    )  # fmt: skip
    return {"events": noting.events, "losses": noting.losses}
