"""Code that was carried over from Lightning 1.x: `on_epoch_end` is a helper, which it calls itself."""

import pytorch_lightning as pl
import torch
from tiny_data import digits
from torch.utils.data import DataLoader

DIFFERENCES: dict[str, str] = {}

DIFFERENCES = {
    "ported:port": "open: the port reports hooks of version 1, which Lightning does not call either"
}
KILLED = "it collects the outputs of an epoch in a list, which is in no checkpoint"


class Tracker(pl.Callback):
    def __init__(self):
        self.calls = []

    def on_train_epoch_end(self, trainer, pl_module):
        self.on_epoch_end(trainer, pl_module)

    def on_validation_epoch_end(self, trainer, pl_module):
        self.on_epoch_end(trainer, pl_module)

    def on_epoch_end(self, trainer, pl_module):
        self.calls.append(trainer.current_epoch)


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 10)
        self.outputs, self.ends = [], 0

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0].flatten(1)), batch[1])
        self.outputs.append(loss.detach())
        return loss

    def validation_step(self, batch, batch_idx):
        pass

    def on_train_epoch_end(self):
        self.on_epoch_end()

    def on_epoch_end(self):
        self.ends += 1
        if self.outputs:
            self.log("mean", torch.stack(self.outputs).mean())
        self.outputs.clear()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def main():
    pl.seed_everything(0)
    model, tracker = Model(), Tracker()
    trainer = pl.Trainer(max_epochs=2, logger=False, accelerator="cpu", callbacks=[tracker],
                         enable_checkpointing=False)  # fmt: skip
    trainer.fit(model, DataLoader(digits(32), 8), DataLoader(digits(16), 8))
    return {"ends": model.ends, "calls": tracker.calls}
