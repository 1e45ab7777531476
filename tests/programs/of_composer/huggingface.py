"""Fine-tuning of a transformer that is wrapped in Composer's HuggingFaceModel."""

import torch
from composer import Trainer
from composer.models import HuggingFaceModel
from composer.optim import DecoupledAdamW
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy
from tiny_data import Sentences
from transformers import BertConfig, BertForSequenceClassification

DIFFERENCES = {
    "ported:port": "wrap the model in a ComposerModel whose loss returns outputs.loss",
    "ported:raised": "wrap the model in a ComposerModel whose loss returns outputs.loss",
}
PORTED = "its import is refused, so that there is no fit to kill"


def parts():
    torch.manual_seed(5)
    config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, max_position_embeddings=8,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
    model = HuggingFaceModel(
        BertForSequenceClassification(config), use_logits=True,
        metrics=[MulticlassAccuracy(num_classes=2, average="micro")],
    )  # fmt: skip
    return model, DecoupledAdamW(model.parameters(), lr=3e-3, weight_decay=3e-6)


def hosted():
    import trainer_hooks
    from trainer_hooks.adapters.composer import adapt_module

    model, optimizer = parts()
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, 8)
    trainer = trainer_hooks.Trainer(max_epochs=2, logger=False, enable_progress_bar=False,
                                    num_sanity_val_steps=0, enable_checkpointing=False)  # fmt: skip
    module = adapt_module(model, optimizer, schedule, step_schedulers_every_batch=True)
    trainer_hooks.seed_everything(17)
    trainer.fit(module, DataLoader(Sentences(32), 8), DataLoader(Sentences(16), 8))


def main():
    model, optimizer = parts()
    trainer = Trainer(
        model=model, train_dataloader=DataLoader(Sentences(32), 8), max_duration="2ep",
        eval_dataloader=DataLoader(Sentences(16), 8), optimizers=optimizer,
        schedulers=[torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, 8)],
        step_schedulers_every_batch=True, device="cpu", progress_bar=False, seed=17,
    )  # fmt: skip
    trainer.fit()
    trainer.close()
