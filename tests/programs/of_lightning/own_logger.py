"""A logger, a progress bar and a saver of one's own."""

import lightning.pytorch as pl
import torch
from tiny_data import digits
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader

DIFFERENCES = {
    "ported:port": "Private methods of built-in callbacks, such as `ModelCheckpoint._save_checkpoint`",
    "ported:files.saved/*.txt": (
        "Private methods of built-in callbacks, such as `ModelCheckpoint._save_checkpoint`"
    ),
}


class HistoryLogger(Logger):
    def __init__(self):
        super().__init__()
        self.history, self.hyperparams, self.ended = [], None, []

    @property
    def name(self):
        return "history"

    @property
    def version(self):
        return "0.1"

    @property
    @rank_zero_experiment
    def experiment(self):
        return self.history

    @rank_zero_only
    def log_hyperparams(self, params, *args, **kwargs):
        self.hyperparams = dict(params)

    @rank_zero_only
    def log_metrics(self, metrics, step):
        self.history.append([step, dict(metrics)])

    @rank_zero_only
    def save(self):
        super().save()

    @rank_zero_only
    def finalize(self, status):
        self.ended.append(status)

    def after_save_checkpoint(self, checkpoint_callback):
        self.ended.append(checkpoint_callback.monitor)


class PlainBar(TQDMProgressBar):
    def __init__(self):
        super().__init__(refresh_rate=2)
        self.shown, self.totals = [], []

    def init_train_tqdm(self):
        bar = super().init_train_tqdm()
        bar.set_description("training")
        return bar

    def init_validation_tqdm(self):
        bar = super().init_validation_tqdm()
        bar.disable = True
        return bar

    def get_metrics(self, trainer, pl_module):
        items = super().get_metrics(trainer, pl_module)
        items.pop("v_num", None)
        self.shown.append(sorted(items))
        return items

    def on_train_epoch_start(self, trainer, *args):
        super().on_train_epoch_start(trainer, *args)
        self.totals.append(self.total_train_batches)


class SaveWithNotes(ModelCheckpoint):
    def _save_checkpoint(self, trainer, filepath):
        super()._save_checkpoint(trainer, filepath)
        open(filepath + ".txt", "w").write(str(trainer.current_epoch))

    def format_checkpoint_name(self, metrics, *args, **kwargs):
        return super().format_checkpoint_name(metrics, *args, **kwargs).replace("=", "-")


class Net(pl.LightningModule):
    def __init__(self, width=8, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, width), torch.nn.ReLU(),
            torch.nn.Linear(width, 10),
        )  # fmt: skip

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True, on_step=True, on_epoch=True)
        if self.global_step == 2:
            self.logger.experiment.append([self.global_step, {"by hand": 1.0}])
            self.logger.log_metrics({"direct": 2.0}, step=self.global_step)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


def main():
    pl.seed_everything(2)
    logger, bar = HistoryLogger(), PlainBar()
    saver = SaveWithNotes("saved", monitor="val", save_top_k=2, filename="{epoch}-{val:.3f}")
    trainer = pl.Trainer(max_epochs=3, logger=logger, callbacks=[bar, saver], accelerator="cpu",
                         log_every_n_steps=2)  # fmt: skip
    trainer.fit(Net(), DataLoader(digits(64), 16), DataLoader(digits(32), 16))
    return {"history": logger.history, "hyperparams": logger.hyperparams, "ended": logger.ended,
            "shown": bar.shown[-1], "totals": bar.totals, "kinds": len(saver.best_k_models)}  # fmt: skip
