"""A data module with a state, and a run that another Trainer resumes from a checkpoint."""

import lightning as L
import torch
from tiny_data import digits
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.types import EVAL_DATALOADERS, TRAIN_DATALOADERS
from torch.utils.data import DataLoader, Subset

DIFFERENCES = {
    "result.calls": "`reload_dataloaders_every_n_epochs`",
    "runs.1.hooks": "Sanity check on a resume",
    "runs.1.validations": "Sanity check on a resume",
    "runs.1.metrics": "Sanity check on a resume",
}


class Curriculum(L.LightningDataModule):
    def __init__(self, start: int = 16, growth: int = 16):
        super().__init__()
        self.save_hyperparameters()
        self.size = start
        self.calls = []

    def prepare_data(self) -> None:
        self.calls.append("prepare_data")

    def setup(self, stage: str) -> None:
        self.calls.append("setup" if stage == "fit" else "?")
        self.data = digits(96)

    def train_dataloader(self) -> TRAIN_DATALOADERS:
        self.calls.append(f"train {self.size}")
        self.size = self.hparams.start + self.hparams.growth * self.trainer.current_epoch
        return DataLoader(Subset(self.data, range(self.size)), batch_size=8)

    def val_dataloader(self) -> EVAL_DATALOADERS:
        return DataLoader(Subset(self.data, range(80, 96)), batch_size=8)

    def on_exception(self, exception: BaseException) -> None:
        self.calls.append("exception")

    def teardown(self, stage: str) -> None:
        self.calls.append("teardown")

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def on_after_batch_transfer(self, batch, dataloader_idx):
        images, labels = batch
        return images * 2 - 1, labels

    def state_dict(self):
        return {"size": self.size}

    def load_state_dict(self, state_dict) -> None:
        self.size = state_dict["size"]


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        self.register_buffer("seen", torch.zeros(()))
        self.notes = {}

    def training_step(self, batch, batch_idx):
        self.seen += len(batch[1])
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0].flatten(1)), batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log(
            "val", torch.nn.functional.cross_entropy(self.layer(batch[0].flatten(1)), batch[1])
        )

    def on_save_checkpoint(self, checkpoint):
        checkpoint["notes"] = {"seen": self.seen.item()}

    def on_load_checkpoint(self, checkpoint):
        self.notes = checkpoint["notes"]

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 0.01)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]


def trainer(epochs):
    saver = ModelCheckpoint("saved", filename="{epoch}", save_last=True, save_top_k=-1)
    return L.Trainer(
        max_epochs=epochs, reload_dataloaders_every_n_epochs=1, callbacks=[saver], logger=False,
        accelerator="cpu", enable_progress_bar=False,
    )  # fmt: skip


def main():
    L.seed_everything(3)
    data, model = Curriculum(), Net()
    trainer(2).fit(model, datamodule=data)
    other, resumed = Curriculum(), Net()
    second = trainer(4)
    second.fit(resumed, datamodule=other, ckpt_path="saved/last.ckpt")
    loaded = Curriculum.load_from_checkpoint("saved/last.ckpt")
    return {"calls": [data.calls, other.calls], "notes": resumed.notes, "seen": resumed.seen,
            "steps": second.global_step, "growth": loaded.hparams.growth}  # fmt: skip
