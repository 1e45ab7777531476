"""A model of transformers in our Trainer, as a user who leaves transformers' Trainer writes it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import get_scheduler
from transformers.trainer_pt_utils import get_parameter_names

import trainer_hooks
from trainer_hooks.adapters.transformers import adapt

__all__ = ["HostedModel", "fit"]


class HostedModel(trainer_hooks.Module):
    """Trains a model by its own loss, with the optimizer and schedule of TrainingArguments.

    Args:
        model: returns its loss among its outputs.
        args: the TrainingArguments.
        compute_metrics: returns metrics, given the logits and labels of an evaluation.
    """

    def __init__(self, model: nn.Module, args: Any, compute_metrics: Any = None) -> None:
        super().__init__()
        self.hosted = model
        self.args, self.compute_metrics = args, compute_metrics
        self.predicted: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.hosted(**batch)["loss"]
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        outputs = self.hosted(**batch)
        self.log("eval_loss", outputs["loss"])
        self.predicted.append((outputs["logits"], batch["labels"]))

    def on_validation_epoch_end(self) -> None:
        if self.compute_metrics is not None:
            parts = (torch.cat(part).numpy() for part in zip(*self.predicted, strict=True))
            for name, value in self.compute_metrics(tuple(parts)).items():
                self.log(f"eval_{name}", float(value))
        self.predicted.clear()

    def configure_optimizers(self) -> Any:
        decayed = get_parameter_names(self.hosted, [nn.LayerNorm], ["bias"])
        trained = [(n, p) for n, p in self.hosted.named_parameters() if p.requires_grad]
        groups = [
            {"params": [p for n, p in trained if n in decayed],
             "weight_decay": self.args.weight_decay},
            {"params": [p for n, p in trained if n not in decayed], "weight_decay": 0.0},
        ]  # fmt: skip
        optimizer = torch.optim.AdamW(groups, lr=self.args.learning_rate, fused=True)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = get_scheduler(
            self.args.lr_scheduler_type, optimizer, self.args.get_warmup_steps(steps), steps
        )
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        # their Trainer takes the norm in the order of the model, ours in that of the optimizer
        torch.nn.utils.clip_grad_norm_(self.hosted.parameters(), gradient_clip_val)

    def save_pretrained(self, folder: Any) -> None:
        """Save the model, as callbacks ask the `model` that they are handed."""
        self.hosted.save_pretrained(folder)


def fit(
    module: HostedModel,
    train: Any,
    evaluation: Any,
    callbacks: list[Any],
    saver: Any = None,
    **options: Any,
) -> trainer_hooks.Trainer:
    """Fit with callbacks that are given the arguments of the module; return the trainer.

    Args:
        module: the model.
        train: the data set to train on.
        evaluation: the data set to evaluate on.
        callbacks: callbacks of transformers.
        saver: a saver of ours.
        **options: further options of the Trainer.
    """
    args = module.args
    trainer = trainer_hooks.Trainer(
        callbacks=[*(adapt(callback, args) for callback in callbacks), *([saver] if saver else [])],
        enable_checkpointing=saver is not None, logger=False,
        accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, log_every_n_steps=args.logging_steps,
        gradient_clip_val=args.max_grad_norm, default_root_dir=args.output_dir,
        accumulate_grad_batches=args.gradient_accumulation_steps, **options,
    )  # fmt: skip
    size = args.per_device_train_batch_size
    trainer.fit(
        module,
        torch.utils.data.DataLoader(train, size),
        torch.utils.data.DataLoader(evaluation, args.per_device_eval_batch_size),
    )
    return trainer
