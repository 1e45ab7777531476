"""Diffusion: a model that generates, two evaluators with metrics at noise levels, images to loggers.

Parameters are in groups with and without decay, losses are checked as they are computed, and a
callback collects garbage by the batch.
"""

import gc

import torch
import torch.nn.functional as F
from composer import Callback, Evaluator, Logger, State, Trainer
from composer.callbacks import LRMonitor
from composer.core import DataSpec, TimeUnit, get_precision_context
from composer.loggers import InMemoryLogger, LoggerDestination
from composer.models import ComposerModel
from composer.optim import ConstantWithWarmupScheduler, DecoupledAdamW
from composer.utils import dist, reproducibility
from tiny_data import images_and_labels
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MeanSquaredError

DIFFERENCES = {
    "ported:result.metrics.metrics/*": "open: F8, random numbers of the forward with Composer's seed",
    "ported:result.pictures": "open: F8",
    "ported:result.enabled": "a second evaluator, due only because the training ends",
    "ported:runs.0.losses": "open: F8",
    "ported:runs.0.metrics": "open: F8",
    "ported:runs.0.hooks": "a second evaluator, due only because the training ends",
    "ported:runs.0.weights.unet.*": "open: F8",
}
HOSTED = "the Trainer's options, such as evaluators, are Composer's"


class Captions(Dataset):
    def __init__(self, part):
        images, labels = images_and_labels(48)
        self.images, self.labels = images[part], labels[part]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"image": self.images[index], "captions": self.labels[index]}


class Diffusion(ComposerModel):
    def __init__(self, val_seed=1138):
        super().__init__()
        self.text_encoder = torch.nn.Embedding(10, 8)
        self.text_encoder.requires_grad_(False)
        self.unet = torch.nn.Sequential(torch.nn.Linear(73, 24), torch.nn.SiLU(), torch.nn.LayerNorm(24),
                                        torch.nn.Linear(24, 64))  # fmt: skip
        self.train_metrics = [MeanSquaredError()]
        self.val_metrics = [MeanSquaredError()]
        self.val_seed = val_seed
        self.rng_generator = None

    def _generate_timesteps(self, batch):
        if self.rng_generator is None:
            return torch.rand(len(batch["image"]), 1)
        return torch.rand(len(batch["image"]), 1, generator=self.rng_generator)

    def forward(self, batch):
        timesteps, noise = (
            self._generate_timesteps(batch),
            torch.randn_like(batch["image"]).flatten(1),
        )
        noised = batch["image"].flatten(1) * (1 - timesteps) + noise * timesteps
        text = self.text_encoder(batch["captions"])
        return self.unet(torch.cat([noised, text, timesteps], 1)), noise, timesteps

    def loss(self, outputs, batch):
        return F.mse_loss(outputs[0], outputs[1])

    def eval_forward(self, batch, outputs=None):
        if outputs is not None:
            return outputs
        self.rng_generator = torch.Generator().manual_seed(self.val_seed)
        outputs = self.forward(batch)
        self.rng_generator = None
        return outputs

    def get_metrics(self, is_train=False):
        metrics = self.train_metrics if is_train else self.val_metrics
        return {metric.__class__.__name__: metric for metric in metrics}

    def update_metric(self, batch, outputs, metric):
        metric.update(outputs[0], outputs[1])

    @torch.no_grad()
    def generate(self, prompt, num_inference_steps=3, seed=None):
        generator = torch.Generator().manual_seed(seed)
        latents = torch.randn(len(prompt), 64, generator=generator)
        for step in range(num_inference_steps, 0, -1):
            time = torch.full((len(prompt), 1), step / num_inference_steps)
            text = self.text_encoder(torch.tensor(prompt))
            latents = latents - self.unet(torch.cat([latents, text, time], 1)) / num_inference_steps
        return latents.reshape(-1, 1, 8, 8).clamp(0, 1)


class LogDiffusionImages(Callback):
    def __init__(self, prompts, seed=1138):
        self.prompts, self.seed = prompts, seed

    def eval_start(self, state: State, logger: Logger):
        model = state.model.module if hasattr(state.model, "module") else state.model
        with get_precision_context(state.precision):
            images = model.generate(self.prompts, seed=self.seed)
        for prompt, image in zip(self.prompts, images, strict=True):
            logger.log_images(images=image, name=str(prompt), step=state.timestamp.batch.value)


class NaNCatcher(Callback):
    def after_loss(self, state: State, logger: Logger):
        if isinstance(state.loss, torch.Tensor):
            if torch.isnan(state.loss).any():
                raise RuntimeError("Train loss contains a NaN.")
        else:
            raise TypeError(f"Loss is of type {type(state.loss)}")


class ScheduledGarbageCollector(Callback):
    def __init__(self, batch_interval, eval_keep_disabled=False):
        self.batch_interval, self.eval_keep_disabled, self.collected = (
            batch_interval,
            eval_keep_disabled,
            [],
        )
        self.gc_init_state = gc.isenabled()

    def fit_start(self, state: State, logger: Logger):
        gc.disable()

    def fit_end(self, state: State, logger: Logger):
        gc.enable() if self.gc_init_state else gc.disable()

    def before_dataloader(self, state: State, logger: Logger):
        if state.timestamp.batch.value % self.batch_interval == 0:
            self.collected.append(state.timestamp.get(TimeUnit.BATCH).value)

    def eval_before_all(self, state: State, logger: Logger):
        if not self.eval_keep_disabled:
            gc.enable()

    def eval_after_all(self, state: State, logger: Logger):
        gc.disable()


class Pictures(LoggerDestination):
    def __init__(self):
        self.seen, self.hyperparameters = [], {}

    def log_images(self, images, name="Images", channels_last=False, step=None, masks=None,
                   mask_class_labels=None, use_table=True):  # fmt: skip
        self.seen.append([name, step, float(images.sum())])

    def log_hyperparameters(self, hyperparameters):
        self.hyperparameters.update(hyperparameters)


def make_transformer_optimizer(model):
    groups = {True: [], False: []}
    for name, param in model.named_parameters():
        if param.requires_grad:
            groups[any(part in name for part in ("bias", "unet.2"))].append(param)
    return DecoupledAdamW([{"params": groups[True], "weight_decay": 0.0},
                           {"params": groups[False], "weight_decay": 1e-3}], lr=5e-3)  # fmt: skip


def main():
    reproducibility.seed_all(17)
    model = Diffusion()
    train = DataLoader(
        Captions(slice(0, 32)), batch_size=8 // dist.get_world_size(), drop_last=True
    )
    spec = DataSpec(train, get_num_samples_in_batch=lambda batch: len(batch["captions"]))
    held_out = DataLoader(Captions(slice(32, 48)), batch_size=8)
    evaluators = [Evaluator(label="low", dataloader=held_out, metric_names=["MeanSquaredError"]),
                  Evaluator(label="high", dataloader=held_out, eval_interval="2ep")]  # fmt: skip
    collector, pictures, kept = ScheduledGarbageCollector(3), Pictures(), InMemoryLogger()
    trainer = Trainer(
        train_dataloader=spec, eval_dataloader=evaluators, optimizers=make_transformer_optimizer(model),
        model=model, loggers=[pictures, kept], max_duration="3ep", eval_interval="1ep",
        schedulers=ConstantWithWarmupScheduler(t_warmup="3ba"), device="cpu", precision="fp32",
        callbacks=[LogDiffusionImages([1, 2]), NaNCatcher(), collector, LRMonitor()],
        progress_bar=False, run_name="diffusion", seed=17, save_folder="saved/{run_name}",
        save_interval="1ep", save_num_checkpoints_to_keep=2, save_filename="ep{epoch}.pt",
        autoresume=False, save_overwrite=True,
    )  # fmt: skip
    trainer.logger.log_hyperparameters({"width": 24})
    trainer.eval(eval_dataloader=evaluators, subset_num_batches=1)
    trainer.fit()
    trainer.close()
    metrics = {name: [float(v) for _, v in kept.data[name]] for name in sorted(kept.data)
               if name.startswith(("metrics/", "lr-"))}  # fmt: skip
    return {"metrics": metrics, "pictures": pictures.seen, "width": pictures.hyperparameters["width"],
            "collected": collector.collected, "enabled": gc.isenabled()}  # fmt: skip
