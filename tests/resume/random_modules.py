"""The modules and callbacks of random configurations."""

from __future__ import annotations

import functools
import random
from collections import deque
from typing import Any

import numpy as np
import torch
import torchmetrics
from torch import Tensor, nn

from trainer_hooks import Callback, Module

Options = dict[str, Any]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Net(Module):
    """Two layers, configured by options; logs at a step, over an epoch, and by metric objects."""

    def __init__(self, options: Options, make_optimizers: Any) -> None:
        super().__init__()
        norm = nn.BatchNorm1d(4) if options["batch_norm"] else nn.Identity()
        drop = nn.Dropout(0.4) if options["dropout"] else nn.Identity()
        first = nn.LazyLinear(4) if options["layers"] == "lazy" else nn.Linear(3, 4)
        last: Any = nn.Linear(4, 1)
        if options["layers"] == "compiled":
            last = torch.compile(last, backend="eager")
        self.layers = nn.Sequential(first, norm, nn.Tanh(), drop, last)
        if options["memory"] != "none":
            rows = None if options["memory"] == "grows" else torch.zeros(1, 3)
            self.register_buffer("memory", rows, persistent=False)
        self.options, self.make_optimizers = options, make_optimizers
        self.automatic_optimization = options["optimization"] == "automatic"
        if options["optimization"] == "two optimizers":
            self.judge = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.3), nn.Linear(4, 1))
        if options["metric_objects"]:
            self.error, self.val_error = torchmetrics.MeanMetric(), torchmetrics.MeanMetric()
            self.kept = {"worst": torchmetrics.MaxMetric()}
        if options["module_generator"]:
            self.generator = seeded(21)

    def configure_optimizers(self) -> Any:
        return self.make_optimizers(self)

    def on_train_epoch_start(self) -> None:
        epoch = self.current_epoch
        if self.options["changes_mode"] == "eval":
            self.layers[1].eval()
        if self.options["changes_mode"] == "freeze":
            self.layers[0].requires_grad_(epoch % 2 == 0)
        if self.options["logs"] == "everywhere":
            self.log("drawn", torch.rand(()))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.options["skips"] == "no loss" and batch_idx in (1, 3):
            return None
        inputs = batch[0]
        if self.options["module_generator"]:
            noise = torch.randn(inputs.shape, generator=self.generator)
            inputs = inputs + noise.to(inputs.device)
        made = self.layers(self.remembered(inputs).to(self.layers[0].weight.dtype))
        loss = (made - batch[1]).square().mean()
        if hasattr(self, "added"):
            verdict = self.added(made.to(self.added[0].weight.dtype))
            loss = loss + verdict.square().mean().to(loss.dtype)
        self._log_training(loss, batch_idx)
        kind = self.options["optimization"]
        if kind != "automatic":
            self._step_by_hand(kind, loss, batch, batch_idx)
        return loss

    def remembered(self, inputs: Tensor) -> Tensor:
        """Return inputs with a mean of those before, and remember these."""
        kind = self.options["memory"]
        if kind == "none":
            return inputs
        before = self.memory
        with torch.no_grad():
            newest = inputs.mean(0, keepdim=True)
            if kind == "in place":
                inputs = inputs + self.memory
                self.memory.mul_(0.8).add_(newest * 0.1)
            elif kind == "assigned":
                inputs = inputs + before
                self.memory = before * 0.8 + newest.to(before.dtype) * 0.1
            else:
                inputs = inputs if before is None else inputs + before.mean(0) * 0.1
                rows = newest if before is None else torch.cat([newest.to(before.dtype), before])
                self.memory = rows[:5]
        return inputs

    def _log_training(self, loss: Tensor, batch_idx: int) -> None:
        self.log("loss", loss, on_step=True, on_epoch=True)
        if self.options["logs"] == "everywhere":
            self.log("largest", loss, on_epoch=True, reduce_fx="max")
            self.log("weighted", loss, on_epoch=True, batch_size=batch_idx + 1)
            self.log("number", float(batch_idx), on_step=True, on_epoch=True)
            if batch_idx % 2 == 0:
                self.log("now_and_then", loss, on_step=True)
        if self.options["metric_objects"]:
            self.error(loss.detach())
            self.log("error", self.error, on_step=True, on_epoch=True)
            self.kept["worst"].update(loss.detach().cpu())

    def _step_by_hand(self, kind: str, loss: Tensor, batch: Any, batch_idx: int) -> None:
        found = self.optimizers()
        optimizers = found if isinstance(found, list) else [found]
        self.manual_backward(loss)
        if kind == "two optimizers":
            made = self.layers(batch[0]).detach()
            verdict = (self.judge(made) - self.judge(batch[1])).mean().square()
            self.log("verdict", verdict, on_epoch=True)
            self.manual_backward(verdict)
        if kind == "manual" or batch_idx % 2:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        schedulers = self.lr_schedulers()
        if schedulers is not None and batch_idx % 2 and self.options["scheduler"] == "by step":
            schedulers.step()

    def on_train_epoch_end(self) -> None:
        if self.options["metric_objects"]:
            self.log("worst", self.kept["worst"].compute())
            self.kept["worst"].reset()

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        loss = (self.layers(self.remembered(batch[0])) - batch[1]).square().mean()
        self.log("val_loss", loss)
        if self.options["logs"] == "everywhere":
            self.log("val_noise", torch.rand(()))
        if self.options["metric_objects"]:
            self.val_error(loss.detach())
            self.log("val_error", self.val_error)


# --- callbacks ---


class Counter(Callback):
    """Counts an event, and draws from the global random numbers and generators of its own."""

    def __init__(self, event: str, *, keeps: bool = True) -> None:
        self.event, self.keeps = event, keeps
        self.python, self.torch = random.Random(31), seeded(32)
        self.count, self.noise = 0, torch.zeros(2)

    @property
    def state_key(self) -> str:
        return self._generate_state_key(event=self.event)

    def run_event(self, event: str, *args: Any) -> None:
        if event == self.event and not args[0].sanity_checking:
            self.count += 1
            drawn = torch.rand(2) + torch.rand(2, generator=self.torch) + self.python.random()
            self.noise = self.noise * 0.5 + drawn + random.random() + np.random.rand()

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"count": self.count, "noise": self.noise}
        if self.keeps:
            state["generators"] = [self.python.getstate(), self.torch.get_state()]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count, self.noise = state["count"], state["noise"]
        if self.keeps:
            self.python.setstate(state["generators"][0])
            self.torch.set_state(state["generators"][1])


class Journal(Callback):
    """Keeps a state of many kinds of values."""

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=3)
        self.seen: set[int] = set()
        self.table: dict[Any, Any] = {"array": np.zeros(2), "nothing": None, 1: float("nan")}

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.seen.add(batch_idx)
        self.recent.append(outputs["loss"].item() if "loss" in outputs else -1.0)
        self.table["array"] = self.table["array"] + batch_idx
        self.table[1] = (batch_idx, [trainer.global_step, b"ab", 2**70])

    def state_dict(self) -> dict[str, Any]:
        return {"recent": self.recent, "seen": self.seen, "table": self.table}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.recent, self.seen, self.table = state["recent"], state["seen"], state["table"]


class Skipper(Callback):
    """Leaves batches out: wholly, or their gradients."""

    def __init__(self, where: str) -> None:
        self.where = where

    def on_train_batch_start(self, trainer, module, batch, batch_idx) -> None:
        if self.where == "batch" and batch_idx in (1, 4):
            trainer.skip_batch()

    def on_before_backward(self, trainer, module, loss) -> None:
        if self.where == "gradients" and trainer.progress.batches_in_epoch in (1, 4):
            trainer.skip_batch()


class Asking(Callback):
    """Asks for a validation and a checkpoint after some batches."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.progress.batches_completed % 4 == 3:
            trainer.request_validation()
            trainer.request_checkpoint()


class Ending(Callback):
    """Ends some epochs early."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.progress.batches_completed % 6 == 2:
            trainer.end_epoch()


class AddsLayers(Callback):
    """Adds layers to the module, which are not trained."""

    def __init__(self, where: str) -> None:
        self.where = where

    def setup(self, trainer, module, stage) -> None:
        if self.where == "in setup":
            self._add(module)

    def on_fit_start(self, trainer, module) -> None:
        if self.where == "at the start":
            self._add(module)

    def _add(self, module) -> None:
        module.added = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1)).to(module.device)
        module.added.requires_grad_(False)


class Timed(Callback):
    """Draws and counts in a hook that others wrap."""

    def __init__(self) -> None:
        self.total = 0.0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.total = self.total * 0.5 + random.random() + float(torch.rand(()))

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def _counted(hook: Any) -> Any:
    """Wrap a hook, as tools that measure do."""

    @functools.wraps(hook)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return hook(*args, **kwargs)

    return wrapped


class TimedByClass(Timed):
    on_train_batch_end = _counted(Timed.on_train_batch_end)


def wrapping(where: str) -> Callback:
    """Return a callback whose hook is wrapped in its class, or on the object."""
    if where == "in the class":
        return TimedByClass()
    callback = Timed()
    callback.on_train_batch_end = _counted(callback.on_train_batch_end)
    return callback
