"""A training to be killed: run it in a process of its own, as often as it takes."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from trainer_hooks import Callback, Module, Trainer, seed_everything
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint

SAMPLES = 320


class Samples(Dataset):
    """Numbered samples, which random noise of each kind may be added to."""

    def __init__(self, count: int = SAMPLES, *, is_noisy: bool = True) -> None:
        self.count, self.is_noisy = count, is_noisy

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        noise = 0.0
        if self.is_noisy:
            noise = random.random() + np.random.rand() + torch.rand(()).item()
        return torch.tensor([index / self.count, noise, 1.0])


class Buffered(IterableDataset):
    """Shuffles through a buffer, from the global random numbers."""

    def __iter__(self):
        samples, buffer = Samples(), []
        for index in range(SAMPLES):
            buffer.append(samples[index])
            if len(buffer) > 50:
                yield buffer.pop(int(torch.randint(50, ())))
        yield from buffer


class Net(Module):
    """Two layers with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.3), nn.Linear(16, 1))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        batch = torch.cat(batch) if isinstance(batch, list) else batch
        loss = (self.layers(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.layers(batch).square().mean() + torch.rand(()))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=130)
        return [optimizer], [{"scheduler": cycle, "interval": "step"}]


class Gan(Net):
    """Two optimizers, which it steps itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.judge = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.2), nn.Linear(8, 1))

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.Adam(self.layers.parameters(), lr=0.01),
            torch.optim.RMSprop(self.judge.parameters(), lr=0.001),
        ]

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        maker, judge = self.optimizers()
        made = self.layers(batch + torch.randn_like(batch))
        loss = -self.judge(made).mean()
        maker.zero_grad()
        self.manual_backward(loss)
        maker.step()
        verdict = self.judge(made.detach()).mean() - self.judge(batch[:, :1]).mean()
        judge.zero_grad()
        self.manual_backward(verdict)
        judge.step()
        self.log_dict({"maker": loss, "judge": verdict}, on_epoch=True)
        return {"loss": loss + verdict}


class Average(Callback):
    """Keeps an exponential average of the weights."""

    average: AveragedModel | None = None

    def on_fit_start(self, trainer, module) -> None:
        if self.average is None:
            self.average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9))

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.average.update_parameters(module)

    def state_dict(self):
        return dict(self.average.state_dict()) if self.average is not None else {}

    def load_state_dict(self, state_dict) -> None:
        self.average = AveragedModel(Net(), multi_avg_fn=get_ema_multi_avg_fn(0.9))
        self.average.load_state_dict(state_dict)


class Pace(Callback):
    """Tells the killer how far the run is."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        print(trainer.progress.batches_completed, flush=True)


def loaders(name: str) -> Any:
    """Return the training loader of a setting."""
    if name == "stream":
        return DataLoader(Buffered(), batch_size=8)
    if name == "several":
        return [
            DataLoader(Samples(), batch_size=8, shuffle=True),
            DataLoader(Samples(90), batch_size=4, shuffle=True),
        ]
    if name == "stateful":
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(Samples(), batch_size=8, shuffle=True, num_workers=2)
    workers = 2 if name == "persistent" else 0
    return DataLoader(
        Samples(),
        batch_size=8,
        shuffle=True,
        num_workers=workers,
        persistent_workers=name == "persistent",
        generator=torch.Generator().manual_seed(5) if name == "gan" else None,
    )


def main(name: str, ckpt_path: str | None) -> None:
    """Train a setting, from a checkpoint if there is one, and save its end."""
    torch.set_num_threads(1)
    seed_everything(11 if ckpt_path is None else random.SystemRandom().randrange(10**6))
    module = Gan() if name == "gan" else Net()
    callbacks = [
        Pace(),
        EarlyStopping("val_loss", patience=99),
        ModelCheckpoint("saved", every_n_train_steps=3, save_top_k=2, monitor="step", mode="max"),
    ]
    if name == "plain":
        callbacks.insert(1, Average())
    trainer = Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        plugins=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        precision="bf16-mixed" if name == "plain" else "32-true",
        accumulate_grad_batches=3 if name in ("several", "persistent") else 1,
        val_check_interval=16 if name in ("plain", "gan") else 1.0,
        callbacks=callbacks,
    )
    val = DataLoader(Samples(40), batch_size=8, shuffle=True)
    trainer.fit(module, loaders(name), val, ckpt_path=ckpt_path)
    trainer.save_checkpoint("end.ckpt")


if __name__ == "__main__":
    if sys.argv[1] == "all":
        for setting in sys.argv[2:]:
            Path(setting).mkdir()
            os.chdir(setting)
            main(setting, None)
            os.chdir("..")
    else:
        main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
