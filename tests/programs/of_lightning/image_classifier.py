"""An image classifier: the first program of most tutorials."""

import lightning as L
import torch
from tiny_data import digits
from torch import nn
from torch.utils.data import DataLoader, random_split

DIFFERENCES = {"hosted:files.*": "Default logger"}


class LitClassifier(L.LightningModule):
    def __init__(self, hidden: int = 16, lr: float = 1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 10)
        )

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log_dict(
            {
                "val_loss": nn.functional.cross_entropy(logits, y),
                "val_acc": (logits.argmax(1) == y).float().mean(),
            },
            prog_bar=True,
        )

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("test_loss", nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    L.seed_everything(42)
    train, val = random_split(digits(), [64, 32])
    model = LitClassifier()
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", log_every_n_steps=1)
    trainer.fit(model, DataLoader(train, 16, shuffle=True), DataLoader(val, 16))
    tested = trainer.test(model, DataLoader(val, 16))
    best = LitClassifier.load_from_checkpoint(trainer.checkpoint_callback.best_model_path)
    return {"tested": tested, "hparams": dict(best.hparams)}
