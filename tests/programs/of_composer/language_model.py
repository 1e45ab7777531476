"""A pretraining program: microbatches, gradient clipping by a callback, schedulers, perplexity."""

import torch
import torch.nn.functional as F
from composer import Trainer
from composer.callbacks import CheckpointSaver, EarlyStopper, NaNMonitor, OptimizerMonitor
from composer.core import Event, Time, TimeUnit
from composer.core.callback import Callback
from composer.loggers import InMemoryLogger, LoggerDestination
from composer.models.base import ComposerModel
from composer.optim import CosineAnnealingWithWarmupScheduler, DecoupledAdamW
from composer.utils import dist, reproducibility
from torch.utils.data import DataLoader, Dataset

DIFFERENCES = {
    "ported:runs.0.weights.*": "the loss of a microbatch",
}
HOSTED = "the Trainer's options, such as microbatches and savers, are Composer's"


class Tokens(Dataset):
    def __init__(self, count):
        self.ids = torch.randint(0, 32, (count, 9), generator=torch.Generator().manual_seed(count))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index, :-1], "labels": self.ids[index, 1:]}


class GPT(ComposerModel):
    def __init__(self, width=16):
        super().__init__()
        self.embedding = torch.nn.Embedding(32, width)
        self.block = torch.nn.TransformerEncoderLayer(width, 2, 32, 0.0, batch_first=True)
        self.head = torch.nn.Linear(width, 32)

    def forward(self, batch):
        length = batch["input_ids"].shape[1]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.block(self.embedding(batch["input_ids"]), src_mask=mask))

    def loss(self, outputs, batch):
        return F.cross_entropy(outputs.flatten(0, 1), batch["labels"].flatten())

    def eval_forward(self, batch, outputs=None):
        return outputs if outputs is not None else self.forward(batch)


class ClipAndCount(Callback):
    def __init__(self, clip):
        self.clip, self.norms, self.tokens = clip, [], 0

    def init(self, state, logger):
        self.world = dist.get_world_size()

    def after_backward(self, state, logger):
        self.norms.append(
            torch.nn.utils.clip_grad_norm_(state.model.parameters(), self.clip).item()
        )

    def batch_end(self, state, logger):
        self.tokens += state.batch["input_ids"].numel()
        logger.log_metrics({"tokens": self.tokens})

    def state_dict(self):
        return {"tokens": self.tokens}

    def load_state_dict(self, state):
        self.tokens = state["tokens"]


class Lines(LoggerDestination):
    def __init__(self):
        self.lines = []

    def log_metrics(self, metrics, step=None):
        self.lines.extend(metrics)


class RunAll(Callback):
    def __init__(self):
        self.events = []

    def run_event(self, event, state, logger):
        if event in (Event.FIT_START, Event.EPOCH_END, Event.FIT_END):
            self.events.append([event.value, state.timestamp.get(TimeUnit.BATCH).value])


def main():
    reproducibility.seed_all(3)
    model, clip, events, lines = GPT(), ClipAndCount(0.5), RunAll(), Lines()
    trainer = Trainer(
        model=model, train_dataloader=DataLoader(Tokens(48), batch_size=12),
        max_duration=Time(8, TimeUnit.BATCH), device_train_microbatch_size=4, device="cpu",
        optimizers=DecoupledAdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95)),
        schedulers=[CosineAnnealingWithWarmupScheduler(t_warmup="2ba", alpha_f=0.1)],
        callbacks=[clip, events, NaNMonitor(), OptimizerMonitor(log_optimizer_metrics=False),
                   CheckpointSaver(folder="saved", filename="ba{batch}.pt", save_interval="4ba",
                                   overwrite=True)],
        loggers=[lines, InMemoryLogger()], progress_bar=False, eval_dataloader=DataLoader(
            Tokens(12), batch_size=6), eval_interval="4ba", algorithms=None, run_name="gpt", seed=3,
    )  # fmt: skip
    trainer.fit()
    predicted = trainer.predict(DataLoader(Tokens(4), batch_size=2))
    trainer.close()
    stopper = EarlyStopper(monitor="loss", dataloader_label="eval", patience="1ep")
    return {"norms": clip.norms, "tokens": clip.tokens, "events": events.events,
            "lines": sorted(set(lines.lines)), "world": clip.world,
            "predicted": [list(one.shape) for one in predicted],
            "patience": str(stopper.patience)}  # fmt: skip
