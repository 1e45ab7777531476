"""A model that returns its own loss from batches of dicts, with savers and logs by the step."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tiny_data import digits
from pytorch_accelerated import Trainer
from pytorch_accelerated.callbacks import (
    LogMetricsCallback,
    TrainerCallback,
    get_default_callbacks,
)
from torch import nn
from torch.utils.data import Subset

DIFFERENCES = {"ported:result.logs": "metrics of training"}
HOSTED = "its Trainer is a subclass of pytorch-accelerated's"


@dataclass
class AutoEncoderConfig:
    hidden: int = 12
    codes: int = 6
    commit: float = 0.25

    @classmethod
    def from_dict(cls, values):
        return cls(**{name: value for name, value in values.items() if name in asdict(cls())})


class AutoEncoder(nn.Module):
    """Quantizes its hidden vectors by a code book whose codes follow a running mean."""

    def __init__(self, hidden, codes, commit):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, hidden), nn.Tanh(), nn.Linear(hidden, 4))
        self.decoder = nn.Linear(4, 8)
        self.commit = commit
        self.register_buffer("book", torch.randn(codes, 4))

    def forward(self, faces, mask):
        hidden = self.encoder(faces)
        nearest = torch.cdist(hidden.detach(), self.book.expand(len(faces), -1, -1)).argmin(-1)
        codes = self.book[nearest]
        if self.training:
            for code in nearest.unique():
                self.book[code].lerp_(hidden.detach()[nearest == code].mean(0), 0.1)
        quantized = hidden + (codes - hidden).detach()
        kept = mask[..., None].float()
        rebuilt = ((self.decoder(quantized) - faces).square() * kept).sum() / kept.sum()
        committed = ((hidden - codes.detach()).square() * kept).mean()
        return rebuilt + self.commit * committed, rebuilt, committed


class CollateFn:
    """Cuts the rows to the longest sample, with a mask for the others."""

    def __call__(self, samples):
        lengths = torch.tensor([4 + int(label) % 4 for _, label in samples])
        faces = torch.stack([image[0, : lengths.max()] for image, _ in samples])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        return {"faces": faces, "mask": mask}


class AutoEncoderTrainer(Trainer):
    def train_epoch_start(self):
        super().train_epoch_start()
        self.current_step = 0

    def optimizer_step(self):
        super().optimizer_step()
        self.current_step += 1
        self.callback_handler.call_event("on_invoke_parameters", self)

    def calculate_train_batch_loss(self, batch):
        loss, *_ = self.model(**batch)
        self.callback_handler.call_event("on_invoke_loss", self.gather(loss.detach()).item())
        return {"loss": loss, "batch_size": batch["faces"].size(0)}

    def calculate_eval_batch_loss(self, batch):
        mode = self.model.training
        self.model.eval()
        with torch.no_grad():
            loss, *_ = self.model(**batch)
        self.model.train(mode)
        return {"loss": loss, "batch_size": batch["faces"].size(0)}


class CheckpointCallback(TrainerCallback):
    def __init__(self, save_path, frequency=3):
        self.save_path, self.frequency, self.steps = Path(save_path), frequency, 0

    def on_training_run_start(self, trainer, **kwargs):
        self.save_path.mkdir(parents=True, exist_ok=True)

    def on_train_step_end(self, trainer, batch, batch_output, **kwargs):
        self.steps += 1
        if self.steps % self.frequency == 0:
            name = f"epoch={trainer.run_history.current_epoch}-step={self.steps}.pt"
            trainer.save_checkpoint(
                self.save_path / name, checkpoint_kwargs={"loss": float(batch_output["loss"])}
            )


class DebugLogs(TrainerCallback):
    """Keeps losses and the sizes of gradients, at events that the Trainer calls itself."""

    def __init__(self, names, every=2):
        self.names, self.every, self.losses, self.sizes = names, every, [], []

    def on_invoke_loss(self, loss):
        self.losses.append(loss)

    def on_invoke_parameters(self, trainer):
        if trainer.current_step % self.every == 0:
            found = dict(trainer.model.named_parameters())
            self.sizes.append([found[name].grad.norm().item() for name in self.names])


class JsonLogs(LogMetricsCallback):
    def log_metrics(self, trainer, metrics):
        with Path("metrics.jsonl").open("a") as file:
            file.write(json.dumps({k: float(v) for k, v in metrics.items()}) + "\n")


def main():
    torch.manual_seed(2)
    config = AutoEncoderConfig.from_dict({"hidden": 10, "unknown": 1})
    model = AutoEncoder(**asdict(config))
    saver, debug, data = CheckpointCallback("saved"), DebugLogs(["decoder.weight"]), digits(72)
    trainer = AutoEncoderTrainer(
        model=model, loss_func=None, optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        callbacks=[*get_default_callbacks(progress_bar=False), saver, JsonLogs(), debug],
    )  # fmt: skip
    options = {"per_device_batch_size": 16, "collate_fn": CollateFn(),
               "train_dataloader_kwargs": {"shuffle": False, "num_workers": 0}}  # fmt: skip
    trainer.train(
        train_dataset=Subset(data, range(48)), eval_dataset=Subset(data, range(48, 72)),
        num_epochs=3, max_num_train_steps=None, **options,
    )  # fmt: skip
    again = AutoEncoder(**asdict(config))
    new = AutoEncoderTrainer(
        model=again, loss_func=None, optimizer=torch.optim.Adam(again.parameters(), lr=0.5)
    )
    new.load_checkpoint(max(Path("saved").glob("*.pt"), key=lambda path: path.name))
    rate = new.optimizer.param_groups[0]["lr"]
    new.train(
        train_dataset=Subset(data, range(48)), eval_dataset=Subset(data, range(48, 72)),
        num_epochs=1, **options,
    )  # fmt: skip
    lines = Path("metrics.jsonl").read_text().splitlines()
    return {"logs": [json.loads(line) for line in lines], "rate": rate, "steps": saver.steps,
            "book": again.book.sum().item(), "losses": debug.losses, "sizes": debug.sizes}  # fmt: skip
