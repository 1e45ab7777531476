"""Callbacks of pytorch-accelerated and transformers, in their own Trainers and in ours.

`python cases.py results.json`: both run the same model, data and seed; written down are the events
in order with their counters, what the callbacks keep, the files, and the weights.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import pytorch_accelerated as pa  # noqa: E402
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from pytorch_accelerated import callbacks as pac  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402
from transformers import trainer_callback as hfc  # noqa: E402

import trainer_hooks  # noqa: E402


class Rows(Dataset):
    """Eight samples and their targets."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        row = torch.arange(4.0) / 4 + index / 8
        return row, row.sum().reshape(1) / 4


class Named(Rows):
    """The same as dicts."""

    def __getitem__(self, index):
        row, target = super().__getitem__(index)
        return {"x": row, "labels": target}


class Ours(trainer_hooks.Module):
    """The model for our Trainer."""

    def __init__(self, rate=0.1):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.rate = rate

    def loss_of(self, batch):
        x, y = batch.values() if isinstance(batch, dict) else batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def training_step(self, batch, batch_idx):
        loss = self.loss_of(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        loss = self.loss_of(batch)
        self.log("eval_loss_epoch", loss)
        self.log("eval_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.rate)


class Theirs(torch.nn.Module):
    """The model for Hugging Face's."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


def recording(base, calls, look):
    """Return a callback that writes down all events of its framework."""

    def hook(name):
        def call(self, *args, **named):
            calls.append([name, *look(*args)])

        return call

    names = [name for name in vars(base) if name.startswith("on_")]
    return type("Recording", (base,), {name: hook(name) for name in names})()


ACCELERATED = {
    "Recording": lambda calls: recording(
        pac.TrainerCallback, calls, lambda trainer: [trainer.run_history.current_epoch]
    ),
    "SaveBestModelCallback": lambda calls: pac.SaveBestModelCallback(save_optimizer=False),
    "EarlyStoppingCallback": lambda calls: pac.EarlyStoppingCallback(1, 10.0),
    "TerminateOnNaNCallback": lambda calls: pac.TerminateOnNaNCallback(),
    "PrintProgressCallback": lambda calls: pac.PrintProgressCallback(),
    "ProgressBarCallback": lambda calls: pac.ProgressBarCallback(),
    "MoveModulesToDeviceCallback": lambda calls: pac.MoveModulesToDeviceCallback(),
    "ConvertSyncBatchNormCallback": lambda calls: pac.ConvertSyncBatchNormCallback(),
    "LogMetricsCallback": lambda calls: Logging(calls),
}


class Logging(pac.LogMetricsCallback):
    """A logger of somebody's."""

    def __init__(self, calls):
        self.calls = calls

    def log_metrics(self, trainer, metrics):
        found = {k: round(float(v), 5) for k, v in metrics.items() if k == "eval_loss_epoch"}
        self.calls.append(found)


def accelerated(make, calls, *, here):
    """Train three epochs with a callback of pytorch-accelerated."""
    torch.manual_seed(1)
    callback = make(calls)
    if here:
        module = Ours()
        trainer = ours(callback, max_epochs=3)
        loader = DataLoader(Rows(), batch_size=2)
        trainer.fit(module, loader, DataLoader(Rows(), batch_size=2))
        model = module.layer
    else:
        model = torch.nn.Sequential(torch.nn.Linear(4, 1))
        trainer = pa.Trainer(
            model, torch.nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1), [callback]
        )
        trainer.train(
            Rows(), 3, Rows(), per_device_batch_size=2, train_dataloader_kwargs={"shuffle": False}
        )
        model = model[0]
    kept = {k: v for k, v in vars(callback).items() if isinstance(v, int | float | str | None)}
    return {
        "kept": {k: round(v, 5) if isinstance(v, float) else v for k, v in kept.items()},
        "weights": [round(v, 5) for v in model.weight.flatten().tolist()],
    }


TRANSFORMERS = {
    "Recording": lambda calls: recording(
        hfc.TrainerCallback, calls,
        lambda args, state, control: [state.global_step, round(state.epoch or 0, 4)],
    ),
    "PrinterCallback": lambda calls: hfc.PrinterCallback(),
    "ProgressCallback": lambda calls: hfc.ProgressCallback(),
    "Stopping": lambda calls: Stopping(),
    "EndingEpochs": lambda calls: EndingEpochs(calls),
    "DefaultFlowCallback": lambda calls: hfc.DefaultFlowCallback(),
}  # fmt: skip


class Stopping(hfc.TrainerCallback):
    """One of somebody's who stops after three steps."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            control.should_training_stop = True
        return control


class EndingEpochs(hfc.TrainerCallback):
    """One of somebody's who ends each epoch after a step."""

    def __init__(self, calls):
        self.calls = calls

    def on_step_end(self, args, state, control, **kwargs):
        control.should_epoch_stop = True
        return control

    def on_epoch_end(self, args, state, control, **kwargs):
        self.calls.append([state.global_step, state.epoch])


def transformers(make, calls, *, here):
    """Train two epochs with a callback of transformers."""
    torch.manual_seed(1)
    callback = make(calls)
    if here:
        module = Ours()
        trainer = ours(
            callback, max_epochs=2, accumulate_grad_batches=2, log_every_n_steps=1,
            enable_checkpointing=False,
        )  # fmt: skip
        loader = DataLoader(Named(), batch_size=2)
        trainer.fit(module, loader, DataLoader(Named(), batch_size=2))
        step, layer = trainer.global_step, module.layer
    else:
        model = Theirs()
        args = hf.TrainingArguments(
            output_dir=".", num_train_epochs=2, per_device_train_batch_size=2,
            per_device_eval_batch_size=2, gradient_accumulation_steps=2, eval_strategy="epoch",
            save_strategy="no", report_to=[], logging_steps=1, use_cpu=True, disable_tqdm=True,
            train_sampling_strategy="sequential", max_grad_norm=0,
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
        trainer = hf.Trainer(
            model, args, train_dataset=Named(), eval_dataset=Named(), callbacks=[callback],
            optimizers=(optimizer, schedule),
        )  # fmt: skip
        trainer.remove_callback(hfc.PrinterCallback)
        trainer.add_callback(callback) if isinstance(callback, hfc.PrinterCallback) else None
        trainer.train()
        step, layer = trainer.state.global_step, model.layer
        if (
            calls and calls[-2][0] == "on_log"
        ):  # the summary of a run at its end, which is none of the run's metrics
            assert calls.pop(-2) == ["on_log", 4, 2.0]
    return {"step": step, "weights": [round(v, 5) for v in layer.weight.flatten().tolist()]}


def ours(callback, **options):
    quiet = {
        "accelerator": "cpu", "default_root_dir": ".", "enable_model_summary": False,
        "logger": False, "enable_checkpointing": None, "plugins": False, "num_sanity_val_steps": 0,
        "enable_progress_bar": None,
    }  # fmt: skip
    return trainer_hooks.Trainer(**{**quiet, **options}, callbacks=[callback])


def main(target: str) -> None:
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    results: dict = {}
    for framework, run, cases in (
        ("accelerated", accelerated, ACCELERATED), ("transformers", transformers, TRANSFORMERS),
    ):  # fmt: skip
        for name, make in cases.items():
            for here in (False, True):
                calls: list = []
                silent = io.StringIO()
                with (
                    tempfile.TemporaryDirectory() as folder,
                    contextlib.chdir(folder),
                    contextlib.redirect_stdout(silent),
                    contextlib.redirect_stderr(silent),
                ):
                    try:
                        found = run(make, calls, here=here)
                    except Exception:
                        found = {"raised": traceback.format_exc()}
                    found["files"] = sorted(p.name for p in Path(folder).rglob("*.pt"))
                found["calls"] = calls
                results.setdefault(f"{framework} {name}", {})["here" if here else "there"] = found
    Path(target).write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
