"""A fake trainer that walks through a fit in the documented order, without a model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trainer_hooks.progress import Progress


class FakeTrainer:
    """The part of the Trainer that the savers and controllers read, written out."""

    def __init__(self, root, *callbacks, batches=4, val_batches=1, **options):
        self.callbacks = callbacks
        self.progress = Progress()
        self.state = SimpleNamespace(fn="fit", stage="train")
        self.callback_metrics = {}
        self.val_check_interval = options.pop("val_check_interval", 1.0)
        self.check_val_every_n_epoch = options.pop("check_val_every_n_epoch", 1)
        self.steps_per_batch = options.pop("steps_per_batch", 1)
        self.log_every_n_steps = options.pop("log_every_n_steps", 2)
        self.fast_dev_run = options.pop("fast_dev_run", 0)
        self.min_epochs = options.pop("min_epochs", 0)
        self.min_steps = options.pop("min_steps", 0)
        self.log_dir = options.pop("log_dir", None)
        self.logger = options.pop("logger", None)
        self.optimizers = options.pop("optimizers", [])
        self.lr_scheduler_configs = options.pop("lr_scheduler_configs", [])
        assert not options, f"unknown: {options}"
        self.loggers = [self.logger] if self.logger else []
        self.default_root_dir = str(root)
        self.batches = batches
        self.num_val_batches = [val_batches] if val_batches else []
        self.sanity_checking = False
        self.is_last_batch = False
        self.should_stop = False
        self.stop_reason = ""
        self.stop_calls = []
        self.ckpt_path = self.named_ckpt_path = None
        self.is_global_zero = True
        self.saved = []
        self.logged = []
        self.fail_on_save = None
        self.on_train_batch = lambda trainer: None
        self.on_validation = lambda trainer: None

    @property
    def current_epoch(self):
        return self.progress.epochs_completed

    @property
    def global_step(self):
        return self.progress.steps_completed

    def fire(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, None, *args)

    def stop(self, reason):
        self.should_stop, self.stop_reason = True, reason
        self.stop_calls.append(reason)

    def log(self, **metrics):
        self.callback_metrics.update({k: torch.tensor(float(v)) for k, v in metrics.items()})

    def log_metrics(self, metrics, step=None):
        self.logged.append((self.progress.batches_stepped if step is None else step, metrics))

    def save_checkpoint(self, filepath, weights_only=False):
        if self.fail_on_save is not None:
            raise self.fail_on_save
        path = Path(filepath)
        path.parent.mkdir(parents=True, exist_ok=True)
        states = [callback.state_dict() for callback in self.callbacks]
        fresh = path.with_name(path.name + ".part")
        torch.save({"callbacks": states, "progress": self.progress.state_dict()}, fresh)
        fresh.replace(path)
        self.saved.append(path.name)
        self.fire("on_checkpoint_saved", str(path))

    def resume(self, path):
        self.ckpt_path = self.named_ckpt_path = str(path)
        self.fire("setup", "fit")
        checkpoint = torch.load(path, weights_only=True)
        self.progress.load_state_dict(checkpoint["progress"])
        for callback, state in zip(self.callbacks, checkpoint["callbacks"], strict=True):
            callback.load_state_dict(state)

    def validate(self, sanity=False):
        self.sanity_checking = sanity
        self.fire("on_validation_start")
        self.on_validation(self)
        if not sanity:
            self.progress.validated_at = self.progress.batches_completed
        self.fire("on_validation_end")
        self.sanity_checking = False

    def start(self):
        if self.ckpt_path is None:
            self.fire("setup", "fit")
        self.fire("on_fit_start")
        self.fire("on_train_start")

    def run_batch(self, index):
        self.is_last_batch = index == self.batches - 1
        self.fire("on_train_batch_start", None, index)
        self.progress.batches_completed += 1
        self.progress.batches_in_epoch += 1
        self.progress.steps_completed += self.steps_per_batch
        self.progress.batches_stepped += 1
        self.on_train_batch(self)
        self.fire("on_train_batch_end", {}, None, index)
        interval = self.val_check_interval
        if not (isinstance(interval, float) and interval == 1.0):
            every = interval if isinstance(interval, int) else int(self.batches * interval)
            if (index + 1) % every == 0 and self.num_val_batches:
                self.validate()
        self.fire("on_batch_checkpoint")

    def run_epoch(self):
        self.progress.begin_epoch()
        self.fire("on_train_epoch_start")
        for index in range(self.batches):
            self.run_batch(index)
            if self.should_stop and self.current_epoch >= self.min_epochs:
                break
        self.fire("on_train_batches_end")
        is_due = (self.current_epoch + 1) % self.check_val_every_n_epoch == 0
        by_epoch = isinstance(self.val_check_interval, float) and self.val_check_interval == 1.0
        if by_epoch and self.num_val_batches and is_due:
            self.validate()
        self.fire("on_train_epoch_end")
        self.fire("on_epoch_checkpoint")
        self.progress.complete_epoch()

    def fit(self, epochs):
        self.start()
        while self.current_epoch < epochs:
            if self.should_stop and self.current_epoch >= self.min_epochs:
                break
            self.run_epoch()
        self.fire("on_train_end")
        self.fire("teardown", "fit")


@pytest.fixture
def fake(tmp_path):
    """Return a function that makes a fake trainer in the test's folder."""

    def make(*callbacks, **options):
        return FakeTrainer(tmp_path, *callbacks, **options)

    return make


@pytest.fixture
def scores():
    """Return a function that makes a validation log one score after the other."""

    def make(*values, name="val_loss"):
        left = list(values)

        def on_validation(trainer):
            if not trainer.sanity_checking:
                trainer.log(**{name: left.pop(0)})

        return on_validation

    return make
