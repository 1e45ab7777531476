"""One model in Composer's Trainer and in ours, and what a callback did there."""

from __future__ import annotations

import contextlib
import io
import tempfile
import traceback
from collections import deque
from pathlib import Path

import composer
import torch
from composer.callbacks import CheckpointSaver
from composer.loggers import LoggerDestination
from composer.models import ComposerModel
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

import trainer_hooks

EVENTS = [event.value for event in composer.Event]

TRAINERS = ("loss/", "metrics/", "trainer/", "epoch", "MulticlassAccuracy", "train_loss")
"""What the two trainers and the module log by themselves."""

COUNTERS = {
    f"time/{unit}{rest}" for unit in ("epoch", "batch", "sample") for rest in ("", "_in_epoch")
}

WALL = (
    "throughput/", "time/", "cpu_", "disk_", "memory_", "network_", "swap_", "gpu_", "data_"
)  # fmt: skip
"""What is measured by a clock or of the machine."""


def layers():
    """A small classifier of images of 3 x 4 x 4."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))


class Theirs(ComposerModel):
    """The model for Composer's Trainer."""

    def __init__(self):
        super().__init__()
        self.layers = layers()
        self.accuracy = MulticlassAccuracy(num_classes=3, average="micro")

    def forward(self, batch):
        return self.layers(batch[0])

    def loss(self, outputs, batch):
        return torch.nn.functional.cross_entropy(outputs, batch[1])

    def get_metrics(self, is_train):
        return {} if is_train else {"MulticlassAccuracy": self.accuracy}

    def update_metric(self, batch, outputs, metric):
        metric.update(outputs, batch[1])


class Ours(trainer_hooks.Module):
    """The same for ours."""

    def __init__(self):
        super().__init__()
        self.layers = layers()
        self.accuracy = MulticlassAccuracy(num_classes=3, average="micro")

    def forward(self, batch):
        return self.layers(batch[0])

    def loss(self, outputs, batch):
        return torch.nn.functional.cross_entropy(outputs, batch[1])

    def validation_step(self, batch, batch_idx):
        outputs = self(batch)
        self.accuracy.update(outputs, batch[1])
        self.log("MulticlassAccuracy", self.accuracy)
        return outputs

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def loader():
    numbers = torch.Generator().manual_seed(0)
    images = torch.rand(16, 3, 4, 4, generator=numbers)
    return DataLoader(TensorDataset(images, torch.arange(16) % 3), batch_size=4)


class Written(LoggerDestination):
    """Write down what is logged, with its step."""

    def __init__(self):
        self.lines = []

    def log_metrics(self, metrics, step=None):
        for name, value in metrics.items():
            if not name.startswith(TRAINERS) and name not in COUNTERS:
                known = "measured" if name.startswith(WALL) else round(float(value), 5)
                self.lines.append([name, step, known])

    def log_images(self, images, name="Images", channels_last=False, step=None, *rest, **named):
        self.lines.append([name, step, [round(float(image.sum()), 4) for image in images]])

    def log_table(self, columns, rows, name="Table", step=None):
        self.lines.append([name, step, columns, rows])

    def log_hyperparameters(self, hyperparameters):
        self.lines += [[k, v] for k, v in hyperparameters.items() if k.startswith("time/")]


def train(callbacks, module=None, *, fits=True, ckpt_path=None, **options):
    """Train a module in our Trainer, and return that."""
    quiet = {
        "accelerator": "cpu", "max_epochs": 1, "logger": False, "plugins": False,
        "enable_progress_bar": False, "enable_model_summary": False,
        "enable_checkpointing": False, "num_sanity_val_steps": 0,
    }  # fmt: skip
    trainer = trainer_hooks.Trainer(**{**quiet, **options}, callbacks=list(callbacks))
    if fits:
        trainer.fit(module or Ours(), loader(), loader(), ckpt_path=ckpt_path)
    return trainer


def raised(call):
    """Return the error that a call raises."""
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


class Hearing(composer.Callback):
    """Keep every event, and what a function sees at some."""

    def __init__(self, look=None, at=""):
        self.events, self.found, self._look, self._at = [], [], look, at

    def run_event(self, event, state, logger):
        self.events.append(event.value)
        if event.value == self._at:
            self.found.append(self._look(state, logger))

    def close(self, state, logger):
        self.events.append("close")

    def post_close(self):
        self.events.append("post_close")


class SaveAt(trainer_hooks.Callback):
    """Save in the slot after a step, inside of an epoch."""

    def __init__(self, step):
        self.step = step

    def on_batch_checkpoint(self, trainer, module):
        if trainer.global_step == self.step:
            trainer.save_checkpoint("stopped.ckpt")


def plain(value):
    """Return what can be compared of an attribute."""
    if isinstance(value, composer.Timestamp):
        return [value.epoch.value, value.batch.value, value.sample.value]
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, torch.Tensor):
        return round(float(value), 5)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | deque):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, int | str | composer.Time | None) else "..."


def kept(callback, unlike):
    """Return the attributes of a callback, but those that are measured."""
    return {k: plain(v) for k, v in sorted(vars(callback).items()) if k not in unlike}


def weights(model):
    return [round(v, 5) for v in model.layers[1].weight.flatten().tolist()]


class Program:
    """What is run with a callback: epochs, evaluations, and whether it is stopped and resumed.

    Args:
        make: makes the callback.
        duration: how long, as Composer writes it.
        stop: where a first run ends, that a second goes on from; None for one run.
        evaluates: whether there is a loader to evaluate.
        unlike: attributes that are measured.
    """

    def __init__(self, make, duration="2ep", stop=None, evaluates=True, unlike=()):
        self.make, self.duration, self.stop = make, duration, stop
        self.evaluates, self.unlike = evaluates, set(unlike)

    def there(self):
        """Run it in Composer's Trainer."""
        path = None
        if self.stop is not None:
            trainer, callback, _ = self.train_there(self.stop)
            path = _saved_by(callback) or "stopped.pt"
            if path == "stopped.pt":
                trainer.save_checkpoint(path)
            trainer.close()
        trainer, callback, written = self.train_there(self.duration, load_path=path)
        trainer.close()
        return self._found(trainer.state.model, callback, written)

    def here(self):
        """Run it in ours."""
        path = None
        if self.stop is not None:
            trainer, _, callback, _ = self.train_here(self.stop)
            path = _saved_by(callback) or "stopped.ckpt"
            if path == "stopped.ckpt" and self.stop.endswith("ep"):
                trainer.save_checkpoint(path)
            trainer.close()
        trainer, module, callback, written = self.train_here(self.duration, ckpt_path=path)
        trainer.close()
        return self._found(module, callback, written)

    def train_there(self, duration, **options):
        torch.manual_seed(1)
        model, callback, written = Theirs(), self.make(), Written()
        trainer = composer.Trainer(
            model=model, train_dataloader=loader(), max_duration=duration,
            eval_dataloader=loader() if self.evaluates else None, run_name="run",
            optimizers=torch.optim.SGD(model.parameters(), 0.1), callbacks=[callback],
            loggers=[written], device="cpu", progress_bar=False, auto_log_hparams=False, **options,
        )  # fmt: skip
        trainer.fit()
        return trainer, callback, written

    def train_here(self, duration, ckpt_path=None):
        torch.manual_seed(1)
        module, callback, written = Ours(), self.make(), Written()
        saving = [SaveAt(int(self.stop[:-2]))] if self.stop and self.stop.endswith("ba") else []
        has_saver = isinstance(callback, CheckpointSaver)
        unit = {"ep": "max_epochs", "ba": "max_steps"}[duration[-2:]]
        trainer = trainer_hooks.Trainer(
            callbacks=[callback, written, *saving], accelerator="cpu", logger=False, plugins=False,
            enable_progress_bar=None, enable_model_summary=False,
            enable_checkpointing=None if has_saver else False,
            num_sanity_val_steps=0, log_every_n_steps=1, **{unit: int(duration[:-2])},
        )  # fmt: skip
        trainer.fit(module, loader(), loader() if self.evaluates else None, ckpt_path=ckpt_path)
        return trainer, module, callback, written

    def _found(self, model, callback, written):
        return {
            "logged": written.lines,
            "kept": kept(callback, {"calls", *self.unlike}),
            "weights": weights(model),
            "calls": getattr(callback, "calls", []),
        }


def _saved_by(callback):
    """Return the newest file of a saver, from which its run goes on; None of another callback."""
    return "saved/latest-rank0.pt" if isinstance(callback, CheckpointSaver) else None


def outcome(run):
    """Return what a run found, with the files that it left, or what it raised."""
    silent = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(silent),
        contextlib.redirect_stderr(silent),
    ):
        try:
            found = run()
        except Exception:
            found = {"raised": traceback.format_exc()}
        paths = [p.relative_to(folder) for p in Path(folder).rglob("*") if not p.is_dir()]
        found["files"] = sorted(str(p) for p in paths if not p.name.startswith("stopped."))
    return found
