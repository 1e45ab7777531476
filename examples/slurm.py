"""Train on SLURM, and come back after the time limit.

SLURM ends a job at its limit, or to give its machines to another one. The batch script below asks
for a signal 90 seconds before. The trainer answers it: it finishes the batch, saves a checkpoint
and ends with the code 138. The script then asks SLURM to queue the job again, where
`ckpt_path="auto"` goes on. So a training of a week runs in jobs of an hour, with the same result.

    python examples/slurm.py --script > train.sbatch
    sbatch train.sbatch

The trainer reads the number of processes and its place among them from the variables of `srun`; the
program has no line about it. Without SLURM it trains in one process.
"""

import argparse
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Module, Trainer, seed_everything
from trainer_hooks.callbacks import ModelCheckpoint

SCRIPT = """#!/bin/bash
#SBATCH --job-name=digits
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=USR1@90

srun {python} {program} --folder "runs/slurm_$SLURM_JOB_ID"
code=$?
if [ $code -eq 138 ]; then  # 128 + SIGUSR1: it has saved, and wants to go on
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
"""


class Classifier(Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def training_step(self, batch, batch_idx):
        images, targets = batch
        scores = self.net(images)
        hits = (scores.argmax(dim=1) == targets).float().mean()
        self.log("train_acc", hits, on_step=False, on_epoch=True, sync_dist=True)
        return nn.functional.cross_entropy(scores, targets)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--folder", default="runs/slurm")
    parser.add_argument("--script", action="store_true", help="print the batch script")
    args = parser.parse_args()
    if args.script:
        program = Path(__file__).resolve()
        print(SCRIPT.format(python=sys.executable, program=program), end="")
        return

    seed_everything(1)
    table = load_digits()
    images = torch.tensor(table.data, dtype=torch.float32) / 16
    data = TensorDataset(images, torch.tensor(table.target))
    trainer = Trainer(
        max_epochs=args.epochs,
        default_root_dir=args.folder,
        # besides the save at the signal, for a machine that fails without one
        callbacks=[ModelCheckpoint(every_n_train_steps=20)],
        enable_progress_bar=False,
        log_every_n_steps=10,
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=32, shuffle=True), ckpt_path="auto")
    trainer.print(f"accuracy {trainer.callback_metrics['train_acc']:.3f}")


if __name__ == "__main__":
    main()
