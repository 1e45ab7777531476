"""Callbacks of ours in the Trainers of pytorch-accelerated and transformers, which run for real."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
import torch
from foreign_programs import HuggingFaceModel, Named, Rows

import trainer_hooks
from trainer_hooks.adapters import to_accelerated, to_transformers
from trainer_hooks.adapters.export.accelerated import ACCELERATED_EVENTS
from trainer_hooks.adapters.export.transformers import TRANSFORMERS_EVENTS
from trainer_hooks.hooks.spec import HOOKS

pa = pytest.importorskip("pytorch_accelerated", reason="needs pytorch-accelerated")
hf = pytest.importorskip("transformers", reason="needs transformers")

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def accelerated(*callbacks, epochs=2, evaluates=True, accumulate=1, **options):
    """Train in pytorch-accelerated's Trainer: four batches an epoch."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 1))
    trainer = pa.Trainer(
        model, torch.nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1), callbacks
    )
    trainer.train(
        Rows(), epochs, Rows() if evaluates else None, per_device_batch_size=2,
        train_dataloader_kwargs={"shuffle": False}, gradient_accumulation_steps=accumulate,
        **options,
    )  # fmt: skip
    return trainer


def transformers(*callbacks, epochs=2, resume=None, **options):
    """Train in Hugging Face's Trainer: four batches an epoch."""
    torch.manual_seed(1)
    model = HuggingFaceModel()
    args = hf.TrainingArguments(
        **{
            "output_dir": ".", "num_train_epochs": epochs, "per_device_train_batch_size": 2,
            "per_device_eval_batch_size": 2, "eval_strategy": "epoch", "save_strategy": "epoch",
            "report_to": [], "logging_steps": 1, "use_cpu": True, "disable_tqdm": True,
            "train_sampling_strategy": "sequential", "max_grad_norm": 0,
            "restore_callback_states_from_checkpoint": True, **options,
        }
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
    trainer = hf.Trainer(
        model, args, train_dataset=Named(), eval_dataset=Named(), callbacks=list(callbacks),
        optimizers=(optimizer, schedule),
    )  # fmt: skip
    trainer.remove_callback(hf.trainer_callback.PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def recording(hooks):
    """Return a callback of ours that writes down its hooks, the epoch and what they were given."""
    calls = []

    def hook(name):
        def call(self, trainer, *given):
            epoch = None if name == "on_init_end" else trainer.current_epoch
            told = [item for item in given[1:] if isinstance(item, int | str)]
            calls.append([name, epoch, *told])

        return call

    kind = type("Recording", (trainer_hooks.Callback,), {name: hook(name) for name in hooks})
    made = kind()
    made.calls = calls
    return made


class Counting(trainer_hooks.Callback):
    """Counts batches in its state, and logs the number."""

    def __init__(self):
        self.batches, self.loaded = 0, None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1
        assert outputs["loss"].ndim == 0
        self.log("batches", self.batches)

    def state_dict(self):
        return {"batches": torch.tensor(self.batches), "pair": (1, 2)}

    def load_state_dict(self, state):
        assert state["pair"] == (1, 2)
        self.batches = self.loaded = int(state["batches"])


class Before(trainer_hooks.Callback):
    """Has a hook that neither has."""

    def on_before_loss(self, trainer, module):
        """Do nothing."""


class Stops(trainer_hooks.Callback):
    """Stops after its third batch, by a verb or by raising."""

    def __init__(self, raises):
        self.raises, self.ended = raises, 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.ended += 1
        if self.ended == 3:
            if self.raises:
                raise trainer_hooks.StopTraining("enough")
            trainer.stop("enough")


class Asks(trainer_hooks.Callback):
    """Looks for what no other trainer has."""

    def on_train_start(self, trainer, module):
        trainer.trial_run(3)


def error_of(action):
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nothing was raised")


# --- pytorch-accelerated ---


def test_the_hooks_of_a_test_in_pytorch_accelerated():
    one = recording([name for name in ACCELERATED_EVENTS if HOOKS[name]])
    trainer = accelerated(to_accelerated(one), epochs=1)
    one.calls.clear()
    trainer.evaluate(Rows(), per_device_batch_size=4)
    assert [call[0] for call in one.calls] == [
        "setup", "on_evaluation_run_start", "on_test_start", "on_test_epoch_start",
        *["on_test_batch_start", "on_test_batch_end"] * 2, "on_test_epoch_end", "on_test_end",
        "on_evaluation_run_end", "teardown",
    ]  # fmt: skip


def test_the_weights_are_stepped_when_a_batch_ends_in_pytorch_accelerated():
    seen = []

    class Looks(trainer_hooks.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            seen.append(module[0].weight.sum().item())

    trainer = accelerated(to_accelerated(Looks()), epochs=1)
    assert len(set(seen)) == 4
    assert seen[-1] == trainer.model[0].weight.sum().item()


def test_a_resume_in_pytorch_accelerated():
    first = Counting()
    trainer = accelerated(to_accelerated(first), epochs=1)
    assert trainer.run_history.get_metric_values("batches") == [1.0, 2.0, 3.0, 4.0]
    trainer.save_training_state("state")
    resumed = Counting()
    accelerated(
        to_accelerated(resumed), pa.callbacks.SaveTrainingStateCallback("states"),
        epochs=2, max_num_train_steps=8, resume_from="state",
    )  # fmt: skip
    assert (resumed.loaded, resumed.batches) == (4, 8)
    assert len(list(Path("states").rglob("callback_Counting.pt"))) == 1


def test_stops_in_pytorch_accelerated():
    for raises in (False, True):
        stops, told = Stops(raises), recording(["on_stop_training_error", "on_fit_end"])
        accelerated(to_accelerated(stops), to_accelerated(told))
        assert stops.ended == 3
        assert [name for name, *_ in told.calls] == ["on_stop_training_error", "on_fit_end"]


def test_lacks_are_named_in_pytorch_accelerated():
    error = error_of(lambda: to_accelerated(Before()))
    assert "to_accelerated(Before): pytorch-accelerated has no hook 'on_before_loss'" in error
    error = error_of(lambda: to_accelerated(Asks()))
    for word in ("'trial_run'", "Asks.on_train_start", "pytorch-accelerated"):
        assert word in error


def test_early_stopping_in_pytorch_accelerated():
    for monitor in ("eval_loss_epoch", "train_loss_epoch"):
        stopping = trainer_hooks.callbacks.EarlyStopping(monitor, patience=1, min_delta=100.0)
        trainer = accelerated(to_accelerated(stopping), epochs=4, evaluates="eval" in monitor)
        assert trainer.run_history.current_epoch == 2
        assert "did not improve in 1 check" in stopping.stopping_reason_message


# --- transformers ---


def test_a_resume_in_transformers():
    for cut, options in ((4, {}), (6, {"save_strategy": "steps", "save_steps": 6})):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            uncut, first = recording(TRANSFORMERS_EVENTS), Counting()
            trainer = transformers(to_transformers(first), to_transformers(uncut), **options)
            assert first.batches == 8
            logged = [entry["batches"] for entry in trainer.state.log_history if "batches" in entry]
            assert logged == [1, 2, 3, 4, 5, 6, 7, 8]
            resumed, told = Counting(), recording(TRANSFORMERS_EVENTS)
            both = to_transformers(resumed), to_transformers(told)
            transformers(*both, resume=f"checkpoint-{cut}", **options)
            assert (resumed.loaded, resumed.batches) == (cut, 8)
            kind = "on_train_batch_end"
            ends = [[call for call in one.calls if call[0] == kind] for one in (uncut, told)]
            assert ends[0][cut:] == ends[1]


def test_stops_in_transformers():
    for raises in (False, True):
        stops = Stops(raises)
        trainer = transformers(to_transformers(stops))
        assert (stops.ended, trainer.state.global_step) == (3, 3)


def test_requests_in_transformers():
    class Requests(trainer_hooks.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 1:
                trainer.request_checkpoint()
                trainer.end_epoch()

    requests, told = Requests(), recording(["on_train_epoch_start", "on_train_batch_end"])
    transformers(to_transformers(requests), to_transformers(told), save_strategy="no")
    one = [["on_train_epoch_start"], ["on_train_batch_end", 0], ["on_train_batch_end", 1]]
    assert [[name, *rest] for name, _, *rest in told.calls] == one * 2
    assert [epoch for _, epoch, *_ in told.calls] == [0, 0, 0, 1, 1, 1]
    assert Path("checkpoint-2").is_dir()


def test_lacks_are_named_in_transformers():
    error = error_of(lambda: to_transformers(Before()))
    assert "to_transformers(Before): transformers has no hook 'on_before_loss'" in error
    error = error_of(lambda: to_transformers(Asks()))
    for word in ("'trial_run'", "Asks.on_train_start", "transformers"):
        assert word in error


def test_early_stopping_in_transformers():
    for strategy, steps in (("epoch", 8), ("steps", 2)):
        stopping = trainer_hooks.callbacks.EarlyStopping("eval_loss", patience=1, min_delta=100.0)
        trainer = transformers(
            to_transformers(stopping), epochs=4, eval_strategy=strategy, eval_steps=1
        )
        assert trainer.state.global_step == steps
        assert "did not improve in 1 check" in stopping.stopping_reason_message
