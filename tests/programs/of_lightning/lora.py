"""Fine-tuning by low-rank adapters, in the manner of PEFT: only the adapters are trained and saved."""

import math

import pytorch_lightning as pl
import torch
from tiny_data import digits
from pytorch_lightning.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Subset


KILLED_HOSTED = "Lightning's saver forgets that it saved and writes last.ckpt again, at home, too"
DIFFERENCES = {
    "ported:result.metrics": "`ModelCheckpoint(save_last=True)` with a monitor",
    "ported:runs.0.metrics": "`ModelCheckpoint(save_last=True)` with a monitor",
}


class LoraLinear(nn.Module):
    def __init__(self, base, r=4, lora_alpha=8, lora_dropout=0.1):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        self.lora_dropout = nn.Dropout(lora_dropout)
        self.scaling = lora_alpha / r
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        update = self.lora_dropout(x) @ self.lora_A.T @ self.lora_B.T
        return self.base_layer(x) + update * self.scaling

    def merged(self):
        layer = nn.Linear(self.base_layer.in_features, self.base_layer.out_features)
        with torch.no_grad():
            layer.weight.copy_(self.base_layer.weight + self.lora_B @ self.lora_A * self.scaling)
            layer.bias.copy_(self.base_layer.bias)
        return layer


def get_peft_model(model, target_modules):
    model.requires_grad_(False)
    for name in target_modules:
        setattr(model, name, LoraLinear(getattr(model, name)))
    return model


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 32)
        self.down = nn.Linear(32, 10)

    def forward(self, x):
        return self.down(torch.relu(self.up(x.flatten(1))))


class LoraModule(pl.LightningModule):
    def __init__(self, lr=0.02, warmup=2):
        super().__init__()
        self.save_hyperparameters()
        self.strict_loading = False
        self.model = get_peft_model(Backbone(), ["up", "down"])

    def forward(self, x):
        return self.model(x)

    def _shared_step(self, batch, stage):
        logits = self(batch[0])
        loss = nn.functional.cross_entropy(logits, batch[1])
        self.log_dict(
            {f"{stage}_loss": loss, f"{stage}_acc": (logits.argmax(1) == batch[1]).float().mean()}
        )
        return loss

    def training_step(self, batch, batch_idx):
        return self._shared_step(batch, "train")

    def validation_step(self, batch, batch_idx):
        self._shared_step(batch, "val")

    def configure_optimizers(self):
        adapters = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(adapters, lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / self.hparams.warmup)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint):
        adapters = {k: v for k, v in checkpoint["state_dict"].items() if "lora_" in k}
        checkpoint["state_dict"] = adapters


class PrintTrainableParameters(Callback):
    def on_fit_start(self, trainer, pl_module):
        trained = sum(p.numel() for p in pl_module.parameters() if p.requires_grad)
        whole = sum(p.numel() for p in pl_module.parameters())
        self.trainable = (trained, whole)


def main():
    pl.seed_everything(5)
    module = LoraModule()
    frozen = {k: v.clone() for k, v in module.state_dict().items() if "lora_" not in k}
    data = digits(60)
    counts = PrintTrainableParameters()
    saver = ModelCheckpoint(
        dirpath="adapters", monitor="val_loss", save_last=True, filename="{epoch}-{val_acc:.2f}"
    )
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", accumulate_grad_batches=2, gradient_clip_val=0.3,
        logger=CSVLogger("logs", "lora"), callbacks=[counts, saver, LearningRateMonitor("step")],
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
    )  # fmt: skip
    train, held_out = Subset(data, range(40)), DataLoader(Subset(data, range(40, 60)), 10)
    trainer.fit(module, DataLoader(train, 8, shuffle=True), held_out)
    saved = torch.load("adapters/last.ckpt", weights_only=True)
    again = LoraModule.load_from_checkpoint("adapters/last.ckpt", strict=False)
    again.load_state_dict(frozen, strict=False)
    metrics = trainer.validate(again, held_out, verbose=False)
    inputs = torch.ones(1, 64)
    again.eval()
    with torch.no_grad():
        hidden = torch.relu(again.model.up.merged()(inputs))
        difference = (again.model.down.merged()(hidden) - again(inputs)).abs().max()
    return {
        "trainable": counts.trainable,
        "saved": sorted(saved["state_dict"]),
        "steps": trainer.global_step,
        "metrics": metrics,
        "unchanged": all(torch.equal(again.state_dict()[k], v) for k, v in frozen.items()),
        "merged": bool(difference < 1e-5),
    }
