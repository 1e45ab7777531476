"""The cases that ranks run; each returns its observations as plain data."""

from __future__ import annotations

import os
import signal
import time
import warnings
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from trainer_hooks import (
    Callback,
    Module,
    StopTraining,
    Trainer,
    rank_zero_only,
    seed_everything,
)
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint, NaNGuard, PredictionWriter
from trainer_hooks.errors import TrainerHooksError, UsageError
from trainer_hooks.runtime import rank_watchdog
from trainer_hooks.runtime.strategy_options import DDPStrategy

RANK = int(os.environ["RANK"])
torch.manual_seed(7)
DATA = TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
FEW = TensorDataset(torch.randn(5, 5), torch.randn(5, 1))


class Net(Module):
    """A small net, with dropout and BatchNorm if requested."""

    def __init__(self, *, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        parts = [nn.Linear(5, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 1)]
        self.net = nn.Sequential(*([nn.BatchNorm1d(5)] if norm else []), *parts)

    def error(self, batch):
        return (self.net(batch[0]) - batch[1]).square().mean()

    def training_step(self, batch, batch_idx):
        return self.error(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.error(batch), sync_dist=True)

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def trainer(folder: Path, *callbacks, **options) -> Trainer:
    quiet = {
        "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "max_epochs": 1,
        "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0,
        "default_root_dir": folder,
    }  # fmt: skip
    if any(isinstance(callback, ModelCheckpoint) for callback in callbacks):
        del quiet["enable_checkpointing"]
    return Trainer(callbacks=list(callbacks), **{**quiet, **options})


def loader(data=DATA, batch_size=4, **options) -> DataLoader:
    return DataLoader(data, batch_size=batch_size, **options)


def digest(module: nn.Module) -> list[float]:
    return [v for p in module.state_dict().values() for v in p.double().flatten().tolist()]


class Seen(Callback):
    """Records events with their batch of the epoch."""

    def __init__(self) -> None:
        self.validated: list[int] = []
        self.saved: list[int] = []

    def on_validation_end(self, trainer, module):
        self.validated.append(trainer.progress.batches_completed)

    def on_checkpoint_saved(self, trainer, module, path):
        self.saved.append(trainer.progress.batches_completed)


class At(Callback):
    """Does something at the end or start of one batch, or at the end of an epoch, in one rank."""

    def __init__(self, batch, act, rank=1, hook="on_train_batch_end") -> None:
        self.batch, self.act, self.rank, self.hook = batch, act, rank, hook

    def _do(self, hook, trainer, batch_idx):
        if hook == self.hook and trainer.global_rank == self.rank and batch_idx == self.batch:
            self.act(trainer)

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self._do("on_train_batch_start", trainer, batch_idx)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self._do("on_train_batch_end", trainer, batch_idx)

    def on_train_epoch_end(self, trainer, module):
        self._do("on_train_epoch_end", trainer, trainer.progress.epochs_completed)


# --- equal to what is written by hand ---


def by_hand(module: nn.Module, epochs: int, accumulate: int, hook=None) -> list[float]:
    """Train with DistributedDataParallel and no trainer."""
    wrapped = DistributedDataParallel(module.net)
    if hook is not None:
        wrapped.register_comm_hook(None, hook)
    optimizer = module.configure_optimizers()
    sampler = DistributedSampler(DATA, shuffle=True, seed=0)
    batches = loader(sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for index, (inputs, targets) in enumerate(batches):
            closes = (index + 1) % accumulate == 0 or index + 1 == len(batches)
            with nullcontext() if closes else wrapped.no_sync():
                ((wrapped(inputs) - targets).square().mean() / accumulate).backward()
            if closes:
                optimizer.step()
                optimizer.zero_grad()
    return digest(module)


def compared(folder: Path, accumulate: int, hook=None) -> dict:
    module, other = Net(), Net()
    other.load_state_dict(module.state_dict())
    strategy = DDPStrategy(ddp_comm_hook=hook)
    fit = trainer(folder, max_epochs=2, accumulate_grad_batches=accumulate, strategy=strategy)
    fit.fit(module, loader(shuffle=True))
    theirs = by_hand(other, 2, accumulate, hook)
    return {
        "ours": digest(module), "theirs": theirs, "steps": fit.global_step,
        "names": list(module.state_dict()),
    }  # fmt: skip


def same_as_by_hand(folder: Path) -> dict:
    return compared(folder, 1)


def accumulates(folder: Path) -> dict:
    return compared(folder, 3)


# --- evaluation ---


class Counts(Net):
    """Logs a sum, a mean, a least and a most over the samples."""

    def validation_step(self, batch, batch_idx):
        values = batch[0].sum(1)
        self.log("count", float(len(values)), reduce_fx="sum", sync_dist=True)
        self.log("mean", values.mean(), sync_dist=True)
        self.log("low", values.min(), reduce_fx="min", sync_dist=True)
        self.log("high", values.max(), reduce_fx="max", sync_dist=True)
        self.log("own", values.mean())


def uneven_evaluation(folder: Path) -> dict:
    values = FEW.tensors[0].sum(1)
    found = trainer(folder).validate(Counts(), loader(FEW, 2), verbose=False)[0]
    return {
        "found": found, "own": values[[0, 2, 4]].mean().item(),
        "expected": [5, values.mean().item(), values.min().item(), values.max().item()],
    }  # fmt: skip


def empty_share(folder: Path) -> dict:
    one = Subset(FEW, [0])
    fit = trainer(folder, EarlyStopping("mean"), num_sanity_val_steps=1)
    fit.fit(Counts(), loader(), loader(one, 2))
    return {
        "found": {name: value.item() for name, value in fit.callback_metrics.items()},
        "mean": FEW.tensors[0][0].sum().item(),
    }


# --- batches left out, stops, requests ---


class Sometimes(Net):
    """Returns no loss for some batches of rank 1, or of all."""

    def __init__(self, left_out, ranks=(1,), **options) -> None:
        super().__init__(**options)
        self.left_out, self.ranks = left_out, ranks

    def training_step(self, batch, batch_idx):
        if RANK in self.ranks and batch_idx in self.left_out:
            return None
        return self.error(batch)


def skips_batches(folder: Path) -> dict:
    found = {}
    for find in (False, True):
        module = Sometimes((1, 2, 7), norm=True)
        asks = At(4, lambda t: t.skip_batch(), hook="on_train_batch_start")
        strategy = DDPStrategy(find_unused_parameters=find)
        fit = trainer(folder, asks, strategy=strategy, accumulate_grad_batches=2)
        fit.fit(module, loader())
        fit_each = trainer(folder, asks, strategy=strategy)
        fit_each.fit(module, loader())
        found[f"find {find}"] = [digest(module.net[1]), fit.global_step, fit_each.global_step]
    return found


def skips_all(folder: Path) -> dict:
    module = Sometimes((2, 3), ranks=(0, 1))
    fit = trainer(folder)
    fit.fit(module, loader())
    return {"steps": fit.global_step, "weights": digest(module)}


def stops_by_raising(folder: Path) -> dict:
    class Raises(Net):
        def training_step(self, batch, batch_idx):
            if RANK == 1 and batch_idx == 3:
                raise StopTraining("enough")
            return self.error(batch)

    module = Raises(norm=True)
    fit = trainer(folder, max_epochs=3)
    fit.fit(module, loader(), loader(FEW))
    return {
        "batches": fit.progress.batches_completed, "steps": fit.global_step,
        "weights": digest(module.net[1]), "val": "val_loss" in fit.callback_metrics,
        "reason": fit.stop_reason,
    }  # fmt: skip


def stops_by_asking(folder: Path) -> dict:
    module = Net()
    fit = trainer(folder, At(3, lambda t: t.stop("enough")), max_epochs=3)
    fit.fit(module, loader())
    return {"batches": fit.progress.batches_completed, "reason": fit.stop_reason}


def asks_for_more(folder: Path) -> dict:
    def ask(trainer):
        trainer.request_validation()
        trainer.request_checkpoint()

    seen = Seen()
    fit = trainer(folder, seen, At(3, ask), ModelCheckpoint(folder, every_n_epochs=5))
    fit.fit(Net(), loader(), loader(FEW))
    return {"validated": seen.validated, "saved": seen.saved}


def ends_an_epoch(folder: Path) -> dict:
    seen, module = Seen(), Net()
    fit = trainer(folder, seen, At(3, lambda t: t.end_epoch()), accumulate_grad_batches=2)
    fit.fit(module, loader(), loader(FEW))
    done = fit.progress
    return {
        "validated": seen.validated, "steps": fit.global_step, "batches": done.batches_completed,
        "weights": digest(module),
    }  # fmt: skip


def reductions(folder: Path) -> dict:
    """Count the collectives besides the gradients', in a short epoch and in a long one."""
    found = []
    for batches in (4, 32):
        fit = trainer(folder)
        exchange, calls = fit.strategy.all_reduce_max, []

        def counted(numbers, purpose, exchange=exchange, calls=calls):
            calls.append(purpose)
            exchange(numbers, purpose)

        fit.strategy.all_reduce_max = counted
        fit.fit(Net(), loader(Subset(DATA, range(batches * 2)), batch_size=1))
        found.append(len(calls))
    return {"found": found}


def time_is_up(folder: Path) -> dict:
    class Slow(Net):
        def training_step(self, batch, batch_idx):
            time.sleep(0.03 if RANK else 0.01)  # two clocks that differ
            return self.error(batch)

    found = {}
    for name, options in {
        "timer": {"max_time": "1s"}, "duration": {"max_duration": "1s"},
        "interval": {"val_check_interval": "1s", "max_epochs": 6},
    }.items():  # fmt: skip
        seen = Seen()
        fit = trainer(folder, seen, **{"max_epochs": 100, **options})
        fit.fit(Slow(), loader(), loader(FEW))
        found[name] = [fit.progress.batches_completed, seen.validated]
    return found


# --- ways to optimize ---


class Unused(Net):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(2, 2)


def unused_found(folder: Path) -> dict:
    module = Unused()
    fit = trainer(folder, strategy="ddp_find_unused_parameters_true")
    fit.fit(module, loader())
    return {"weights": digest(module), "steps": fit.global_step}


def mean_of_own(state: list[int], bucket: dist.GradBucket) -> torch.futures.Future:
    """Average a bucket as torch does, and note it; small numbers come to nothing."""
    state.append(bucket.buffer().numel())
    mean = dist.all_reduce(bucket.buffer() / 2, async_op=True).get_future()
    return mean.then(lambda done: torch.where(done.value()[0].abs() < 1e-6, 0, done.value()[0]))


def comm_hooks(folder: Path) -> dict:
    """A user's function averages gradients, and a request of one rank is served on all."""
    seen: list[int] = []
    power = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    hooks = {
        "own": {"ddp_comm_hook": mean_of_own, "ddp_comm_state": seen},
        "power": {
            "ddp_comm_hook": powerSGD_hook.powerSGD_hook, "ddp_comm_state": power,
            "ddp_comm_wrapper": default_hooks.fp16_compress_wrapper,
        },
    }  # fmt: skip
    found = {}
    for name, options in hooks.items():
        module, asks = Net(), At(4, Trainer.stop)
        fit = trainer(folder, asks, max_epochs=2, strategy=DDPStrategy(**options))
        fit.fit(module, loader())
        found[name] = {"weights": digest(module), "batches": fit.progress.batches_completed}
    half = compared(folder, 1, default_hooks.fp16_compress_hook)
    return {**found, "buckets": len(seen), "fp16": half}


def guarded(folder: Path) -> dict:
    """A loss that is NaN in one rank, which looks at losses alone."""

    class Breaks(Net):
        def training_step(self, batch, batch_idx):
            loss = self.error(batch)
            return loss * float("nan") if RANK == 1 and batch_idx == 3 else loss

    found = {}
    for action in ("rollback", "skip", "raise"):
        guard = NaNGuard(action, check="loss", check_every_n_steps=1, snapshot_every_n_steps=1)
        module = Breaks()
        fit = trainer(folder, guard)
        fault = ""
        try:
            fit.fit(module, loader())
        except TrainerHooksError as error:
            fault = str(error)
            fit.strategy.watchdog.has_seen_failure = False
        found[action] = {
            "weights": digest(module), "back": guard.rollbacks, "skipped": guard.skipped_steps,
            "fault": fault,
        }  # fmt: skip
    return found


class Manual(Net):
    """Two optimizers with a backward each, as of a GAN."""

    automatic_optimization = False

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        for optimizer in self.optimizers():
            with self.toggled_optimizer(optimizer):
                optimizer.zero_grad()
                self.manual_backward(self.error(batch))
                optimizer.step()

    def configure_optimizers(self):
        first, last = self.net[0], self.net[3]
        return [torch.optim.SGD(part.parameters(), lr=0.05) for part in (first, last)]


def manual(folder: Path) -> dict:
    module, by_all = Manual(), Manual()
    by_all.load_state_dict(module.state_dict())
    fit = trainer(folder, strategy="ddp_find_unused_parameters_true")
    fit.fit(module, loader(batch_size=4))
    # of the whole batch, in this process alone
    optimizers = by_all.configure_optimizers()
    for index in range(0, 64, 8):
        batch = DATA[index : index + 8]
        for optimizer in optimizers:
            by_all.zero_grad()
            by_all.error(batch).backward()
            optimizer.step()
    return {"weights": digest(module), "expected": digest(by_all)}


def closure(folder: Path) -> dict:
    class Quasi(Net):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=4)

    module = Quasi()
    fit = trainer(folder)
    fit.fit(module, loader(batch_size=16))
    return {"weights": digest(module), "steps": fit.global_step}


def microbatches(folder: Path) -> dict:
    found = {}
    for size in (None, 3):
        torch.manual_seed(3)
        module = Net()
        trainer(folder, microbatch_size=size).fit(module, loader(batch_size=8))
        found[str(size)] = digest(module)
    return found


class Numbers(IterableDataset):
    """A loader of a given number of samples on this rank, of unknown length."""

    def __init__(self, many: int) -> None:
        self.many = many

    def __iter__(self):
        return iter([DATA[i] for i in range(self.many)])


def _limited(folder: Path, at: int) -> list:
    """Fit with a limit that only rank 0 reaches; go on from a checkpoint after `at` batches."""
    options = {"max_epochs": 2, "use_distributed_sampler": False, "limit_train_batches": 4}

    class Saves(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed == at:
                trainer.save_checkpoint(folder / f"{at}.ckpt")

    torch.manual_seed(0)
    module, fit = Net(), trainer(folder, Saves(), **options)
    fit.fit(module, loader(Numbers(12 if RANK else 20)))
    if at:
        module, fit = Net(), trainer(folder, **options)
        fit.fit(module, loader(Numbers(12 if RANK else 20)), ckpt_path=folder / f"{at}.ckpt")
    return [fit.progress.batches_completed, digest(module)]


def unknown_length(folder: Path) -> dict:
    fit = trainer(folder, max_epochs=2, use_distributed_sampler=False, accumulate_grad_batches=2)
    fit.fit(Net(), loader(Numbers(12 if RANK else 20)))
    known = trainer(folder, max_epochs=2, use_distributed_sampler=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        known.fit(Net(), loader(Subset(DATA, range(12 if RANK else 20))))
    limited = [_limited(folder, at) for at in (0, 2, 3, 4)]
    return {
        "batches": fit.progress.batches_completed, "steps": fit.global_step,
        "limited": limited, "known": known.progress.batches_completed,
        "told": [str(w.message) for w in told], "sampler": fit.distributed_sampler_kwargs,
    }  # fmt: skip


# --- predictions ---


def predictions_kept(folder: Path) -> dict:
    """Write predictions of loaders that share their samples, repeat some, or do neither."""

    class Numbers(Module):
        def predict_step(self, batch, batch_idx, dataloader_idx=0):
            return {"n": batch[0], "ragged": [torch.ones(int(n) % 3) for n in batch[0]]}

    few = TensorDataset(torch.arange(5.0))
    loaders = {
        "shared": loader(few, 2),
        "shuffled": loader(few, 2, shuffle=True),
        "padded": loader(few, 2, sampler=DistributedSampler(few, shuffle=False)),
        "one sample": loader(TensorDataset(torch.zeros(1)), 2),
        "several": [loader(few, 2), loader(few, 3)],
    }
    found = {}
    for name, each in loaders.items():
        for ending in ("csv", "jsonl", "npz", "pt"):
            writer = PredictionWriter(folder / f"{name}.{ending}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of shuffled loaders
                module = Numbers() if ending != "csv" else Predicts()
                trainer(folder, writer).predict(module, each, return_predictions=False)
        found[name] = {
            "csv": (folder / f"{name}.csv").read_text(),
            "jsonl": (folder / f"{name}.jsonl").read_text(),
            "npz": np.load(folder / f"{name}.npz")["n"].tolist(),
            "pt": torch.load(folder / f"{name}.pt")["n"].tolist(),
        }
    refused = PredictionWriter(folder / "nowhere" / "out.csv")
    try:
        trainer(folder, refused).predict(Predicts(), loaders["shared"])
    except TrainerHooksError as error:
        found["refused"] = str(error)
    dist.barrier()
    found["left"] = sorted(path.name for path in folder.iterdir() if path.name[0] == ".")
    return found


class Predicts(Module):
    """Predicts its samples."""

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return batch[0]


# --- logged values ---


def names_of_one(folder: Path) -> dict:
    class Logs(Net):
        def training_step(self, batch, batch_idx):
            if RANK == 1:
                self.log("mine", 3.0, on_step=False, on_epoch=True, sync_dist=True)
            else:
                self.log("zero", 4.0, on_step=False, on_epoch=True, rank_zero_only=True)
            return self.error(batch)

    fit = trainer(folder)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit.fit(Logs(), loader())
    return {
        "found": {name: value.item() for name, value in fit.callback_metrics.items()},
        "told": [str(w.message) for w in told],
    }


def step_values(folder: Path) -> dict:
    class Logs(Net):
        def training_step(self, batch, batch_idx):
            self.log("both", float(RANK * 2 + batch_idx), sync_dist=True)
            self.log("own", float(RANK))
            return self.error(batch)

    fit = trainer(folder, log_every_n_steps=1)
    fit.fit(Logs(), loader())
    return {
        "both": fit.history.get_metric_values("both"),
        "own": fit.history.get_metric_values("own"),
    }


def metric_objects(folder: Path) -> dict:
    from torchmetrics import MeanMetric, SumMetric

    class Logs(Net):
        def __init__(self) -> None:
            super().__init__()
            self.total, self.average = SumMetric(), MeanMetric()

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            values = batch[0].sum(1)
            self.total(values)
            self.average(values)
            self.log("total", self.total)
            self.log("average", self.average)

        def on_validation_epoch_end(self):
            self.log("all_average", self.average)

    module = Logs()
    found = trainer(folder).validate(module, loader(FEW, 2), verbose=False)[0]
    one = trainer(folder).validate(Logs(), loader(Subset(FEW, [0]), 2), verbose=False)[0]
    loaders = [loader(FEW, 2), loader(Subset(FEW, [1]), 2), loader(Subset(FEW, [0, 2]), 2)]
    of_several: dict = {}
    for of_loader in trainer(folder).validate(Logs(), loaders, verbose=False):
        of_several |= of_loader
    values = FEW.tensors[0].sum(1)
    averages = [values.mean(), values[1], values[[0, 2]].mean()]
    return {
        "found": found, "expected": [values.sum().item(), values.mean().item()],
        "of_several": of_several,
        "expected_averages": [average.item() for average in averages],
        "expected_all": torch.cat([values, values[[1]], values[[0, 2]]]).mean().item(),
        "one": one, "expected_one": values[0].item(),
    }  # fmt: skip


def unsynced_monitor(folder: Path) -> dict:
    class Logs(Net):
        def validation_step(self, batch, batch_idx):
            self.log("rising", float(self.current_epoch if RANK else -self.current_epoch))

    fit = trainer(
        folder, EarlyStopping("rising", patience=1), ModelCheckpoint(folder, monitor="rising"),
        max_epochs=4,
    )  # fmt: skip
    fit.fit(Logs(), loader(), loader(FEW, 2))
    return {
        "epochs": fit.current_epoch, "best": fit.checkpoint_callback.best_model_path,
        "score": fit.checkpoint_callback.best_model_score.item(),
        "files": sorted(p.name for p in folder.glob("*.ckpt")),
    }  # fmt: skip


# --- checkpoints ---


class Draws(Net):
    """Draws from each rank's own random state, and logs the number."""

    def __init__(self) -> None:
        super().__init__(dropout=0.3, norm=True)

    def training_step(self, batch, batch_idx):
        loss = self.error(batch)
        self.log("drawn", torch.rand(()), on_epoch=True, on_step=False, sync_dist=True)
        return loss


class Remembers(Callback):
    """A callback whose state is another in each process."""

    def __init__(self) -> None:
        self.drawn: list[float] = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.drawn.append(torch.rand(()).item())

    def state_dict(self):
        return {"drawn": list(self.drawn)}

    def load_state_dict(self, state_dict):
        self.drawn = list(state_dict["drawn"])


def cut_and_resumed(folder: Path, at: int, accumulate: int) -> dict:
    options = {"max_epochs": 3, "accumulate_grad_batches": accumulate}

    def begin(seed, *callbacks):
        seed_everything(seed, verbose=False)
        remembers = Remembers()
        return Draws(), remembers, trainer(folder, remembers, *callbacks, **options)

    class Saves(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed == at:
                trainer.save_checkpoint(folder / "cut.ckpt")

    module, remembers, fit = begin(5, Saves())
    fit.fit(module, loader(shuffle=True), loader(FEW, 2))
    # with another seed the loaders would be shared otherwise
    again, remembers_again, resumed = begin(6)
    resumed.fit(again, loader(shuffle=True), loader(FEW, 2), ckpt_path=folder / "cut.ckpt")
    metrics = [
        {name: value.item() for name, value in one.callback_metrics.items()}
        for one in (fit, resumed)
    ]
    os.environ.pop("PL_GLOBAL_SEED")  # the cases after this one are not seeded
    return {
        "uncut": [digest(module), remembers.drawn, metrics[0], fit.global_step],
        "resumed": [digest(again), remembers_again.drawn, metrics[1], resumed.global_step],
    }


def resumes(folder: Path) -> dict:
    return cut_and_resumed(folder, 8, 1)


def resumes_inside(folder: Path) -> dict:
    return cut_and_resumed(folder, 11, 2)


def of_training(fit: Trainer) -> list:
    """Return weights, the optimizer's states, and steps."""
    state = fit.optimizers[0].state_dict()["state"]
    states = [one[name].flatten().tolist() for one in state.values() for name in sorted(one)]
    return [digest(fit.module), states, fit.global_step]


def resumes_from_slots(folder: Path) -> dict:
    """Resume from each slot of loaders of other lengths in each rank, with a length and without."""
    found = {}
    for name, data in {
        "known": lambda: Subset(DATA, range(10 if RANK else 8)),
        "unknown": lambda: Numbers(10 if RANK else 8),
    }.items():

        def fit(*callbacks, ckpt_path=None, data=data):
            torch.manual_seed(5)
            module, remembers = Draws(), Remembers()
            options = {"max_epochs": 2, "use_distributed_sampler": False}
            one = trainer(folder, remembers, *callbacks, **options)
            one.fit(module, loader(data(), 2), loader(FEW, 2), ckpt_path=ckpt_path)
            return [digest(module), remembers.drawn, one.progress.batches_completed]

        saved = Slots(folder / name)
        uncut = fit(saved)
        found[name] = {path.stem: fit(ckpt_path=path) == uncut for path in saved.paths}
        found[name]["batches"] = uncut[2]
    return found


def resumes_before_a_stop(folder: Path) -> dict:
    """Resume from each slot of runs in which one rank alone requests a stop."""
    found = {}
    for rank in range(2):
        for hook, number in {"on_train_batch_end": 1, "on_train_epoch_end": 0}.items():

            def fit(*callbacks, ckpt_path=None, rank=rank, hook=hook, number=number):
                torch.manual_seed(5)
                module, stops = Net(), At(number, lambda t: t.stop("enough"), rank, hook)
                one = trainer(folder, stops, *callbacks, max_epochs=3)
                one.fit(module, loader(batch_size=8), ckpt_path=ckpt_path)
                return [one.progress.batches_completed, digest(module)]

            saved = Slots(folder / f"{rank} {hook}")
            uncut = fit(saved)
            same = {path.stem: fit(ckpt_path=path) == uncut for path in saved.paths}
            found[f"{rank} {hook}"] = [uncut[0], same]
    return found


class StopOnRankZero(At):
    """Requests a stop on rank 0, the only rank that has it."""

    runs_on = "rank_zero"


def resumes_a_stop_that_waits(folder: Path) -> dict:
    """Resume between a stop that the callback of one rank requested and the least length."""
    saved = Slots(folder / "waiting")
    stops = StopOnRankZero(1, lambda t: t.stop("enough"), rank=0)
    trainer(folder, stops, saved, max_epochs=2, min_steps=7).fit(Net(), loader(batch_size=8))
    found = {}
    for path in saved.paths:
        stops = StopOnRankZero(-1, None, rank=0)
        one = trainer(folder, stops, max_epochs=2, min_steps=7)
        one.fit(Net(), loader(batch_size=8), ckpt_path=path)
        found[path.stem] = [one.global_step, one.stop_reason]
    return found


REQUESTS = {
    "validation": lambda trainer: trainer.request_validation(),
    "checkpoint": lambda trainer: trainer.request_checkpoint(),
    "epoch's end": lambda trainer: trainer.end_epoch(),
}


def resumes_before_requests(folder: Path) -> dict:
    """Resume from each slot of runs in which one rank alone makes a request after a backward."""
    found = {}
    for rank in range(2):
        for name, request in REQUESTS.items():

            def fit(*callbacks, ckpt_path=None, rank=rank, request=request, name=name):
                torch.manual_seed(5)
                requested = folder / f"{rank} {name} requested"
                module, seen = Net(), Served(requested)
                saver = ModelCheckpoint(requested, every_n_train_steps=100)
                one = trainer(folder, At(1, request, rank), seen, saver, *callbacks)
                one.fit(module, loader(batch_size=8), loader(batch_size=8), ckpt_path=ckpt_path)
                return [one.progress.batches_completed, seen.served, digest(module)]

            saved = Slots(folder / f"{rank} {name}")
            uncut = fit(saved)
            same = {path.stem: fit(ckpt_path=path) == uncut for path in saved.paths}
            found[f"{rank} {name}"] = [*uncut[:2], same]
    return found


class Served(Callback):
    """Counts the batches before a validation, an epoch's end, and a checkpoint in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.served = folder, []

    def on_checkpoint_saved(self, trainer, module, path):
        if Path(path).parent == self.folder:
            self.served.append(["checkpoint", trainer.progress.batches_completed])

    def on_validation_start(self, trainer, module):
        self.served.append(["validation", trainer.progress.batches_completed])

    def on_train_epoch_end(self, trainer, module):
        self.served.append(["epoch", trainer.progress.batches_completed])

    def state_dict(self):
        return {"served": self.served}

    def load_state_dict(self, state):
        self.served = [list(pair) for pair in state["served"]]


class Slots(Callback):
    """Saves at every slot."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.paths = folder, []

    def _save(self, trainer, slot):
        self.paths.append(self.folder / f"{slot}{trainer.progress.batches_completed}.ckpt")
        trainer.save_checkpoint(self.paths[-1])

    def on_batch_checkpoint(self, trainer, module):
        self._save(trainer, "batch")

    def on_epoch_checkpoint(self, trainer, module):
        self._save(trainer, "epoch")


class Sees(Net):
    """Records its training samples, and its and the optimizer's initial state."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.began: list = []

    def on_train_start(self):
        self.began = of_training(self.trainer)

    def training_step(self, batch, batch_idx):
        self.seen += batch[2].tolist()
        return self.error(batch)


def sees_some(folder: Path) -> dict:
    """Train with a part of an epoch, and save."""
    module, found = Sees(), {}

    class Saves(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed == 3:
                found.update(seen=list(module.seen), ended=of_training(trainer))
                trainer.save_checkpoint(folder.parent / "some.ckpt")

    trainer(folder, Saves()).fit(module, numbered())
    return found


def sees_the_rest(folder: Path) -> dict:
    """Go on from there, in as many processes as there are now, to the epoch's end."""
    module, fit = Sees(), trainer(folder)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit.fit(module, numbered(), ckpt_path=folder.parent / "some.ckpt")
    return {
        "seen": module.seen, "began": module.began, "ended": of_training(fit),
        "told": [str(one.message) for one in told if "processes" in str(one.message)],
    }  # fmt: skip


def numbered() -> DataLoader:
    return loader(TensorDataset(*DATA.tensors, torch.arange(64)), shuffle=True)


def makes_files(folder: Path, seen=digest, **options) -> dict:
    """Save at the end of an epoch and inside of one, for another number of processes.

    Args:
        folder: beside which they go.
        seen: returns the weights of a module.
        **options: for the trainer.
    """
    torch.manual_seed(5)
    module = Draws()

    class Saves(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed == 3:
                trainer.save_checkpoint(folder.parent / "inside.ckpt")

    fit = trainer(folder, Saves(), **options)
    fit.fit(module, loader(shuffle=True))
    fit.save_checkpoint(folder.parent / "end.ckpt")
    return {"weights": seen(module), "steps": fit.global_step}


# --- data ---


def _indices(given: DataLoader, *, trains: bool) -> list[list[int]]:
    from trainer_hooks.data.loader_sharding import shard_loader
    from trainer_hooks.data.loaders import set_epoch
    from trainer_hooks.runtime.topology import Topology

    topology = Topology(2, RANK, RANK, 0, 2, "test")
    share = shard_loader(given, topology, is_training=trains, seed=0)
    found = []
    for epoch in range(2):
        set_epoch(share, epoch)
        assert len(list(share)) == len(share)
        found.append([int(i) for batch in share for i in batch])
    return found


def samplers(folder: Path) -> dict:
    data = list(range(9))
    odd = [1, 3, 5, 7, 8]

    class Own:
        def __iter__(self):
            return iter(torch.randperm(9).tolist())

        def __len__(self):
            return 9

    def made() -> dict[str, DataLoader]:
        plain = BatchSampler(SequentialSampler(data), 2, False)
        return {
            "in order": DataLoader(data, 2),
            "shuffled": DataLoader(data, 2, shuffle=True),
            "dropped": DataLoader(data, 2, drop_last=True),
            "subset": DataLoader(data, 2, sampler=SubsetRandomSampler(odd)),
            "weighted": DataLoader(data, 2, sampler=WeightedRandomSampler([1.0] * 9, 7)),
            "own": DataLoader(data, 2, sampler=Own()),
            "replaced": DataLoader(data, 2, sampler=RandomSampler(data, True, 6)),
            "batches": DataLoader(data, batch_sampler=_Batches(plain)),
            "distributed": DataLoader(data, 2, sampler=DistributedSampler(data, 2, RANK)),
        }

    return {
        name: [_indices(made()[name], trains=True), _indices(made()[name], trains=False)]
        for name in made()
    }


class _Batches:
    def __init__(self, inner) -> None:
        self.inner = inner

    def __iter__(self):
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)


# --- names, refusals, files ---


def strategy_names(folder: Path) -> dict:
    class Gathers(Net):
        def training_step(self, batch, batch_idx):
            self.gathered = self.all_gather(torch.tensor([float(RANK)])).tolist()
            self.nested = self.all_gather({"a": RANK})["a"].tolist()
            self.refused = []
            for uneven in (torch.ones(2, 1 + RANK), torch.ones([2] * (1 + RANK))):
                try:
                    self.all_gather(uneven)
                except UsageError as error:
                    self.refused.append(str(error))
            return self.error(batch)

    module = Gathers()
    fit = trainer(folder)
    fit.fit(module, loader())
    strategy = fit.strategy
    strategy.barrier()
    return {
        "gathered": module.gathered, "nested": module.nested, "refused": module.refused,
        "broadcast": strategy.broadcast({"rank": RANK}),
        "mean": strategy.reduce(torch.tensor(float(RANK))).item(),
        "sum": strategy.reduce(torch.tensor(RANK), reduce_op="sum").item(),
        "any": strategy.reduce_boolean_decision(RANK == 1, all=False),
        "all": strategy.reduce_boolean_decision(RANK == 1),
        "names": [
            fit.world_size, fit.global_rank, fit.local_rank, fit.node_rank, fit.num_nodes,
            fit.num_devices, fit.device_ids, fit.is_global_zero, strategy.world_size,
            str(strategy.root_device),
        ],
    }  # fmt: skip


class First(Callback):
    """Takes part in the first process alone, and asks."""

    runs_on = "rank_zero"

    def __init__(self) -> None:
        self.batches = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1
        if self.batches == 5:
            trainer.stop()


def rank_zero(folder: Path) -> dict:
    first = First()
    fit = trainer(folder, first)
    fit.fit(Net(), loader())
    only = rank_zero_only(lambda: "done")()
    return {"heard": first.batches, "batches": fit.progress.batches_completed, "only": only}


def refused(folder: Path) -> dict:
    """What does not fit is an error in every process, before anything starts."""
    found = {}
    for name, options in {
        "devices": {"devices": 3}, "single": {"strategy": "single_device"},
        "nodes": {"num_nodes": 2},
        "batchnorm": {"sync_batchnorm": True},
    }.items():  # fmt: skip
        try:
            trainer(folder, **options)
        except TrainerHooksError as error:
            found[name] = str(error)
    return found


def loggers_and_files(folder: Path) -> dict:
    module = Net()
    fit = trainer(folder, logger=True, enable_checkpointing=True, max_epochs=2)
    fit.fit(module, loader(), loader(FEW))
    if RANK:
        fit.logger.experiment.anything(1).whatever()
    fit.print("printed once")
    return {
        "log_dir": fit.log_dir, "best": fit.checkpoint_callback.best_model_path,
        "rows": len(Path(fit.log_dir, "metrics.csv").read_text().splitlines()),
        "logs": len(list(folder.rglob("metrics.csv"))),
        "files": sorted(p.name for p in folder.rglob("*.ckpt")),
    }  # fmt: skip


def data_of_a_script(folder: Path) -> dict:
    """A list of batches, which cannot be shared, and dropout that differs by rank."""
    drawn = []

    class Drops(Net):
        def training_step(self, batch, batch_idx):
            drawn.append(torch.rand(()).item())
            return self.error(batch)

    module = Drops(dropout=0.5)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trainer(folder).fit(module, [DATA[:4], DATA[4:8]])
    return {"told": [str(w.message) for w in told], "drawn": drawn, "weights": digest(module)}


# --- what ends all processes ---


def _failing(act, **options):
    def case(folder: Path) -> dict:
        rank_watchdog._NOTICE_S = 0.2  # three seconds in earnest
        callbacks = options.get("callbacks", [])
        rest = {k: v for k, v in options.items() if k != "callbacks"}
        fit = trainer(folder, At(2, act), *callbacks, **rest)
        fit.fit(Net(), loader(), loader(FEW))
        return {"batches": fit.progress.batches_completed}

    return case


def _raise(trainer) -> None:
    raise ValueError("a bad hook of rank 1")


def fails_unused(folder: Path) -> dict:
    trainer(folder).fit(Unused(), loader())
    return {}


def fails_unused_manually(folder: Path) -> dict:
    trainer(folder).fit(Manual(), loader())
    return {}


def fails_in_step(folder: Path) -> dict:
    class Raises(Net):
        def training_step(self, batch, batch_idx):
            if RANK == 1 and batch_idx == 2:
                raise ValueError("a bad batch of rank 1")
            return self.error(batch)

    trainer(folder).fit(Raises(), loader())
    return {}


def leaves_by_signal(folder: Path) -> dict:
    act = At(2, lambda t: os.kill(os.getpid(), signal.SIGTERM))
    fit = trainer(folder, act, ModelCheckpoint(folder))
    fit.fit(Net(), loader())
    return {}


def works_long(folder: Path) -> dict:
    """One rank computes in a hook for longer than the patience for a deadlock."""

    class Meets(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 1 and RANK == 1:
                time.sleep(4)
            if batch_idx == 1:
                dist.all_reduce(torch.ones(1))

    fit = trainer(folder, Meets(), strategy=_HASTY)
    fit.fit(Net(), loader())
    return {"batches": fit.progress.batches_completed}


_HASTY = DDPStrategy(patience=timedelta(seconds=2))
CASES = {
    name: value
    for name, value in list(globals().items())
    if callable(value)
    and getattr(value, "__module__", "") == __name__
    and name.islower()
    and not isinstance(value, type)
} | {
    "fails_in_hook": _failing(_raise),
    "dies": _failing(lambda t: os.kill(os.getpid(), signal.SIGKILL)),
    "locks": _failing(lambda t: t.strategy.barrier("of rank 1 alone"), strategy=_HASTY),
    "locks_in_torch": _failing(lambda t: dist.all_reduce(torch.ones(1)), strategy=_HASTY),
    "locks_in_reduce": _failing(lambda t: t.strategy.reduce(1.0), strategy=_HASTY),
}
