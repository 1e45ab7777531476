"""The first program of Composer's documentation: a classifier, an evaluator, monitors."""

import torch
from composer import Callback, Evaluator, Logger, State, Trainer
from composer.callbacks import LRMonitor, SpeedMonitor
from composer.loggers import InMemoryLogger
from composer.models import ComposerModel
from composer.optim import DecoupledSGDW, LinearWithWarmupScheduler
from tiny_data import digits
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy

DIFFERENCES = {
    "hosted:result.*": 'A monitored metric, as in `EarlyStopper("val_acc", "eval")`, is one',
    "hosted:runs.0.losses": "open: other random numbers shuffle the data and drop activations",
    "hosted:runs.0.weights.*": "open: other random numbers",
    "hosted:runs.0.metrics": "open: other random numbers",
    "hosted:runs.0.rates": "open: see the cause",
}


class Digits(ComposerModel):
    def __init__(self, num_classes: int):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1),
            torch.nn.Linear(16, num_classes),
        )  # fmt: skip
        self.train_accuracy = MulticlassAccuracy(num_classes=num_classes, average="micro")
        self.val_accuracy = MulticlassAccuracy(num_classes=num_classes, average="micro")

    def forward(self, batch):
        inputs, _ = batch
        return self.net(inputs)

    def loss(self, outputs, batch):
        _, targets = batch
        return torch.nn.functional.cross_entropy(outputs, targets)

    def get_metrics(self, is_train: bool = False):
        return {"Accuracy": self.train_accuracy if is_train else self.val_accuracy}

    def update_metric(self, batch, outputs, metric):
        metric.update(outputs, batch[1])


class EpochMonitor(Callback):
    def __init__(self):
        self.seen = []

    def epoch_start(self, state: State, logger: Logger):
        self.seen.append(["start", int(state.timestamp.epoch), state.max_duration.value])

    def batch_end(self, state: State, logger: Logger):
        if state.timestamp.batch_in_epoch == 2:
            logger.log_metrics({"halfway": state.loss.item()})

    def epoch_end(self, state: State, logger: Logger):
        self.seen.append(["end", int(state.timestamp.batch), list(state.train_metric_values)])
        logger.log_metrics({"epochs": int(state.timestamp.epoch)})


def hosted():
    import trainer_hooks
    from trainer_hooks.adapters.composer import adapt_module

    torch.manual_seed(17)
    model, monitor = Digits(10), EpochMonitor()
    optimizer = DecoupledSGDW(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda batch: min(1.0, batch / 4))
    trainer = trainer_hooks.Trainer(max_epochs=3, callbacks=[monitor], logger=False,
                                    enable_progress_bar=False, num_sanity_val_steps=0,
                                    enable_checkpointing=False)  # fmt: skip
    train, evaluation = loaders()
    module = adapt_module(model, optimizer, scheduler, step_schedulers_every_batch=True)
    trainer_hooks.seed_everything(17)
    trainer.fit(module, train, evaluation)
    return {"seen": monitor.seen}


def loaders():
    return DataLoader(digits(64), batch_size=16, shuffle=True), DataLoader(
        digits(32), batch_size=16
    )


def main():
    torch.manual_seed(17)
    model, monitor, kept = Digits(10), EpochMonitor(), InMemoryLogger()
    optimizer = DecoupledSGDW(model.parameters(), lr=0.1, momentum=0.9)
    train, evaluation = loaders()
    trainer = Trainer(
        model=model, train_dataloader=train,
        eval_dataloader=Evaluator(label="all", dataloader=evaluation, metric_names=["Accuracy"]),
        max_duration="3ep", optimizers=optimizer, eval_interval="1ep", device="cpu",
        schedulers=LinearWithWarmupScheduler(t_warmup="4ba", alpha_i=1.0, alpha_f=1.0),
        step_schedulers_every_batch=True, callbacks=[monitor, LRMonitor(), SpeedMonitor(window_size=2)],
        loggers=[kept], progress_bar=False, log_to_console=False,
        seed=17,
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    names = sorted(name for name in kept.data if not name.startswith(("throughput/", "time/")))
    return {
        "seen": monitor.seen, "names": names,
        "accuracy": float(kept.most_recent_values["metrics/all/Accuracy"]),
        "halfway": [float(value) for _, value in kept.data["halfway"]],
    }  # fmt: skip
