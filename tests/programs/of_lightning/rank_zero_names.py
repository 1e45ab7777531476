"""Names by their dotted paths, classes read for their attributes, the rank of another package."""

import pytorch_lightning as pl
import torch
from tiny_data import digits
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning import LightningModule, Trainer, callbacks
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.trainer.states import RunningStage, TrainerFn
from torch.utils.data import DataLoader

ModelCheckpoint.CHECKPOINT_NAME_LAST = "latest"

KILLED = "its run is too short to be cut"


class Watch(pl.callbacks.Callback):
    def __init__(self):
        self.stages = []

    @rank_zero_only
    def on_train_batch_end(
        self, trainer: "pl.Trainer", pl_module, outputs: pl.utilities.types.STEP_OUTPUT, *args
    ):
        self.stages.append(trainer.state.stage == RunningStage.TRAINING)
        self.stages.append(trainer.state.fn == TrainerFn.FITTING)

    def setup(self, trainer, pl_module, stage):
        self.strategy = isinstance(trainer.strategy, pl.strategies.ddp.DDPStrategy)
        self.stages.append(stage)


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 10)

    def training_step(self, batch, batch_idx) -> pl.utilities.types.STEP_OUTPUT:
        return torch.nn.functional.cross_entropy(self.net(batch[0].flatten(1)), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def main():
    pl.seed_everything(0)
    watch = Watch()
    last = callbacks.model_checkpoint.ModelCheckpoint("saved", save_last=True)
    trainer = Trainer(max_epochs=1, logger=False, accelerator="cpu", callbacks=[watch, last])
    trainer.fit(Net(), DataLoader(digits(16), 8))
    ModelCheckpoint.CHECKPOINT_NAME_LAST = "last"
    return {"stages": watch.stages, "strategy": watch.strategy, "fit": Trainer.fit.__name__,
            "rank": rank_zero_only.rank, "major": pl.__version__.split(".")[0],
            "is_callback": isinstance(last, pl.Callback)}  # fmt: skip
