"""A small GPT on characters, with a loop of its own, in the manner of nanoGPT's train.py."""

import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

from trainer_hooks import Run
from trainer_hooks.callbacks import ModelCheckpoint

batch_size, block_size, n_embd, n_head, n_layer = 8, 16, 32, 2, 2
learning_rate, min_lr, warmup_iters, max_iters = 1e-2, 1e-3, 5, 60
gradient_accumulation_steps, grad_clip, eval_interval, eval_iters = 2, 1.0, 20, 3

torch.manual_seed(1337)
text = "".join(chr(97 + (i * i + 3 * i) % 23) for i in range(2000))
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])
train_data, val_data = data[:1800], data[1800:]


def get_batch(split):
    source = train_data if split == "train" else val_data
    ix = torch.randint(len(source) - block_size, (batch_size,))
    x = torch.stack([source[i : i + block_size] for i in ix])
    y = torch.stack([source[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = nn.MultiheadAttention(n_embd, n_head, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)
        )

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        normed = self.ln_1(x)
        x = x + self.attn(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(chars), n_embd), nn.Embedding(block_size, n_embd)
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.lm_head = nn.Linear(n_embd, len(chars), bias=False)

    def forward(self, idx, targets):
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(idx.shape[1])))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = torch.stack([model(*get_batch("val"))[1] for _ in range(eval_iters)])
    model.train()
    return losses.mean()


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))

saver = ModelCheckpoint("saved", every_n_train_steps=4, save_top_k=-1)
run = Run(
    model, optimizer, max_steps=max_iters, gradient_clip_val=grad_clip, callbacks=saver,
    ckpt_path="auto").open()  # fmt: skip
for iter_num in run.steps():
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0:
        print(f"step {iter_num}: val loss {estimate_loss():.6f}")
    for _ in range(gradient_accumulation_steps):
        X, Y = get_batch("train")
        logits, loss = model(X, Y)
        run.backward(loss / gradient_accumulation_steps, accumulate=True)
    run.step()
    print(f"iter {iter_num + 1}: loss {loss.item():.6f}", flush=True)

run.close()
torch.save(model.state_dict(), sys.argv[1])
