"""A ranker that is evaluated as each epoch ends, too, and stops early on its own metric."""

import numpy as np
import torch
from tiny_data import Sentences
from torch import nn
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

DIFFERENCES = {
    "runs.0.hooks": "Weights that were just evaluated are not evaluated again",
    "runs.0.validations": "Weights that were just evaluated are not evaluated again",
    "result.patience": "Weights that were just evaluated are not evaluated again",
}


class EvaluateAtEpochEnd(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        control.should_evaluate = True


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 6)
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))

    def forward(self, input_ids, attention_mask, labels=None):
        mask = attention_mask[..., None]
        logits = self.layers((self.embedding(input_ids) * mask).sum(1) / mask.sum(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def margin(found):
    logits, labels = found
    rows = np.arange(len(labels))
    return {"margin": float(np.mean(logits[rows, labels] - logits[rows, 1 - labels]))}


def parts():
    torch.manual_seed(9)
    args = TrainingArguments(
        output_dir="out", num_train_epochs=5, eval_strategy="steps", save_strategy="no",
        eval_steps=5, logging_steps=1, per_device_train_batch_size=8, per_device_eval_batch_size=8,
        learning_rate=0.1, weight_decay=0.01, lr_scheduler_type="constant", report_to=[],
        metric_for_best_model="margin", greater_is_better=True, use_cpu=True, disable_tqdm=True,
        train_sampling_strategy="sequential",
    )  # fmt: skip
    stopping = EarlyStoppingCallback(2, early_stopping_threshold=0.05)
    return Ranker(), args, [stopping, EvaluateAtEpochEnd()], Sentences(32), Sentences(16)


def hosted():
    from hosted_model import HostedModel, fit

    model, args, callbacks, train, evaluation = parts()
    trainer = fit(HostedModel(model, args, margin), train, evaluation, callbacks,
                  max_epochs=5, val_check_interval=5, check_val_every_n_epoch=None)  # fmt: skip
    return {"steps": trainer.global_step, "patience": callbacks[0].early_stopping_patience_counter}


def main():
    model, args, callbacks, train, evaluation = parts()
    trainer = Trainer(
        model=model, args=args, train_dataset=train, eval_dataset=evaluation,
        compute_metrics=margin,
    )  # fmt: skip
    for callback in callbacks:
        trainer.add_callback(callback)
    trainer.train()
    return {
        "steps": trainer.state.global_step,
        "patience": callbacks[0].early_stopping_patience_counter,
    }
