"""A segmentation library's example: steps share one method and keep their outputs in lists."""

import pytorch_lightning as pl
import torch
from tiny_data import digits
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset

T_MAX = 12


class Masks(Dataset):
    def __init__(self, count):
        self.images = digits(count).tensors[0]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {"image": self.images[i], "mask": (self.images[i] > 0.5).float()}


class CamVidModel(pl.LightningModule):
    def __init__(self, arch, in_channels, out_classes, **kwargs):
        super().__init__()
        self.model = torch.nn.Conv2d(in_channels, out_classes, 3, padding=1, **kwargs)
        self.register_buffer("std", torch.tensor([0.5]).view(1, 1, 1, 1))
        self.register_buffer("mean", torch.tensor([0.3]).view(1, 1, 1, 1))
        self.loss_fn = torch.nn.BCEWithLogitsLoss()
        self.training_step_outputs = []
        self.validation_step_outputs = []
        self.test_step_outputs = []

    def forward(self, image):
        return self.model((image - self.mean) / self.std)

    def shared_step(self, batch, stage):
        image, mask = batch["image"], batch["mask"]
        assert image.ndim == 4
        logits_mask = self.forward(image)
        loss = self.loss_fn(logits_mask, mask)
        pred_mask = (logits_mask.sigmoid() > 0.5).float()
        tp = (pred_mask * mask).sum()
        return {"loss": loss, "tp": tp, "union": ((pred_mask + mask) > 0).sum()}

    def shared_epoch_end(self, outputs, stage):
        tp = torch.stack([x["tp"] for x in outputs]).sum()
        union = torch.stack([x["union"] for x in outputs]).sum()
        self.log_dict({f"{stage}_per_image_iou": tp / union}, prog_bar=True)

    def training_step(self, batch, batch_idx):
        train_loss_info = self.shared_step(batch, "train")
        self.training_step_outputs.append(train_loss_info)
        return train_loss_info

    def on_train_epoch_end(self):
        self.shared_epoch_end(self.training_step_outputs, "train")
        self.training_step_outputs.clear()

    def validation_step(self, batch, batch_idx):
        valid_loss_info = self.shared_step(batch, "valid")
        self.validation_step_outputs.append(valid_loss_info)
        return valid_loss_info

    def on_validation_epoch_end(self):
        self.shared_epoch_end(self.validation_step_outputs, "valid")
        self.validation_step_outputs.clear()

    def test_step(self, batch, batch_idx):
        test_loss_info = self.shared_step(batch, "test")
        self.test_step_outputs.append(test_loss_info)
        return test_loss_info

    def on_test_epoch_end(self):
        self.shared_epoch_end(self.test_step_outputs, "test")
        self.test_step_outputs.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=2e-2)
        scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=T_MAX, eta_min=1e-5)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step", "frequency": 1},
        }


def main():
    pl.seed_everything(11)
    model = CamVidModel("FPN", 1, 1, bias=True)
    trainer = pl.Trainer(max_epochs=2, log_every_n_steps=1, accelerator="cpu", logger=False,
                         default_root_dir="out")  # fmt: skip
    loaders = [DataLoader(Masks(n), 8, shuffle=n == 48) for n in (48, 16)]
    trainer.fit(model, train_dataloaders=loaders[0], val_dataloaders=loaders[1])
    valid = trainer.validate(model, dataloaders=loaders[1], verbose=False)
    tested = trainer.test(model, dataloaders=loaders[1], verbose=False)
    return {"valid": valid, "tested": tested}
