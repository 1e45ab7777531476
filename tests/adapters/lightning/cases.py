"""Every callback of Lightning, run in its own Trainer and in ours: `python cases.py results.json`.

Each case makes a fresh callback, and each run the same module, data and seed. What is compared is
written down: the hooks in order with their counters, the callback's state, what is logged, the
files, and the weights. Where RANK and WORLD_SIZE say that it is one of several processes, these run
it together, and each writes down what it saw.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import sys
import tempfile
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

warnings.simplefilter("ignore")

import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
from foreign_programs import prepare_process, quiet_folder, write_results  # noqa: E402
from pytorch_lightning import callbacks as theirs  # noqa: E402
from pytorch_lightning.loggers import CSVLogger  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

import trainer_hooks  # noqa: E402

HOOKS = [name for name in vars(pl.Callback) if name.startswith(("on_", "setup", "teardown"))]
VOLATILE = {"dirpath", "time_elapsed", "average_model_state"}
ALONE = ("BatchSizeFinder", "LearningRateFinder", "ProgressBar")
PROCESSES = int(os.environ.get("WORLD_SIZE", "1"))
TOGETHER = {} if PROCESSES == 1 else {"strategy": "ddp", "devices": PROCESSES}


def shares(batch_size: int) -> DataLoader:
    """Return a loader for training, which Lightning would shuffle in several processes."""
    data = torch.arange(32.0 * PROCESSES).reshape(8 * PROCESSES, 4) / 32
    sampler = None
    if PROCESSES > 1:
        rank = int(os.environ["RANK"])
        sampler = DistributedSampler(data, num_replicas=PROCESSES, rank=rank, shuffle=False)
    return DataLoader(data, batch_size=batch_size, sampler=sampler)


def whole(batch_size: int) -> DataLoader:
    """Return a loader that each trainer divides among the processes."""
    data = torch.arange(32.0 * PROCESSES).reshape(8 * PROCESSES, 4) / 32
    return DataLoader(data, batch_size=batch_size)


class Net(pl.LightningModule):
    """A module of Lightning that logs."""

    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Linear(4, 4)
        self.layer = torch.nn.Linear(4, 1)
        self.batch_size = 2

    def forward(self, x):
        return self.layer(self.backbone(x))

    def training_step(self, batch, batch_idx):
        loss = self(batch).pow(2).mean()
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val", self(batch).pow(2).mean(), sync_dist=True)

    def test_step(self, batch, batch_idx):
        self.log("test", self(batch).pow(2).mean(), sync_dist=True)

    def predict_step(self, batch, batch_idx):
        return self(batch)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Tuned(Net):
    """A module with a learning rate and a batch size to find, and loaders of its own."""

    def __init__(self):
        super().__init__()
        self.lr = 0.01

    def train_dataloader(self):
        return shares(self.batch_size)

    def val_dataloader(self):
        return whole(self.batch_size)

    test_dataloader = predict_dataloader = val_dataloader

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.lr)


class Slow(Tuned):
    """The same with batches enough to find a learning rate."""

    def train_dataloader(self):
        return DataLoader(torch.sin(torch.arange(256.0)).reshape(64, 4), batch_size=2)


class OneOptimizer(Net):
    """The same without a scheduler, and with the backbone left out of the optimizer."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.layer.parameters(), 0.1)


class Normed(Net):
    """A module with a BatchNorm."""

    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))


class Spiky(Net):
    """A module that returns what SpikeDetection wants."""

    def training_step(self, batch, batch_idx):
        return {"loss": super().training_step(batch, batch_idx)}


class Freeze(theirs.BaseFinetuning):
    """A finetuning of somebody's."""

    def freeze_before_training(self, pl_module):
        self.freeze(pl_module.backbone)

    def finetune_function(self, pl_module, epoch, optimizer):
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.backbone, optimizer)


class Writer(theirs.BasePredictionWriter):
    """A writer of predictions of somebody's."""

    seen: list

    def write_on_batch_end(
        self, trainer, pl_module, prediction, batch_indices, batch, batch_idx, dataloader_idx
    ):
        self.seen.append([prediction.sum().item(), list(batch_indices), batch_idx])

    def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
        self.seen.append([len(predictions), batch_indices])


def writer():
    found = Writer("batch_and_epoch")
    found.seen = []
    return found


CASES: dict[str, Any] = {
    "BackboneFinetuning": (lambda: theirs.BackboneFinetuning(1, verbose=False), OneOptimizer),
    "BaseFinetuning": (Freeze, OneOptimizer),
    "BasePredictionWriter": writer,
    "BatchSizeFinder": (
        lambda: theirs.BatchSizeFinder(steps_per_trial=1, max_trials=1),
        Tuned,
    ),
    "Callback": pl.Callback,
    "DeviceStatsMonitor": lambda: theirs.DeviceStatsMonitor(cpu_stats=False),
    "EarlyStopping": lambda: theirs.EarlyStopping("val", stopping_threshold=0.01),
    "EarlyStopping-train": lambda: theirs.EarlyStopping(
        "loss_epoch", check_on_train_epoch_end=True, divergence_threshold=1e-9
    ),
    "EMAWeightAveraging": theirs.EMAWeightAveraging,
    "GradientAccumulationScheduler": lambda: theirs.GradientAccumulationScheduler({1: 2}),
    "LambdaCallback": lambda: theirs.LambdaCallback(
        on_train_epoch_end=lambda trainer, module: module.log("lam", 1.0 * trainer.global_step)
    ),
    "LearningRateFinder": (
        lambda: theirs.LearningRateFinder(num_training_steps=40, max_lr=5.0),
        Slow,
    ),
    "LearningRateFinder-linear": (
        lambda: theirs.LearningRateFinder(num_training_steps=30, mode="linear"),
        Slow,
    ),
    "LearningRateFinder-few": (lambda: theirs.LearningRateFinder(), Tuned),
    "LearningRateMonitor": theirs.LearningRateMonitor,
    "LearningRateMonitor-step": lambda: theirs.LearningRateMonitor("step", log_momentum=True),
    "ModelCheckpoint": theirs.ModelCheckpoint,
    "ModelCheckpoint-last": lambda: theirs.ModelCheckpoint(
        monitor="val", save_top_k=2, save_last=True, filename="{epoch}-{val:.4f}"
    ),
    "ModelCheckpoint-steps": lambda: theirs.ModelCheckpoint(every_n_train_steps=3, save_top_k=-1),
    "ModelCheckpoint-train": lambda: theirs.ModelCheckpoint(
        monitor="loss_epoch", save_on_train_epoch_end=True
    ),
    "ModelPruning": lambda: theirs.ModelPruning("l1_unstructured", amount=0.5),
    "ModelSummary": lambda: theirs.ModelSummary(2),
    "OnExceptionCheckpoint": lambda: theirs.OnExceptionCheckpoint("."),
    "ProgressBar": theirs.ProgressBar,
    "RichModelSummary": theirs.RichModelSummary,
    "RichProgressBar": theirs.RichProgressBar,
    "StochasticWeightAveraging-norm": (
        lambda: theirs.StochasticWeightAveraging(0.05, 1),
        Normed,
    ),
    "StochasticWeightAveraging-alone": (
        lambda: theirs.StochasticWeightAveraging(0.05, 1),
        OneOptimizer,
    ),
    "StochasticWeightAveraging": lambda: theirs.StochasticWeightAveraging(0.05, 1),
    "ThroughputMonitor": lambda: theirs.ThroughputMonitor(lambda batch: len(batch), window_size=3),
    "Timer": lambda: theirs.Timer(timedelta(hours=1)),
    "TQDMProgressBar": theirs.TQDMProgressBar,
    "WeightAveraging": theirs.WeightAveraging,
    # its resume fails also there, and after that processes do not find together any more
    "SpikeDetection": (theirs.SpikeDetection, Spiky),
}


def recorded(callback: Any, calls: list) -> Any:
    """Let a callback write down the calls of the hooks that it overrides."""
    for name in HOOKS:
        method = getattr(callback, name)
        if getattr(method, "__func__", None) is vars(pl.Callback)[name]:
            continue

        def call(trainer, module, *rest, _name=name, _method=method, **named):
            # Lightning restores the counters after this hook
            is_before = _name == "on_fit_start"
            calls.append(
                _name if is_before else [_name, trainer.current_epoch, trainer.global_step]
            )
            return _method(trainer, module, *rest, **named)

        setattr(callback, name, call)
    return callback


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [round(v, 5) for v in value.double().flatten().tolist()]
    if isinstance(value, dict):
        return {Path(str(k)).name: plain(v) for k, v in value.items() if k not in VOLATILE}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, str):
        return Path(value).name if os.sep in value else re.sub(r"(\d\.\d{5})\d+", r"\1", value)
    return value if isinstance(value, int | str | None) else type(value).__name__


def run(
    name: str, kind: type, make: Any, net: type, folder: Path, *, cut: int | None
) -> dict[str, Any]:
    """Fit two epochs (through a checkpoint of the first, if cut), validate, test and predict."""
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(False)
    calls: list = []
    own = issubclass(net, Tuned)

    def trainer(epochs, checks):
        callback = recorded(make(), calls)
        return callback, kind(
            max_epochs=epochs, default_root_dir=folder, accelerator="cpu", log_every_n_steps=1,
            enable_progress_bar=False if "Progress" not in type(callback).__name__ else None,
            enable_model_summary=False if "Summary" not in type(callback).__name__ else None,
            logger=CSVLogger(folder, flush_logs_every_n_steps=1),
            num_sanity_val_steps=checks, callbacks=[callback], **TOGETHER,
        )  # fmt: skip

    module = net()
    path = None
    if cut is not None:
        _, first = trainer(cut, 1)
        first.fit(module, None if own else shares(2), None if own else whole(2))
        path = folder / "cut.ckpt"
        first.save_checkpoint(path)
        calls.append("cut")
        torch.manual_seed(2)
        module = net()
    callback, second = trainer(2, 0 if cut else 1)
    second.fit(module, None if own else shares(2), None if own else whole(2), ckpt_path=path)
    metrics = plain(dict(second.callback_metrics))
    for evaluate in () if cut is not None else (second.validate, second.test):
        evaluate(module, None if own else whole(2), verbose=False)
    if cut is None:
        second.predict(module, None if own else whole(2))
    rows = []
    is_writer = os.environ.get("RANK", "0") == "0"
    for file in sorted(folder.rglob("metrics.csv")) if is_writer else ():
        with file.open() as stream:
            rows += [
                {k: round(float(v), 5) for k, v in row.items() if v and "second" not in k
                 and "time" not in k and "per_sec" not in k}
                for row in csv.DictReader(stream)
            ]  # fmt: skip
    state = callback.state_dict()
    return {
        "calls": calls,
        "state": plain(state),
        "metrics": metrics,
        "rows": sorted(json.dumps(row, sort_keys=True) for row in rows),
        "files": sorted({f.name for f in folder.rglob("*.ckpt")}),
        "weights": plain([p.detach() for p in module.state_dict().values()]),
        "seen": plain(getattr(callback, "seen", None)),
        "found": [
            getattr(module, "lr", None) if name.startswith("Learn") else None,
            plain(getattr(getattr(callback, "optimal_lr", None), "results", None)),
            module.batch_size,
            plain(getattr(callback, "optimal_batch_size", None)),
        ],
    }


@contextlib.contextmanager
def common_folder(target: str, name: str) -> Iterator[str]:
    """Make a folder, the same for all processes; the last test run removes that of several."""
    if PROCESSES == 1:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
    else:
        folder = Path(f"{target.partition('.rank')[0]}-built-in-{name}")
        folder.mkdir(parents=True, exist_ok=True)
        yield str(folder)


def main(target: str, *names: str) -> None:
    prepare_process()
    results: dict[str, Any] = {}
    for name, given in CASES.items():
        if (names and name not in names) or (PROCESSES > 1 and name in ALONE):
            continue
        make, net = given if isinstance(given, tuple) else (given, Net)
        for side, kind in (("there", pl.Trainer), ("here", trainer_hooks.Trainer)):
            for cut in (None, 1):
                key = f"{name}{'' if cut is None else ' resumed'}"
                with contextlib.ExitStack() as stack:
                    folder = stack.enter_context(common_folder(target, f"{key}-{side}"))
                    stack.enter_context(quiet_folder(folder))
                    stack.enter_context(warnings.catch_warnings())
                    warnings.simplefilter("ignore")
                    try:
                        found = run(name, kind, make, net, Path(folder), cut=cut)
                    except BaseException as error:
                        found = {"raised": f"{type(error).__name__}: {error}"}
                        if "TRACEBACK" in os.environ:
                            found["traceback"] = traceback.format_exc()
                results.setdefault(key, {})[side] = found
                write_results(target, results)
    write_results(target, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
