"""Transfer learning: a `BaseFinetuning` of its own unfreezes a backbone with BatchNorm in steps."""

import lightning.pytorch as pl
from tiny_data import digits
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.callbacks.finetuning import BaseFinetuning
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import nn, optim
from torch.optim.lr_scheduler import MultiStepLR
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader
from torchmetrics import Accuracy

DIFFERENCES: dict[str, str] = {}


class MilestonesFinetuning(BaseFinetuning):
    def __init__(self, milestones=(1, 2), train_bn=False):
        super().__init__()
        self.milestones = milestones
        self.train_bn = train_bn

    def freeze_before_training(self, pl_module):
        self.freeze(modules=pl_module.feature_extractor, train_bn=self.train_bn)

    def finetune_function(self, pl_module, epoch, optimizer):
        if epoch == self.milestones[0]:
            self.unfreeze_and_add_param_group(
                modules=pl_module.feature_extractor[-3:], optimizer=optimizer,
                train_bn=self.train_bn,
            )  # fmt: skip
        elif epoch == self.milestones[1]:
            self.unfreeze_and_add_param_group(
                modules=pl_module.feature_extractor[:-3], optimizer=optimizer,
                train_bn=self.train_bn,
            )  # fmt: skip


class CatDogImageDataModule(LightningDataModule):
    def __init__(self, batch_size=16):
        super().__init__()
        self._batch_size = batch_size

    def __dataloader(self, train):
        return DataLoader(digits(64 if train else 32), self._batch_size, shuffle=train)

    def train_dataloader(self):
        rank_zero_info("Training data loaded.")
        return self.__dataloader(train=True)

    def val_dataloader(self):
        return self.__dataloader(train=False)


class TransferLearningModel(LightningModule):
    def __init__(self, train_bn=False, milestones=(1, 2), batch_size=16, lr=1e-2,
                 lr_scheduler_gamma=1e-1, **kwargs):  # fmt: skip
        super().__init__()
        self.train_bn = train_bn
        self.milestones = milestones
        self.batch_size = batch_size
        self.lr = lr
        self.lr_scheduler_gamma = lr_scheduler_gamma
        self.__build_model()
        self.train_acc = Accuracy(task="multiclass", num_classes=10)
        self.valid_acc = Accuracy(task="multiclass", num_classes=10)
        self.save_hyperparameters()

    def __build_model(self):
        self.feature_extractor = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16),
            nn.BatchNorm1d(16), nn.ReLU(),
        )  # fmt: skip
        self.fc = nn.Linear(16, 10)
        self.loss_func = nn.functional.cross_entropy

    def forward(self, x):
        return self.fc(self.feature_extractor(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        y_logits = self.forward(x)
        self.log("train_acc", self.train_acc(y_logits.softmax(1), y), prog_bar=True)
        return self.loss_func(y_logits, y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        y_logits = self.forward(x)
        self.log("val_loss", self.loss_func(y_logits, y), prog_bar=True)
        self.log("val_acc", self.valid_acc(y_logits.softmax(1), y), prog_bar=True)

    def configure_optimizers(self):
        parameters = list(self.parameters())
        trainable_parameters = list(filter(lambda p: p.requires_grad, parameters))
        rank_zero_info(f"{len(trainable_parameters)} of {len(parameters)} params are trained")
        optimizer: Optimizer = optim.Adam(trainable_parameters, lr=self.lr)
        scheduler = MultiStepLR(optimizer, self.milestones, gamma=self.lr_scheduler_gamma)
        return [optimizer], [scheduler]


def main():
    pl.seed_everything(1234)
    model = TransferLearningModel()
    finetuning = MilestonesFinetuning(milestones=(1, 2))
    trainer = pl.Trainer(max_epochs=4, callbacks=[finetuning], logger=False, accelerator="cpu",
                         enable_checkpointing=False)  # fmt: skip
    trainer.fit(model, datamodule=CatDogImageDataModule())
    norms = [model.feature_extractor[2], model.feature_extractor[5]]
    return {"tracked": [norm.track_running_stats for norm in norms],
            "trained": [norm.weight.requires_grad for norm in norms],
            "groups": len(trainer.optimizers[0].param_groups)}  # fmt: skip
