"""Fine-tuning of a transformer, with a warmup over `estimated_stepping_batches`."""

import lightning as L
import torch
from torch.utils.data import DataLoader
from torchmetrics.functional.classification import multiclass_accuracy
from tiny_data import Sentences
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    get_linear_schedule_with_warmup,
)


class GLUEDataModule(L.LightningDataModule):
    def __init__(self, task_name="mrpc", train_batch_size=8, eval_batch_size=8, **kwargs):
        super().__init__()
        self.task_name = task_name
        self.train_batch_size = train_batch_size
        self.eval_batch_size = eval_batch_size
        self.num_labels = 2

    def setup(self, stage):
        self.dataset = {"train": Sentences(32), "validation": Sentences(16), "test": Sentences(12)}
        self.eval_splits = [x for x in self.dataset if "validation" in x]

    def prepare_data(self):
        Sentences(1)

    def train_dataloader(self):
        return DataLoader(self.dataset["train"], batch_size=self.train_batch_size, shuffle=True)

    def val_dataloader(self):
        if len(self.eval_splits) == 1:
            return DataLoader(self.dataset["validation"], batch_size=self.eval_batch_size)
        return [DataLoader(self.dataset[x], self.eval_batch_size) for x in self.eval_splits]


class GLUETransformer(L.LightningModule):
    def __init__(
        self, config, num_labels, task_name, learning_rate=2e-3, adam_epsilon=1e-8,
        warmup_steps=2, weight_decay=0.1, eval_splits=None, **kwargs,
    ):  # fmt: skip
        super().__init__()
        self.save_hyperparameters(ignore=["config"])
        self.config = config
        self.model = AutoModelForSequenceClassification.from_config(self.config)
        self.validation_step_outputs = []

    def forward(self, **inputs):
        return self.model(**inputs)

    def training_step(self, batch, batch_idx):
        outputs = self(**batch)
        return outputs[0]

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        outputs = self(**batch)
        val_loss, logits = outputs[:2]
        outputs = {"loss": val_loss, "preds": torch.argmax(logits, axis=1)}
        outputs["labels"] = batch["labels"]
        self.validation_step_outputs.append(outputs)
        return outputs

    def on_validation_epoch_end(self):
        outs = self.validation_step_outputs
        preds = torch.cat([x["preds"] for x in outs]).detach().cpu()
        labels = torch.cat([x["labels"] for x in outs]).detach().cpu()
        self.log("val_loss", torch.stack([x["loss"] for x in outs]).mean(), prog_bar=True)
        self.log_dict({"accuracy": multiclass_accuracy(preds, labels, 2)}, prog_bar=True)
        self.validation_step_outputs.clear()

    def configure_optimizers(self):
        model = self.model
        no_decay = ["bias", "LayerNorm.weight"]
        named = list(model.named_parameters())
        groups = [
            {
                "params": [p for n, p in named if not any(nd in n for nd in no_decay)],
                "weight_decay": self.hparams.weight_decay,
            },
            {"params": [p for n, p in named if any(nd in n for nd in no_decay)], "weight_decay": 0},
        ]
        optimizer = torch.optim.AdamW(
            groups, lr=self.hparams.learning_rate, eps=self.hparams.adam_epsilon
        )
        scheduler = get_linear_schedule_with_warmup(
            optimizer,
            num_warmup_steps=self.hparams.warmup_steps,
            num_training_steps=self.trainer.estimated_stepping_batches,
        )
        scheduler = {"scheduler": scheduler, "interval": "step", "frequency": 1}
        return [optimizer], [scheduler]


def main():
    L.seed_everything(42)
    dm = GLUEDataModule(task_name="cola")
    dm.prepare_data()
    dm.setup("fit")
    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=8, num_labels=dm.num_labels,
    )  # fmt: skip
    assert isinstance(config, AutoConfig.for_model("bert").__class__)
    model = GLUETransformer(
        config, num_labels=dm.num_labels, eval_splits=dm.eval_splits, task_name=dm.task_name
    )
    trainer = L.Trainer(
        max_epochs=2, accelerator="auto", devices=1, accumulate_grad_batches=2,
        gradient_clip_val=1.0, logger=L.pytorch.loggers.CSVLogger("."),
    )  # fmt: skip
    trainer.fit(model, datamodule=dm)
    return {"steps": trainer.estimated_stepping_batches, "hparams": dict(model.hparams)}
