"""Trainings whose hooks change the optimizers: drawn at random, cut, resumed, and compared."""

from __future__ import annotations

import contextlib
import copy
import random
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Plan = dict[str, Any]

BATCHES = 3
"""Batches of an epoch."""

SPACE: dict[str, tuple[Any, ...]] = {
    # the simplest comes first
    "adds": ("nothing", "finetuning", "epoch hook", "fit hook", "callback's fit hook"),
    "wraps": ("nothing", "transparent", "opaque"),
    "optimizer": ("SGD", "Adam"),
    "scheduler": ("none", "by epoch", "by step", "in steps"),
    "epochs": (2, 3, 4),
    "first": (1, 0, 2),
    "second": (None, 1, 2, 3),
    "window": (1, 2),
    "norm": (False, True),
    "cuts": (1, 2, 3),
}


class Cut(Exception):
    """Ends a run, as a kill would."""


def draw(seed: int) -> Plan:
    """Return the plan of a seed."""
    source = random.Random(f"{seed}")
    plan: Plan = {name: source.choice(values) for name, values in SPACE.items()}
    last = plan["epochs"] * BATCHES - 1
    plan["cuts"] = sorted(source.sample(range(1, last + 1), min(plan["cuts"], last)))
    return plan


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Return the plan with each option as simple as the failure allows."""
    for name, values in SPACE.items():
        options = [plan["cuts"][:1]] if name == "cuts" else values[:1]
        for option in options:
            simpler = {**plan, name: option}
            if name == "epochs":
                simpler["cuts"] = [cut for cut in plan["cuts"] if cut < option * BATCHES]
            if simpler != plan and simpler["cuts"] and fails(simpler):
                plan = simpler
    return plan


class Wrapper(torch.optim.Optimizer):
    """Keeps slow weights beside an optimizer's, as Lookahead does.

    Args:
        inner: the optimizer that steps.
        is_opaque: whether its state has a form of its own, without `param_groups`.
    """

    def __init__(self, inner: torch.optim.Optimizer, *, is_opaque: bool) -> None:
        self.inner, self.is_opaque = inner, is_opaque
        self.count = 0
        self.slow = [p.detach().clone() for p in self._parameters()]

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["inner"], name)

    def _parameters(self) -> list[torch.Tensor]:
        return [p for group in self.inner.param_groups for p in group["params"]]

    def add_param_group(self, group: dict[str, Any]) -> None:
        self.inner.add_param_group(group)
        self.slow += [p.detach().clone() for p in self._parameters()[len(self.slow) :]]

    def step(self, closure: Any = None) -> Any:
        result = self.inner.step(closure)
        self.count += 1
        if self.count % 2 == 0:
            with torch.no_grad():
                for fast, slow in zip(self._parameters(), self.slow, strict=True):
                    slow += (fast - slow) / 2
                    fast.copy_(slow)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        own = {"count": self.count, "slow": [slow.clone() for slow in self.slow]}
        state = self.inner.state_dict()
        return {"inner": state, **own} if self.is_opaque else {**state, **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state["inner"] if self.is_opaque else state)
        self.count, self.slow = state["count"], [slow.clone() for slow in state["slow"]]


def parts(plan: Plan, names: Any) -> tuple[Any, list[Any]]:
    """Return a new module and new callbacks of a plan.

    Args:
        plan: the plan.
        names: has `Module`, `Callback` and `BaseFinetuning`, and in `more` what makes further
            callbacks.
    """
    # the layers that are trained later, by the epoch
    later = {0: plan["first"]}
    if plan["second"] is not None:
        later[1] = plan["second"]
    return _module_class(plan, names.Module, later)(), _callbacks(plan, names, later)


def _module_class(plan: Plan, base: type, later: dict[int, int]) -> type:
    adds = plan["adds"]

    class Net(base):
        def __init__(self):
            super().__init__()
            first = nn.Sequential(nn.Linear(4, 3), *[nn.BatchNorm1d(3)] * plan["norm"])
            self.layers = nn.ModuleList([first, nn.Linear(3, 3), nn.Linear(3, 3)])
            self.head = nn.Linear(3, 1)
            self.losses = []
            for number in later if adds != "nothing" else ():
                self.layers[number].requires_grad_(False)

        def training_step(self, batch, batch_idx):
            x, y = batch
            for layer in self.layers:
                x = layer(x).tanh()
            loss = (self.head(x) - y).square().mean()
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return _optimizers(plan, [p for p in self.parameters() if p.requires_grad])

        def add(self, number):
            self.layers[number].requires_grad_(True)
            group = {"params": list(self.layers[number].parameters()), "lr": 0.02}
            self.trainer.optimizers[0].add_param_group(group)

        def on_fit_start(self):
            for number in later if adds == "fit hook" else ():
                self.add(number)

        def on_train_epoch_start(self):
            for number, epoch in later.items() if adds == "epoch hook" else ():
                if epoch == self.trainer.current_epoch:
                    self.add(number)

    return Net


def _optimizers(plan: Plan, trained: list[nn.Parameter]) -> Any:
    kind = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}[plan["optimizer"]]
    options = {"lr": 0.1, "momentum": 0.9} if plan["optimizer"] == "SGD" else {"lr": 0.05}
    optimizer = kind(trained, **options)
    if plan["scheduler"] == "none":
        return optimizer
    scheduler: Any = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    if plan["scheduler"] == "in steps":
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    interval = "step" if plan["scheduler"] == "by step" else "epoch"
    config = {"scheduler": scheduler, "interval": interval}
    return {"optimizer": optimizer, "lr_scheduler": config}


def _callbacks(plan: Plan, names: Any, later: dict[int, int]) -> list[Any]:
    class Finetuning(names.BaseFinetuning):
        def freeze_before_training(self, pl_module):
            for number in later:
                self.freeze(pl_module.layers[number])

        def finetune_function(self, pl_module, epoch, optimizer):
            for number, begin in later.items():
                if epoch == begin:
                    self.unfreeze_and_add_param_group(pl_module.layers[number], optimizer)

    class Adds(names.Callback):
        def on_fit_start(self, trainer, pl_module):
            for number in later:
                pl_module.add(number)

    class Wraps(names.Callback):
        def on_fit_start(self, trainer, pl_module):
            is_opaque = plan["wraps"] == "opaque"
            trainer.optimizers = [Wrapper(o, is_opaque=is_opaque) for o in trainer.optimizers]

    callbacks: list[Any] = [make() for make in names.more]
    if plan["adds"] == "finetuning":
        callbacks.append(Finetuning())
    if plan["adds"] == "callback's fit hook":
        callbacks.append(Adds())
    if plan["wraps"] != "nothing":
        callbacks.append(Wraps())
    return callbacks


def data() -> DataLoader:
    """Return the loader of all runs, whose order is always the same."""
    x = torch.rand(BATCHES * 4, 4, generator=torch.Generator().manual_seed(5))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)


def options(plan: Plan, folder: Path) -> dict[str, Any]:
    """Return the options of a plan's trainer."""
    return {
        "max_epochs": plan["epochs"],
        "accumulate_grad_batches": plan["window"],
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
    }


def train(plan: Plan, names: Any, folder: Path, cut: int | None, path: Path | None) -> Any:
    """Train until `cut` batches are done, and then save `{cut}.ckpt`; return what there is then."""

    class Save(names.OurCallback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed == cut:
                trainer.save_checkpoint(folder / f"{cut}.ckpt")
                raise Cut

    # another start for each, which a resume has to overwrite
    torch.manual_seed(0 if path is None else 1 + (cut or 0))
    module, callbacks = parts(plan, names)
    trainer = Trainer(callbacks=[*callbacks, Save()], plugins=False, **options(plan, folder))
    with contextlib.suppress(Cut):
        trainer.fit(module, data(), ckpt_path=path)
    return {
        "weights": {name: v.clone() for name, v in module.state_dict().items()},
        "trained": [p.requires_grad for p in module.parameters()],
        "optimizers": copy.deepcopy([o.state_dict() for o in trainer.optimizers]),
        "rates": [[g["lr"] for g in o.param_groups] for o in trainer.optimizers],
        "schedulers": [c.scheduler.state_dict() for c in trainer.lr_scheduler_configs],
        "losses": module.losses,
    }


def differences(plan: Plan, names: Any, folder: Path) -> list[str]:
    """Return in what a training that is cut and resumed differs from the uncut one."""
    uncut = train(plan, names, folder, None, None)
    losses: list[float] = []
    path, resumed = None, {}
    for cut in (*plan["cuts"], None):
        resumed = train(plan, names, folder, cut, path)
        losses += resumed["losses"]
        path = folder / f"{cut}.ckpt"
    resumed["losses"] = losses
    return list(_different(uncut, resumed, ""))


def _different(one: Any, other: Any, place: str) -> Any:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or not torch.equal(one, other):
            yield place
    elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key, value in one.items():
            yield from _different(value, other[key], f"{place}/{key}")
    elif isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _different(a, b, f"{place}/{number}")
    elif one != other:
        yield f"{place}: {one} and {other}"


def check(seed: int, names: Any, folder: Path) -> None:
    """Assert that the plan of a seed is resumed exactly; tell the smallest that is not."""
    plan = draw(seed)
    if not attempt(plan, names, folder):
        return
    smallest = shrink(plan, lambda candidate: bool(attempt(candidate, names, folder)))
    found = attempt(smallest, names, folder)
    raise AssertionError(f"seed {seed}, {smallest}: {found}")


def attempt(plan: Plan, names: Any, folder: Path) -> list[str]:
    """Return the differences, or the error that there was."""
    try:
        return differences(plan, names, folder)
    except Exception as error:  # of any class: it is told with the plan
        return [f"{type(error).__name__}: {error}"]
