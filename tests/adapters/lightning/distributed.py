"""The same callbacks in two processes, of Lightning and of ours: `python distributed.py TARGET`.

It is run by each of them; each writes down what it saw. The module, data and seed are the same.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

import cases  # noqa: E402
import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
from foreign_programs import prepare_process, quiet_folder, write_results  # noqa: E402
from pytorch_lightning import callbacks as theirs  # noqa: E402
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger  # noqa: E402
from pytorch_lightning.utilities import rank_zero_only  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402
from torchmetrics import MeanMetric  # noqa: E402

import trainer_hooks  # noqa: E402

RANK = int(os.environ["RANK"])
DATA = torch.arange(64.0).reshape(16, 4) / 64


class Net(pl.LightningModule):
    """A module of Lightning that logs what all processes agree on."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val", self.layer(batch).pow(2).mean(), sync_dist=True)

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return self.layer(batch)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def shares() -> DataLoader:
    """Return a loader for training; one without such a sampler would be shuffled by Lightning."""
    sampler = DistributedSampler(DATA, num_replicas=2, rank=RANK, shuffle=False)
    return DataLoader(DATA, batch_size=2, sampler=sampler)


def whole(count: int = 16) -> DataLoader:
    """Return a loader that each trainer divides among the processes."""
    return DataLoader(DATA[:count], batch_size=2)


def trainer(kind: type, *callbacks: Any, **options: Any) -> Any:
    quiet = {
        "accelerator": "cpu", "strategy": "ddp", "devices": 2, "max_epochs": 2, "logger": False,
        "enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1,
        "num_sanity_val_steps": 0, "default_root_dir": ".",
        "enable_checkpointing": any(isinstance(one, theirs.Checkpoint) for one in callbacks),
    }  # fmt: skip
    return kind(**{**quiet, **options}, callbacks=list(callbacks))


def weights(module: torch.nn.Module) -> list[float]:
    return [round(v, 5) for p in module.parameters() for v in p.detach().flatten().tolist()]


def rounded(metrics: Any) -> dict[str, float]:
    return {name: round(float(value), 5) for name, value in sorted(metrics.items())}


def files() -> list[str]:
    found = (path.relative_to(Path.cwd()) for path in Path.cwd().rglob("*") if path.is_file())
    ours = "run.jsonl"  # whose run it is, beside the logger's own
    return sorted(str(path).partition("tfevents")[0] for path in found if path.name != ours)


def rows() -> list[dict[str, float]]:
    """Return what every CSV file holds."""
    found = []
    for file in sorted(Path.cwd().rglob("metrics.csv")):
        with file.open() as stream:
            found += [
                rounded({k: v for k, v in row.items() if v}) for row in csv.DictReader(stream)
            ]
    return found


class Processes(pl.Callback):
    """Asks in many hooks who it is, and does with the others what callbacks do."""

    def __init__(self) -> None:
        self.seen: list = []
        self.once: list = []

    def look(self, name: str, trainer: Any, module: Any) -> None:
        strategy = trainer.strategy
        given = torch.tensor([1.0 + RANK])
        of_numbers = module.all_gather({"a": given, "b": [RANK, 1.5 * RANK]})
        summed = strategy.reduce(torch.tensor(1 + RANK), reduce_op=torch.distributed.ReduceOp.SUM)
        gradient = None
        if torch.is_grad_enabled():
            one = torch.ones(1, requires_grad=True)
            (module.all_gather(one, sync_grads=True).sum() * (1 + RANK)).backward()
            gradient = one.grad.tolist()
        trainer.strategy.barrier("here")
        trainer.strategy.barrier()
        self.seen.append([
            name, trainer.is_global_zero, trainer.global_rank, trainer.local_rank,
            trainer.node_rank, trainer.world_size, trainer.num_nodes, trainer.num_devices,
            trainer.device_ids, strategy.global_rank, strategy.world_size, strategy.is_global_zero,
            strategy.num_processes, str(strategy.root_device),
            [str(device) for device in strategy.parallel_devices],
            isinstance(strategy, pl.strategies.DDPStrategy),
            isinstance(strategy, pl.strategies.FSDPStrategy),
            isinstance(trainer.accelerator, pl.accelerators.CPUAccelerator),
            trainer._accelerator_connector.is_distributed, rank_zero_only.rank,
            module.global_rank, module.local_rank,
            strategy.broadcast({"of": RANK}), strategy.broadcast([RANK], src=1),
            float(strategy.reduce(torch.tensor(1.0 + RANK))),
            float(strategy.reduce(torch.tensor(1.0 + RANK), reduce_op="sum")),
            float(strategy.reduce(torch.tensor(1.0 + RANK), reduce_op="max")), float(summed),
            strategy.reduce(RANK), strategy.reduce(2.5 + RANK, reduce_op="sum"),
            strategy.reduce_boolean_decision(RANK == 0),
            strategy.reduce_boolean_decision(RANK == 0, all=False),
            strategy.reduce_boolean_decision(True), strategy.all_gather(given).tolist(),
            of_numbers["a"].tolist(), [one.tolist() for one in of_numbers["b"]],
            module.all_gather(torch.ones(2, 3) * RANK).tolist(), gradient,
        ])  # fmt: skip
        rank_zero_only(self.once.append)(name)

    def setup(self, trainer, pl_module, stage):
        self.look(f"setup {stage}", trainer, pl_module)

    def on_fit_start(self, trainer, pl_module):
        self.look("on_fit_start", trainer, pl_module)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.look("on_train_batch_end", trainer, pl_module)

    def on_validation_end(self, trainer, pl_module):
        self.look("on_validation_end", trainer, pl_module)

    def on_fit_end(self, trainer, pl_module):
        self.look("on_fit_end", trainer, pl_module)

    def teardown(self, trainer, pl_module, stage):
        self.look(f"teardown {stage}", trainer, pl_module)


def case_processes(kind: type) -> Any:
    """What callbacks ask and do among processes, in many hooks."""
    callback = Processes()
    trainer(kind, callback, max_epochs=1, limit_train_batches=2).fit(Net(), shares(), whole(4))
    return callback.seen, callback.once


def case_loggers(kind: type) -> Any:
    """Rank 0 alone writes, and callbacks in all ranks may use the loggers as there."""

    class Writes(pl.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            board, table = trainer.loggers
            board.experiment.add_scalar("by_hand", 1.0 * RANK, trainer.global_step)
            board.experiment.add_histogram("weights", pl_module.layer.weight, trainer.global_step)
            table.log_metrics({"mine": 10.0 + RANK}, trainer.global_step)
            pl_module.logger.log_metrics({"its": 20.0 + RANK}, trainer.global_step)
            self.log("by_callback", 1.0 + RANK, sync_dist=True)
            found.append([
                isinstance(board, TensorBoardLogger), isinstance(table, CSVLogger),
                isinstance(trainer.logger, TensorBoardLogger), pl_module.logger is trainer.logger,
                type(board).__name__, board.name, board.save_dir,
                type(board.experiment).__name__, trainer.log_dir, board.log_dir,
                len(pl_module.loggers),
            ])  # fmt: skip

    found: list = []
    loggers = [TensorBoardLogger("board"), CSVLogger("table", flush_logs_every_n_steps=1)]
    monitor = theirs.LearningRateMonitor()
    module = Net()
    trainer(kind, Writes(), monitor, logger=loggers).fit(module, shares(), whole())
    torch.distributed.barrier()
    return found, files(), rows(), monitor.lrs, weights(module)


def case_logged(kind: type) -> Any:
    """What `log` takes for several processes, and what comes of it."""

    class Logs(Net):
        def __init__(self):
            super().__init__()
            self.mean = MeanMetric()

        def training_step(self, batch, batch_idx):
            value = batch.sum()
            both = {"on_step": True, "on_epoch": True, "sync_dist": True}
            for fx in ("mean", "sum", "min", "max"):
                self.log(fx, value, reduce_fx=fx, **both)
            self.log("weighted", value, batch_size=1 + RANK, on_epoch=True, sync_dist=True)
            self.log("count", 1 + RANK, on_step=True, sync_dist=True)
            self.mean(value)
            self.log("metric", self.mean, on_step=True, on_epoch=True)
            if RANK == 0:
                self.log("first", value, rank_zero_only=True)
            self.log_dict({"a": value, "b": value + 1}, sync_dist=True, on_epoch=True)
            return super().training_step(batch, batch_idx)

        def on_train_epoch_end(self):
            self.log("end", 1.0 + RANK, sync_dist=True)

    module = Logs()
    ran = trainer(kind, logger=CSVLogger("table", flush_logs_every_n_steps=1))
    ran.fit(module, shares(), whole())
    torch.distributed.barrier()
    epoch_values = {k: v for k, v in ran.callback_metrics.items() if not k.endswith("_step")}
    epoch_values.pop("first", None)
    return rounded(epoch_values), rows(), weights(module)


def stopping(kind: type, sync: bool, make: Any) -> Any:
    class Falls(Net):
        def validation_step(self, batch, batch_idx):
            # falls for ever in rank 0, and rises in rank 1
            step = self.current_epoch + 1
            self.log("val", 1.0 / step if RANK == 0 else 3.0 * step, sync_dist=sync)

    module = Falls()
    stopper = make("val", patience=1)
    ran = trainer(kind, stopper, max_epochs=6)
    ran.fit(module, shares(), whole(4))
    return (
        ran.current_epoch,
        stopper.stopped_epoch,
        stopper.wait_count,
        weights(module),
        vars(stopper).get("asked"),
    )


def case_early_stopping_of_what_is_synced(kind: type) -> Any:
    """A metric of all processes ends the fit in all."""
    return stopping(kind, True, theirs.EarlyStopping)


def case_early_stopping_by_one(kind: type) -> Any:
    """A metric of each process's own, of which one stops."""
    return stopping(kind, False, theirs.EarlyStopping)


class Patient(theirs.EarlyStopping):
    """A stopper of somebody's that overrides an inner method."""

    asked: list

    def _run_early_stopping_check(self, trainer):
        self.asked = [*vars(self).get("asked", []), trainer.current_epoch]
        super()._run_early_stopping_check(trainer)
        if trainer.current_epoch == 2:
            trainer.should_stop = True


def case_a_subclass_of_a_stopper(kind: type) -> Any:
    """An inner method that is overridden runs, and may set `should_stop`."""
    return stopping(kind, True, lambda name, patience: Patient(name, patience=9))


class Counts(theirs.ModelCheckpoint):
    """A saver of somebody's that overrides inner methods."""

    saved: list

    def _save_checkpoint(self, trainer, filepath):
        self.saved = [*vars(self).get("saved", []), Path(filepath).name]
        super()._save_checkpoint(trainer, filepath)
        if trainer.is_global_zero:
            Path(filepath).with_suffix(".txt").write_text(str(trainer.current_epoch))

    def _remove_checkpoint(self, trainer, filepath):
        super()._remove_checkpoint(trainer, filepath)
        if trainer.is_global_zero:
            Path(filepath).with_suffix(".txt").unlink(missing_ok=True)


def case_savers(kind: type) -> Any:
    """The files of savers, and what each rank knows of them."""
    best = Counts("best", "{epoch}-{val:.3f}", "val", save_top_k=2, save_last="link")
    steps = theirs.ModelCheckpoint("steps", every_n_train_steps=3, save_top_k=-1)
    weighty = theirs.ModelCheckpoint("light", save_weights_only=True, save_last=True)
    module = Net()
    ran = trainer(kind, best, steps, weighty, max_epochs=3)
    ran.fit(module, shares(), whole())
    torch.distributed.barrier()
    found = []
    for path in sorted(Path.cwd().rglob("*.ckpt")):
        held = torch.load(path, weights_only=False)
        found.append([
            path.name, path.is_symlink(), held["epoch"], held["global_step"],
            [round(v, 5) for v in held["state_dict"]["layer.weight"].flatten().tolist()],
            sorted(key.removeprefix("lightning:") for key in held.get("callbacks", {})),
            "optimizer_states" in held,
        ])  # fmt: skip
    knows = [
        [Path(one.best_model_path).name, Path(one.last_model_path).name,
         sorted(Path(path).name for path in one.best_k_models)]
        for one in (best, steps, weighty)
    ]  # fmt: skip
    return files(), found, knows, best.saved, weights(module)


def case_writers(kind: type) -> Any:
    """Each rank writes what it predicted, with the indices of its samples."""

    class Writer(theirs.BasePredictionWriter):
        def __init__(self, interval):
            super().__init__(interval)
            self.seen: list = []

        def write_on_batch_end(
            self, trainer, pl_module, prediction, batch_indices, batch, batch_idx, dataloader_idx
        ):
            total = round(prediction.sum().item(), 5)
            self.seen.append([total, list(batch_indices), batch_idx, dataloader_idx])

        def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
            torch.save(predictions, f"predictions_{trainer.global_rank}.pt")
            torch.save(batch_indices, f"indices_{trainer.global_rank}.pt")

    found: list = []
    for count in (8, 9):
        for interval in ("batch", "epoch", "batch_and_epoch"):
            torch.manual_seed(1)
            writer = Writer(interval)
            loaders = whole(count) if interval != "epoch" else [whole(count), whole(4)]
            returned = trainer(kind, writer).predict(
                Net(), loaders, return_predictions=interval == "batch"
            )
            found.append([writer.seen, None if returned is None else len(returned)])
            if interval != "batch":
                saved = torch.load(f"predictions_{RANK}.pt")
                sizes = [len(one) for one in saved]
                found.append([sizes, torch.load(f"indices_{RANK}.pt")])
    torch.distributed.barrier()
    return found, files()


def case_data_modules(kind: type) -> Any:
    """Data are prepared once on a machine, and set up in each process."""

    class Data(pl.LightningDataModule):
        def prepare_data(self):
            calls.append("prepare_data")

        def setup(self, stage):
            calls.append(["setup", str(stage)[-3:], self.trainer.global_rank])

        def train_dataloader(self):
            return shares()

        def val_dataloader(self):
            return whole(4)

        def teardown(self, stage):
            calls.append("teardown")

    calls: list = []
    module = Net()
    trainer(kind, max_epochs=1).fit(module, datamodule=Data())
    return calls, weights(module)


def case_rank_of_functions(kind: type) -> Any:
    """Lightning's `rank_zero_only` knows the rank in a run without callbacks, in each process."""

    class Asks(Net):
        def setup(self, stage):
            ranks.append(rank_zero_only.rank)

        def training_step(self, batch, batch_idx):
            ranks.append(rank_zero_only.rank)
            return super().training_step(batch, batch_idx)

    ranks: list = []
    # as a program that imports Lightning before it has started its processes
    rank_zero_only.rank = 7
    trainer(kind, max_epochs=1).fit(Asks(), shares())
    called = rank_zero_only(lambda: "called")()
    rank_zero_only.rank = RANK
    return ranks, called


def case_a_resume_in_the_middle(kind: type) -> Any:
    """A fit that a saver's file goes on from ends as one that was never cut."""
    saver = theirs.ModelCheckpoint("cut", every_n_train_steps=4, save_top_k=-1)
    trainer(kind, saver, max_epochs=1).fit(Net(), shares(), whole())
    torch.manual_seed(5)
    module = Net()
    again = theirs.ModelCheckpoint("again", monitor="val")
    stopper = theirs.EarlyStopping("val", patience=5)
    ran = trainer(kind, again, stopper, max_epochs=3)
    ran.fit(module, shares(), whole(), ckpt_path=saver.best_model_path)
    torch.distributed.barrier()
    return (
        ran.current_epoch, ran.global_step, weights(module), files(), stopper.wait_count,
        Path(again.best_model_path).name,
    )  # fmt: skip


def case_an_order_of_batches(kind: type) -> Any:
    """The samples of a training loader that each trainer divides, in their order."""

    class Reads(Net):
        def training_step(self, batch, batch_idx):
            samples.extend(int(64 * row[0] / 4) for row in batch)
            return super().training_step(batch, batch_idx)

    samples: list = []
    trainer(kind, max_epochs=1).fit(Reads(), whole())
    return samples


def case_unfrozen_later(kind: type) -> Any:
    """Weights of each rank that are frozen at first, and trained in the second epoch."""

    class Unfreezes(theirs.BaseFinetuning):
        def freeze_before_training(self, pl_module):
            self.freeze(pl_module.body)

        def finetune_function(self, pl_module, epoch, optimizer):
            if epoch == 1:
                self.unfreeze_and_add_param_group(pl_module.body, optimizer, lr=0.1)

    class Tuned(Net):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(4, 4)

        def training_step(self, batch, batch_idx):
            return self.layer(self.body(batch)).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.layer.parameters(), 0.1)

    module = Tuned()
    before = weights(module.body)
    trainer(kind, Unfreezes(), max_epochs=2).fit(module, shares())
    return before, weights(module.body)


def case_a_search_of_a_learning_rate(kind: type) -> Any:
    """A search in two processes: its number of rates, or how it is refused."""
    finder = theirs.LearningRateFinder(num_training_steps=4, early_stop_threshold=None)

    class Rated(Net):
        lr = 0.1

    try:
        trainer(kind, finder, max_epochs=3).fit(Rated(), shares())
    except trainer_hooks.errors.TrainerHooksError as error:
        return str(error)
    return len(finder.optimal_lr.results["lr"])


BUILT_IN = (
    "ModelCheckpoint-last", "EarlyStopping", "LearningRateMonitor-step", "ModelPruning",
    "StochasticWeightAveraging-norm", "Timer", "WeightAveraging",
)  # fmt: skip
"""Cases of `cases.py`, which are run here, too; `cases.py TARGET.rankN` runs all of them."""

CASES = {name: call for name, call in list(globals().items()) if name.startswith("case_")}


def main(target: str, *names: str) -> None:
    prepare_process()
    results: dict[str, Any] = {}
    if not names:  # first: the last case of this file ends in an error, after which no run begins
        cases.main(f"{target}-built-in", *BUILT_IN)
        results = json.loads(Path(f"{target}-built-in").read_text(encoding="utf-8"))
    for name, case in CASES.items():
        for side, kind in (("here", trainer_hooks.Trainer), ("there", pl.Trainer)):
            if names and name not in names:
                continue
            folder = Path(f"{target.partition('.rank')[0]}-{name}-{side}")
            folder.mkdir(parents=True, exist_ok=True)
            with quiet_folder(folder):
                torch.manual_seed(1)
                try:
                    found = {"found": json.loads(json.dumps(case(kind)))}
                except Exception:
                    found = {"raised": traceback.format_exc()}
            results.setdefault(name, {})[side] = found
    write_results(target, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
