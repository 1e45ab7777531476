"""The cases that ranks with sharded weights run; each returns plain data."""

from __future__ import annotations

import math
import os
import signal
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from cases import (
    DATA,
    FEW,
    RANK,
    Counts,
    Draws,
    Net,
    Remembers,
    digest,
    loader,
    makes_files,
    trainer,
)  # fmt: skip
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import Subset
from torch.utils.data.distributed import DistributedSampler

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import ModelCheckpoint, NaNGuard, StochasticWeightAveraging
from trainer_hooks.errors import TrainerHooksError
from trainer_hooks.runtime import rank_watchdog
from trainer_hooks.runtime.strategy_options import FSDPStrategy
from trainer_hooks.trainer.identity.run_identity import TRAININGS, ProcessTrainings

if TYPE_CHECKING:
    from pathlib import Path

LAYERS = FSDPStrategy(auto_wrap_policy=nn.Linear)


def whole(module: nn.Module) -> list[float]:
    """Return all weights of a sharded module; both processes must call it."""
    values = [
        v.full_tensor() if isinstance(v, DTensor) else v for v in module.state_dict().values()
    ]
    return [number for value in values for number in value.double().flatten().tolist()]


def fitted(folder: Path, module: Module, strategy=LAYERS, *callbacks, **options) -> Trainer:
    fit = trainer(folder, *callbacks, strategy=strategy, **options)
    fit.fit(module, loader(shuffle=True), loader(FEW, 2))
    return fit


# --- training ---


def by_hand(module: nn.Module, accumulate: int, clip: float | None) -> list[float]:
    """Train with fully_shard and no trainer."""
    net = module.net
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    sampler = DistributedSampler(DATA, shuffle=True, seed=0)
    batches = loader(sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for index, (inputs, targets) in enumerate(batches):
            closes = (index + 1) % accumulate == 0 or index + 1 == len(batches)
            net.set_requires_gradient_sync(closes)
            ((net(inputs) - targets).square().mean() / accumulate).backward()
            if closes:
                if clip is not None:
                    nn.utils.clip_grad_norm_(net.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return whole(module)


def fsdp_by_hand(folder: Path) -> dict:
    found = {}
    for accumulate, clip in ((1, None), (3, 0.1)):
        torch.manual_seed(4)  # each process has random numbers of its own by now
        module, other, third = Net(), Net(), Net()
        other.load_state_dict(module.state_dict())
        third.load_state_dict(module.state_dict())
        options = {"max_epochs": 2, "accumulate_grad_batches": accumulate}
        options["gradient_clip_val"] = clip
        fit = fitted(folder, module, LAYERS, **options)
        fitted(folder, third, "ddp", **options)
        found[str(accumulate)] = {
            "ours": whole(module), "theirs": by_hand(other, accumulate, clip),
            "ddp": digest(third), "steps": fit.global_step, "names": list(module.state_dict()),
        }  # fmt: skip
    return found


def fsdp_options(folder: Path) -> dict:
    """Each way to shard ends with the weights of DDP, or near to them."""
    from torch.distributed.device_mesh import init_device_mesh

    class Own(Net):
        def configure_model(self):
            if isinstance(self.net[0], nn.Linear) and not hasattr(self.net[0], "unshard"):
                fully_shard(self.net[0], mesh=self.device_mesh)

    strategies = {
        "ddp": "ddp",
        "name": "fsdp",
        "size": FSDPStrategy(auto_wrap_policy=40),
        "function": FSDPStrategy(auto_wrap_policy=lambda layer: isinstance(layer, nn.Linear)),
        "checkpointed": FSDPStrategy(
            auto_wrap_policy={nn.Linear}, activation_checkpointing_policy=nn.Linear
        ),
        "offloaded": FSDPStrategy(auto_wrap_policy=nn.Linear, cpu_offload=True),
        "copies": FSDPStrategy(auto_wrap_policy=nn.Linear, device_mesh=(2, 1)),
        "mesh": FSDPStrategy(device_mesh=init_device_mesh("cpu", (2,))),
        "kept": FSDPStrategy(auto_wrap_policy=nn.Linear, reshard_after_forward=False),
        "own": FSDPStrategy(),
        "half": FSDPStrategy(auto_wrap_policy=nn.Linear),
    }
    found = {}
    for name, strategy in strategies.items():
        torch.manual_seed(3)
        module = Own() if name == "own" else Net()
        options = {"precision": "bf16-mixed"} if name == "half" else {}
        fit = fitted(folder, module, strategy, gradient_clip_val=0.5, **options)
        found[name] = {
            "weights": whole(module), "val": fit.callback_metrics["val_loss"].item(),
            "sharded": sum(isinstance(layer, FSDPModule) for layer in module.modules()),
            "names": sorted(module.state_dict()),
        }  # fmt: skip
    return found


def fsdp_evaluates(folder: Path) -> dict:
    """Uneven shares, and a process without any, evaluate as one process does."""
    found = {}
    for name, data in (("uneven", FEW), ("one", Subset(FEW, [0]))):
        module = Counts()
        fit = trainer(folder, strategy=LAYERS)
        fit.fit(module, loader(), loader(data, 2))
        found[name] = [value.item() for key, value in fit.callback_metrics.items() if key != "own"]
        again = trainer(folder, strategy=LAYERS).validate(module, loader(data, 2), verbose=False)[0]
        predicted = trainer(folder, strategy=LAYERS).predict(Predicts(), loader(data, 2))
        found[f"{name} again"] = [value for key, value in again.items() if key != "own"]
        found[f"{name} predicted"] = sum(len(part) for part in predicted)
    values = FEW.tensors[0].sum(1)
    found["expected"] = [5.0, values.mean().item(), values.min().item(), values.max().item()]
    return found


class Predicts(Net):
    def predict_step(self, batch, batch_idx):
        return self.net(batch[0])


class Skips(Net):
    """Leaves the same batches out in all processes: before the forward, or after it."""

    def __init__(self, left_out, is_after) -> None:
        super().__init__()
        self.left_out, self.is_after = left_out, is_after

    def training_step(self, batch, batch_idx):
        if batch_idx in self.left_out and not self.is_after:
            return None
        loss = self.error(batch)
        return None if batch_idx in self.left_out else loss


def fsdp_skips(folder: Path) -> dict:
    found = {}
    for strategy in (LAYERS, "ddp"):
        for is_after in (False, True):
            torch.manual_seed(3)
            module = Skips({1, 4, 5}, is_after)
            fit = fitted(folder, module, strategy, accumulate_grad_batches=2)
            name = strategy if isinstance(strategy, str) else "fsdp"
            found[f"{name} {is_after}"] = [fit.global_step, *whole(module)]
    return found


def fsdp_manual(folder: Path) -> dict:
    class Manual(Net):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.error(batch))
            optimizer.step()

    found = {}
    for strategy in (LAYERS, "ddp"):
        torch.manual_seed(3)
        module = Manual()
        fitted(folder, module, strategy)
        found[str(strategy)[:4]] = whole(module)
    return found


# --- resumed ---


def cut_and_resumed(folder: Path, saved, accumulate: int, **resumes) -> dict:
    """Save in a run of one strategy, and go on from each of its checkpoints with another.

    Args:
        folder: the folder of the checkpoints.
        saved: the strategy of the run that saves.
        accumulate: the number of batches of a step.
        resumes: by the name of each resume, the number of batches before it, and its strategy.
    """
    options = {"max_epochs": 2, "accumulate_grad_batches": accumulate}
    paths = {at: folder / f"{at} {accumulate}.ckpt" for at, _ in resumes.values()}

    def run(strategy, *callbacks, ckpt_path=None) -> list:
        torch.manual_seed(5)
        module, remembers = Draws(), Remembers()
        fit = trainer(folder, remembers, *callbacks, strategy=strategy, **options)
        fit.fit(module, loader(shuffle=True), loader(FEW, 2), ckpt_path=ckpt_path)
        metrics = {name: value.item() for name, value in fit.callback_metrics.items()}
        return [whole(module), remembers.drawn, metrics, fit.global_step]

    class Saves(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed in paths:
                trainer.save_checkpoint(paths[trainer.progress.batches_completed])

    uncut = run(saved, Saves())
    return {
        name.replace("_", " "): {
            "uncut": uncut, "resumed": run(gone_on, ckpt_path=paths[at]),
            "is_folder": paths[at].is_dir(),
        }
        for name, (at, gone_on) in resumes.items()
    }  # fmt: skip


PARTS = FSDPStrategy(auto_wrap_policy=nn.Linear, state_dict_type="sharded")


def fsdp_resumes(folder: Path) -> dict:
    return {
        # an epoch has eight batches
        **cut_and_resumed(folder, LAYERS, 1, full=(8, LAYERS), to_ddp=(6, "ddp")),
        **cut_and_resumed(folder, LAYERS, 2, full_inside=(11, LAYERS), to_ddp_inside=(7, "ddp")),
        **cut_and_resumed(folder, "ddp", 1, from_ddp=(12, LAYERS)),
        **cut_and_resumed(folder, "ddp", 3, from_ddp_inside=(13, LAYERS)),
    }


def fsdp_parts(folder: Path) -> dict:
    whole_file = folder / "whole"
    return {
        **cut_and_resumed(
            folder, PARTS, 1, parts=(8, PARTS), parts_to_ddp=(12, "ddp"),
            other_layers=(7, FSDPStrategy()),
        ),
        **cut_and_resumed(folder, PARTS, 2, parts_inside=(11, PARTS)),
        **cut_and_resumed(folder, PARTS, 3, parts_to_ddp_inside=(5, "ddp")),
        **cut_and_resumed(whole_file, LAYERS, 1, full_to_parts=(14, PARTS)),
    }  # fmt: skip


def fsdp_finds(folder: Path) -> dict:
    """Savers leave folders, in the background, too, which are found again by their names."""
    found = {}

    def began(*callbacks, **more):
        torch.manual_seed(5)
        module = Draws()
        fit = trainer(folder, *callbacks, strategy=PARTS, val_check_interval=2, **more)
        return module, fit

    uncut, whole_fit = began(max_epochs=2)
    whole_fit.fit(uncut, loader(shuffle=True), loader(FEW, 2))
    for name, options in (("now", {}), ("later", {"async_save": True})):
        place = folder / name

        def saver(options=options, place=place):
            every = {"monitor": "val_loss", "save_top_k": 2, "save_last": True}
            return ModelCheckpoint(
                place, filename="{step}", every_n_train_steps=2, **every, **options
            )

        module, fit = began(saver(), max_epochs=1)
        fit.fit(module, loader(shuffle=True), loader(FEW, 2))
        ProcessTrainings.__init__(TRAININGS)  # as if this process had just begun
        other, cut = began(saver(), max_epochs=2)
        cut.fit(other, loader(shuffle=True), loader(FEW, 2), ckpt_path="auto")
        ProcessTrainings.__init__(TRAININGS)  # as if this process had just begun
        best = trainer(folder, saver(), strategy=PARTS)
        best.validate(Draws(), loader(FEW, 2), ckpt_path="best", verbose=False)
        found[name] = {
            "is_same": whole(other) == whole(uncut), "steps": cut.global_step,
            "names": sorted(path.name for path in place.iterdir()),
            "are_folders": all(path.is_dir() for path in place.iterdir()),
            "best": best.callback_metrics["val_loss"].item()
            - cut.checkpoint_callback.best_model_score.item(),
        }  # fmt: skip
    return found


class Wide(Module):
    """Has weights enough to count."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 256), nn.Linear(256, 256), nn.Linear(256, 1))

    def training_step(self, batch, batch_idx):
        return (self.net(batch[0]) - batch[1]).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.net(batch[0]).mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def _bytes(fit: Trainer, module: nn.Module) -> int:
    """Return the bytes that this process keeps of weights and optimizer states."""
    states = [v for one in fit.optimizers[0].state.values() for v in one.values()]
    tensors = [*module.parameters(), *(v for v in states if v.ndim)]
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum(t.untyped_storage().nbytes() for t in local)


def fsdp_memory(folder: Path) -> dict:
    """Count the memory that a rank keeps, and the peak of building on meta."""
    found = {}
    for name, strategy in (("ddp", "ddp"), ("fsdp", LAYERS)):
        torch.manual_seed(3)
        module = Wide()
        fit = trainer(folder, strategy=strategy)
        fit.fit(module, loader())
        found[name] = {"bytes": _bytes(fit, module), "weights": whole(module)}
    torch.manual_seed(3)
    with torch.device("meta"):
        module = Wide()
    fit = trainer(folder, strategy=LAYERS)
    fit.fit(module, loader())
    found["meta"] = {"bytes": _bytes(fit, module), "finite": all(map(math.isfinite, whole(module)))}
    path = folder / "wide.ckpt"
    fit.save_checkpoint(path)
    with torch.device("meta"):
        again = Wide()
    filled = trainer(folder, strategy=PARTS)
    filled.validate(again, loader(FEW, 2), ckpt_path=path, verbose=False)
    found["filled"] = whole(again) == whole(module)
    return found


def fsdp_tensor_parallel(folder: Path) -> dict:
    """A plan of torch's that the module applies in configure_model trains like one process."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    class Planned(Net):
        def configure_model(self):
            if isinstance(self.net[0].weight, DTensor):
                return
            plan = {"0": ColwiseParallel(), "3": RowwiseParallel()}
            parallelize_module(self.net, self.device_mesh["tensor_parallel"], plan)

    torch.manual_seed(3)
    module = Planned()
    strategy = FSDPStrategy(tensor_parallel_size=2)
    fit = fitted(folder, module, strategy, gradient_clip_val=0.5)
    torch.manual_seed(3)
    alone = Net()
    optimizer = alone.configure_optimizers()
    for inputs, targets in loader(sampler=DistributedSampler(DATA, 1, 0, shuffle=True, seed=0)):
        optimizer.zero_grad()
        (alone.net(inputs) - targets).square().mean().backward()
        nn.utils.clip_grad_norm_(alone.parameters(), 0.5)
        optimizer.step()
    return {
        "weights": whole(module), "alone": digest(alone), "steps": fit.global_step,
        "is_divided": len(module.net[0].weight.placements) == 2,
    }  # fmt: skip


def fsdp_makes_folders(folder: Path) -> dict:
    """Save folders at the end of an epoch and inside of one, for another number of processes."""
    return makes_files(folder, whole, strategy=PARTS)


def fsdp_dies_in_save(folder: Path) -> dict:
    """Rank 1 is killed in the midst of a save, when its part is written, over an older one."""
    path = folder / "old.ckpt"

    class Saves(Callback):
        def on_batch_checkpoint(self, trainer, module):
            done = trainer.progress.batches_completed
            if done == 2:
                trainer.save_checkpoint(path)
            if done == 4:
                if RANK == 1:
                    from trainer_hooks.checkpoint import sharded_folder

                    sharded_folder.file_checksum = lambda _: os.kill(os.getpid(), signal.SIGKILL)
                trainer.save_checkpoint(path)

    torch.manual_seed(5)
    trainer(folder, Saves(), strategy=PARTS).fit(Draws(), loader(shuffle=True))
    return {}


def fsdp_one_skips(folder: Path) -> dict:
    """One process leaves a batch out that the other trains with."""
    rank_watchdog._NOTICE_S = 0.2  # three seconds in earnest
    module = Skips({2} if RANK else set(), is_after=False)
    hasty = FSDPStrategy(auto_wrap_policy=nn.Linear, patience=timedelta(seconds=2))
    trainer(folder, strategy=hasty).fit(module, loader())
    return {}


# --- refused ---


class Tied(Net):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight


def fsdp_refused(folder: Path) -> dict:
    class Closure(Net):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters())

    class Bare(Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(5, 1))

        def training_step(self, batch, batch_idx):
            return (batch[0] @ self.weight).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Unused(Net):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.Linear(2, 2)

    with torch.device("meta"):
        bare = Bare()
    tries = {
        "class": (Net(), FSDPStrategy(auto_wrap_policy=nn.Conv2d), ()),
        "shared": (Tied(), LAYERS, ()),
        "lbfgs": (Closure(), LAYERS, ()),
        "swa": (Net(), LAYERS, (StochasticWeightAveraging(0.1),)),
        "rollback": (Net(), LAYERS, (NaNGuard(action="rollback"),)),
        "mesh": (Net(), FSDPStrategy(device_mesh=(3, 1)), ()),
        "meta": (bare, FSDPStrategy(), ()),
        "holder": (Net(), FSDPStrategy(auto_wrap_policy=nn.ModuleList), ()),
        "unused": (Unused(), LAYERS, ()),
        "elsewhere": (Net(), PARTS, (ModelCheckpoint("memory://saved"),)),
    }
    found = {}
    for name, (module, strategy, callbacks) in tries.items():
        fit = trainer(folder, *callbacks, strategy=strategy)
        fit.strategy.watchdog.stop()
        found[name] = "nothing"
        try:
            fit.fit(module, loader())
        except TrainerHooksError as error:
            found[name] = str(error)
        fit.strategy.watchdog.has_seen_failure = False
    return found


CASES = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and name.startswith("fsdp_")
}
