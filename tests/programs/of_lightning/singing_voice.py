"""A toolkit's base task: savers that override private methods, a batch sampler, steps of validation.

The saver monitors the step, without a logged value of that name; the checkpoint's optimizer and
schedule are edited as it is loaded; a task resumes from the newest file in its folder.
"""

import re
from pathlib import Path

import lightning.pytorch as pl
import torch
from tiny_data import images_and_labels
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.rank_zero import rank_zero_debug, rank_zero_info, rank_zero_only
from torch.utils.data import DataLoader, Dataset, Sampler
from torchmetrics import MeanMetric, Metric

DIFFERENCES = {
    "ported:port": "Private methods of built-in callbacks, such as `ModelCheckpoint._save_checkpoint`",
    "ported:result.*.saved": (
        "Private methods of built-in callbacks, such as `ModelCheckpoint._save_checkpoint`"
    ),
    "ported:files.work/model_ckpt_steps_3.ckpt": (
        "Private methods of built-in callbacks, such as `ModelCheckpoint._save_checkpoint`"
    ),
    "result.second.shown": "`trainer.state.stage` as a saver saves after a validation",
    "runs.1.losses": "A resume inside an epoch",
    "runs.1.metrics": "A resume inside an epoch",
    "runs.1.weights.*": "A resume inside an epoch",
}
KILLED = "it sets the weight decay as it loads a checkpoint"


hparams = {"lr": 0.02, "log_interval": 2, "val_check_interval": 3, "accumulate_grad_batches": 2,
           "max_updates": 9, "work_dir": "work", "clip_grad_norm": 1}  # fmt: skip


class DsBatchSampler(Sampler):
    def __init__(self, dataset, max_batch_size, num_replicas=1, rank=0, shuffle=False, seed=4):
        self.dataset, self.size, self.shuffle, self.seed = dataset, max_batch_size, shuffle, seed
        self.num_replicas, self.rank = num_replicas, rank
        self.epoch, self.batches, self.formed = 0, None, None

    def __form_batches(self):
        if self.formed == self.epoch + self.seed:
            return
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        count = len(self.dataset)
        order = torch.randperm(count, generator=generator) if self.shuffle else torch.arange(count)
        self.batches = [part.tolist() for part in order.split(self.size)][
            self.rank :: self.num_replicas
        ]
        self.formed = self.epoch + self.seed

    def __iter__(self):
        self.__form_batches()
        return iter(self.batches)

    def __len__(self):
        self.__form_batches()
        return len(self.batches)

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.__form_batches()


class Notes(Dataset):
    def __init__(self, prefix):
        images, labels = images_and_labels(48)
        part = slice(0, 32) if prefix == "train" else slice(32, 48)
        self.images, self.labels = images[part], labels[part]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"spec": self.images[index].flatten(), "note": self.labels[index]}

    def collater(self, samples):
        return {"size": len(samples), "spec": torch.stack([s["spec"] for s in samples]),
                "note": torch.stack([s["note"] for s in samples])}  # fmt: skip


class DsModelCheckpoint(ModelCheckpoint):
    def __init__(self, *args, permanent_ckpt_start, permanent_ckpt_interval, **kwargs):
        super().__init__(*args, **kwargs)
        self.permanent_ckpt_start = permanent_ckpt_start
        self.permanent_ckpt_interval = permanent_ckpt_interval
        self._verbose = self.verbose
        self.verbose = False

    def state_dict(self):
        state = super().state_dict()
        state.pop("dirpath")
        return state

    def on_validation_end(self, trainer, pl_module):
        if trainer.lightning_module.skip_immediate_ckpt_save:
            trainer.lightning_module.skip_immediate_ckpt_save = False
            return
        self.last_val_step = trainer.global_step
        super().on_validation_end(trainer, pl_module)

    def _update_best_and_save(self, current, trainer, monitor_candidates):
        k = len(self.best_k_models) + 1 if self.save_top_k == -1 else self.save_top_k
        if len(self.best_k_models) == k and k > 0:
            _op = max if self.mode == "min" else min
            self.kth_best_model_path = _op(self.best_k_models, key=self.best_k_models.get)
            self.kth_value = self.best_k_models[self.kth_best_model_path]
        super()._update_best_and_save(current, trainer, monitor_candidates)

    def _save_checkpoint(self, trainer, filepath):
        filepath = (Path(self.dirpath) / Path(filepath).name).resolve()
        super()._save_checkpoint(trainer, str(filepath))
        if self._verbose:
            rank_zero_info(f"Checkpoint {filepath} saved.")

    def _remove_checkpoint(self, trainer, filepath):
        filepath = (Path(self.dirpath) / Path(filepath).name).resolve()
        step = int(re.search(r"steps_(\d+)", filepath.stem)[1])
        beyond = step - self.permanent_ckpt_start
        if beyond >= 0 and beyond % self.permanent_ckpt_interval == 0:
            rank_zero_info(f"Checkpoint {filepath} is now permanent.")
            return
        super()._remove_checkpoint(trainer, filepath)


class DsTQDMProgressBar(TQDMProgressBar):
    def __init__(self, refresh_rate=1, process_position=0, show_steps=True):
        super().__init__(refresh_rate, process_position)
        self.show_steps, self.shown = show_steps, []

    def get_metrics(self, trainer, model):
        items = super().get_metrics(trainer, model)
        if "batch_size" in items:
            items["batch_size"] = int(items["batch_size"])
        if self.show_steps:
            items["steps"] = str(trainer.global_step)
        items.pop("v_num", None)
        return items

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        self.shown.append(self.get_metrics(trainer, pl_module))


class DsTensorBoardLogger(TensorBoardLogger):
    @property
    def all_rank_experiment(self):
        return self.experiment if rank_zero_only.rank == 0 else None

    def finalize(self, status):
        if rank_zero_only.rank == 0:
            super().finalize(status)


def get_latest_checkpoint_path(work_dir):
    found = {int(re.search(r"steps_(\d+)", f.name)[1]): str(f)
             for f in Path(work_dir).glob("model_ckpt_steps_*.ckpt")}  # fmt: skip
    return found[max(found)] if found else None


class BaseTask(pl.LightningModule):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.training_sampler = None
        self.skip_immediate_validation = self.skip_immediate_ckpt_save = False
        self.model = self._build_model()
        self.valid_losses: dict[str, Metric] = {"total_loss": MeanMetric()}
        self.print_arch()

    @rank_zero_only
    def print_arch(self):
        print(self.model)

    def setup(self, stage):
        self.train_dataset, self.valid_dataset = Notes("train"), Notes("valid")
        self.num_replicas = (self.trainer.distributed_sampler_kwargs or {}).get("num_replicas", 1)

    def on_train_epoch_start(self):
        if self.training_sampler is not None:
            self.training_sampler.set_epoch(self.current_epoch)

    def training_step(self, sample, batch_idx):
        losses = self.run_model(sample)
        total_loss = sum(losses.values())
        outputs = {**losses, "batch_size": float(sample["size"])}
        self.log_dict(outputs, prog_bar=True, logger=False, on_step=True, on_epoch=False)
        lr = self.lr_schedulers().get_last_lr()[0]
        self.log("lr", lr, prog_bar=True, logger=False, on_step=True, on_epoch=False)
        if self.global_step % hparams["log_interval"] == 0:
            logged = {f"training/{k}": v for k, v in outputs.items()}
            self.logger.log_metrics({**logged, "training/lr": lr}, step=self.global_step)
        return total_loss

    def on_validation_start(self):
        if self.skip_immediate_validation:
            rank_zero_debug("Skip validation")
            return
        for metric in self.valid_losses.values():
            metric.to(self.device)
            metric.reset()

    def validation_step(self, sample, batch_idx):
        if self.skip_immediate_validation:
            return
        with torch.autocast(self.device.type, enabled=False):
            losses = self.run_model(sample)
        losses = {"total_loss": sum(losses.values())}
        for name, value in losses.items():
            self.valid_losses[name].update(value, weight=sample["size"])

    def on_validation_epoch_end(self):
        if self.skip_immediate_validation:
            self.skip_immediate_validation = False
            self.skip_immediate_ckpt_save = True
            return
        values = {name: metric.compute() for name, metric in self.valid_losses.items()}
        self.log("val_loss", values["total_loss"], on_epoch=True, prog_bar=True, logger=False,
                 sync_dist=True)  # fmt: skip
        self.logger.log_metrics({f"validation/{k}": v for k, v in values.items()},
                                step=self.global_step)  # fmt: skip

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=hparams["lr"])
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
        return {"optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "interval": "step", "frequency": 1}}  # fmt: skip

    def train_dataloader(self):
        self.training_sampler = DsBatchSampler(self.train_dataset, 4, num_replicas=self.num_replicas,
                                               rank=self.global_rank, shuffle=True)  # fmt: skip
        return DataLoader(self.train_dataset, collate_fn=self.train_dataset.collater,
                          batch_sampler=self.training_sampler)  # fmt: skip

    def val_dataloader(self):
        sampler = DsBatchSampler(self.valid_dataset, 5)
        return DataLoader(self.valid_dataset, collate_fn=self.valid_dataset.collater,
                          batch_sampler=sampler)  # fmt: skip

    def test_dataloader(self):
        return self.val_dataloader()

    def on_test_start(self):
        self.on_validation_start()

    def test_step(self, sample, batch_idx):
        return self.validation_step(sample, batch_idx)

    def on_save_checkpoint(self, checkpoint):
        checkpoint["trainer_stage"] = self.trainer.state.stage.value

    def on_load_checkpoint(self, checkpoint):
        if checkpoint.get("trainer_stage", "") == RunningStage.VALIDATING.value:
            self.skip_immediate_validation = True
        for group in checkpoint["optimizer_states"][0]["param_groups"]:
            group["weight_decay"] = 0.05
            group["lr"] = checkpoint["lr_schedulers"][0]["_last_lr"][0]

    @classmethod
    def start(cls, max_updates, **options):
        task = cls()
        work_dir = Path(hparams["work_dir"])
        saver = DsModelCheckpoint(
            dirpath=work_dir, filename="model_ckpt_steps_{step}", auto_insert_metric_name=False,
            monitor="step", mode="max", save_last=False, save_top_k=1, permanent_ckpt_start=3,
            permanent_ckpt_interval=6, verbose=True,
        )  # fmt: skip
        bar = DsTQDMProgressBar(refresh_rate=1)
        trainer = pl.Trainer(
            accelerator="cpu", devices=1, strategy="auto", precision="32-true",
            callbacks=[saver, LearningRateMonitor(logging_interval="step"), bar],
            logger=DsTensorBoardLogger(save_dir=str(work_dir), name="lightning_logs", version="latest"),
            gradient_clip_val=hparams["clip_grad_norm"],
            val_check_interval=hparams["val_check_interval"] * hparams["accumulate_grad_batches"],
            check_val_every_n_epoch=None, log_every_n_steps=1, max_steps=max_updates,
            use_distributed_sampler=False, num_sanity_val_steps=1,
            accumulate_grad_batches=hparams["accumulate_grad_batches"], **options,
        )  # fmt: skip
        trainer.fit(task, ckpt_path=get_latest_checkpoint_path(work_dir))
        best = saver.best_model_path
        return {"steps": trainer.global_step, "best": Path(best).name if best else best,
                "last_val": getattr(saver, "last_val_step", None), "shown": bar.shown[-2:],
                "saved": sorted(f.name for f in work_dir.glob("*.ckpt")),
                "decay": trainer.optimizers[0].param_groups[0]["weight_decay"]}  # fmt: skip


class Acoustic(BaseTask):
    def _build_model(self):
        return torch.nn.Sequential(
            torch.nn.Linear(64, 12), torch.nn.ReLU(), torch.nn.Linear(12, 10)
        )

    def run_model(self, sample):
        out = self.model(sample["spec"])
        return {"note": torch.nn.functional.cross_entropy(out, sample["note"]),
                "size": out.square().mean() * 0.01}  # fmt: skip


def main():
    pl.seed_everything(2)
    first = Acoustic.start(hparams["max_updates"])
    second = Acoustic.start(hparams["max_updates"] + 6)
    return {"first": first, "second": second}
