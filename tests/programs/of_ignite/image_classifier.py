"""The classifier of Ignite's examples: common handlers, the best models, a rate by the iteration."""

import torch
from ignite.contrib.engines import common
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver, PiecewiseLinear, global_step_from_engine
from ignite.metrics import Accuracy, Loss
from tiny_data import digits
from torch import nn
from torch.utils.data import DataLoader, Subset

EPOCHS, RATE, EVERY = 4, 0.2, 2


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    )


def attach_handlers(trainer, evaluator, model, optimizer, train):
    milestones = [(0, 0.0), (len(train), RATE), (EPOCHS * len(train), 0.0)]
    common.setup_common_training_handlers(
        trainer=trainer, to_save={"model": model, "optimizer": optimizer}, output_path="out",
        save_every_iters=5, n_saved=2, output_names=["batch loss"], with_gpu_stats=False,
        lr_scheduler=PiecewiseLinear(optimizer, "lr", milestones), with_pbars=False,
    )  # fmt: skip
    metrics = {"Accuracy": Accuracy(), "Loss": Loss(nn.CrossEntropyLoss())}
    for name, metric in metrics.items():
        metric.attach(evaluator, name)
    best = Checkpoint(
        {"model": model}, DiskSaver("out", require_empty=False), filename_prefix="best", n_saved=2,
        global_step_transform=global_step_from_engine(trainer), score_name="test_accuracy",
        score_function=Checkpoint.get_default_score_fn("Accuracy"),
    )  # fmt: skip
    late = Events.COMPLETED(lambda *_: trainer.state.epoch > EPOCHS // 2)
    evaluator.add_event_handler(late, best)


def parts():
    torch.manual_seed(15)
    model, data = network(), digits(96)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4, nesterov=True
    )
    loaders = DataLoader(Subset(data, range(64)), 16), DataLoader(Subset(data, range(64, 96)), 16)
    return model, optimizer, loaders, []


def hosted():
    import trainer_hooks
    from trainer_hooks.adapters.ignite import attach

    model, optimizer, loaders, rows = parts()

    class Training(trainer_hooks.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, batch_idx):
            loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            return {"loss": loss, "batch loss": loss.item()}

        def validation_step(self, batch, batch_idx):
            return self.model(batch[0]), batch[1]

        def configure_optimizers(self):
            return optimizer

    def attached(training, evaluator):
        attach_handlers(training, evaluator, model, optimizer, loaders[0])

        @evaluator.on(Events.COMPLETED)
        def log_metrics(engine):
            metrics = engine.state.metrics
            rows.append([training.state.epoch, metrics["Accuracy"], metrics["Loss"]])

    trainer_hooks.Trainer(
        max_epochs=EPOCHS, check_val_every_n_epoch=EVERY, callbacks=[attach(attached)],
        logger=False, enable_progress_bar=False, num_sanity_val_steps=0, accelerator="cpu",
        enable_model_summary=False, enable_checkpointing=False,
    ).fit(Training(), *loaders)  # fmt: skip
    return {"rows": rows}


def main():
    model, optimizer, loaders, rows = parts()

    def train_step(engine, batch):
        model.train()
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return {"loss": loss.item(), "batch loss": loss.item()}

    @torch.no_grad()
    def evaluate_step(engine, batch):
        model.eval()
        return model(batch[0]), batch[1]

    trainer, evaluator = Engine(train_step), Engine(evaluate_step)
    attach_handlers(trainer, evaluator, model, optimizer, loaders[0])

    def run_validation(engine):
        metrics = evaluator.run(loaders[1]).metrics
        rows.append([engine.state.epoch, metrics["Accuracy"], metrics["Loss"]])

    trainer.add_event_handler(Events.EPOCH_COMPLETED(every=EVERY), run_validation)
    trainer.run(loaders[0], max_epochs=EPOCHS)
    return {"rows": rows}
