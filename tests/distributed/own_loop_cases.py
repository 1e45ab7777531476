"""Cases of a loop by Run in two processes, for `worker.py`."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import torch
from cases import FEW, At, Net, by_hand, digest, loader
from torch import nn

from trainer_hooks import Callback, FSDPStrategy, Run
from trainer_hooks.callbacks import ModelCheckpoint

if TYPE_CHECKING:
    from pathlib import Path

SHARDED = FSDPStrategy(auto_wrap_policy=nn.Linear)


def a_run(folder: Path, net: nn.Module, *callbacks: Any, **options: Any) -> Run:
    quiet = {
        "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "max_epochs": 1,
        "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder,
    }  # fmt: skip
    if any(isinstance(callback, ModelCheckpoint) for callback in callbacks):
        del quiet["enable_checkpointing"]
    make = lambda parameters: torch.optim.Adam(parameters, lr=0.01)  # noqa: E731
    return Run(net, make, callbacks=list(callbacks), **{**quiet, **options})


def train(run: Run, net: nn.Module, batches: Any, *, validates: bool = False) -> list[Any]:
    """Train in a plain loop; return the number of batches of each epoch."""
    counts = []
    with run:
        for _ in run.epochs():
            for inputs, targets in run.batches(batches):
                loss = (net(inputs) - targets).square().mean()
                run.backward(loss)
                run.step()
                run.log("loss", loss, on_epoch=True, sync_dist=True)
            counts.append(run.progress.batches_in_epoch)
            if validates:
                with run.validation():
                    for inputs, targets in run.batches(loader(FEW, 2)):
                        loss = (net(inputs) - targets).square().mean()
                        run.log("val_loss", loss, sync_dist=True)
    return counts


def own_same_as_by_hand(folder: Path) -> dict:
    found = {}
    for accumulate in (1, 3):
        ours, other = Net(), Net()
        other.load_state_dict(ours.state_dict())
        run = a_run(folder, ours.net, max_epochs=2, accumulate_grad_batches=accumulate)
        train(run, ours.net, loader(shuffle=True))
        found[str(accumulate)] = [digest(ours), by_hand(other, 2, accumulate)]
    return found


def own_stops(folder: Path) -> dict:
    """One rank asks for a stop, in a hook or in the loop; both end at the same batch."""
    net = Net()
    run = a_run(folder, net.net, At(2, lambda trainer: trainer.stop("enough")), max_epochs=3)
    in_hook = train(run, net.net, loader())
    net = Net()
    run = a_run(folder, net.net, max_epochs=3)
    with run:
        for _ in run.epochs():
            for number, (inputs, targets) in enumerate(run.batches(loader())):
                run.backward((net.net(inputs) - targets).square().mean())
                run.step()
                if number == 3 and run.trainer.global_rank == 1:
                    run.stop("enough")
    return {"in a hook": in_hook, "in the loop": run.progress.batches_completed}


def own_resumes(folder: Path) -> dict:
    found = {}
    for name, strategy, at, accumulate in (
        ("ddp", "ddp", 8, 1), ("ddp inside", "ddp", 11, 2),
        ("fsdp", SHARDED, 8, 1), ("fsdp inside", SHARDED, 11, 2),
    ):  # fmt: skip
        path = folder / f"{name}.ckpt"

        class Saves(Callback):
            def on_batch_checkpoint(self, trainer, module, at=at, path=path):
                if trainer.progress.batches_completed == at:
                    trainer.save_checkpoint(path)

        ends = []
        for seed, ckpt_path in ((5, None), (6, path)):
            torch.manual_seed(seed)
            net = nn.Sequential(
                nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1)
            )
            run = a_run(
                folder, net, *([] if ckpt_path else [Saves()]), ckpt_path=ckpt_path, max_epochs=3,
                strategy=strategy, accumulate_grad_batches=accumulate,
            )  # fmt: skip
            train(run, net, loader(shuffle=True), validates=True)
            run.save_checkpoint(folder / "end.ckpt", weights_only=True)
            weights = torch.load(folder / "end.ckpt", weights_only=True)["state_dict"]
            metrics = {n: v.item() for n, v in run.trainer.callback_metrics.items()}
            numbers = [v for one in weights.values() for v in one.double().flatten().tolist()]
            ends.append([numbers, list(weights), metrics])
        found[name] = ends
    return found


def own_fsdp_by_hand(folder: Path) -> dict:
    """Weights in shards give those of DDP, also for two models with two optimizers."""
    found = {}
    for strategy in (SHARDED, FSDPStrategy(), "ddp"):
        torch.manual_seed(3)
        nets = {"first": nn.Linear(5, 3), "last": nn.Linear(3, 1)}
        make = lambda parameters: torch.optim.SGD(parameters, lr=0.05)  # noqa: E731
        run = Run(
            nets, {"first": make, "last": make}, strategy=strategy, accelerator="cpu",
            logger=False, enable_checkpointing=False, enable_progress_bar=False, max_epochs=2,
            enable_model_summary=False, default_root_dir=folder,
        )  # fmt: skip
        with run:
            optimizers = run.trainer.optimizers
            for _ in run.epochs():
                for inputs, targets in run.batches(loader()):
                    hidden = nets["first"](inputs)
                    run.backward((nets["last"](hidden) - targets).square().mean())
                    for optimizer in optimizers:
                        run.step(optimizer)
        path = folder / "end.ckpt"
        run.save_checkpoint(path, weights_only=True)
        weights = torch.load(path, weights_only=True)["state_dict"]
        found[f"{len(found)} {strategy}"[:5]] = {
            n: w.flatten().tolist() for n, w in weights.items()
        }
    return found


def own_leaves_by_signal(folder: Path) -> dict:
    """SIGTERM in one rank: both save, and end with the signal's code."""

    class Signals(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if trainer.global_rank == 1 and trainer.progress.batches_completed == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    net = Net()
    saver = ModelCheckpoint(folder / "saved")
    run = a_run(folder, net.net, Signals(), saver, max_epochs=5)
    train(run, net.net, loader())
    raise AssertionError("the signal was lost")


CASES = {
    function.__name__: function
    for function in (
        own_same_as_by_hand, own_stops, own_resumes, own_fsdp_by_hand, own_leaves_by_signal,
    )
}  # fmt: skip
