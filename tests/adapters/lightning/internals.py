"""Internals that callbacks of Lightning read, there and here: `python internals.py results.json`.

Each expression is asked in each hook of a fit, a validation, a test and a prediction, with the same
module, data and seed.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
from foreign_programs import prepare_process, quiet_folder, write_results  # noqa: E402
from pytorch_lightning import callbacks as theirs  # noqa: E402
from pytorch_lightning.loggers import CSVLogger  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import trainer_hooks  # noqa: E402

ASKED = """
isinstance(trainer, pl.Trainer), isinstance(module, pl.LightningModule)
isinstance(trainer.datamodule, pl.LightningDataModule), isinstance(module, Net)
trainer.is_global_zero, trainer.global_rank, trainer.local_rank, trainer.node_rank
trainer.world_size, trainer.num_nodes, trainer.num_devices, trainer.device_ids
trainer._accelerator_connector.is_distributed
trainer._accelerator_connector.use_distributed_sampler
trainer.scaler
trainer.precision
trainer.precision_plugin.precision, type(trainer.precision_plugin).__name__
trainer.strategy.is_global_zero, trainer.strategy.global_rank, trainer.strategy.local_rank
trainer.strategy.world_size
trainer.strategy.root_device
trainer.strategy.broadcast(3), trainer.strategy.barrier()
trainer.strategy.reduce(torch.tensor(2.0)), trainer.strategy.all_gather(torch.tensor([2.0]))
trainer.strategy.reduce_boolean_decision(True), trainer.strategy.reduce_boolean_decision(False)
trainer.strategy.batch_to_device(torch.ones(1))
trainer.strategy.lightning_module is module
trainer.strategy.model is not None
trainer.strategy.precision_plugin.precision
len(trainer.strategy.optimizers), len(trainer.strategy.lr_scheduler_configs)
[type(one).__name__ for one in trainer.strategy.optimizers]
trainer.state.fn, trainer.state.stage, trainer.state.status
trainer.state.finished, trainer.state.stopped
type(trainer.state.fn).__name__, type(trainer.state.status).__name__
trainer.training, trainer.validating, trainer.testing, trainer.predicting, trainer.evaluating
trainer.sanity_checking, trainer.interrupted, trainer.should_stop
trainer.current_epoch, trainer.global_step, trainer.max_epochs, trainer.min_epochs
trainer.max_steps, trainer.min_steps, trainer.is_last_batch
trainer.num_training_batches, trainer.num_val_batches, trainer.num_sanity_val_batches
trainer.num_test_batches, trainer.num_predict_batches
trainer.fit_loop.epoch_loop.batch_idx
trainer.fit_loop.epoch_loop.global_step, trainer.fit_loop.epoch_loop.total_batch_idx
trainer.fit_loop.epoch_loop.batch_progress.current.ready
trainer.fit_loop.epoch_loop.batch_progress.current.completed
trainer.fit_loop.epoch_loop.batch_progress.total.ready
trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
trainer.fit_loop.epoch_loop._batches_that_stepped
trainer.fit_loop.epoch_progress.current.ready, trainer.fit_loop.epoch_progress.current.completed
trainer.fit_loop.epoch_progress.current.processed
trainer.fit_loop.max_epochs, trainer.fit_loop.min_epochs, trainer.fit_loop.max_batches
trainer.fit_loop.epoch_loop.max_steps
trainer.fit_loop._should_accumulate()
trainer._logger_connector.should_update_logs
trainer.checkpoint_callback is saver, trainer.checkpoint_callbacks == [saver]
trainer.early_stopping_callback is stopper, trainer.early_stopping_callbacks == [stopper]
trainer.progress_bar_callback is bar
looking in trainer.callbacks
type(trainer.logger).__name__, len(trainer.loggers), trainer.log_dir == trainer.logger.log_dir
type(trainer.datamodule).__name__
trainer.lightning_module is module, trainer.model is module
sorted(trainer._checkpoint_connector.dump_checkpoint()["state_dict"])
trainer._checkpoint_connector.dump_checkpoint(True)["global_step"]
trainer.enable_validation, trainer.accumulate_grad_batches, trainer.gradient_clip_val
trainer.log_every_n_steps, trainer.val_check_interval, trainer.check_val_every_n_epoch
trainer.limit_train_batches, trainer.limit_val_batches, trainer.fast_dev_run
trainer.overfit_batches
trainer.estimated_stepping_batches
sorted(trainer.callback_metrics), sorted(trainer.logged_metrics)
sorted(trainer.progress_bar_metrics)
type(trainer.train_dataloader).__name__, type(trainer.val_dataloaders).__name__
type(trainer.test_dataloaders).__name__, type(trainer.predict_dataloaders).__name__
len(trainer.optimizers), len(trainer.lr_scheduler_configs)
trainer.ckpt_path
trainer.profiler is not None
module.trainer is trainer
module.current_epoch, module.global_step, module.global_rank, module.local_rank
module.device, module.dtype, module.training, module.automatic_optimization
module.logger is trainer.logger, module.loggers == trainer.loggers
type(module.hparams).__name__, dict(module.hparams)
module.all_gather(torch.tensor([1.0]))
isinstance(module.optimizers(), torch.optim.SGD)
trainer.predict_loop.current_batch_indices
trainer.predict_loop.epoch_batch_indices
"""
"""One or more expressions a line."""

HOOKS = [name for name in vars(pl.Callback) if name.startswith(("on_", "setup", "teardown"))]
NEVER = {"on_exception", "on_load_checkpoint", "on_save_checkpoint"}


class Net(pl.LightningModule):
    """A module of Lightning."""

    def __init__(self, width: int = 4):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val", self.layer(batch).pow(2).mean())

    def test_step(self, batch, batch_idx):
        self.log("test", self.layer(batch).pow(2).mean())

    def predict_step(self, batch, batch_idx):
        return self.layer(batch)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Writer(theirs.BasePredictionWriter):
    """A writer of predictions, so that their indices are kept."""

    def write_on_batch_end(self, *args):
        pass

    def write_on_epoch_end(self, *args):
        pass


class Data(pl.LightningDataModule):
    """A data module that writes down its calls."""

    def __init__(self, calls: list):
        super().__init__()
        self.calls = calls

    def prepare_data(self):
        self.calls.append("prepare_data")

    def setup(self, stage):
        self.calls.append(["setup", str(getattr(stage, "value", stage)), self.trainer is not None])

    def teardown(self, stage):
        self.calls.append(["teardown", str(getattr(stage, "value", stage))])

    def state_dict(self):
        self.calls.append("state_dict")
        return {"seen": 7}

    def load_state_dict(self, state_dict):
        self.calls.append(["load_state_dict", state_dict])

    def on_before_batch_transfer(self, batch, dataloader_idx):
        self.calls.append(["before", len(batch), dataloader_idx])
        return batch

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        self.calls.append(["transfer", str(device), dataloader_idx])
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def on_after_batch_transfer(self, batch, dataloader_idx):
        self.calls.append(["after", dataloader_idx])
        return batch

    def _loader(self, name):
        assert self.trainer is not None
        self.calls.append(name)
        return DataLoader(torch.arange(32.0).reshape(8, 4) / 32, batch_size=2)

    def train_dataloader(self):
        return self._loader("train")

    def val_dataloader(self):
        return self._loader("val")

    def test_dataloader(self):
        return self._loader("test")

    def predict_dataloader(self):
        return self._loader("predict")

    def on_exception(self, exception):
        self.calls.append("on_exception")


def plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and value == float("inf"):
        return "inf"
    return value if type(value) in {int, float, str, bool, type(None), dict} else str(value)


def looking(seen: list, names: dict, asked: str) -> Any:
    """Return a callback that asks everything in every hook."""
    lines = [line for line in asked.splitlines() if line]

    def hook(name):
        def call(self, trainer, pl_module, *rest, **named):
            known = {**globals(), **names, "trainer": trainer, "module": pl_module, "looking": self}
            for line in lines:
                try:
                    found = plain(eval(line, known))
                except Exception as error:
                    found = f"{type(error).__name__} {error}"[:150]
                seen.append([len(seen) // len(lines), name, line, found])

        return call

    return type("Looking", (pl.Callback,), {n: hook(n) for n in HOOKS if n not in NEVER})()


def run(kind: type, asked: str) -> list:
    """Return what a callback saw that looks in every hook of all four verbs."""
    torch.manual_seed(1)
    seen: list = []
    saver, stopper = theirs.ModelCheckpoint(), theirs.EarlyStopping("val")
    bar = theirs.TQDMProgressBar()
    names = {"saver": saver, "stopper": stopper, "bar": bar}

    def make(*callbacks):
        return kind(
            max_epochs=2, accelerator="cpu", logger=CSVLogger("logs"), log_every_n_steps=1,
            callbacks=list(callbacks), enable_model_summary=False, num_sanity_val_steps=1,
        )  # fmt: skip

    module, data = Net(), Data([])
    watcher = looking(seen, names, asked)
    trainer = make(watcher, Writer("batch_and_epoch"), bar, stopper, saver)
    trainer.fit(module, datamodule=data)
    for verb in (trainer.validate, trainer.test):
        verb(module, datamodule=data, verbose=False)
    trainer.predict(module, datamodule=data)
    return seen


def loaded(kind: type) -> list:
    """Return the calls of a data module: in all four verbs, in a resume, and in one that fails."""
    torch.manual_seed(1)
    calls: list = []

    def make(epochs):
        return kind(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip

    module, data = Net(), Data(calls)
    trainer = make(1)
    for verb in (trainer.fit, trainer.validate, trainer.test, trainer.predict):
        calls.append(f"-- {verb.__name__}")
        verb(module, datamodule=data)
    calls.append("-- saved")
    trainer.save_checkpoint("x.ckpt")
    calls.append("-- resumed")
    make(2).fit(Net(), datamodule=Data(calls), ckpt_path="x.ckpt")
    calls.append("-- failed")
    module.layer = torch.nn.Linear(3, 1)
    with contextlib.suppress(RuntimeError):
        make(1).fit(module, datamodule=Data(calls))
    return calls


def swapped(kind: type) -> list[float]:
    """Return the weights of a fit whose optimizers a callback sets."""

    class Swap(pl.Callback):
        def on_train_start(self, trainer, pl_module):
            trainer.strategy.optimizers = [torch.optim.SGD(pl_module.parameters(), 0.01)]

        def on_train_epoch_start(self, trainer, pl_module):
            trainer.strategy.optimizers[0].param_groups[0]["lr"] *= 0.5

    torch.manual_seed(1)
    module = Net()
    kind(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, callbacks=[Swap()],
    ).fit(module, datamodule=Data([]))  # fmt: skip
    return [round(value, 6) for value in module.layer.weight.flatten().tolist()]


def main(target: str) -> None:
    prepare_process()
    results: dict[str, Any] = {}
    for side, kind in (("there", pl.Trainer), ("here", trainer_hooks.Trainer)):
        with quiet_folder():
            results[side] = {
                "seen": run(kind, ASKED), "calls": loaded(kind), "swapped": swapped(kind),
            }  # fmt: skip
    write_results(target, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
