"""The logs and gradients that callbacks of transformers are shown, there and here."""

from __future__ import annotations

import math
from pathlib import Path
from unittest.mock import ANY

import pytest
import torch
from foreign_programs import HuggingFaceModel, Named
from quiet_trainers import QUIET_OPTIONS
from torch.utils.data import DataLoader

import trainer_hooks

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

EVENTS = (
    "on_train_begin", "on_epoch_begin", "on_step_begin", "on_pre_optimizer_step",
    "on_optimizer_step", "on_substep_end", "on_step_end", "on_epoch_end", "on_prediction_step",
    "on_evaluate", "on_log", "on_train_end",
)  # fmt: skip


class Net(trainer_hooks.Module):
    """The model of `HuggingFaceModel`, which logs under the names that transformers gives."""

    def __init__(self):
        super().__init__()
        self.layer = HuggingFaceModel().layer

    def loss_of(self, batch):
        return torch.nn.functional.mse_loss(self.layer(batch["x"]), batch["labels"])

    def training_step(self, batch, batch_idx):
        loss = self.loss_of(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("eval_loss", self.loss_of(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def looking(transformers):
    """Return a callback that writes down its logs and, at each event, the gradients' norm."""

    class Look(transformers.TrainerCallback):
        def __init__(self):
            self.logs, self.gradients, self.evaluated, self.history = [], [], [], []

    def hook(name):
        def call(self, args, state, control, model=None, logs=None, metrics=None, **kwargs):
            found = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
            norm = torch.cat(found).norm().item() if found else None
            self.gradients.append((name, norm and pytest.approx(norm, rel=1e-4)))
            if logs is not None:
                self.logs.append(dict(logs))
            if metrics is not None:
                self.evaluated.append(dict(metrics))
            if name == "on_train_end":
                self.history = [dict(entry) for entry in state.log_history]

        return call

    for name in EVENTS:
        setattr(Look, name, hook(name))
    return Look()


def fit_there(transformers, *looks, accumulate=1, clip=None):
    torch.manual_seed(1)
    model = HuggingFaceModel()
    args = transformers.TrainingArguments(
        output_dir="there", num_train_epochs=2, per_device_train_batch_size=2,
        per_device_eval_batch_size=2, gradient_accumulation_steps=accumulate, eval_strategy="epoch",
        save_strategy="no", report_to=[], logging_steps=1, use_cpu=True, disable_tqdm=True,
        train_sampling_strategy="sequential", max_grad_norm=clip or 0,
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    constant = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
    trainer = transformers.Trainer(
        model, args, train_dataset=Named(), eval_dataset=Named(), callbacks=list(looks),
        optimizers=(optimizer, constant),
    )  # fmt: skip
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    trainer.train()


def fit_here(*looks, accumulate=1, clip=None, **options):
    torch.manual_seed(1)
    trainer = trainer_hooks.Trainer(
        callbacks=list(looks), max_epochs=2, **{**QUIET_OPTIONS, **options}, log_every_n_steps=1,
        accumulate_grad_batches=accumulate, gradient_clip_val=clip,
    )  # fmt: skip
    module = Net()
    trainer.fit(module, DataLoader(Named(), batch_size=2), DataLoader(Named(), batch_size=2))
    return module


def is_time(name):
    return name.endswith(("_runtime", "_per_second"))


def without_times(logs):
    """Return logged rows, of times and rates the names alone."""
    return [
        {name: "a time" if is_time(name) else value for name, value in row.items()} for row in logs
    ]


def nearly(logs, but=()):
    """Return the same to compare with, which is equal to numbers that are nearly the same."""
    return [
        {
            name: ANY if name in but else value if value == "a time" else pytest.approx(value, 1e-4)
            for name, value in row.items()
        }
        for row in without_times(logs)
    ]


@pytest.mark.parametrize(("accumulate", "clip"), [(1, None), (2, 0.5)])
def test_logs_and_gradients_are_those_of_home(monkeypatch, tmp_path, accumulate, clip):
    """Gradient norms, times of evaluations and the summary are logged, and gradients cleared."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    home, here = looking(transformers), looking(transformers)
    fit_there(transformers, home, accumulate=accumulate, clip=clip)
    fit_here(here, accumulate=accumulate, clip=clip)
    # a step of several batches logs their mean there, and here the last one's
    but = ("loss",) if accumulate > 1 else ()
    assert without_times(here.logs) == nearly(home.logs, but)
    assert without_times(here.history) == nearly(home.history, but)
    assert without_times(here.evaluated) == nearly(home.evaluated)
    assert here.gradients == home.gradients
    # the docs' table of differences has this row
    assert ("loss" in but) == (here.logs[0]["loss"] != pytest.approx(home.logs[0]["loss"], 1e-4))
    times = [value for row in here.logs for name, value in row.items() if is_time(name)]
    assert len(times) == 9
    assert all(math.isfinite(value) and value >= 0 for value in times)


def test_several_callbacks_make_one_history(monkeypatch, tmp_path):
    """Two callbacks are told the same, which is in the history once, and counted once."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    first, second = looking(transformers), looking(transformers)
    fit_here(first, second)
    assert first.logs == second.logs
    assert first.history == second.history
    assert [{k: v for k, v in row.items() if k != "step"} for row in first.history] == first.logs
    fit_here(alone := looking(transformers))
    assert without_times(first.logs) == without_times(alone.logs)


def test_gradients_are_there_again_after_the_event(monkeypatch, tmp_path):
    """A callback of ours finds them after one of transformers, which saw none."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)

    class Ours(trainer_hooks.Callback):
        band = trainer_hooks.Band.SINK

        def __init__(self):
            self.norms = []

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.norms.append(float(module.layer.weight.grad.norm()))

    fit_here(looking(transformers), mine := Ours())
    assert len(mine.norms) == 8
    assert all(norm > 0 for norm in mine.norms)


def test_the_summary_and_the_end_come_callback_by_callback(monkeypatch, tmp_path):
    """There all are told of the summary before the first is told of the end, as the docs say."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)

    def told(fit):
        calls = []

        class Tells(transformers.TrainerCallback):
            def on_log(self, args, state, control, logs=None, **kwargs):
                if "train_runtime" in logs:
                    calls.append((type(self).__name__, "on_log"))

            def on_train_end(self, args, state, control, **kwargs):
                calls.append((type(self).__name__, "on_train_end"))

        fit(type("First", (Tells,), {})(), type("Second", (Tells,), {})())
        return calls

    one, two = (("First", name) for name in ("on_log", "on_train_end"))
    three, four = (("Second", name) for name in ("on_log", "on_train_end"))
    assert told(lambda *both: fit_there(transformers, *both)) == [one, three, two, four]
    assert told(fit_here) == [one, two, three, four]


def test_sparse_gradients_have_a_norm(monkeypatch, tmp_path):
    """Those of an embedding, of which torch itself gives none."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)

    class Words(trainer_hooks.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(4, 1, sparse=True)

        def training_step(self, batch, batch_idx):
            loss = self.table(batch).mul(torch.tensor([[3.0], [4.0]])).sum()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = trainer_hooks.Trainer(
        callbacks=[look := looking(transformers)], max_epochs=1, **QUIET_OPTIONS,
        log_every_n_steps=1,
    )  # fmt: skip
    look.__class__.on_optimizer_step = look.__class__.on_pre_optimizer_step = lambda *_, **__: None
    trainer.fit(Words(), [torch.tensor([0, 1])])
    assert look.logs[0]["grad_norm"] == pytest.approx(5.0)


@pytest.mark.parametrize("event", ["on_step_end", "on_epoch_end"])
def test_a_step_is_logged_once_if_a_callback_asks_for_it_too(monkeypatch, tmp_path, event):
    """A request to log a step that is logged anyway adds no second row, as there."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)

    def ask(self, args, state, control, **kwargs):
        control.should_log = True

    asks = type("Asks", (transformers.TrainerCallback,), {event: ask})
    home, here = looking(transformers), looking(transformers)
    fit_there(transformers, asks(), home)
    fit_here(asks(), here)
    assert without_times(here.logs) == nearly(home.logs)
    assert sum("grad_norm" in row for row in here.logs) == 8


def test_the_best_folder_is_shown_if_a_callback_has_written_it(monkeypatch, tmp_path):
    """`state.best_model_checkpoint` is `checkpoint-STEP` of the best step, if it is there."""
    transformers = pytest.importorskip("transformers")
    from trainer_hooks.adapters.transformers import adapt

    monkeypatch.chdir(tmp_path)
    shown = []

    class Saves(transformers.TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            shown.append(state.best_model_checkpoint)
            Path(args.output_dir, f"checkpoint-{state.global_step}").mkdir(parents=True)

        def on_train_end(self, args, state, control, **kwargs):
            shown.append((state.best_model_checkpoint, state.best_global_step))

    args = transformers.TrainingArguments(
        output_dir="out", metric_for_best_model="eval_loss", greater_is_better=False,
        eval_strategy="epoch", report_to=[], use_cpu=True,
    )  # fmt: skip
    saver = trainer_hooks.callbacks.ModelCheckpoint("saved", save_on_train_epoch_end=True)
    fit_here(adapt(Saves(), args), saver, enable_checkpointing=True)
    assert shown[0] is None
    folder, step = shown[-1]
    assert folder == str(Path("out", f"checkpoint-{step}"))


def test_operations_are_not_counted(monkeypatch, tmp_path):
    """`total_flos` is 0, as there for a model without `floating_point_ops`."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)

    class Counts(transformers.TrainerCallback):
        def on_train_end(self, args, state, control, **kwargs):
            self.total = state.total_flos

    home, here = Counts(), Counts()
    fit_there(transformers, home)
    fit_here(here)
    assert here.total == home.total == 0


def test_a_checkpoint_has_the_history_without_times(monkeypatch, tmp_path):
    """There `trainer_state.json` of a checkpoint has the rows, with the times of evaluations."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    here = looking(transformers)
    saver = trainer_hooks.callbacks.ModelCheckpoint("saved", save_on_train_epoch_end=True)
    fit_here(here, saver, enable_checkpointing=True)
    checkpoint = torch.load(saver.best_model_path, weights_only=True)
    kept = checkpoint["transformers"]["log_history"]
    timed = [row for row in here.history if "train_runtime" not in row]
    assert kept == [{k: v for k, v in row.items() if not is_time(k)} for row in timed]
    assert any(is_time(name) for row in timed for name in row)
    assert len(here.history) == len(timed) + 1
