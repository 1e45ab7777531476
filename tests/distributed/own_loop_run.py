"""A loop by Run for torchrun: own_loop_run.py FOLDER [SIGNAL], which rank 1 sends in a batch.

The first attempt sends the signal, to itself alone (`SIGKILL`) or to both ranks (`SIGINT`, as a
terminal does). Each start goes on from the newest checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from cases import Net, digest, loader

from trainer_hooks import Run
from trainer_hooks.callbacks import ModelCheckpoint


def interrupt(folder: Path, name: str, run: Run) -> None:
    """Send the signal once, when both ranks are in the fifth batch."""
    torch.distributed.barrier()
    told = folder / "told"
    if told.exists():
        return
    torch.distributed.barrier()
    if name == "SIGINT" or run.trainer.global_rank == 1:
        told.touch()
        os.kill(os.getpid(), signal.Signals[name])


def main(folder: Path, name: str) -> None:
    """Train two epochs; rank 0 writes the weights."""
    net = Net()
    run = Run(
        net.net, lambda parameters: torch.optim.Adam(parameters, lr=0.01), ckpt_path="auto",
        callbacks=[ModelCheckpoint(folder / "saved", every_n_train_steps=1)], max_epochs=2,
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder,
    )  # fmt: skip
    with run:
        for _ in run.epochs():
            for inputs, targets in run.batches(loader(shuffle=True)):
                run.backward((net.net(inputs) - targets).square().mean())
                run.step()
                if name and run.progress.steps_completed == 5:
                    interrupt(folder, name, run)
    if run.trainer.is_global_zero:
        (folder / "weights.txt").write_text(repr((digest(net), run.progress.steps_completed)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
