"""A detector that writes boxes as tokens, with callbacks that count, convert, draw, log and save."""

import json
from collections import defaultdict
from pathlib import Path

import torch
from pytorch_accelerated import Trainer
from pytorch_accelerated.callbacks import (
    LogMetricsCallback,
    TrainerCallback,
    get_default_callbacks,
)
from pytorch_accelerated.utils import world_process_zero_only
from tiny_data import digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

DIFFERENCES = {
    "ported:result.lines": "metrics of training",
    "hosted:result.lines": "has the values of an epoch's training when the epoch is over",
    "hosted:runs.0.metrics": "has the values of an epoch's training when the epoch is over",
}
NAMES = ("left", "top", "class")
SPARSE = {number: 2 * number + 1 for number in range(16)}


class Sequences(Dataset):
    """An image, and as tokens the first bright column and row and the class."""

    def __init__(self, first, last):
        self.data = torch.utils.data.Subset(digits(96), range(first, last))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image, label = self.data[index]
        rows, columns = (image[0] > 0.5).nonzero().T
        tokens = torch.stack([columns.min(), rows.min(), label])
        return {"image": image, "target_seq": tokens, "image_id": torch.tensor(index)}


class Detector(nn.Module):
    """Logits of shape (batch, 3, 16), a row for each token."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU())
        self.head = nn.Linear(24, 48)

    def forward(self, images):
        return self.head(self.body(images)).unflatten(1, (3, 16))


def losses(model, batch):
    """Return the loss, the logits, and a row (left, top, score, class, image) for each image."""
    logits = model(batch["image"])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["target_seq"].flatten())
    scores, tokens = logits.detach().softmax(-1).max(-1)
    columns = (tokens[:, 0], tokens[:, 1], scores[:, 2], tokens[:, 2], batch["image_id"])
    rows = torch.stack([column.float() for column in columns], 1)
    return {
        "loss": loss, "logits": logits, "model_outputs": logits, "predictions": rows,
        "batch_size": len(logits),
    }  # fmt: skip


class SequenceTrainer(Trainer):
    def calculate_train_batch_loss(self, batch):
        return losses(self.model, batch)

    def calculate_eval_batch_loss(self, batch):
        with torch.no_grad():
            found = losses(self.model, batch)
            return {**found, "predictions": self.gather(found["predictions"], padding_value=-1)}


class ConvertClasses(TrainerCallback):
    """Writes other class numbers into the predictions that later callbacks read."""

    def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
        predictions = batch_output["predictions"]
        classes = [SPARSE[int(number)] for number in predictions[:, -2]]
        batch_output["predictions"][:, -2] = predictions.new_tensor(classes)


class Precision(TrainerCallback):
    """Records the share of predictions of the right class, each image counted once."""

    def __init__(self, targets):
        self.targets, self.rows, self.image_ids = targets, [], set()

    def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
        rows = [row for row in batch_output["predictions"].tolist()
                if row[-1] not in self.image_ids]  # fmt: skip
        self.rows += rows
        self.image_ids.update(row[-1] for row in rows)

    def on_eval_epoch_end(self, trainer, **kwargs):
        right = sum(row[-2] == self.targets[int(row[-1])] for row in self.rows)
        trainer.run_history.update_metric("precision", right / len(self.rows))
        if trainer.run_config.is_world_process_zero:
            Path("predictions.json").write_text(json.dumps(self.rows))
        self.rows, self.image_ids = [], set()


class TokenAccuracy(TrainerCallback):
    """Records the accuracy of each kind of token, after each batch and of each epoch."""

    def __init__(self):
        self.counts = {}

    # for resumes here: pytorch-accelerated calls neither
    def state_dict(self):
        return {"counts": self.counts}

    def load_state_dict(self, state):
        self.counts = state["counts"]

    def record(self, trainer, batch, logits, prefix):
        right = trainer.gather(logits.detach().argmax(-1) == batch["target_seq"]).float()
        for name, column in zip(NAMES, right.T, strict=True):
            trainer.run_history.update_metric(f"{prefix}_batch_{name}", column.mean().item())
            seen, correct = self.counts.get(name, (0, 0.0))
            self.counts[name] = (seen + len(column), correct + column.sum().item())

    def record_epoch(self, trainer, prefix):
        for name, (seen, correct) in self.counts.items():
            trainer.run_history.update_metric(f"{prefix}_epoch_{name}", correct / seen)

    def on_train_epoch_start(self, trainer, **kwargs):
        self.counts = {}

    def on_train_step_end(self, trainer, batch, batch_output, **kwargs):
        self.record(trainer, batch, batch_output["model_outputs"], "train")

    def on_train_epoch_end(self, trainer, **kwargs):
        self.record_epoch(trainer, "train")

    def on_eval_epoch_start(self, trainer, **kwargs):
        self.counts = {}

    def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
        self.record(trainer, batch, batch_output["model_outputs"], "eval")

    def on_eval_epoch_end(self, trainer, **kwargs):
        self.record_epoch(trainer, "eval")


class LearningRates(TrainerCallback):
    """Records the learning rate of each epoch."""

    def on_train_epoch_end(self, trainer, **kwargs):
        trainer.run_history.update_metric("learning_rate", trainer.optimizer.param_groups[0]["lr"])


class Drawings(TrainerCallback):
    """Writes a file with some predictions of each second epoch."""

    def __init__(self, folder, every=2, images=1):
        self.folder, self.every, self.images, self.drawn = Path(folder), every, images, 0
        self.folder.mkdir(parents=True, exist_ok=True)

    def on_eval_epoch_start(self, trainer, **kwargs):
        self.drawn = 0

    @world_process_zero_only
    def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
        epoch = trainer.run_history.current_epoch
        if epoch % self.every == 0 and self.drawn < self.images:
            text = json.dumps(
                [batch["target_seq"][0].tolist(), batch_output["predictions"][0].tolist()]
            )
            (self.folder / f"epoch_{epoch}_batch_{self.drawn}.json").write_text(text)
            self.drawn += 1


class SavePredictions(TrainerCallback):
    """Writes the predictions and targets of all evaluations so far."""

    def __init__(self):
        self.predictions = defaultdict(list)

    def on_eval_step_end(self, trainer, batch, batch_output, **kwargs):
        classes = trainer.gather(batch_output["model_outputs"]).argmax(dim=-1)[:, 2]
        self.predictions["prediction"].extend(classes.tolist())
        self.predictions["target"].extend(batch["target_seq"][:, 2].tolist())

    def on_eval_epoch_end(self, trainer, **kwargs):
        trainer._accelerator.wait_for_everyone()
        if trainer.run_config.is_local_process_zero:
            Path("valid_predictions.json").write_text(json.dumps(self.predictions))


class RunLogger(LogMetricsCallback):
    """Keeps the tags of the run and a line for each log, as for a service."""

    def __init__(self):
        self.tags, self.lines = {}, []

    def on_training_run_start(self, trainer, **kwargs):
        self.tags = trainer.run_config.to_dict()

    def log_metrics(self, trainer, metrics):
        if trainer.run_config.is_world_process_zero:
            self.lines.append({name: float(value) for name, value in metrics.items()})


def parts():
    torch.manual_seed(4)
    model = Detector()
    held_out = Sequences(64, 96)
    targets = {number: SPARSE[int(item["target_seq"][2])] for number, item in enumerate(held_out)}
    logger = RunLogger()
    callbacks = [
        ConvertClasses(), Precision(targets), TokenAccuracy(), LearningRates(),
        Drawings("drawings"), SavePredictions(), logger,
    ]  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, Sequences(0, 64), held_out, callbacks, logger


def result(logger):
    names = ("num_epochs", "num_update_steps_per_epoch", "is_distributed", "mixed_precision",
             "max_num_train_steps")  # fmt: skip
    files = ("predictions.json", "valid_predictions.json")
    return {
        "lines": logger.lines, "tags": {name: logger.tags[name] for name in names},
        "files": {name: json.loads(Path(name).read_text()) for name in files},
        "drawn": sorted(path.name for path in Path("drawings").iterdir()),
    }  # fmt: skip


def hosted():
    import trainer_hooks

    model, optimizer, train, held_out, callbacks, logger = parts()

    class Hosted(trainer_hooks.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = model.body, model.head

        def forward(self, batch):
            return model(batch["image"])

        def loss(self, logits, batch):
            return nn.functional.cross_entropy(logits.flatten(0, 1), batch["target_seq"].flatten())

        def validation_step(self, batch, batch_idx):
            found = losses(model, batch)
            self.log("eval_loss_epoch", found["loss"])
            return found

        def configure_optimizers(self):
            return optimizer

    trainer = trainer_hooks.Trainer(
        max_epochs=4, callbacks=callbacks, logger=False, enable_progress_bar=False,
        num_sanity_val_steps=0, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Hosted(), DataLoader(train, 16), DataLoader(held_out, 16))
    return result(logger)


def main():
    model, optimizer, train, held_out, callbacks, logger = parts()
    trainer = SequenceTrainer(
        model=model, loss_func=None, optimizer=optimizer,
        callbacks=[*callbacks, *get_default_callbacks(progress_bar=False)],
    )  # fmt: skip
    trainer.train(
        train_dataset=train, eval_dataset=held_out, num_epochs=4, per_device_batch_size=16,
        train_dataloader_kwargs={"shuffle": False, "num_workers": 0},
        eval_dataloader_kwargs={"num_workers": 0},
    )  # fmt: skip
    return result(logger)
