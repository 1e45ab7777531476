"""A diffusion model with EMA weights among its buffers, and callbacks of its own."""

import importlib
from contextlib import contextmanager
from pathlib import Path

import pytorch_lightning as pl
import torch
from tiny_data import digits
from pytorch_lightning.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.trainer import Trainer
from pytorch_lightning.utilities.rank_zero import rank_zero_info, rank_zero_only
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

DIFFERENCES: dict[str, str] = {}

KILLED = "a callback sets an attribute as an epoch begins, and reads it at its end"


def instantiate_from_config(config):
    module, _, cls = config["target"].rpartition(".")
    return getattr(importlib.import_module(module), cls)(**config.get("params", {}))


class LitEma(nn.Module):
    def __init__(self, model, decay=0.9):
        super().__init__()
        self.m_name2s_name = {}
        self.register_buffer("decay", torch.tensor(decay, dtype=torch.float32))
        self.register_buffer("num_updates", torch.tensor(0, dtype=torch.int))
        for name, p in model.named_parameters():
            s_name = name.replace(".", "")
            self.m_name2s_name[name] = s_name
            self.register_buffer(s_name, p.clone().detach().data)
        self.collected_params = []

    def forward(self, model):
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        with torch.no_grad():
            shadow = dict(self.named_buffers())
            for key, p in model.named_parameters():
                s_name = self.m_name2s_name[key]
                shadow[s_name].sub_((1.0 - decay) * (shadow[s_name] - p))

    def copy_to(self, model):
        shadow = dict(self.named_buffers())
        for key, p in model.named_parameters():
            p.data.copy_(shadow[self.m_name2s_name[key]].data)

    def store(self, parameters):
        self.collected_params = [param.clone() for param in parameters]

    def restore(self, parameters):
        for c_param, param in zip(self.collected_params, parameters, strict=True):
            param.data.copy_(c_param.data)


class Images(Dataset):
    def __init__(self, count):
        self.data = digits(count)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return {"image": self.data[i][0].permute(1, 2, 0), "class_label": self.data[i][1]}


class DataModuleFromConfig(pl.LightningDataModule):
    def __init__(self, batch_size, train=None, validation=None, num_workers=0):
        super().__init__()
        self.batch_size = batch_size
        self.dataset_configs = {}
        self.num_workers = num_workers
        if train is not None:
            self.dataset_configs["train"] = train
            self.train_dataloader = self._train_dataloader
        if validation is not None:
            self.dataset_configs["validation"] = validation
            self.val_dataloader = self._val_dataloader

    def prepare_data(self):
        for data_cfg in self.dataset_configs.values():
            instantiate_from_config(data_cfg)

    def setup(self, stage=None):
        self.datasets = {k: instantiate_from_config(c) for k, c in self.dataset_configs.items()}

    def _train_dataloader(self):
        return DataLoader(self.datasets["train"], batch_size=self.batch_size, shuffle=True)

    def _val_dataloader(self, shuffle=False):
        return DataLoader(self.datasets["validation"], self.batch_size, shuffle=shuffle)


class DDPM(pl.LightningModule):
    def __init__(
        self, unet_config, timesteps=10, use_ema=True, monitor=None, scheduler_config=None
    ):
        super().__init__()
        self.model = instantiate_from_config(unet_config)
        self.use_ema = use_ema
        if self.use_ema:
            self.model_ema = LitEma(self.model)
        if monitor is not None:
            self.monitor = monitor
        self.scheduler_config = scheduler_config
        self.num_timesteps = timesteps
        alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.2, timesteps), 0)
        self.register_buffer("sqrt_alphas", alphas.sqrt())
        self.register_buffer("sqrt_one_minus_alphas", (1 - alphas).sqrt())

    @contextmanager
    def ema_scope(self, context=None):
        if self.use_ema:
            self.model_ema.store(self.model.parameters())
            self.model_ema.copy_to(self.model)
        try:
            yield None
        finally:
            if self.use_ema:
                self.model_ema.restore(self.model.parameters())

    def get_input(self, batch, k="image"):
        x = batch[k]
        return x.permute(0, 3, 1, 2).to(memory_format=torch.contiguous_format).float()

    def forward(self, x):
        t = torch.randint(0, self.num_timesteps, (x.shape[0],), device=self.device).long()
        noise = torch.randn_like(x)
        a = self.sqrt_alphas[t].view(-1, 1, 1, 1)
        b = self.sqrt_one_minus_alphas[t].view(-1, 1, 1, 1)
        out = self.model((a * x + b * noise).flatten(1)).view_as(x)
        prefix = "train" if self.training else "val"
        loss = nn.functional.mse_loss(out, noise)
        return loss, {f"{prefix}/loss_simple": loss, f"{prefix}/loss": loss}

    def shared_step(self, batch):
        return self(self.get_input(batch))

    def training_step(self, batch, batch_idx):
        loss, loss_dict = self.shared_step(batch)
        self.log_dict(loss_dict, prog_bar=True, logger=True, on_step=True, on_epoch=True)
        self.log("global_step", self.global_step, prog_bar=True, on_step=True, on_epoch=False)
        if self.scheduler_config is not None:
            lr = self.optimizers().param_groups[0]["lr"]
            self.log("lr_abs", lr, prog_bar=True, logger=True, on_step=True, on_epoch=False)
        return loss

    @torch.no_grad()
    def validation_step(self, batch, batch_idx):
        _, loss_dict_no_ema = self.shared_step(batch)
        with self.ema_scope():
            _, loss_dict_ema = self.shared_step(batch)
            loss_dict_ema = {key + "_ema": loss_dict_ema[key] for key in loss_dict_ema}
        self.log_dict(loss_dict_no_ema, prog_bar=False, logger=True, on_step=False, on_epoch=True)
        self.log_dict(loss_dict_ema, prog_bar=False, logger=True, on_step=False, on_epoch=True)

    def on_train_batch_end(self, *args, **kwargs):
        if self.use_ema:
            self.model_ema(self.model)

    @rank_zero_only
    @torch.no_grad()
    def on_train_batch_start(self, batch, batch_idx):
        if self.current_epoch == 0 and self.global_step == 0 and batch_idx == 0:
            self.scale_factor = 1.0 / self.get_input(batch).flatten().std()

    def log_images(self, batch, **kwargs):
        return {"inputs": self.get_input(batch)}

    def configure_optimizers(self):
        opt = torch.optim.AdamW(list(self.model.parameters()), lr=self.learning_rate)
        if self.scheduler_config is not None:
            schedule = LambdaLR(opt, lr_lambda=lambda n: min(1.0, (n + 1) / 5))
            scheduler = [{"scheduler": schedule, "interval": "step", "frequency": 1}]
            return [opt], scheduler
        return opt


class SetupCallback(Callback):
    def __init__(self, resume, logdir, ckptdir, config):
        super().__init__()
        self.resume, self.logdir, self.ckptdir, self.config = resume, logdir, ckptdir, config

    def on_exception(self, trainer, pl_module, exception):
        if trainer.global_rank == 0:
            trainer.save_checkpoint(str(Path(self.ckptdir, "last.ckpt")))

    def on_fit_start(self, trainer, pl_module):
        if trainer.global_rank == 0:
            Path(self.logdir).mkdir(exist_ok=True)
            Path(self.ckptdir).mkdir(exist_ok=True, parents=True)
            if "callbacks" in self.config:
                Path(self.ckptdir, "trainstep_checkpoints").mkdir(exist_ok=True)
            Path(self.logdir, "project.yaml").write_text(str(self.config))


class ImageLogger(Callback):
    def __init__(self, batch_frequency, max_images=4, log_first_step=False):
        super().__init__()
        self.batch_freq = batch_frequency
        self.max_images = max_images
        self.log_first_step = log_first_step
        self.logged = []

    @rank_zero_only
    def log_local(self, save_dir, split, images, global_step, current_epoch, batch_idx):
        root = Path(save_dir, "images", split)
        root.mkdir(exist_ok=True, parents=True)
        for k in images:
            name = f"{k}_gs-{global_step:06}_e-{current_epoch:06}_b-{batch_idx:06}.txt"
            root.joinpath(name).write_text(str(list(images[k].shape)))

    def log_img(self, pl_module, batch, batch_idx, split="train"):
        if (
            batch_idx % self.batch_freq == 0 and hasattr(pl_module, "log_images")
            and callable(pl_module.log_images) and self.max_images > 0
        ):  # fmt: skip
            self.logged.append(type(pl_module.logger).__name__)
            is_train = pl_module.training
            if is_train:
                pl_module.eval()
            with torch.no_grad():
                images = pl_module.log_images(batch, split=split)
            for k in images:
                images[k] = images[k][: self.max_images].detach().cpu()
            self.log_local(
                pl_module.logger.save_dir, split, images, pl_module.global_step,
                pl_module.current_epoch, batch_idx,
            )  # fmt: skip
            if is_train:
                pl_module.train()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if pl_module.global_step > 0 or self.log_first_step:
            self.log_img(pl_module, batch, batch_idx, split="train")

    def on_validation_batch_end(
        self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0
    ):
        if pl_module.global_step > 0:
            self.log_img(pl_module, batch, batch_idx, split="val")


class CUDACallback(Callback):
    def on_train_epoch_start(self, trainer, pl_module):
        self.root_gpu = trainer.strategy.root_device.index
        self.epochs = trainer.max_epochs

    def on_train_epoch_end(self, trainer, pl_module):
        rank_zero_info(f"Average epoch of {self.epochs}")


class Dense(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(64, width), nn.SiLU(), nn.Linear(width, 64))


def main():
    here = __name__
    config = {
        "model": {
            "target": f"{here}.DDPM",
            "params": {
                "unet_config": {"target": f"{here}.Dense", "params": {"width": 16}},
                "monitor": "val/loss_simple_ema", "scheduler_config": {"warm_up_steps": [5]},
            },
        },
        "data": {
            "target": f"{here}.DataModuleFromConfig",
            "params": {
                "batch_size": 8,
                "train": {"target": f"{here}.Images", "params": {"count": 32}},
                "validation": {"target": f"{here}.Images", "params": {"count": 16}},
            },
        },
    }  # fmt: skip
    pl.seed_everything(23)
    model = instantiate_from_config(config["model"])
    images = ImageLogger(batch_frequency=3)
    checkpoint = ModelCheckpoint(
        dirpath="logs/checkpoints", filename="{epoch:06}", verbose=True, save_last=True,
        monitor=model.monitor, save_top_k=3,
    )  # fmt: skip
    steps = ModelCheckpoint(
        dirpath="logs/checkpoints/trainstep_checkpoints", filename="{epoch:06}-{step:09}",
        verbose=True, save_top_k=-1, every_n_train_steps=3, save_weights_only=True,
    )  # fmt: skip
    trainer = Trainer(
        max_epochs=2, accelerator="cpu", benchmark=True,
        logger=pl.loggers.CSVLogger(save_dir="logs", name="csv"),
        callbacks=[
            SetupCallback("", "logs", "logs/checkpoints", config), images,
            LearningRateMonitor(logging_interval="step"), CUDACallback(), checkpoint, steps,
        ],
    )  # fmt: skip
    trainer.logdir = "logs"
    data = instantiate_from_config(config["data"])
    data.prepare_data()
    data.setup()
    model.learning_rate = 1e-3
    trainer.fit(model, data)
    return {
        "logged": images.logged,
        "scale": model.scale_factor,
        "best": checkpoint.best_model_score,
    }
