"""A k-fold loop by hand: a Trainer, a logger and a module for each fold, and the best of each."""

import numpy as np
import pytorch_lightning as pl
import torch
from tiny_data import digits
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from sklearn.model_selection import KFold
from torch.utils.data import DataLoader, Subset


class Model(pl.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.save_hyperparameters(cfg)
        self.fc = torch.nn.Linear(64, 10)
        self.val_preds = []

    def forward(self, x):
        return self.fc(x.flatten(1))

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=False, on_epoch=True, logger=True)
        return loss

    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        self.val_preds.append([logits.argmax(1).numpy(), batch[1].numpy()])
        self.log("val_loss", torch.nn.functional.cross_entropy(logits, batch[1]), prog_bar=True)

    def on_validation_epoch_end(self):
        preds, labels = (np.concatenate(one) for one in zip(*self.val_preds))
        self.val_preds.clear()
        self.log("val_acc", float((preds == labels).mean()), prog_bar=True)

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return self(batch[0]).softmax(-1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.cfg["lr"])
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.cfg["lr"], epochs=self.cfg["epochs"], steps_per_epoch=self.cfg["steps"]
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def main():
    cfg = {"lr": 0.05, "epochs": 3, "steps": 2, "folds": 3}
    data = digits(60)
    oof, scores = np.zeros((len(data), 10)), []
    for fold, (train, valid) in enumerate(KFold(cfg["folds"]).split(np.arange(len(data)))):
        pl.seed_everything(fold)
        checkpoint = ModelCheckpoint(
            dirpath="out/", filename=f"fold{fold}_best", save_top_k=1, verbose=True,
            monitor="val_loss", mode="min",
        )  # fmt: skip
        stop = EarlyStopping(monitor="val_loss", patience=2, verbose=True, mode="min")
        trainer = pl.Trainer(
            max_epochs=cfg["epochs"], callbacks=[checkpoint, stop], accelerator="cpu",
            logger=CSVLogger(save_dir="out", name=f"fold_{fold}"), num_sanity_val_steps=0,
            deterministic=True, enable_progress_bar=False,
        )  # fmt: skip
        loader = DataLoader(Subset(data, valid), 20)
        trainer.fit(Model(cfg), DataLoader(Subset(data, train), 20, shuffle=True), loader)
        best = Model.load_from_checkpoint(checkpoint.best_model_path, cfg=cfg)
        predictions = trainer.predict(best, dataloaders=loader)
        oof[valid] = torch.cat(predictions).numpy()
        scores.append(checkpoint.best_model_score.item())
    return {"scores": scores, "oof": float(oof.max(1).mean()), "resumed": best.hparams["lr"]}
