"""Cases of three ranks or more, for `worker.py`: each resume must be the uncut run, bit for bit.

Three numbers have several sums. So these cases show whether a resume adds in the same order as the
uncut run, which two ranks cannot show.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from cases import (
    DATA,
    FEW,
    Draws,
    Manual,
    Net,
    Remembers,
    Slots,
    digest,
    loader,
    mean_of_own,
    trainer,
)  # fmt: skip
from own_loop_cases import a_run, train
from sharded_cases import whole
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import Subset

from trainer_hooks import Callback, DDPStrategy, FSDPStrategy, Trainer
from trainer_hooks.errors import OptimizationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORLD = int(os.environ["WORLD_SIZE"])
BATCHES = 4
"""Number of batches of an epoch, of two samples for each rank."""


def some(ranks: int = WORLD) -> Any:
    """Return a training loader of four batches for each rank that gets batches of its own."""
    return loader(Subset(DATA, range(2 * BATCHES * ranks)), 2, shuffle=True)


class Logs(Draws):
    """Logs values of steps and of epochs, reduced over the ranks."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        self.log("high", batch[0].max(), reduce_fx="max", sync_dist=True)
        return loss


class Manuals(Manual):
    """Two optimizers with dropout and BatchNorm, each toggling the other's parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1)
        )


class Unfreezes(Callback):
    """Freezes the first layer for an epoch, so that the trained parameters change."""

    def on_train_epoch_start(self, trainer: Trainer, module: Any) -> None:
        module.net[1].requires_grad_(trainer.current_epoch > 0)


Ways = dict[str, tuple[Any, dict[str, Any]]]
"""By its name: a strategy, and the other options of a trainer."""


def ddp_ways() -> Ways:
    return {
        "plain": ("ddp", {}),
        "accumulated": ("ddp", {"accumulate_grad_batches": 3, "gradient_clip_val": 0.5}),
        "unused": ("ddp_find_unused_parameters_true", {}),
        "views": (
            DDPStrategy(gradient_as_bucket_view=True, bucket_cap_mb=1e-5),
            {"accumulate_grad_batches": 2},
        ),
        "static": (DDPStrategy(static_graph=True, bucket_cap_mb=1e-5), {}),
        "half": (DDPStrategy(ddp_comm_hook=default_hooks.fp16_compress_hook), {}),
        "hook": (DDPStrategy(ddp_comm_hook=mean_of_own, ddp_comm_state=[]), {}),
    }


def fsdp_ways() -> Ways:
    layers = {"auto_wrap_policy": nn.Linear}
    ways: Ways = {
        "fsdp": (FSDPStrategy(**layers), {}),
        "fsdp parts": (
            FSDPStrategy(**layers, state_dict_type="sharded"),
            {"accumulate_grad_batches": 2},
        ),
    }
    if WORLD % 2 == 0:
        ways["hsdp"] = (FSDPStrategy(**layers, device_mesh=(WORLD // 2, 2)), {})
    return ways


def of_rank(value: Any) -> list[float]:
    """Return the numbers of a tensor that this rank holds."""
    local = value.to_local() if hasattr(value, "to_local") else value
    return torch.as_tensor(local).double().flatten().tolist()


def differing(folder: Path, fit: Callable[..., dict[str, Any]]) -> dict[str, list[str]]:
    """Resume a fit from several of its files; return by file which values differ at the end.

    The files are of the first batch, of the end of an epoch, and of the inside of the next. The
    first and the last one lie inside of accumulation windows of three batches.
    """
    folder.mkdir(exist_ok=True)
    uncut = fit(5, Slots(folder))
    found = {}
    for name in ("batch1", f"epoch{BATCHES}", f"batch{BATCHES + 2}"):
        resumed = fit(6, ckpt_path=folder / f"{name}.ckpt")
        found[name] = [key for key, value in uncut.items() if resumed[key] != value]
    return found


def trained(
    folder: Path,
    module_class: Any,
    strategy: Any,
    options: dict[str, Any],
    *others: Any,
    ranks: int = WORLD,
) -> Callable[..., dict[str, Any]]:
    """Return a function that fits a new module, and returns all values at the end."""

    def fit(seed: int, *callbacks: Any, ckpt_path: Path | None = None) -> dict[str, Any]:
        torch.manual_seed(seed)
        module, remembers = module_class(), Remembers()
        end = trainer(
            folder, remembers, *others, *callbacks, max_epochs=2, strategy=strategy, **options
        )
        end.fit(module, some(ranks), loader(FEW, 2), ckpt_path=ckpt_path)
        return {
            "weights": whole(module),
            "steps": end.global_step,
            "optimizers": [
                of_rank(value)
                for optimizer in end.optimizers
                for state in optimizer.state_dict()["state"].values()
                for value in state.values()
                if value is not None
            ],
            "drawn": remembers.drawn,
            "metrics": {name: value.item() for name, value in end.callback_metrics.items()},
        }

    return fit


def exact_plain(folder: Path) -> dict:
    """DDP as most use it."""
    return {"plain": differing(folder / "plain", trained(folder, Logs, "ddp", {}))}


def exact_ddp(folder: Path) -> dict:
    """DDP with each of its options, two optimizers in turn, and layers that are frozen."""
    found = {
        name: differing(folder / name, trained(folder, Logs, strategy, options))
        for name, (strategy, options) in ddp_ways().items()
    }
    unused = "ddp_find_unused_parameters_true"
    found["manual"] = differing(folder / "manual", trained(folder, Manuals, unused, {}))
    unfreezes = trained(folder, Logs, "ddp", {}, Unfreezes())
    found["unfreezes"] = differing(folder / "unfreezes", unfreezes)
    return found


def exact_own_loop(folder: Path) -> dict:
    """A loop by Run, also with accumulated gradients."""
    found = {}
    for accumulate in (1, 3):

        def fit(
            seed: int, *callbacks: Any, ckpt_path: Path | None = None, accumulate: int = accumulate
        ) -> dict[str, Any]:
            torch.manual_seed(seed)
            net = nn.Sequential(
                nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1)
            )
            run = a_run(
                folder, net, *callbacks, ckpt_path=ckpt_path, max_epochs=2, strategy="ddp",
                accumulate_grad_batches=accumulate,
            )  # fmt: skip
            train(run, net, some(), validates=True)
            metrics = {name: value.item() for name, value in run.trainer.callback_metrics.items()}
            return {"weights": digest(net), "metrics": metrics}

        found[f"accumulates {accumulate}"] = differing(folder / str(accumulate), fit)
    return found


def exact_shards(folder: Path) -> dict:
    """Weights in shards, in one file and in a file for each rank, and in two replicas."""
    return {
        name: differing(folder / name, trained(folder, Logs, strategy, options))
        for name, (strategy, options) in fsdp_ways().items()
    }


class Planned(Logs):
    """Has a plan for its layers, whose weights pairs of ranks divide."""

    def configure_model(self) -> None:
        if not isinstance(self.net[1].weight, DTensor):
            plan = {"1": ColwiseParallel(), "4": RowwiseParallel()}
            parallelize_module(self.net, self.device_mesh["tensor_parallel"], plan)


def exact_planned(folder: Path) -> dict:
    """Layers that pairs of ranks divide, in one file and in a file for each rank."""
    found = {}
    for kind in ("full", "sharded"):
        strategy = FSDPStrategy(tensor_parallel_size=2, state_dict_type=kind)
        fit = trained(folder / kind, Planned, strategy, {}, ranks=WORLD // 2)
        found[kind] = differing(folder / kind, fit)
    return found


def comm_states(folder: Path) -> dict:
    """A hook's state that no checkpoint holds is told at a resume, and a group has none."""
    power = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
    hooks = {
        "power": {"ddp_comm_hook": powerSGD_hook.powerSGD_hook, "ddp_comm_state": power},
        "group": {"ddp_comm_hook": default_hooks.allreduce_hook, "ddp_comm_state": None},
    }
    found = {}
    for name, options in hooks.items():
        told = []
        for epochs, path in ((1, None), (2, folder / f"{name}.ckpt")):
            fit = trainer(folder, max_epochs=epochs, strategy=DDPStrategy(**options))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fit.fit(Logs(), some(), loader(FEW, 2), ckpt_path=path)
            told.append([str(warning.message) for warning in caught])
            fit.save_checkpoint(folder / f"{name}.ckpt")
        found[name] = told
    return found


def few_to_validate(folder: Path) -> dict:
    """Validate on fewer samples than ranks, after a step whose values no logger got."""
    few = loader(Subset(FEW, range(WORLD - 1)), 2)
    fit = trainer(folder, strategy="ddp", log_every_n_steps=50)
    fit.fit(Logs(), some(), few)
    return {name: value.item() for name, value in fit.callback_metrics.items()}


def static_accumulates(folder: Path) -> dict:
    """Accumulation with a static graph, which torch cannot do, is refused before a step."""
    strategy = DDPStrategy(static_graph=True)
    fit = trainer(folder, strategy=strategy, accumulate_grad_batches=2)
    try:
        fit.fit(Logs(), some())
    except OptimizationError as error:
        return {"error": str(error), "steps": fit.global_step}
    return {}


class Memory(nn.Module):
    """Adds the mean of earlier inputs, from a queue in place and from one that is made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", torch.zeros(6, 5), persistent=False)
        self.register_buffer("newest", None, persistent=False)
        self.register_buffer("mask", torch.ones(300, 300), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            before = self.queue.mean(0) if self.newest is None else self.newest.mean(0)
            if self.training:
                self.queue.copy_(torch.cat([inputs, self.queue])[:6])
                self.newest = torch.cat([self.queue[:2], inputs[:1]])
        return inputs + before * self.mask[0, 0]


class Remembering(Logs):
    """Has a memory in front of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net.insert(0, Memory())


class Grown(Callback):
    """Checks that files hold no buffer that never changes."""

    def on_save_checkpoint(self, trainer: Trainer, module: Any, checkpoint: Any) -> None:
        changed = checkpoint["trainer_hooks"]["extra_buffers"]["changed"]
        assert sorted(name.split(".")[-1] for name in changed) == ["newest", "queue"]


def exact_buffers(folder: Path) -> dict:
    """Buffers that no state_dict holds, under DDP, with shards of the weights, and in a Run."""
    ways: Ways = {
        "plain": ("ddp", {}),
        "accumulated": ("ddp", {"accumulate_grad_batches": 3}),
        "of each rank": (DDPStrategy(broadcast_buffers=False), {}),
        "fsdp": (FSDPStrategy(auto_wrap_policy=nn.Linear), {}),
        "fsdp parts": (FSDPStrategy(auto_wrap_policy=nn.Linear, state_dict_type="sharded"), {}),
    }
    found = {
        name: differing(folder / name, trained(folder, Remembering, strategy, options, Grown()))
        for name, (strategy, options) in ways.items()
    }

    def fit(seed: int, *callbacks: Any, ckpt_path: Path | None = None) -> dict[str, Any]:
        torch.manual_seed(seed)
        net = nn.Sequential(Memory(), nn.Linear(5, 8), nn.Dropout(0.3), nn.Linear(8, 1))
        run = a_run(folder, net, *callbacks, ckpt_path=ckpt_path, max_epochs=2, strategy="ddp")
        train(run, net, some(), validates=True)
        return {"weights": digest(net), "queue": of_rank(net[0].queue)}

    found["own loop"] = differing(folder / "own loop", fit)
    return found


class Rescheduled(Logs):
    """Notes its rates, which follow a scheduler of its class."""

    optimizer: Any = torch.optim.Adam

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.rates.append(self.optimizers().param_groups[0]["lr"])
        return super().training_step(batch, batch_idx)

    def schedule(self, optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def configure_optimizers(self) -> Any:
        optimizer = self.optimizer(self.parameters(), lr=0.01)
        return [optimizer], [{"scheduler": self.schedule(optimizer), "interval": "step"}]


class OtherSchedule(Rescheduled):
    def schedule(self, optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=60)


class OtherOptimizer(OtherSchedule):
    optimizer = torch.optim.NAdam


def replaced(folder: Path) -> dict:
    """Resume with another schedule or optimizer, and resume that run by the same line."""
    layers = {"auto_wrap_policy": nn.Linear}
    strategies = {
        "ddp": "ddp", "fsdp": FSDPStrategy(**layers),
        "parts": FSDPStrategy(**layers, state_dict_type="sharded"),
    }  # fmt: skip
    found = {}
    for name, strategy in strategies.items():

        def fit(kind: Any, *callbacks: Any, strategy: Any = strategy, **how: Any) -> Any:
            torch.manual_seed(4)
            module = kind()
            if "ckpt_path" in how:
                how["overrides"] = ["lr_schedulers", "optimizers"]
            run = trainer(folder, *callbacks, max_epochs=2, strategy=strategy)
            run.fit(module, some(), **how)
            return whole(module), module.rates

        old, new = folder / name / "old", folder / name / "new"
        fit(Rescheduled, Slots(old))
        for kind in (OtherSchedule, OtherOptimizer):
            _, from_start = fit(kind)
            first, rates = fit(kind, Slots(new), ckpt_path=old / "batch3.ckpt")
            again, later = fit(kind, ckpt_path=new / f"batch{BATCHES + 2}.ckpt")
            found[f"{name}, {kind.__name__}"] = {
                "as from the start": rates == from_start[3:],
                "later": later == rates[BATCHES - 1 :] and again == first,
            }
    return found


def buckets(folder: Path) -> dict:
    """Record the buckets of each step, as a communication hook sees them."""
    seen: list[list[str]] = []

    def hook(module: nn.Module, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        names = {parameter: name for name, parameter in module.named_parameters()}
        if bucket.index() == 0:
            seen.append([])
        seen[-1].append(" ".join(names[parameter] for parameter in bucket.parameters()))
        return default_hooks.allreduce_hook(dist.group.WORLD, bucket)

    found = {}
    for name, cap in (("small", 1e-5), ("large", None)):
        module = Net()
        strategy = DDPStrategy(ddp_comm_hook=hook, ddp_comm_state=module, bucket_cap_mb=cap)
        seen.clear()
        trainer(folder, strategy=strategy).fit(module, some())
        found[name] = list(seen)
    return found


CASES = {
    function.__name__: function
    for function in (
        exact_plain, exact_ddp, exact_own_loop, exact_shards, exact_planned, exact_buffers,
        replaced, comm_states, few_to_validate, static_accumulates, buckets,
    )
}  # fmt: skip
