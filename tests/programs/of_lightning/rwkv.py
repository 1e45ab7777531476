"""A language model whose one callback owns everything: rates, logs, weights, the end of the run.

It writes its numbers on the trainer, tells the data set its epoch through `trainer.train_dataloader`,
saves weights without a checkpoint, begins from the newest of them, and leaves by `exit`.
"""

import argparse
import math
import os
import re

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_info, rank_zero_only
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

DIFFERENCES = {"ported:runs.*.hooks": "`teardown` after an exception"}
KILLED = "it begins from its file of weights, and saves no checkpoint"


class Tokens(Dataset):
    global_rank = real_epoch = world_size = None

    def __init__(self, args):
        self.args, self.vocab_size, self.asked = args, 24, []

    def __len__(self):
        return self.args.epoch_steps * self.args.micro_bsz

    def __getitem__(self, index):
        place = self.real_epoch * len(self) + index * self.world_size + self.global_rank
        self.asked.append(place)
        ids = (torch.arange(9) * 5 + place * 7) % self.vocab_size
        return ids[:-1], ids[1:]


class train_callback(pl.Callback):
    def __init__(self, args):
        super().__init__()
        self.args = args

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        args = self.args
        real_step = trainer.global_step + args.epoch_begin * args.epoch_steps
        total = args.epoch_count * args.epoch_steps
        progress = min(1, max(0, (real_step - args.warmup_steps + 1) / (total - args.warmup_steps)))
        lr = args.lr_init * math.exp(math.log(args.lr_final / args.lr_init) * progress)
        if trainer.global_step < args.warmup_steps:
            lr *= 0.01 + 0.99 * trainer.global_step / args.warmup_steps
        for group in trainer.optimizers[0].param_groups:
            if group["weight_decay"] > 0:
                group["weight_decay"] = args.weight_decay * (1 - 0.5 * progress)
            group["lr"] = lr * group["my_lr_scale"]
        trainer.my_lr = lr
        if trainer.global_step == 0 and trainer.is_global_zero:
            trainer.my_loss_sum = trainer.my_loss_count = 0
            trainer.my_log = open(os.path.join(args.proj_dir, "train_log.txt"), "a")
            try:
                trainer.my_log.write(f"{trainer.strategy.config}\n")
            except Exception:
                trainer.my_log.write("NEW RUN\n")
            trainer.my_log.flush()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.is_global_zero:
            trainer.my_loss = outputs["loss"]
            trainer.my_loss_sum += trainer.my_loss
            trainer.my_loss_count += 1
            trainer.my_epoch_loss = trainer.my_loss_sum / trainer.my_loss_count
            self.log("lr", trainer.my_lr, prog_bar=True, on_step=True)
            self.log("loss", trainer.my_epoch_loss, prog_bar=True, on_step=True)

    def on_train_epoch_start(self, trainer, pl_module):
        dataset = trainer.train_dataloader.dataset
        assert "Tokens" in str(dataset)
        dataset.global_rank = trainer.global_rank
        dataset.real_epoch = int(self.args.epoch_begin + trainer.current_epoch)
        dataset.world_size = trainer.world_size

    def on_train_epoch_end(self, trainer, pl_module):
        args = self.args
        epoch = args.epoch_begin + trainer.current_epoch
        if trainer.is_global_zero:
            torch.save(pl_module.state_dict(), f"{args.proj_dir}/rwkv-{epoch}.pth")
            loss = float(trainer.my_epoch_loss)
            trainer.my_log.write(f"{epoch} {loss:.6f} {math.exp(loss):.4f} {trainer.my_lr:.8f}\n")
            trainer.my_log.flush()
            trainer.my_loss_sum = trainer.my_loss_count = 0
            if epoch >= args.my_exit:
                exit(0)


class RWKV(pl.LightningModule):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.emb = torch.nn.Embedding(args.vocab_size, 12)
        self.time_decay = torch.nn.Parameter(torch.linspace(-1, 1, 12))
        self.key = torch.nn.Linear(12, 12, bias=False)
        self.ln_out = torch.nn.LayerNorm(12)
        self.head = torch.nn.Linear(12, args.vocab_size, bias=False)

    def configure_optimizers(self):
        named = dict(self.named_parameters())
        decay = sorted(n for n, p in named.items() if p.dim() >= 2)
        fast = sorted(n for n in named if "time_decay" in n)
        plain = sorted({*named} - {*decay} - {*fast})
        if self.trainer.is_global_zero:
            print("decay", decay, "\n")
        groups = [
            {"params": [named[n] for n in plain], "weight_decay": 0.0, "my_lr_scale": 1.0},
            {"params": [named[n] for n in fast], "weight_decay": 0.0, "my_lr_scale": 2.0},
            {"params": [named[n] for n in decay], "weight_decay": self.args.weight_decay,
             "my_lr_scale": 1.0},
        ]  # fmt: skip
        return torch.optim.AdamW(groups, lr=self.args.lr_init, betas=(0.9, 0.99), eps=1e-8)

    def forward(self, ids):
        x = self.emb(ids)
        state, outputs = torch.zeros_like(x[:, 0]), []
        for place in range(x.shape[1]):
            state = state * torch.sigmoid(self.time_decay) + self.key(x[:, place])
            outputs.append(state)
        return self.head(self.ln_out(torch.stack(outputs, 1)))

    def training_step(self, batch, batch_idx):
        idx, targets = batch
        return F.cross_entropy(self(idx).flatten(0, 1), targets.flatten())

    def generate_init_weight(self):
        made = {}
        for name, weight in self.state_dict().items():
            if weight.dim() >= 2:
                torch.nn.init.orthogonal_(weight, gain=0.5)
            made[name] = weight.cpu()
        return made


@rank_zero_only
def generate_init_weight(model, name):
    rank_zero_info(f"saves {name}")
    torch.save(model.generate_init_weight(), name)


def train(args):
    args.epoch_begin = 0
    found = [re.match(r"rwkv-(\d+)\.pth$", name) for name in os.listdir(args.proj_dir)]
    newest = max((int(match[1]) for match in found if match), default=-1)
    args.epoch_begin = newest + 1
    data = Tokens(args)
    args.vocab_size = data.vocab_size
    model = RWKV(args)
    load = f"{args.proj_dir}/rwkv-{newest if newest >= 0 else 'init'}.pth"
    if newest < 0:
        generate_init_weight(model, load)
    model.load_state_dict(torch.load(load, map_location="cpu"))
    trainer = pl.Trainer(
        accelerator="cpu", strategy="auto", devices=1, num_nodes=1, precision="32", logger=False,
        callbacks=[train_callback(args)], max_epochs=-1, check_val_every_n_epoch=int(1e20),
        num_sanity_val_steps=0, log_every_n_steps=int(1e20), enable_checkpointing=False,
        accumulate_grad_batches=1, gradient_clip_val=1.0,
    )  # fmt: skip
    left = ""
    try:
        trainer.fit(model, DataLoader(data, batch_size=args.micro_bsz, shuffle=False,
                                      pin_memory=False, drop_last=True))  # fmt: skip
    except SystemExit as ended:
        left = f"exit {ended.code}"
    trainer.my_log.close()
    return {"left": left, "asked": data.asked, "loss": trainer.my_loss, "epoch": trainer.current_epoch,
            "step": trainer.global_step, "bar": trainer.progress_bar_metrics}  # fmt: skip


def main():
    pl.seed_everything(3)
    os.makedirs("out")
    args = {"proj_dir": "out", "epoch_steps": 5, "micro_bsz": 3, "epoch_count": 4, "lr_init": 6e-3,
                "lr_final": 1e-3, "warmup_steps": 3, "weight_decay": 0.1}  # fmt: skip
    first = train(argparse.Namespace(**args, my_exit=1))
    second = train(argparse.Namespace(**args, my_exit=3))
    return {"first": first, "second": second, "log": open("out/train_log.txt").read()}
