"""Fine-tune a model of transformers.

A model of Hugging Face's transformers is a `torch.nn.Module` that returns its loss, so a `Module`
around it is short. Biases and norms get no weight decay; the learning rate rises and then falls in
a line. The sentences are made here: each names a mood by some of its words, in a noise of others.

Without a network there are no pretrained weights, so a tiny BERT is made from a config. With
`--pretrained bert-base-uncased` it loads that model; use its tokenizer for sentences of yours then.
"""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForSequenceClassification, BertConfig

from trainer_hooks import Module, Trainer, seed_everything
from trainer_hooks.callbacks import LearningRateMonitor, ModelCheckpoint

VOCABULARY, LENGTH, MOODS = 200, 16, 4


def sentences(count: int) -> TensorDataset:
    """Make token numbers, of which some in each sentence belong to its mood."""
    moods = torch.randint(MOODS, (count,))
    noise = torch.randint(50, VOCABULARY, (count, LENGTH))
    words = moods[:, None] * 10 + torch.randint(10, (count, LENGTH))
    return TensorDataset(torch.where(torch.rand(count, LENGTH) < 0.3, words, noise), moods)


class FineTuner(Module):
    def __init__(self, pretrained: str | None = None, lr: float = 3e-3):
        super().__init__()
        self.save_hyperparameters()
        if pretrained:
            self.model = AutoModelForSequenceClassification.from_pretrained(
                pretrained, num_labels=MOODS
            )
        else:
            config = BertConfig(
                vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=64, max_position_embeddings=LENGTH, num_labels=MOODS,
            )  # fmt: skip
            self.model = AutoModelForSequenceClassification.from_config(config)

    def training_step(self, batch, batch_idx):
        tokens, moods = batch
        loss = self.model(input_ids=tokens, labels=moods).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        tokens, moods = batch
        outputs = self.model(input_ids=tokens, labels=moods)
        self.log("val_loss", outputs.loss)
        self.log("val_acc", (outputs.logits.argmax(dim=1) == moods).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        decayed = [p for p in self.parameters() if p.ndim > 1]
        others = [p for p in self.parameters() if p.ndim <= 1]
        optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
            lr=self.hparams.lr,
        )
        steps = self.trainer.estimated_stepping_batches
        rise = steps // 10
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / (rise + 1), (steps - step) / (steps - rise))
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--folder", default="runs/finetune_transformer")
    parser.add_argument("--pretrained", help="a model's name or folder, instead of a tiny BERT")
    args = parser.parse_args()

    seed_everything(1)
    train = DataLoader(sentences(640), batch_size=32, shuffle=True)
    val = DataLoader(sentences(160), batch_size=32)
    trainer = Trainer(
        max_epochs=args.epochs,
        default_root_dir=args.folder,
        gradient_clip_val=1.0,
        callbacks=[ModelCheckpoint(every_n_train_steps=10), LearningRateMonitor("step")],
        log_every_n_steps=5,
    )
    module = FineTuner(args.pretrained)
    trainer.fit(module, train, val, ckpt_path="auto")
    module.model.save_pretrained(f"{args.folder}/model")  # for transformers' from_pretrained
    print(f"accuracy {trainer.callback_metrics['val_acc']:.3f}: {args.folder}/model")


if __name__ == "__main__":
    main()
