"""A baseline that counts, times, schedules and evaluates in handlers of the training's engine."""

import logging

import torch
from ignite.engine import Engine, Events
from ignite.handlers import ModelCheckpoint, Timer
from ignite.metrics import Metric, RunningAverage
from tiny_data import digits
from torch import nn
from torch.utils.data import DataLoader, Subset

DIFFERENCES = {
    "result.rows": "A validation is over before `EPOCH_COMPLETED` of the training",
}
# inside an epoch, Ignite begins it again, and its handler would step the schedule twice
KILLED_AFTER = 12
EPOCHS, LOG_PERIOD, SAVE_PERIOD, EVAL_PERIOD = 4, 3, 2, 2
LOG = logging.getLogger("reid")


class Baseline(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(nn.Flatten(), nn.Linear(64, 12))
        self.neck, self.classifier = nn.BatchNorm1d(12), nn.Linear(12, 10, bias=False)

    def forward(self, images):
        features = self.base(images)
        after = self.neck(features)
        return (self.classifier(after), features) if self.training else after


class Ranking(Metric):
    """How often the nearest other feature is of the same class."""

    def reset(self):
        self.features, self.labels = [], []

    def update(self, output):
        features, labels = output[:2]
        self.features.append(features)
        self.labels.append(labels)

    def compute(self):
        features, labels = torch.cat(self.features), torch.cat(self.labels)
        distances = torch.cdist(features, features).fill_diagonal_(torch.inf)
        matches = (labels[distances.topk(3, largest=False).indices] == labels[:, None]).float()
        return matches[:, 0].mean().item(), matches.mean().item()


def loss_of(model, batch):
    images, labels = batch
    scores, features = model(images)
    loss = nn.functional.cross_entropy(scores, labels) + 0.01 * features.square().mean()
    return loss, (scores.max(1)[1] == labels).float().mean()


def attach_handlers(trainer, evaluator, model, optimizer, scheduler, loader, rows):
    checkpointer = ModelCheckpoint("saved", "digits", n_saved=10, require_empty=False)
    timer = Timer(average=True)
    trainer.add_event_handler(
        Events.EPOCH_COMPLETED(every=SAVE_PERIOD), checkpointer,
        {"model": model, "optimizer": optimizer},
    )  # fmt: skip
    timer.attach(
        trainer, start=Events.EPOCH_STARTED, resume=Events.ITERATION_STARTED,
        pause=Events.ITERATION_COMPLETED, step=Events.ITERATION_COMPLETED,
    )  # fmt: skip
    RunningAverage(output_transform=lambda x: float(x["loss"])).attach(trainer, "avg_loss")
    RunningAverage(output_transform=lambda x: x["acc"]).attach(trainer, "avg_acc")
    Ranking().attach(evaluator, "ranking")
    counted = {"iteration": 0}

    @trainer.on(Events.EPOCH_STARTED)
    def adjust_learning_rate(engine):
        scheduler.step()

    @trainer.on(Events.ITERATION_COMPLETED)
    def log_training_loss(engine):
        counted["iteration"] += 1
        if counted["iteration"] % LOG_PERIOD == 0:
            metrics = engine.state.metrics
            rows.append(
                [
                    engine.state.epoch,
                    counted["iteration"],
                    len(loader),
                    metrics["avg_loss"],
                    metrics["avg_acc"],
                    scheduler.get_last_lr()[0],
                ]
            )
        if len(loader) == counted["iteration"]:
            counted["iteration"] = 0

    @trainer.on(Events.EPOCH_COMPLETED)
    def print_times(engine):
        seconds = timer.value()
        LOG.info("epoch %s: %s samples a second", engine.state.epoch, loader.batch_size / seconds)
        rows.append([engine.state.epoch, timer.step_count, seconds > 0])
        timer.reset()


def parts():
    torch.manual_seed(7)
    data, model, rows = digits(80), Baseline(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], gamma=0.5)
    loaders = DataLoader(Subset(data, range(48)), 8), DataLoader(Subset(data, range(48, 80)), 16)
    return model, optimizer, scheduler, loaders, rows


def hosted():
    import trainer_hooks
    from trainer_hooks.adapters.ignite import attach

    model, optimizer, scheduler, loaders, rows = parts()

    class Training(trainer_hooks.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, batch_idx):
            loss, accuracy = loss_of(self.model, batch)
            return {"loss": loss, "acc": accuracy.item()}

        def validation_step(self, batch, batch_idx):
            return self.model(batch[0]), batch[1]

        def configure_optimizers(self):
            return optimizer

    def attached(training, evaluation):
        attach_handlers(training, evaluation, model, optimizer, scheduler, loaders[0], rows)

        @evaluation.on(Events.COMPLETED)
        def log_validation_results(engine):
            first, mean = engine.state.metrics["ranking"]
            rows.append([training.state.epoch, first, mean])

    trainer_hooks.Trainer(
        max_epochs=EPOCHS, check_val_every_n_epoch=EVAL_PERIOD, callbacks=[attach(attached)],
        logger=False, enable_progress_bar=False, num_sanity_val_steps=0, accelerator="cpu",
        enable_model_summary=False, enable_checkpointing=False,
    ).fit(Training(), *loaders)  # fmt: skip
    return {"rows": rows}


def main():
    model, optimizer, scheduler, loaders, rows = parts()

    def update(engine, batch):
        model.train()
        optimizer.zero_grad()
        loss, accuracy = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        return {"loss": loss.item(), "acc": accuracy.item()}

    def inference(engine, batch):
        model.eval()
        with torch.no_grad():
            return model(batch[0]), batch[1]

    trainer, evaluator = Engine(update), Engine(inference)
    attach_handlers(trainer, evaluator, model, optimizer, scheduler, loaders[0], rows)

    @trainer.on(Events.EPOCH_COMPLETED)
    def log_validation_results(engine):
        if engine.state.epoch % EVAL_PERIOD == 0:
            evaluator.run(loaders[1])
            first, mean = evaluator.state.metrics["ranking"]
            rows.append([engine.state.epoch, first, mean])

    trainer.run(loaders[0], max_epochs=EPOCHS)
    return {"rows": rows}
