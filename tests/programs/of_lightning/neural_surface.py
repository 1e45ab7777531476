"""A neural surface: batches that a hook fills, a data set that grows, values by the step.

Hooks of the module ask the data module for its loaders and write rays into the batch; a test follows
the fit, and both write files.
"""

import json
import os

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.callbacks.progress import TQDMProgressBar
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only, rank_zero_warn
from torch.utils.data import DataLoader, Dataset, IterableDataset

DIFFERENCES = {
    "runs.0.metrics": "`max_steps` reached inside an epoch",
    "runs.0.hooks": "`max_steps` reached inside an epoch",
    "runs.0.validations": "`max_steps` reached inside an epoch",
    "files.exp/save/it10-?.json": "`max_steps` reached inside an epoch",
}
KILLED = "the number of rays is an attribute, which no checkpoint holds"


class SceneBase:
    def setup(self, split):
        self.split = split
        draw = torch.Generator().manual_seed(5)
        self.directions = torch.randn(6, 16, 3, generator=draw)
        self.colors = self.directions.sigmoid()


class SceneDataset(Dataset, SceneBase):
    def __init__(self, split):
        self.setup(split)

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return {"index": index}


class SceneIterableDataset(IterableDataset, SceneBase):
    def __init__(self, split):
        self.setup(split)

    def __iter__(self):
        while True:
            yield {}


class SceneDataModule(pl.LightningDataModule):
    def __init__(self, config):
        super().__init__()
        self.config, self.asked = config, 0

    def setup(self, stage=None):
        if stage in [None, "fit"]:
            self.train_dataset = SceneIterableDataset("train")
        if stage in [None, "fit", "validate"]:
            self.val_dataset = SceneDataset("val")
        if stage in [None, "test"]:
            self.test_dataset = SceneDataset("test")

    def general_loader(self, dataset, batch_size):
        return DataLoader(dataset, batch_size=batch_size, pin_memory=False, sampler=None)

    def train_dataloader(self):
        self.asked += 1
        return self.general_loader(self.train_dataset, batch_size=1)

    def val_dataloader(self):
        return self.general_loader(self.val_dataset, batch_size=1)

    def test_dataloader(self):
        return self.general_loader(self.test_dataset, batch_size=1)


class VersionedCallback(Callback):
    def __init__(self, save_root, version=None, use_version=True):
        self.save_root, self._version, self.use_version = save_root, version, use_version

    @property
    def savedir(self):
        return self.save_root if not self.use_version else os.path.join(self.save_root, "version_0")


class CodeSnapshotCallback(VersionedCallback):
    def on_fit_start(self, trainer, pl_module):
        try:
            raise OSError("no repository")
        except OSError:
            rank_zero_warn("Code snapshot is not saved.")


class ConfigSnapshotCallback(VersionedCallback):
    def __init__(self, config, save_root, version=None, use_version=True):
        super().__init__(save_root, version, use_version)
        self.config = config

    @rank_zero_only
    def save_config_snapshot(self):
        os.makedirs(self.savedir, exist_ok=True)
        with open(os.path.join(self.savedir, "parsed.json"), "w") as file:
            json.dump(self.config, file)

    def on_fit_start(self, trainer, pl_module):
        self.save_config_snapshot()


class CustomProgressBar(TQDMProgressBar):
    def get_metrics(self, *args, **kwargs):
        items = super().get_metrics(*args, **kwargs)
        items.pop("v_num", None)
        return items


class SaverMixin:
    @property
    def save_dir(self):
        return self.config["save_dir"]

    def get_save_path(self, filename):
        path = os.path.join(self.save_dir, filename)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def save_json(self, filename, payload):
        with open(self.get_save_path(filename), "w") as file:
            json.dump(payload, file)


class Surface(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.geometry = torch.nn.Linear(3, 8)
        self.texture = torch.nn.Linear(8, 3)
        self.register_parameter("variance", torch.nn.Parameter(torch.tensor(0.3)))
        self.cos_anneal_ratio = 0.0

    def update_step(self, epoch, global_step):
        self.cos_anneal_ratio = min(1.0, global_step / 6)

    def forward(self, rays):
        hidden = torch.relu(self.geometry(rays)) * (1 + self.cos_anneal_ratio * self.variance)
        return {"rgb": self.texture(hidden).sigmoid(), "opacity": hidden.mean(-1)}

    def regularizations(self, out):
        return {"opacity": out["opacity"].square().mean()}


class BaseSystem(pl.LightningModule, SaverMixin):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.prepare()
        self.model = Surface()

    def prepare(self):
        pass

    def C(self, value):
        if isinstance(value, (int, float)):
            return value
        start_step, start_value, end_value, end_step = value
        current = self.global_step if isinstance(end_step, int) else self.current_epoch
        part = max(min(1.0, (current - start_step) / (end_step - start_step)), 0.0)
        return start_value + (end_value - start_value) * part

    def on_train_batch_start(self, batch, batch_idx, unused=0):
        self.dataset = self.trainer.datamodule.train_dataloader().dataset
        self.preprocess_data(batch, "train")
        self.model.update_step(self.current_epoch, self.global_step)

    def on_validation_batch_start(self, batch, batch_idx, dataloader_idx=0):
        self.dataset = self.trainer.datamodule.val_dataloader().dataset
        self.preprocess_data(batch, "validation")
        self.model.update_step(self.current_epoch, self.global_step)

    def on_test_batch_start(self, batch, batch_idx, dataloader_idx=0):
        self.dataset = self.trainer.datamodule.test_dataloader().dataset
        self.preprocess_data(batch, "test")
        self.model.update_step(self.current_epoch, self.global_step)

    def configure_optimizers(self):
        groups = [
            {"params": self.model.geometry.parameters(), "name": "geometry", "lr": 0.02},
            {"params": self.model.texture.parameters(), "name": "texture", "lr": 0.01},
            {"params": [self.model.variance], "name": "variance", "lr": 0.001},
        ]
        optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), eps=1e-15)
        lr_scheduler = torch.optim.lr_scheduler
        schedule = lr_scheduler.SequentialLR(
            optimizer,
            [lr_scheduler.LinearLR(optimizer, start_factor=0.01, end_factor=1.0, total_iters=4),
             lr_scheduler.ExponentialLR(optimizer, gamma=0.9)],
            milestones=[4],
        )  # fmt: skip
        return {"optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "interval": "step"}}  # fmt: skip


class NeuSSystem(BaseSystem):
    def prepare(self):
        self.train_num_rays, self.train_num_samples = 4, 24

    def forward(self, batch):
        return self.model(batch["rays"])

    def preprocess_data(self, batch, stage):
        if "index" in batch:
            index = batch["index"]
        else:
            index = torch.randint(0, 6, size=(self.train_num_rays,), device=self.device)
        if stage in ["train"]:
            place = torch.randint(0, 16, size=(self.train_num_rays,))
            rays, rgb = self.dataset.directions[index, place], self.dataset.colors[index, place]
        else:
            rays, rgb = self.dataset.directions[index][0], self.dataset.colors[index][0]
        batch.update({"rays": rays.to(self.device), "rgb": rgb.to(self.device)})

    def training_step(self, batch, batch_idx):
        out = self(batch)
        loss = 0.0
        num_rays = int(self.train_num_rays * (self.train_num_samples / (4 * len(batch["rays"]))))
        self.train_num_rays = min(int(self.train_num_rays * 0.9 + num_rays * 0.1) + 1, 8)
        loss_rgb_mse = torch.nn.functional.mse_loss(out["rgb"], batch["rgb"])
        self.log("train/loss_rgb_mse", loss_rgb_mse)
        loss += loss_rgb_mse * self.C([0, 1.0, 2.0, 10])
        for name, value in self.model.regularizations(out).items():
            self.log(f"train/loss_{name}", value)
            loss += value * self.C(0.1)
        self.log("train/inv_s", self.model.variance, prog_bar=True)
        self.log("train/num_rays", float(self.train_num_rays), prog_bar=True)
        return {"loss": loss}

    def validation_step(self, batch, batch_idx):
        out = self(batch)
        psnr = -10 * torch.nn.functional.mse_loss(out["rgb"], batch["rgb"]).log10()
        self.save_json(f"it{self.global_step}-{batch['index'][0].item()}.json", psnr.item())
        self.val_outputs.append({"psnr": psnr, "index": batch["index"]})

    def on_validation_epoch_start(self):
        self.val_outputs = []

    def on_validation_epoch_end(self):
        out = self.all_gather(self.val_outputs)
        if self.trainer.is_global_zero:
            out_set = {step["index"][0].item(): step["psnr"] for step in out}
            psnr = torch.mean(torch.stack(list(out_set.values())))
            self.log("val/psnr", psnr, prog_bar=True, rank_zero_only=True)

    def on_test_epoch_start(self):
        self.val_outputs = []

    def test_step(self, batch, batch_idx):
        out = self(batch)
        psnr = -10 * torch.nn.functional.mse_loss(out["rgb"], batch["rgb"]).log10()
        self.val_outputs.append(psnr)

    def on_test_epoch_end(self):
        self.log("test/psnr", torch.stack(self.val_outputs).mean(), prog_bar=True,
                 rank_zero_only=True)  # fmt: skip
        self.save_json(f"it{self.global_step}-test.json", [v.item() for v in self.val_outputs])
        self.print("saved", self.save_dir)


def main():
    pl.seed_everything(42)
    config = {"save_dir": "exp/save", "name": "neus"}
    data, system = SceneDataModule(config), NeuSSystem(config)
    saver = ModelCheckpoint(dirpath="exp/ckpt", save_top_k=-1, every_n_train_steps=5)
    trainer = pl.Trainer(
        devices=1, accelerator="cpu", strategy="auto", max_steps=10, log_every_n_steps=1,
        num_sanity_val_steps=0, val_check_interval=4, limit_train_batches=1.0,
        check_val_every_n_epoch=None, enable_progress_bar=True, precision="32-true",
        callbacks=[saver, LearningRateMonitor(logging_interval="step"),
                   CodeSnapshotCallback("exp/code", use_version=False),
                   ConfigSnapshotCallback(config, "exp/config", use_version=False),
                   CustomProgressBar(refresh_rate=1)],
        logger=[TensorBoardLogger("runs", name="neus", version="trial"),
                CSVLogger("exp", name="trial", version="csv_logs")],
    )  # fmt: skip
    trainer.fit(system, datamodule=data)
    tested = trainer.test(system, datamodule=data, verbose=False)
    return {"tested": tested, "asked": data.asked, "rays": system.train_num_rays,
            "step": trainer.global_step, "bar": sorted(trainer.progress_bar_metrics)}  # fmt: skip
