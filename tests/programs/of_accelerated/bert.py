"""Fine-tuning of a transformer by a Trainer without a loss function, with placeholders."""

from functools import partial

import torch
from pytorch_accelerated.callbacks import SaveBestModelCallback, TrainerCallback
from pytorch_accelerated.trainer import DEFAULT_CALLBACKS, Trainer, TrainerPlaceholderValues
from tiny_data import Sentences
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

HOSTED = "its Trainer is a subclass of pytorch-accelerated's"


class TransformersTrainer(Trainer):
    def __init__(self, model, optimizer, *args, **kwargs):
        super().__init__(*args, model=model, optimizer=optimizer, loss_func=None, **kwargs)
        self.hits = []

    def calculate_train_batch_loss(self, batch):
        outputs = self.model(**batch)
        return {"loss": outputs.loss, "model_outputs": outputs.logits,
                "batch_size": batch["attention_mask"].size(0)}  # fmt: skip

    def calculate_eval_batch_loss(self, batch):
        with torch.no_grad():
            outputs = self.model(**batch)
        predictions = self.gather(outputs.logits.argmax(dim=-1))
        self.hits.append((predictions == self.gather(batch["labels"])).float().mean().item())
        return {"loss": outputs.loss, "model_outputs": outputs.logits,
                "batch_size": batch["attention_mask"].size(0)}  # fmt: skip

    def eval_epoch_end(self):
        self.run_history.update_metric("metrics", sum(self.hits) / len(self.hits))
        self.hits.clear()


class Steps(TrainerCallback):
    def __init__(self):
        self.rates = []

    def on_training_run_start(self, trainer, **kwargs):
        self.config = [trainer.run_config.num_epochs, trainer.run_config.gradient_accumulation_steps,
                       trainer.run_config.max_num_train_steps]  # fmt: skip

    def on_train_step_end(self, trainer, batch, batch_output, **kwargs):
        self.rates.append(trainer.scheduler.get_last_lr()[0])


def main():
    torch.manual_seed(4)
    config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, max_position_embeddings=8,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=2e-3)
    steps = Steps()
    trainer = TransformersTrainer(
        model=model, optimizer=optimizer,
        callbacks=[*DEFAULT_CALLBACKS, steps,
                   SaveBestModelCallback(watch_metric="metrics", greater_is_better=True)],
    )  # fmt: skip
    trainer.train(
        num_epochs=2, train_dataset=Sentences(32), eval_dataset=Sentences(16),
        per_device_batch_size=8, train_dataloader_kwargs={"num_workers": 0, "shuffle": False},
        eval_dataloader_kwargs={"batch_size": 8, "num_workers": 0},
        create_scheduler_fn=partial(
            get_linear_schedule_with_warmup, num_warmup_steps=1,
            num_training_steps=TrainerPlaceholderValues.NUM_UPDATE_STEPS_PER_EPOCH * 2,
        ),
        gradient_accumulation_steps=2,
    )  # fmt: skip
    return {"rates": steps.rates, "config": steps.config,
            "metrics": trainer.run_history.get_metric_values("metrics")}  # fmt: skip
