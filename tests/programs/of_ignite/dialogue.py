"""Fine-tuning on two losses: accumulated, with a linear rate, metrics of metrics and TensorBoard."""

import math

import torch
from ignite.engine import Engine, Events
from ignite.handlers import ModelCheckpoint, PiecewiseLinear, global_step_from_engine
from ignite.handlers.tensorboard_logger import (
    OptimizerParamsHandler,
    OutputHandler,
    TensorboardLogger,
)
from ignite.handlers.tqdm_logger import ProgressBar
from ignite.metrics import Accuracy, Loss, MetricsLambda, RunningAverage
from tiny_data import Sentences
from torch import nn
from torch.utils.data import DataLoader

EPOCHS, RATE, WINDOW, NORM = 2, 0.05, 2, 1.0


class DoubleHeads(nn.Module):
    """Guesses the next token, and the label of the sentence."""

    def __init__(self):
        super().__init__()
        self.embedding, self.hidden = nn.Embedding(40, 8), nn.Linear(8, 8)
        self.words, self.choice = nn.Linear(8, 40), nn.Linear(8, 2)

    def forward(self, ids):
        found = torch.tanh(self.hidden(self.embedding(ids)))
        return self.words(found)[:, :-1].flatten(0, 1), self.choice(found.mean(1))


def losses_of(model, batch):
    words, choice = model(batch["input_ids"])
    of_words = nn.functional.cross_entropy(words, batch["input_ids"][:, 1:].flatten())
    return of_words, nn.functional.cross_entropy(choice, batch["labels"])


def attach_handlers(trainer, evaluator, model, optimizer, length, said):
    scheduler = PiecewiseLinear(optimizer, "lr", [(0, RATE), (EPOCHS * length, 0.0)])
    trainer.add_event_handler(Events.ITERATION_STARTED, scheduler)
    RunningAverage(output_transform=lambda x: x).attach(trainer, "loss")
    metrics = {
        "nll": Loss(nn.CrossEntropyLoss(), output_transform=lambda x: (x[0][0], x[1][0])),
        "accuracy": Accuracy(output_transform=lambda x: (x[0][1], x[1][1])),
    }
    metrics["average_nll"] = MetricsLambda(lambda value: value, metrics["nll"])
    metrics["average_ppl"] = MetricsLambda(math.exp, metrics["average_nll"])
    for name, metric in metrics.items():
        metric.attach(evaluator, name)
    bar = ProgressBar(persist=True)
    bar.attach(trainer, metric_names=["loss"])
    evaluator.add_event_handler(
        Events.COMPLETED, lambda _: bar.log_message(f"Validation: {evaluator.state.metrics}")
    )
    evaluator.add_event_handler(
        Events.COMPLETED, lambda _: said.append({k: evaluator.state.metrics[k] for k in metrics})
    )
    logger = TensorboardLogger("runs")
    logger.attach(
        trainer, log_handler=OutputHandler(tag="training", metric_names=["loss"]),
        event_name=Events.ITERATION_COMPLETED,
    )  # fmt: skip
    logger.attach(
        trainer, log_handler=OptimizerParamsHandler(optimizer), event_name=Events.ITERATION_STARTED
    )
    logger.attach(
        evaluator, event_name=Events.EPOCH_COMPLETED,
        log_handler=OutputHandler(
            tag="validation", metric_names=list(metrics),
            global_step_transform=global_step_from_engine(trainer),
        ),
    )  # fmt: skip
    trainer.add_event_handler(
        Events.EPOCH_COMPLETED,
        ModelCheckpoint("runs", "checkpoint", n_saved=3, require_empty=False), {"mymodel": model},
    )  # fmt: skip
    return logger


def parts():
    torch.manual_seed(12)
    model = DoubleHeads()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    return model, optimizer, DataLoader(Sentences(32), 4), DataLoader(Sentences(16), 4), []


def labels_of(batch):
    return batch["input_ids"][:, 1:].flatten(), batch["labels"]


def hosted():
    import trainer_hooks
    from trainer_hooks.adapters.ignite import attach

    model, optimizer, train, evaluation, said = parts()
    loggers = []

    class Training(trainer_hooks.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, batch_idx):
            return sum(losses_of(self.model, batch))

        def on_after_backward(self):
            nn.utils.clip_grad_norm_(self.model.parameters(), NORM)

        def validation_step(self, batch, batch_idx):
            return self.model(batch["input_ids"]), labels_of(batch)

        def configure_optimizers(self):
            return optimizer

    def attached(training, evaluator):
        loggers.append(attach_handlers(training, evaluator, model, optimizer, len(train), said))

    trainer_hooks.Trainer(
        max_epochs=EPOCHS, accumulate_grad_batches=WINDOW, callbacks=[attach(attached)],
        logger=False, enable_progress_bar=False, num_sanity_val_steps=0, accelerator="cpu",
        enable_model_summary=False, enable_checkpointing=False,
    ).fit(Training(), train, evaluation)  # fmt: skip
    for logger in loggers:
        logger.close()
    return {"said": said}


def main():
    model, optimizer, train, evaluation, said = parts()

    def update(engine, batch):
        model.train()
        loss = sum(losses_of(model, batch))
        (loss / WINDOW).backward()
        nn.utils.clip_grad_norm_(model.parameters(), NORM)
        if engine.state.iteration % WINDOW == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    def inference(engine, batch):
        model.eval()
        with torch.no_grad():
            return model(batch["input_ids"]), labels_of(batch)

    trainer, evaluator = Engine(update), Engine(inference)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _: evaluator.run(evaluation))
    logger = attach_handlers(trainer, evaluator, model, optimizer, len(train), said)
    trainer.run(train, max_epochs=EPOCHS)
    logger.close()
    return {"said": said}
