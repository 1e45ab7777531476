"""A script whose Trainer starts the other processes: python -m package FOLDER CASE ..."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import torch
from nets import At, Net, loader, trainer, weights

from trainer_hooks import FSDPStrategy
from trainer_hooks.checkpoint.file import load_checkpoint

FOLDER, CASE = Path(sys.argv[1]), sys.argv[2]
IS_STARTED = os.environ.get("RANK") == "1"


def goes_through() -> None:
    """Train, train another with a Trainer that is told nothing, and look at both."""
    os.chdir(FOLDER)  # the others are started from here
    torch.manual_seed(1)
    module, other = Net(), Net()
    fit = trainer(max_epochs=2)
    before = weights(module)
    fit.fit(module, loader(), loader())
    again = trainer(devices="auto")
    again.fit(other, loader())
    found = {
        "ranks": [fit.global_rank, fit.local_rank, fit.node_rank, fit.world_size, fit.num_devices],
        "weights": weights(module), "before": before, "other": weights(other),
        "steps": [fit.global_step, again.global_step], "world": again.world_size,
        "loss": fit.callback_metrics["val_loss"].item(), "argv": sys.argv[1:],
        "flags": sys.warnoptions,
    }  # fmt: skip
    Path(f"rank{fit.global_rank}.json").write_text(json.dumps(found))


def shards() -> None:
    """Train with shards of the weights, save them in parts, and look at what was saved."""
    strategy = FSDPStrategy(auto_wrap_policy=torch.nn.Linear, state_dict_type="sharded")
    module = Net()
    fit = trainer(strategy=strategy, max_epochs=2)
    fit.fit(module, loader(), loader())
    fit.save_checkpoint(FOLDER / "shards.ckpt")
    fit.strategy.barrier()
    loaded = Net()
    loaded.load_state_dict(load_checkpoint(FOLDER / "shards.ckpt")["state_dict"])
    own = [p.to_local().numel() for p in module.parameters()]
    found = {"own": own, "weights": weights(loaded), "steps": fit.global_step}
    Path(FOLDER, f"rank{fit.global_rank}.json").write_text(json.dumps(found))


def kill(trainer) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(trainer) -> None:
    raise ValueError(f"a bad hook of rank {trainer.global_rank}")


def after_the_run() -> None:
    trainer().fit(Net(), loader())
    if IS_STARTED:
        threading.Event().wait()  # until it is ended
    raise ValueError("after the run")


def fails_after_the_run() -> None:
    trainer().fit(Net(), loader())
    if IS_STARTED:
        raise ValueError("only here")


def exits_after_the_run() -> None:
    trainer().fit(Net(), loader())
    sys.exit(7)


def killed_after_the_run() -> None:
    trainer().fit(Net(), loader())
    if IS_STARTED:
        kill(None)


def before_the_run() -> None:
    if IS_STARTED:
        raise ValueError("before the run")
    trainer().fit(Net(), loader())


def alone() -> None:
    trainer(devices=1).fit(Net(), loader())
    trainer().fit(Net(), loader())


def interrupted(trainer) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def terminated(trainer) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    act = globals()[CASE]
    if len(sys.argv) > 3 and sys.argv[3].isdecimal():
        trainer(At(int(sys.argv[3]), act)).fit(Net(), loader())
    else:
        act()
