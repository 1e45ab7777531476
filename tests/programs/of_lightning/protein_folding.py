"""A training with averaged weights by hand, which the module swaps in for a validation.

Each step is logged thrice; the average goes through checkpoints by the module's own hooks; a
resumed run reads the step from the file, for a schedule that is made at it; a stopper tells its
reason through an overridden private method.
"""

import json
import os
import time
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.callbacks.early_stopping import EarlyStopping
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.utilities import rank_zero_info, rank_zero_only
from torch.utils.data import DataLoader, Dataset

DIFFERENCES = {
    "runs.1.metrics": "Sanity check on a resume",
    "runs.1.hooks": "Sanity check on a resume",
    "runs.1.validations": "Sanity check on a resume",
    "ported:files.output/fold/version_*": "The folder of a logger without a `version` on a resume",
}


class Chains(Dataset):
    def __init__(self, count):
        draw = torch.Generator().manual_seed(count)
        self.aatype = torch.randint(0, 20, (count, 6, 2), generator=draw)
        self.positions = torch.randn(count, 6, 3, 2, generator=draw).cumsum(1)

    def __len__(self):
        return len(self.aatype)

    def __getitem__(self, index):
        return {"aatype": self.aatype[index], "all_atom_positions": self.positions[index],
                "batch_idx": torch.tensor([index, index])}  # fmt: skip


class Chain(pl.LightningDataModule):
    def __init__(self, batch_seed):
        super().__init__()
        self.batch_seed = batch_seed

    def setup(self, stage=None):
        self.train_dataset, self.eval_dataset = Chains(24), Chains(8)

    def _gen_dataloader(self, stage):
        generator = torch.Generator()
        if self.batch_seed is not None:
            generator = generator.manual_seed(self.batch_seed)
        dataset = self.train_dataset if stage == "train" else self.eval_dataset
        return DataLoader(dataset, batch_size=4, generator=generator)

    def train_dataloader(self):
        return self._gen_dataloader("train")

    def val_dataloader(self):
        return self._gen_dataloader("eval")


def tensor_tree_map(fn, tree):
    if isinstance(tree, dict):
        return {k: tensor_tree_map(fn, v) for k, v in tree.items()}
    return fn(tree) if isinstance(tree, torch.Tensor) else tree


class ExponentialMovingAverage:
    def __init__(self, model, decay):
        self.params = tensor_tree_map(lambda t: t.clone().detach(), dict(model.state_dict()))
        self.decay = decay
        self.device = next(model.parameters()).device

    def to(self, device):
        self.params = tensor_tree_map(lambda t: t.to(device), self.params)
        self.device = device

    def update(self, model):
        with torch.no_grad():
            for name, value in model.state_dict().items():
                stored = self.params[name]
                stored -= (stored - value) * (1 - self.decay)

    def load_state_dict(self, state_dict):
        for name, value in state_dict["params"].items():
            self.params[name] = value.clone()
        self.decay = state_dict["decay"]

    def state_dict(self):
        return {"params": self.params, "decay": self.decay}


class AlphaFoldLRScheduler(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, last_epoch=-1, base_lr=0.0, max_lr=0.01, warmup=5):
        self.base_lr, self.max_lr, self.warmup = base_lr, max_lr, warmup
        super().__init__(optimizer, last_epoch=last_epoch)

    def state_dict(self):
        return {k: v for k, v in self.__dict__.items() if k not in ["optimizer"]}

    def load_state_dict(self, state_dict):
        self.__dict__.update(state_dict)

    def get_lr(self):
        step = self.last_epoch
        lr = self.max_lr * step / self.warmup if step <= self.warmup else self.max_lr * 0.95
        return [lr for _ in self.optimizer.param_groups]


class EarlyStoppingVerbose(EarlyStopping):
    def _evaluate_stopping_criteria(self, *args, **kwargs):
        should_stop, reason = super()._evaluate_stopping_criteria(*args, **kwargs)
        if should_stop:
            rank_zero_info(f"{reason}\n")
            self.told = reason
        return should_stop, reason


class PerformanceLoggingCallback(pl.Callback):
    def __init__(self, log_file, global_batch_size, warmup_steps=0):
        self.logger = []
        self.log_file, self.global_batch_size, self.warmup_steps = (
            log_file,
            global_batch_size,
            warmup_steps,
        )

    @rank_zero_only
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.started = time.perf_counter()

    @rank_zero_only
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.logger.append(time.perf_counter() - self.started > 0)

    @rank_zero_only
    def on_train_end(self, trainer, pl_module):
        with open(self.log_file, "w") as file:
            json.dump({"steps": len(self.logger) * self.global_batch_size}, file)


class Fold(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, batch):
        x = self.embed(batch["aatype"][..., -1]).cumsum(1)
        return {"final_atom_positions": self.head(x)}


class OpenFoldWrapper(pl.LightningModule):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Fold()
        self.ema = ExponentialMovingAverage(model=self.model, decay=config["decay"])
        self.cached_weights = None
        self.last_lr_step = -1
        self.save_hyperparameters()

    def forward(self, batch):
        return self.model(batch)

    def loss(self, outputs, batch, _return_breakdown=False):
        gap = outputs["final_atom_positions"] - batch["all_atom_positions"]
        losses = {"fape": gap.abs().clamp(max=10).mean(), "distogram": 0.1 * gap.square().mean()}
        cum_loss = sum(losses.values())
        losses["loss"] = cum_loss.detach().clone()
        return (cum_loss, losses) if _return_breakdown else cum_loss

    def _log(self, loss_breakdown, batch, outputs, train=True):
        phase = "train" if train else "val"
        for name, value in loss_breakdown.items():
            self.log(f"{phase}/{name}", value, prog_bar=(name == "loss"), on_step=train,
                     on_epoch=(not train), logger=True, sync_dist=False)  # fmt: skip
            if train:
                self.log(f"{phase}/{name}_epoch", value, on_step=False, on_epoch=True, logger=True)
        with torch.no_grad():
            gap = outputs["final_atom_positions"] - batch["all_atom_positions"]
            lddt = (gap.norm(dim=-1) < 3).float().mean(-1)
        self.log(f"{phase}/lddt_ca", torch.mean(lddt), on_step=False, on_epoch=True, logger=True)

    def training_step(self, batch, batch_idx):
        if self.ema.device != batch["aatype"].device:
            self.ema.to(batch["aatype"].device)
        batch.pop("gt_features", None)
        outputs = self(batch)
        batch = tensor_tree_map(lambda t: t[..., -1], batch)
        loss, loss_breakdown = self.loss(outputs, batch, _return_breakdown=True)
        self._log(loss_breakdown, batch, outputs)
        return loss

    def on_before_zero_grad(self, *args, **kwargs):
        self.ema.update(self.model)

    def validation_step(self, batch, batch_idx):
        if self.cached_weights is None:
            self.cached_weights = tensor_tree_map(lambda t: t.detach().clone(),
                                                  dict(self.model.state_dict()))  # fmt: skip
            self.model.load_state_dict(self.ema.state_dict()["params"])
        outputs = self(batch)
        batch = tensor_tree_map(lambda t: t[..., -1], batch)
        batch["use_clamped_fape"] = 0.0
        _, loss_breakdown = self.loss(outputs, batch, _return_breakdown=True)
        self._log(loss_breakdown, batch, outputs, train=False)

    def on_validation_epoch_end(self):
        self.model.load_state_dict(self.cached_weights)
        self.cached_weights = None

    def configure_optimizers(self, learning_rate: float = 1e-3, eps: float = 1e-5):
        optimizer = torch.optim.Adam(self.model.parameters(), lr=learning_rate, eps=eps)
        if self.last_lr_step != -1:
            for group in optimizer.param_groups:
                if "initial_lr" not in group:
                    group["initial_lr"] = learning_rate
        schedule = AlphaFoldLRScheduler(optimizer, last_epoch=self.last_lr_step)
        return {"optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "interval": "step",
                                 "name": "AlphaFoldLRScheduler"}}  # fmt: skip

    def on_load_checkpoint(self, checkpoint):
        self.ema.load_state_dict(checkpoint["ema"])

    def on_save_checkpoint(self, checkpoint):
        checkpoint["ema"] = self.ema.state_dict()

    def resume_last_lr_step(self, lr_step):
        self.last_lr_step = lr_step


def train(epochs, resume_from_ckpt=None):
    module = OpenFoldWrapper({"decay": 0.9})
    if resume_from_ckpt:
        read = torch.load(resume_from_ckpt, weights_only=False)
        module.resume_last_lr_step(int(read["global_step"]))
    data = Chain(batch_seed=6)
    data.prepare_data()
    data.setup()
    saver = ModelCheckpoint(every_n_epochs=1, auto_insert_metric_name=False, save_top_k=-1)
    stopper = EarlyStoppingVerbose(monitor="val/lddt_ca", min_delta=0.0, patience=2,
                                   verbose=False, mode="max", check_finite=True, strict=True)  # fmt: skip
    os.makedirs("output", exist_ok=True)
    performance = PerformanceLoggingCallback(os.path.join("output", "performance_log.json"), 4)
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=epochs, default_root_dir="output",
        reload_dataloaders_every_n_epochs=1, num_sanity_val_steps=1, log_every_n_steps=1,
        callbacks=[saver, stopper, performance, LearningRateMonitor(logging_interval="step")],
        logger=[CSVLogger("output", "fold")], enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(module, datamodule=data, ckpt_path=resume_from_ckpt)
    averaged = {name: float(value.sum()) for name, value in module.ema.params.items()}
    return {"epoch": trainer.current_epoch, "step": trainer.global_step, "average": averaged,
            "told": bool(getattr(stopper, "told", "")), "rate": trainer.optimizers[0].param_groups[0]["lr"],
            "stopped": stopper.stopped_epoch, "saved": Path(saver.best_model_path).name}, saver.best_model_path  # fmt: skip


def main():
    pl.seed_everything(8, workers=True)
    first, saved = train(2)
    second, _ = train(8, resume_from_ckpt=saved)
    return {"first": first, "second": second}
