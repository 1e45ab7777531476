"""Fine-tune with LoRA, by peft.

LoRA freezes a model, and trains a small low-rank matrix beside each weight of its attention. peft
puts these matrices in; the `Module` around the model needs no change, but for an optimizer that
gets only the parameters that require gradients.

`on_save_checkpoint` leaves the frozen weights out, so that a checkpoint is as small as the adapter,
and `strict_loading = False` accepts a file without them: a run that is started again makes the same
frozen model, from a seed here and from its pretrained weights in a program of yours.
"""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForSequenceClassification, BertConfig

from trainer_hooks import Module, Trainer, seed_everything
from trainer_hooks.callbacks import ModelCheckpoint

VOCABULARY, LENGTH, MOODS = 200, 16, 4


def sentences(count: int) -> TensorDataset:
    """Make token numbers, of which some in each sentence belong to its mood."""
    moods = torch.randint(MOODS, (count,))
    noise = torch.randint(50, VOCABULARY, (count, LENGTH))
    words = moods[:, None] * 10 + torch.randint(10, (count, LENGTH))
    return TensorDataset(torch.where(torch.rand(count, LENGTH) < 0.3, words, noise), moods)


def base_model() -> torch.nn.Module:
    """Return the model to adapt: `from_pretrained(...)` in a program of yours."""
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=LENGTH, num_labels=MOODS,
    )  # fmt: skip
    return AutoModelForSequenceClassification.from_config(config)


class LoraTuner(Module):
    strict_loading = False  # a checkpoint has the trained weights only

    def __init__(self, rank: int = 4):
        super().__init__()
        self.save_hyperparameters()
        lora = LoraConfig(
            task_type="SEQ_CLS", r=rank, lora_alpha=16, lora_dropout=0.1,
            target_modules=["query", "value"],
        )  # fmt: skip
        self.model = get_peft_model(base_model(), lora)

    def training_step(self, batch, batch_idx):
        tokens, moods = batch
        loss = self.model(input_ids=tokens, labels=moods).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        tokens, moods = batch
        scores = self.model(input_ids=tokens).logits
        self.log("val_acc", (scores.argmax(dim=1) == moods).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW((p for p in self.parameters() if p.requires_grad), lr=1e-2)

    def on_save_checkpoint(self, checkpoint):
        trained = {name for name, p in self.named_parameters() if p.requires_grad}
        weights = checkpoint["state_dict"]
        checkpoint["state_dict"] = {name: weights[name] for name in weights if name in trained}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--folder", default="runs/finetune_lora")
    args = parser.parse_args()

    seed_everything(1)
    train = DataLoader(sentences(640), batch_size=32, shuffle=True)
    val = DataLoader(sentences(160), batch_size=32)
    module = LoraTuner()
    module.model.print_trainable_parameters()
    trainer = Trainer(
        max_epochs=args.epochs,
        default_root_dir=args.folder,
        callbacks=[ModelCheckpoint(every_n_train_steps=10)],
        log_every_n_steps=5,
    )
    trainer.fit(module, train, val, ckpt_path="auto")
    module.model.save_pretrained(f"{args.folder}/adapter")  # for peft's from_pretrained
    print(f"accuracy {trainer.callback_metrics['val_acc']:.3f}: {args.folder}/adapter")


if __name__ == "__main__":
    main()
