"""A program whose callback asks for more logs and evaluations at the first steps."""

import numpy as np
import torch
from tiny_data import Sentences
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import IntervalStrategy


class DenserEvaluation(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        is_early = state.global_step in (1, 3, 5)
        if args.logging_strategy == IntervalStrategy.STEPS and is_early:
            control.should_log = True
        if args.eval_strategy == IntervalStrategy.STEPS and is_early:
            control.should_evaluate = True
        return control


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(40, 8), nn.LayerNorm(8)
        self.head = nn.Linear(8, 2)

    def forward(self, input_ids, attention_mask, labels=None):
        logits = self.head(self.norm(self.embedding(input_ids).mean(1)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def accuracy(found):
    logits, labels = found
    return {"accuracy": float(np.mean(logits.argmax(-1) == labels))}


def parts():
    torch.manual_seed(6)
    args = TrainingArguments(
        output_dir="out", num_train_epochs=2, eval_strategy="steps", save_strategy="no",
        eval_steps=8, logging_steps=1, per_device_train_batch_size=4, max_grad_norm=0.5,
        per_device_eval_batch_size=4, learning_rate=0.02, warmup_steps=3, report_to=[],
        use_cpu=True, disable_tqdm=True, train_sampling_strategy="sequential",
    )  # fmt: skip
    return Classifier(), args, Sentences(32), Sentences(16)


def hosted():
    from hosted_model import HostedModel, fit

    model, args, train, evaluation = parts()
    trainer = fit(HostedModel(model, args, accuracy), train, evaluation, [DenserEvaluation()],
                  max_epochs=2, val_check_interval=8, check_val_every_n_epoch=None)  # fmt: skip
    return {"steps": trainer.global_step}


def main():
    model, args, train, evaluation = parts()
    trainer = Trainer(
        model=model, args=args, train_dataset=train, eval_dataset=evaluation,
        compute_metrics=accuracy, callbacks=[DenserEvaluation],
    )  # fmt: skip
    result = trainer.train()
    return {"steps": result.global_step}
