"""Fine-tuning of adapters alone, which callbacks save at each checkpoint and load at the end."""

from pathlib import Path

import torch
from tiny_data import Sentences
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

DIFFERENCES = {
    "files.out/checkpoint-*": "No checkpoint is in `args.output_dir`",
    "files.saved/*": "a `ModelCheckpoint` saves where it is told to",
    "runs.0.losses": "A step of several batches logs the last one's loss, there their mean",
    "runs.0.metrics": "A step of several batches logs the last one's loss, there their mean",
}
STEPS, EVERY = 12, 4


class Adapted(nn.Module):
    """A frozen classifier with a trained low-rank part."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.hidden, self.head = nn.Linear(16, 16), nn.Linear(16, 2)
        self.requires_grad_(False)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, input_ids, attention_mask, labels=None):
        found = self.embedding(input_ids).mean(1)
        found = torch.tanh(self.hidden(found) + self.up(self.down(found)))
        logits = self.head(found)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    def trained(self):
        return {name: p.detach().clone() for name, p in self.named_parameters() if p.requires_grad}

    def save_pretrained(self, folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        torch.save(self.trained(), Path(folder) / "adapter_model.bin")


class SaveAdapters(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        kwargs["model"].save_pretrained(folder)
        torch.save({}, folder / "pytorch_model.bin")
        return control


class LoadBestAdapters(TrainerCallback):
    def on_train_end(self, args, state, control, **kwargs):
        best = torch.load(Path(state.best_model_checkpoint) / "adapter_model.bin")
        model = kwargs["model"]
        getattr(model, "hosted", model).load_state_dict(best, strict=False)
        return control


def parts():
    torch.manual_seed(4)
    args = TrainingArguments(
        output_dir="out", dataloader_drop_last=True, eval_strategy="steps", save_strategy="steps",
        load_best_model_at_end=True, max_steps=STEPS, eval_steps=EVERY, save_steps=EVERY,
        logging_steps=1, per_device_train_batch_size=4, per_device_eval_batch_size=4,
        learning_rate=0.05, lr_scheduler_type="cosine", warmup_steps=2,
        gradient_accumulation_steps=2, weight_decay=0.05, report_to=[], use_cpu=True,
        disable_tqdm=True, train_sampling_strategy="sequential",
    )  # fmt: skip
    return Adapted(), args, Sentences(32), Sentences(16)


def hosted():
    import trainer_hooks
    from hosted_model import HostedModel, fit

    model, args, train, evaluation = parts()
    saver = trainer_hooks.callbacks.ModelCheckpoint("saved", every_n_train_steps=EVERY)
    fit(HostedModel(model, args), train, evaluation, [SaveAdapters(), LoadBestAdapters()],
        max_steps=STEPS, val_check_interval=2 * EVERY, check_val_every_n_epoch=None,
        saver=saver)  # fmt: skip
    model.save_pretrained("out/final_checkpoint")
    return {"up": model.up.weight.sum().item()}


def main():
    model, args, train, evaluation = parts()
    trainer = Trainer(
        model=model, args=args, train_dataset=train, eval_dataset=evaluation,
        callbacks=[SaveAdapters, LoadBestAdapters],
    )  # fmt: skip
    trainer.train()
    model.save_pretrained("out/final_checkpoint")
    return {"up": model.up.weight.sum().item()}
