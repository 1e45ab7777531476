"""Self-supervised learning: callbacks write into the module, and train a layer of their own."""

import copy
import math

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from tiny_data import digits
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchmetrics.functional import accuracy

KILLED = "the callbacks' momentum and their optimizer are in no checkpoint"


class BYOLMAWeightUpdate(Callback):
    def __init__(self, initial_tau: float = 0.9):
        super().__init__()
        self.initial_tau = initial_tau
        self.current_tau = initial_tau

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        self.update_weights(pl_module.online_network, pl_module.target_network)
        self.update_tau(pl_module, trainer)

    def update_tau(self, pl_module: LightningModule, trainer: Trainer) -> None:
        max_steps = len(trainer.train_dataloader) * trainer.max_epochs
        rate = (math.cos(math.pi * pl_module.global_step / max_steps) + 1) / 2
        self.current_tau = 1 - (1 - self.initial_tau) * rate

    def update_weights(self, online_net, target_net) -> None:
        for (name, online_p), (_, target_p) in zip(
            online_net.named_parameters(), target_net.named_parameters(), strict=True
        ):
            target_p.data = (
                self.current_tau * target_p.data + (1 - self.current_tau) * online_p.data
            )


class SSLOnlineEvaluator(Callback):
    def __init__(self, z_dim: int, num_classes: int):
        super().__init__()
        self.z_dim = z_dim
        self.num_classes = num_classes
        self.optimizer = None
        self._recovered_callback_state = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.seen_stage = stage

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.online_evaluator = nn.Linear(self.z_dim, self.num_classes).to(pl_module.device)
        self.optimizer = torch.optim.Adam(self.online_evaluator.parameters(), lr=1e-2)
        if self._recovered_callback_state is not None:
            self.online_evaluator.load_state_dict(self._recovered_callback_state["state_dict"])

    def shared_step(self, pl_module, batch) -> tuple[Tensor, Tensor]:
        (_, _, x), y = batch
        with torch.no_grad():
            representations = pl_module(x).flatten(start_dim=1)
        logits = self.online_evaluator(representations)
        loss = F.cross_entropy(logits, y)
        return accuracy(logits.softmax(-1), y, task="multiclass", num_classes=10), loss

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        with torch.enable_grad():
            train_acc, mlp_loss = self.shared_step(pl_module, batch)
            mlp_loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        pl_module.log("online_train_acc", train_acc, on_step=True, on_epoch=False)
        pl_module.log("online_train_loss", mlp_loss, on_step=True, on_epoch=False)

    def on_validation_batch_end(
        self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0
    ) -> None:
        val_acc, mlp_loss = self.shared_step(pl_module, batch)
        pl_module.log("online_val_acc", val_acc, on_step=False, on_epoch=True, sync_dist=True)
        pl_module.log("online_val_loss", mlp_loss, on_step=False, on_epoch=True, sync_dist=True)

    def state_dict(self) -> dict:
        return {"state_dict": self.online_evaluator.state_dict(),
                "optimizer_state": self.optimizer.state_dict()}  # fmt: skip

    def load_state_dict(self, state_dict) -> None:
        self._recovered_callback_state = state_dict


class BYOL(LightningModule):
    def __init__(self, learning_rate: float = 0.1, weight_decay: float = 1.5e-6,
                 warmup_epochs: int = 1, max_epochs: int = 2):  # fmt: skip
        super().__init__()
        self.save_hyperparameters()
        self.online_network = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU()
        )
        self.target_network = copy.deepcopy(self.online_network)
        self.predictor = nn.Linear(16, 16)
        self.weight_callback = BYOLMAWeightUpdate()

    def on_train_batch_end(self, outputs, batch, batch_idx) -> None:
        self.weight_callback.on_train_batch_end(self.trainer, self, outputs, batch, batch_idx)

    def forward(self, x):
        return self.online_network(x)

    def calculate_loss(self, v_online, v_target):
        h1 = self.predictor(self.online_network(v_online))
        with torch.no_grad():
            z2 = self.target_network(v_target)
        return -2 * F.cosine_similarity(h1, z2).mean()

    def _shared_step(self, batch, batch_idx, step):
        (img1, img2, _), _ = batch
        total = self.calculate_loss(img1, img2) + self.calculate_loss(img2, img1)
        self.log_dict({f"{step}_loss": total})
        return total

    def training_step(self, batch, batch_idx):
        return self._shared_step(batch, batch_idx, "train")

    def validation_step(self, batch, batch_idx):
        return self._shared_step(batch, batch_idx, "val")

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(
            self.parameters(), lr=self.hparams.learning_rate,
            weight_decay=self.hparams.weight_decay,
        )  # fmt: skip
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2)]


def two_views(items):
    images = torch.stack([item[0] for item in items])
    views = [images + 0.1 * torch.randn_like(images) for _ in range(2)]
    return [[*views, images], torch.stack([item[1] for item in items])]


def main():
    pl.seed_everything(1234)
    evaluator = SSLOnlineEvaluator(16, 10)
    trainer = pl.Trainer(max_epochs=2, callbacks=[evaluator], logger=False, accelerator="cpu",
                         default_root_dir=".")  # fmt: skip
    model = BYOL()
    trainer.fit(
        model, DataLoader(digits(48), 16, shuffle=True, collate_fn=two_views),
        DataLoader(digits(16), 16, collate_fn=two_views),
    )  # fmt: skip
    return {"tau": model.weight_callback.current_tau,
            "evaluator": evaluator.online_evaluator.weight.sum()}  # fmt: skip
