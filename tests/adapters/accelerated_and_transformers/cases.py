"""Callbacks of pytorch-accelerated and transformers, in their own Trainers and in ours.

`python cases.py results.json`: both run the same model, data and seed; written down are the events
in order with their counters, what the callbacks keep, the files, and the weights. `cut` is a run in
ours that is broken off inside its second epoch and resumed: both parts together.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
import warnings

warnings.simplefilter("ignore")

import pytorch_accelerated as pa  # noqa: E402
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from foreign_programs import (  # noqa: E402
    HuggingFaceModel,
    Named,
    Rows,
    prepare_process,
    quiet_folder,
    write_results,
)
from pytorch_accelerated import callbacks as pac  # noqa: E402
from pytorch_accelerated.schedulers import WSDLrScheduler  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from transformers import trainer_callback as hfc  # noqa: E402

import trainer_hooks  # noqa: E402
from trainer_hooks.adapters.transformers import adapt  # noqa: E402


class Ours(trainer_hooks.Module):
    """The model for our Trainer."""

    def __init__(self, schedule=None):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.schedule = schedule

    def forward(self, x):
        return self.layer(x)

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
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        if self.schedule is None:
            return optimizer
        scheduler = {"scheduler": self.schedule(optimizer), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def recording(base, calls, look):
    """Return a callback that writes down all events of its framework."""

    def hook(name):
        def call(self, *args, **named):
            calls.append([name, *look(*args)])

        return call

    names = [name for name in vars(base) if name.startswith("on_")]
    return type("Recording", (base,), {name: hook(name) for name in names})()


class Broken(Exception):
    """Ends the first part of a run that is resumed."""


class Cut(trainer_hooks.Callback):
    """Saves at a step and breaks off."""

    band = trainer_hooks.Band.SINK

    def __init__(self, step):
        self.step = step

    def on_batch_checkpoint(self, trainer, module):
        if trainer.global_step == self.step:
            trainer.save_checkpoint("cut.ckpt")
            raise Broken


def fitted(make, calls, cut, loader, schedule, **options):
    """Fit one of ours with what `make` returns; through a checkpoint of a step, if `cut`."""
    rows = torch.manual_seed(1)
    callback, module = make(calls), Ours(schedule)
    path = None
    if cut:
        with contextlib.suppress(Broken):
            ours(callback, Cut(cut), **options).fit(module, loader(), loader())
        path = "cut.ckpt"
        began = len(calls)
        rows.manual_seed(2)
        callback, module = make(calls), Ours(schedule)
    trainer = ours(callback, **options)
    trainer.fit(module, loader(), loader(), ckpt_path=path)
    if cut:  # the second part begins, too
        starts = ("on_init_end", "on_training_run_start", "on_train_begin")
        calls[began:] = [call for call in calls[began:] if not named(call, *starts)]
        calls[:] = [call for call in calls if not named(call, "on_save")]
    return trainer, callback, module


def named(call, *names):
    return isinstance(call, list) and call[0] in names


class Schedule(WSDLrScheduler):
    """The same, which saves how far it came: theirs begins anew when it is resumed."""

    def state_dict(self):
        return {**super().state_dict(), "_num_updates": self._num_updates}


def schedule(optimizer):
    return Schedule(optimizer, total_steps=12, num_warmup_steps=2, decay_phase_ratio=0.25)


ACCELERATED = {
    "Recording": lambda calls: recording(
        pac.TrainerCallback, calls, lambda trainer: [trainer.run_history.current_epoch]
    ),
    "SaveBestModelCallback": lambda calls: pac.SaveBestModelCallback(save_optimizer=False),
    "EarlyStoppingCallback": lambda calls: pac.EarlyStoppingCallback(1, 10.0),
    "EarlyStoppingCallback-patient": lambda calls: pac.EarlyStoppingCallback(2, 10.0),
    "TerminateOnNaNCallback": lambda calls: pac.TerminateOnNaNCallback(),
    "PrintProgressCallback": lambda calls: pac.PrintProgressCallback(),
    "ProgressBarCallback": lambda calls: pac.ProgressBarCallback(),
    "MoveModulesToDeviceCallback": lambda calls: pac.MoveModulesToDeviceCallback(),
    "ConvertSyncBatchNormCallback": lambda calls: pac.ConvertSyncBatchNormCallback(),
    "LogMetricsCallback": lambda calls: Logging(calls),
    "LimitBatchesCallback": lambda calls: pac.LimitBatchesCallback(3),
    "LimitEvalStepsCallback": lambda calls: Limiting(calls),
    "ModelEmaCallback": lambda calls: Averaging(calls),
    "ModelEmaCallback-plain": lambda calls: pac.ModelEmaCallback(
        evaluate_during_training=False, callbacks=[]
    ),
    "SaveTrainingStateCallback": lambda calls: pac.SaveTrainingStateCallback(
        "states", save_every_n_epochs=2, save_every_n_steps=5, max_checkpoints=2
    ),
    "StepBasedEvaluationCallback": lambda calls: Evaluating(calls),
    "WSDCheckpointCallback": lambda calls: pac.WSDCheckpointCallback("wsd"),
}


class Limiting(pac.LimitEvalStepsCallback):
    """The same, which counts the steps of evaluations."""

    def __init__(self, calls):
        super().__init__(1, limit_intermediate_only=False)
        self.calls = calls

    def on_eval_step_end(self, trainer, **kwargs):
        self.calls.append(["on_eval_step_end", len(trainer._eval_dataloader)])


class Averaging(pac.ModelEmaCallback):
    """The same, which writes down the metrics of the average."""

    def __init__(self, calls):
        super().__init__(decay=0.5)
        self.calls = calls

    def on_training_run_epoch_end(self, trainer, **kwargs):
        names = ("eval_loss_epoch", "ema_model_eval_loss_epoch")
        super().on_training_run_epoch_end(trainer, **kwargs)
        self.calls.append([round(trainer.run_history.get_latest_metric(n), 5) for n in names])


class Evaluating(pac.StepBasedEvaluationCallback):
    """The same, which writes down the evaluations, with their losses."""

    def __init__(self, calls):
        super().__init__(2)
        self.calls = calls

    def on_eval_step_end(self, trainer, batch_output, **kwargs):
        self.calls.append(round(float(batch_output["loss"]), 5))

    def on_eval_epoch_end(self, trainer, is_intermediate=False, **kwargs):
        self.calls.append(["on_eval_epoch_end", is_intermediate])


class Logging(pac.LogMetricsCallback):
    """A logger of somebody's."""

    def __init__(self, calls):
        self.calls = calls

    def log_metrics(self, trainer, metrics):
        found = {k: round(float(v), 5) for k, v in metrics.items() if k == "eval_loss_epoch"}
        self.calls.append(found)


def accelerated(make, calls, *, here, cut):
    """Train three epochs with a callback of pytorch-accelerated."""
    torch.manual_seed(1)
    needs_schedule = isinstance(make([]), pac.WSDCheckpointCallback)
    torch.manual_seed(1)
    if here:
        _, callback, module = fitted(
            make, calls, cut, lambda: DataLoader(Rows(), batch_size=2),
            schedule if needs_schedule else None, max_epochs=3,
        )  # fmt: skip
        model = module.layer
    else:
        callback = make(calls)
        model = torch.nn.Sequential(torch.nn.Linear(4, 1))
        trainer = pa.Trainer(
            model, torch.nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1), [callback]
        )
        trainer.train(
            Rows(), 3, Rows(), per_device_batch_size=2, train_dataloader_kwargs={"shuffle": False},
            create_scheduler_fn=schedule if needs_schedule else None,
        )  # fmt: skip
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
    "EarlyStoppingCallback": lambda calls: Patient(calls),
}  # fmt: skip


class Patient(hfc.EarlyStoppingCallback):
    """The same, which writes down what it goes by."""

    def __init__(self, calls):
        super().__init__(early_stopping_patience=2, early_stopping_threshold=10.0)
        self.calls = calls

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        best = state.best_metric and round(state.best_metric, 5)
        super().on_evaluate(args, state, control, metrics, **kwargs)
        counter = self.early_stopping_patience_counter
        history = len([1 for entry in state.log_history if "loss" in entry])
        self.calls.append(["evaluated", state.global_step, best, counter, history])


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


def transformers(make, calls, *, here, cut):
    """Train with a callback of transformers, two epochs or more."""
    stops = isinstance(make([]), hfc.EarlyStoppingCallback)
    asked = {
        "num_train_epochs": 5 if stops else 2, "eval_strategy": "epoch",
        "metric_for_best_model": "eval_loss" if stops else None, "greater_is_better": False,
        "output_dir": ".", "report_to": [], "use_cpu": True,
    }  # fmt: skip
    torch.manual_seed(1)
    if here:
        trainer, _, module = fitted(
            lambda calls: adapt(make(calls), hf.TrainingArguments(**asked) if stops else None),
            calls, cut, lambda: DataLoader(Named(), batch_size=2), None,
            max_epochs=5 if stops else 2, accumulate_grad_batches=2, log_every_n_steps=1,
            enable_checkpointing=False,
        )  # fmt: skip
        step, layer = trainer.global_step, module.layer
    else:
        callback, model = make(calls), HuggingFaceModel()
        args = hf.TrainingArguments(
            **asked, per_device_train_batch_size=2, per_device_eval_batch_size=2,
            gradient_accumulation_steps=2, save_strategy="no", logging_steps=1, disable_tqdm=True,
            train_sampling_strategy="sequential", max_grad_norm=0,
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        constant = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
        trainer = hf.Trainer(
            model, args, train_dataset=Named(), eval_dataset=Named(), callbacks=[callback],
            optimizers=(optimizer, constant),
        )  # fmt: skip
        trainer.remove_callback(hfc.PrinterCallback)
        trainer.add_callback(callback) if isinstance(callback, hfc.PrinterCallback) else None
        trainer.train()
        step, layer = trainer.state.global_step, model.layer
    return {"step": step, "weights": [round(v, 5) for v in layer.weight.flatten().tolist()]}


def ours(*callbacks, **options):
    quiet = {
        "accelerator": "cpu", "default_root_dir": ".", "enable_model_summary": False,
        "logger": False, "enable_checkpointing": None, "plugins": False, "num_sanity_val_steps": 0,
        "enable_progress_bar": None,
    }  # fmt: skip
    return trainer_hooks.Trainer(**{**quiet, **options}, callbacks=list(callbacks))


STEPS = {"Stopping": 1, "EndingEpochs": 1}
"""Where a run is cut, if not inside of its second epoch."""


def files(folder):
    """Return what a callback left: models, and folders of states, whose forms are their own."""
    left = [path for path in sorted(folder.glob("*")) if path.name != "checkpoints"]
    inner = [path for found in left if found.is_dir() for path in sorted(found.glob("*"))]
    return [str(path.relative_to(folder)) for path in (*left, *inner) if path.suffix != ".ckpt"]


def main(target: str, *names: str) -> None:
    prepare_process()
    results: dict = {}
    for framework, run, cases, step in (
        ("accelerated", accelerated, ACCELERATED, 6),
        ("transformers", transformers, TRANSFORMERS, 3),
    ):
        for name, make in cases.items():
            if names and name not in names:
                continue
            for side in ("there", "here", "cut"):
                calls: list = []
                with quiet_folder() as folder:
                    try:
                        cut = STEPS.get(name, step) if side == "cut" else None
                        found = run(make, calls, here=side != "there", cut=cut)
                    except Exception:
                        found = {"raised": traceback.format_exc()}
                    found["files"] = files(folder)
                found["calls"] = calls
                results.setdefault(f"{framework} {name}", {})[side] = found
    write_results(target, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
