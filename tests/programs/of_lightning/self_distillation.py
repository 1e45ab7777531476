"""Self-distillation: an averaged teacher, gradients cancelled as they are clipped, a classifier beside.

The teacher is frozen as the training begins and thawed at its end; the parameter groups have names;
the schedule is made from the steps that the trainer estimates.
"""

import copy
import math

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import DeviceStatsMonitor, EarlyStopping, LearningRateMonitor
from pytorch_lightning.loggers import CSVLogger
from tiny_data import images_and_labels
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Views(Dataset):
    def __init__(self, part, views):
        images, labels = images_and_labels(60)
        self.images, self.labels, self.views = images[part].flatten(1), labels[part], views

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        name = f"{index}.png"
        image, label = self.images[index], self.labels[index]
        if not self.views:
            return image, label, name
        return [image.roll(shift) for shift in range(self.views)], label, name


def cosine_schedule(step, max_steps, start_value, end_value):
    return end_value - (end_value - start_value) * (math.cos(math.pi * step / max_steps) + 1) / 2


@torch.no_grad()
def update_momentum(model, model_ema, m):
    for ema, weight in zip(model_ema.parameters(), model.parameters(), strict=True):
        ema.data = ema.data * m + weight.data * (1.0 - m)


class ProjectionHead(nn.Module):
    def __init__(self, freeze_last_layer=-1):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.GELU())
        self.last_layer = nn.utils.parametrizations.weight_norm(nn.Linear(8, 16, bias=False))
        self.freeze_last_layer = freeze_last_layer

    def cancel_last_layer_gradients(self, current_epoch):
        if current_epoch >= self.freeze_last_layer:
            return
        for param in self.last_layer.parameters():
            param.grad = None

    def forward(self, x):
        return self.last_layer(nn.functional.normalize(self.layers(x)))


class DINOLoss(nn.Module):
    def __init__(self, output_dim):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, output_dim))

    def forward(self, teacher_out, student_out, teacher_temp):
        teacher = torch.softmax((torch.stack(teacher_out) - self.center) / teacher_temp, -1)
        student = torch.log_softmax(torch.stack(student_out) / 0.1, -1)
        self.center = self.center * 0.9 + torch.stack(teacher_out).mean((0, 1)) * 0.1
        return -torch.einsum("abd,cbd->acb", teacher, student).mean()


class OnlineLinearClassifier(pl.LightningModule):
    def __init__(self, num_classes):
        super().__init__()
        self.linear = nn.Linear(12, num_classes)

    def shared_step(self, batch, stage):
        features, targets = batch
        predictions = self.linear(features)
        top1 = (predictions.argmax(1) == targets).float().mean()
        loss = nn.functional.cross_entropy(predictions, targets)
        return loss, {f"{stage}_online_cls_loss": loss, f"{stage}_online_cls_top1": top1}

    def training_step(self, batch, batch_idx):
        return self.shared_step(batch, "train")

    def validation_step(self, batch, batch_idx):
        return self.shared_step(batch, "val")


class DINO(pl.LightningModule):
    def __init__(self, batch_size_per_device, num_classes):
        super().__init__()
        self.save_hyperparameters()
        self.batch_size_per_device = batch_size_per_device
        self.backbone = nn.Sequential(nn.Linear(64, 12), nn.ReLU())
        self.projection_head = ProjectionHead()
        self.student_backbone = copy.deepcopy(self.backbone)
        self.student_projection_head = ProjectionHead(freeze_last_layer=1)
        self.criterion = DINOLoss(16)
        self.online_classifier = OnlineLinearClassifier(num_classes=num_classes)

    def forward(self, x):
        return self.backbone(x)

    def forward_student(self, x):
        return self.student_projection_head(self.student_backbone(x))

    def on_train_start(self):
        self.backbone.requires_grad_(False)
        self.projection_head.requires_grad_(False)

    def on_train_end(self):
        self.backbone.requires_grad_(True)
        self.projection_head.requires_grad_(True)

    def training_step(self, batch, batch_idx):
        momentum = cosine_schedule(self.trainer.global_step, self.trainer.estimated_stepping_batches,
                                   0.996, 1.0)  # fmt: skip
        update_momentum(self.student_backbone, self.backbone, m=momentum)
        update_momentum(self.student_projection_head, self.projection_head, m=momentum)
        views, targets = batch[0], batch[1]
        global_views, local_views = torch.cat(views[:2]), torch.cat(views[2:])
        features = self.forward(global_views)
        projections = torch.cat(
            [self.forward_student(global_views), self.forward_student(local_views)]
        )
        loss = self.criterion(teacher_out=self.projection_head(features).chunk(2),
                              student_out=projections.chunk(len(views)), teacher_temp=0.04)  # fmt: skip
        self.log_dict({"train_loss": loss, "ema_momentum": momentum}, prog_bar=True, sync_dist=True,
                      batch_size=len(targets))  # fmt: skip
        cls_loss, cls_log = self.online_classifier.training_step(
            (features.chunk(2)[0].detach(), targets), batch_idx
        )
        self.log_dict(cls_log, sync_dist=True, batch_size=len(targets))
        return loss + cls_loss

    def validation_step(self, batch, batch_idx):
        images, targets = batch[0], batch[1]
        cls_loss, cls_log = self.online_classifier.validation_step(
            (self.forward(images).detach(), targets), batch_idx
        )
        self.log_dict(cls_log, prog_bar=True, sync_dist=True, batch_size=len(targets))
        return cls_loss

    def configure_optimizers(self):
        student = [*self.student_backbone.parameters(), *self.student_projection_head.parameters()]
        optimizer = torch.optim.SGD(
            [
                {"name": "dino", "params": [p for p in student if p.dim() > 1]},
                {"name": "dino_no_weight_decay", "params": [p for p in student if p.dim() < 2],
                 "weight_decay": 0.0},
                {"name": "online_classifier", "params": self.online_classifier.parameters(),
                 "weight_decay": 0.0},
            ],
            lr=0.03 * self.batch_size_per_device * self.trainer.world_size / 2,
            momentum=0.9, weight_decay=1e-4,
        )  # fmt: skip
        steps = int(self.trainer.estimated_stepping_batches)
        warmup = int(steps / self.trainer.max_epochs * 1)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda step: (step + 1) / warmup if step < warmup
            else cosine_schedule(step - warmup, steps, 1.0, 0.0),
        )  # fmt: skip
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None,
                                    gradient_clip_algorithm=None):  # fmt: skip
        self.clip_gradients(optimizer=optimizer, gradient_clip_val=3.0,
                            gradient_clip_algorithm="norm")  # fmt: skip
        self.student_projection_head.cancel_last_layer_gradients(self.current_epoch)


class MetricCallback(pl.Callback):
    def __init__(self):
        self.train_metrics, self.val_metrics = {}, {}

    def on_train_epoch_end(self, trainer, pl_module):
        self._append_metrics(self.train_metrics, trainer)

    def on_validation_epoch_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self._append_metrics(self.val_metrics, trainer)

    def _append_metrics(self, metrics, trainer):
        for name, value in trainer.callback_metrics.items():
            metrics.setdefault(name, []).append(value)


class LinearClassifier(pl.LightningModule):
    def __init__(self, model, num_classes, freeze_model=False):
        super().__init__()
        self.save_hyperparameters(ignore="model")
        self.model, self.freeze_model = model, freeze_model
        self.classification_head = nn.Linear(12, num_classes)

    def forward(self, images):
        with torch.set_grad_enabled(not self.freeze_model):
            features = self.model.forward(images)
        return self.classification_head(features)

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.forward(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True, sync_dist=True, batch_size=len(batch[1]))
        return loss

    def validation_step(self, batch, batch_idx):
        top1 = (self.forward(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log_dict({"val_top1": top1}, prog_bar=True, sync_dist=True, batch_size=len(batch[1]))

    def configure_optimizers(self):
        parameters = list(self.classification_head.parameters())
        if not self.freeze_model:
            parameters += self.model.parameters()
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def on_train_epoch_start(self):
        if self.freeze_model:
            self.model.eval()


def main():
    pl.seed_everything(0, workers=True, verbose=True)
    model = DINO(batch_size_per_device=10, num_classes=10)
    metrics = MetricCallback()
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", devices=1, strategy="auto", precision="32-true",
        callbacks=[LearningRateMonitor(), EarlyStopping(monitor="train_loss", patience=int(1e12),
                                                        check_finite=True),
                   DeviceStatsMonitor(), metrics],
        logger=CSVLogger(save_dir="logs", name="pretrain"), enable_progress_bar=False,
        num_sanity_val_steps=0, log_every_n_steps=1, sync_batchnorm=False,
    )  # fmt: skip
    train = DataLoader(Views(slice(0, 40), 4), batch_size=10, shuffle=True, drop_last=True)
    held_out = DataLoader(Views(slice(40, 60), 0), batch_size=10, shuffle=False)
    trainer.fit(model=model, train_dataloaders=train, val_dataloaders=held_out)
    seen = {name: [float(v) for v in values] for name, values in metrics.val_metrics.items()
            if "online" in name}  # fmt: skip
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    classifier = LinearClassifier(model, 10, freeze_model=True)
    probe = MetricCallback()
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", devices=1, callbacks=[probe],
                         logger=False, enable_checkpointing=False, enable_progress_bar=False)  # fmt: skip
    flat = DataLoader(Views(slice(0, 40), 0), batch_size=10, shuffle=True)
    trainer.fit(model=classifier, train_dataloaders=flat, val_dataloaders=held_out)
    return {"seen": seen, "trainable": trainable, "center": float(model.criterion.center.sum()),
            "top1": [float(value) for value in probe.val_metrics["val_top1"]],
            "hparams": dict(classifier.hparams)}  # fmt: skip
