"""The table of built-in callbacks and what each does in a training, here and in other trainers."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from host_fits import BATCHES, Here, Rows

from trainer_hooks import Callback
from trainer_hooks import callbacks as built_in
from trainer_hooks.compat.composer import callbacks as of_composer
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Pair:
    """A built-in callback, a training with it, and its effect.

    Attributes:
        make: makes the callback, given the host.
        effect: returns what the callback did, from the callback and the `Fit`.
        options: arguments of `fit`.
        data: makes the training data, given whether samples are dicts.
        same_weights: whether the trained weights are compared with those here.
        resumes: whether it is resumed, too.
        after_resume: the part of the effect that a resumed run has in common with the uncut one.
    """

    make: Callable[[Any], Any]
    effect: Callable[[Any, Any], Any]
    options: dict[str, Any] = field(default_factory=dict)
    data: Callable[[bool], Any] | None = None
    same_weights: bool = True
    resumes: bool = True
    after_resume: Callable[[Any], Any] = lambda effect: effect


def _stopping(host):
    # no epoch is better by that much, so that it stops in the second
    return built_in.EarlyStopping(host.monitor, min_delta=100.0, patience=1)


def _finetuning(_):
    return built_in.BackboneFinetuning(unfreeze_backbone_at_epoch=1)


class _Ticks:
    """A clock that moves when samples are loaded."""

    now = 0.0

    @classmethod
    def load(cls, index):
        cls.now += 100.0 if index == 5 else 1.0

    @classmethod
    def read(cls):
        return cls.now


def _last(fit, name):
    values = fit.logged.get(name)
    return None if not values else round(values[-1], 4)


def _has_logged(*names):
    return lambda _, fit: [bool(fit.logged.get(name)) for name in names]


def _notified(callback, _):
    body = json.loads(Path("ended.json").read_text())
    return [body[name] for name in ("status", "stage", "epoch", "step")]


def _journal(callback, fit):
    lines = [json.loads(line) for line in Path("journal", "run.jsonl").read_text().splitlines()]
    ends = [line for line in lines if line["event"] == "end"]
    return [ends[-1][name] for name in ("status", "global_step", "epoch")]


def _files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


PAIRS = {
    "EarlyStopping": Pair(
        _stopping,
        lambda c, fit: (fit.steps, c.stopped_epoch, c.wait_count, bool(c.stopping_value)),
        {"epochs": 5},
    ),
    "LearningRateMonitor": Pair(
        lambda _: built_in.LearningRateMonitor("step"), lambda c, fit: c.lrs,
        after_resume=lambda lrs: {name: rates[-1] for name, rates in lrs.items()},
    ),
    "GradientNormMonitor": Pair(
        lambda _: built_in.GradientNormMonitor(clipping="both"),
        lambda c, fit: (
            _last(fit, "grad_2.0_norm_total"), _last(fit, "clipped_grad_2.0_norm_total")
        ),
    ),
    "ThroughputMonitor": Pair(
        lambda _: built_in.ThroughputMonitor(
            batch_size_fn=lambda b: len(next(iter(b.values())) if hasattr(b, "values") else b[0])
        ),
        lambda c, fit: (
            c._stages["train"].batches, c._stages["train"].samples, _last(fit, "train/samples")
        ),
    ),
    "SlowStepDetector": Pair(
        lambda _: built_in.SlowStepDetector(min_steps=2, clock=_Ticks.read),
        # accelerate loads a batch ahead, so that its trainers wait for another batch
        lambda c, fit: [(s.epoch, s.cause) for s in c.slow_steps],
        data=lambda named: Rows(on_load=_Ticks.load, named=named), resumes=False,
    ),
    "NaNGuard": Pair(
        lambda _: built_in.NaNGuard("skip", check=("gradients", "parameters")),
        lambda c, fit: (c.skipped_steps, [event["step"] for event in c.events]),
        data=lambda named: Rows({2: math.nan}, named=named),
    ),
    "SpikeDetection": Pair(
        lambda _: built_in.SpikeDetection(on_spike="skip", exclude_batches_path="skip.json"),
        lambda c, fit: c.bad_batches,
        data=lambda named: Rows({2: math.nan}, named=named),
    ),
    "WeightAveraging": Pair(
        lambda _: built_in.WeightAveraging(), lambda c, fit: c.num_averaged,
    ),
    "EMAWeightAveraging": Pair(
        lambda _: built_in.EMAWeightAveraging(decay=0.5), lambda c, fit: c.num_averaged,
    ),
    "StochasticWeightAveraging": Pair(
        lambda _: built_in.StochasticWeightAveraging(0.05, swa_epoch_start=1, annealing_epochs=2),
        lambda c, fit: int(c.n_averaged), {"epochs": 4},
    ),
    "ModelPruning": Pair(
        lambda _: built_in.ModelPruning("l1_unstructured", amount=0.5),
        lambda c, fit: sum(int((w == 0).sum()) for w in fit.weights),
    ),
    "BackboneFinetuning": Pair(
        _finetuning, lambda c, fit: round(c.previous_backbone_lr, 6),
    ),
    "OnExceptionCheckpoint": Pair(
        lambda _: built_in.OnExceptionCheckpoint("failed"),
        lambda c, fit: (type(fit.error).__name__, _files("failed")),
        # accelerate loads a batch ahead, so that its trainers fail a batch before
        data=lambda named: Rows(fails_at=13, named=named), resumes=False, same_weights=False,
    ),
    "DeviceStatsMonitor": Pair(
        lambda _: built_in.DeviceStatsMonitor(cpu_stats=True),
        lambda c, fit: [
            any(name.endswith(end) for name in fit.logged) for end in ("cpu_percent", "vm_percent")
        ],
    ),
    "SystemMetricsMonitor": Pair(
        lambda _: of_composer.SystemMetricsMonitor(),
        lambda c, fit: any("cpu" in name for name in fit.logged),
    ),
    "Notify": Pair(
        lambda _: built_in.Notify(["tee", "ended.json"], name="run"), _notified, resumes=False,
    ),
    "SampleInspector": Pair(
        lambda _: built_in.SampleInspector(max_samples=3, stages="train"),
        lambda c, fit: c.taken["train"],
    ),
    "RunManifest": Pair(lambda _: built_in.RunManifest("journal"), _journal, resumes=False),
    "TQDMProgressBar": Pair(
        lambda _: built_in.TQDMProgressBar(),
        lambda c, fit: re.findall(r"Epoch \d/\d: 4/4", fit.printed), resumes=False,
    ),
    "RichProgressBar": Pair(
        lambda _: built_in.RichProgressBar(),
        lambda c, fit: re.findall(r"Epoch \d/\d: 4/4", fit.printed), resumes=False,
    ),
    "GarbageCollection": Pair(
        lambda _: built_in.GarbageCollection(2), lambda c, fit: gc.isenabled(),
    ),
    "Timer": Pair(
        lambda _: built_in.Timer("1 hours"), lambda c, fit: c.time_elapsed("train") > 0,
    ),
    "LambdaCallback": Pair(
        lambda _: _recording_lambda(), lambda c, fit: c.seen, after_resume=lambda seen: seen[-8:],
    ),
    "ModelSummary": Pair(
        lambda _: built_in.ModelSummary(),
        lambda c, fit: re.findall(r"\d+ +(?:Trainable|Total) params", fit.printed), resumes=False,
    ),
    "RichModelSummary": Pair(
        lambda _: built_in.RichModelSummary(),
        lambda c, fit: re.findall(r"\d+ +(?:Trainable|Total) params", fit.printed), resumes=False,
    ),
    "ModelCheckpoint": Pair(
        lambda _: built_in.ModelCheckpoint("best", "{epoch}", save_top_k=-1),
        lambda c, fit: _files("best"),
    ),
    "RuntimeEstimator": Pair(
        lambda _: built_in.RuntimeEstimator(), lambda c, fit: _last(fit, "time/remaining_estimate"),
    ),
    "ActivationMonitor": Pair(
        lambda _: built_in.ActivationMonitor(1, only_log_wandb=False),
        lambda c, fit: _last(fit, "activations/l2_norm/head_output.0"),
    ),
    "PrintMetricsCallback": Pair(
        lambda _: built_in.PrintMetricsCallback(),
        lambda c, fit: bool(re.findall(r"loss.*: \d", fit.printed)), resumes=False,
    ),
    "PrintProgressCallback": Pair(
        lambda _: built_in.PrintProgressCallback(),
        lambda c, fit: re.findall(r"epoch \d", fit.printed.lower()), resumes=False,
    ),
    "FreeOutputs": Pair(lambda _: built_in.FreeOutputs(), lambda c, fit: fit.steps),
    "Profiler": Pair(
        lambda _: built_in.Profiler(),
        lambda c, fit: fit.steps, resumes=False,
    ),
    "ExportForInferenceCallback": Pair(
        lambda _: built_in.ExportForInferenceCallback(
            "torch.export", "exported.pt2", sample_input=torch.zeros(2, 4)
        ),
        lambda c, fit: Path("exported.pt2").exists(), resumes=False,
    ),
    "MemoryMonitor": Pair(lambda _: of_composer.MemoryMonitor(), lambda c, fit: fit.steps),
    "MemorySnapshot": Pair(lambda _: built_in.MemorySnapshot(), lambda c, fit: fit.steps),
    "OOMObserver": Pair(lambda _: built_in.OOMObserver(), lambda c, fit: fit.steps),
    "GradientAccumulationScheduler": Pair(
        lambda _: built_in.GradientAccumulationScheduler({1: 2}), lambda c, fit: fit.steps,
    ),
    "LoadCheckpoint": Pair(
        lambda _: built_in.LoadCheckpoint(_pretrained(), load_weights_only=True),
        lambda c, fit: fit.steps, resumes=False,
    ),
    "ImageVisualizer": Pair(
        lambda _: built_in.ImageVisualizer("1ep", input_key=_as_images),
        lambda c, fit: fit.steps,
    ),
    "MLPerfCallback": Pair(
        lambda host: built_in.MLPerfCallback(
            "submission", 0, target=100.0, metric_name=host.monitor, submitter="us"
        ),
        lambda c, fit: len(list(Path("submission").rglob("*.txt"))), resumes=False,
    ),
    "QuantizationAwareTraining": Pair(
        lambda _: built_in.QuantizationAwareTraining(), lambda c, fit: fit.steps,
        resumes=False, same_weights=False,
    ),
    "BaseFinetuning": Pair(lambda _: _HeadFirst(), lambda c, fit: fit.steps),
    "ConvertSyncBatchNormCallback": Pair(
        lambda _: built_in.ConvertSyncBatchNormCallback(), lambda c, fit: fit.steps,
    ),
    "MoveModulesToDeviceCallback": Pair(
        lambda _: built_in.MoveModulesToDeviceCallback(), lambda c, fit: fit.steps,
    ),
}  # fmt: skip


class _HeadFirst(built_in.BaseFinetuning):
    """Trains the backbone from the second epoch on, at its own rate."""

    def freeze_before_training(self, pl_module):
        self.freeze(pl_module.backbone)

    def finetune_function(self, pl_module, epoch, optimizer):
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.backbone, optimizer, lr=0.05)


def _as_images(batch):
    rows = batch["x"] if hasattr(batch, "keys") else batch[0]
    return rows.reshape(-1, 1, 2, 2)


def _pretrained():
    """Save other weights than those that a training begins with, as a checkpoint of ours."""
    fit = Here().fit(epochs=1)
    fit.trainer.save_checkpoint("pretrained.ckpt")
    return "pretrained.ckpt"


ALL = ("lightning", "transformers", "composer", "accelerated", "ignite")


class _Writer(built_in.BasePredictionWriter):
    def write_on_batch_end(self, *given):
        pass


def _batch_size_finder(_):
    return built_in.BatchSizeFinder()


REFUSED = {
    "LearningRateFinder": (lambda _: built_in.LearningRateFinder(), ALL, "'trial_run'"),
    "BatchSizeFinder": (_batch_size_finder, ALL, "'reload_dataloaders'"),
    "BasePredictionWriter": (
        lambda _: _Writer("batch"), ALL, "would do nothing|batch_indices",
    ),
    "PredictionWriter": (
        lambda _: built_in.PredictionWriter("out.csv"), ALL, "would do nothing|batch_indices",
    ),
    "GradientAccumulationScheduler": (
        lambda _: built_in.GradientAccumulationScheduler({1: 2}), ALL[1:],
        "does not let 'accumulate_grad_batches' be set",
    ),
    "MLPerfCallback": (
        lambda host: PAIRS["MLPerfCallback"].make(host),
        ("lightning", "transformers", "ignite"), "loader",
    ),
    "ModelCheckpoint in the background": (
        lambda _: built_in.ModelCheckpoint("best", async_save=True), ALL, "save_in_background",
    ),
}  # fmt: skip
"""Built-in callbacks that hosts refuse: how to make one, the hosts, and words of the reason."""


def runs_in(host):
    """Return the names of the pairs that a host runs."""
    return [name for name in PAIRS if host not in REFUSED.get(name, ((), ()))[1]]


def _recording_lambda():
    callback = built_in.LambdaCallback(
        on_train_batch_end=lambda trainer, module, outputs, batch, batch_idx: callback.seen.append(
            (trainer.current_epoch, trainer.global_step, batch_idx)
        )
    )
    callback.seen = []
    return callback


def run(host, pair, **options):
    """Train with a pair's callback in a host, in the present folder; return its effect."""
    _Ticks.now = 0.0
    callback = pair.make(host)
    arguments = {**pair.options, **options}
    fails_at = arguments.pop("fails_at", 0)
    data = (pair.data or Rows)(named=getattr(host, "named", False))
    data.fails_at = data.fails_at or fails_at
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        fit = host.fit(callback, data=data, **arguments)
    fit.printed = printed.getvalue()
    return callback, fit


def here(pair, folder):
    """Return the effect and the weights of a pair in our own Trainer."""
    with contextlib.chdir(folder):
        callback, fit = run(Here(), pair)
        return pair.effect(callback, fit), fit.weights


def differences(pair, host, folder):
    """Return how a pair's effect in a host differs from that here."""
    for name in ("here", "there"):
        (Path(folder) / name).mkdir()
    expected, weights = here(pair, Path(folder) / "here")
    with contextlib.chdir(Path(folder) / "there"):
        callback, fit = run(host, pair)
        if fit.error is not None and not isinstance(fit.error, RuntimeError):
            raise fit.error
        effect = pair.effect(callback, fit)
    lines = [] if _equal(expected, effect) else [f"effect here {expected!r}, there {effect!r}"]
    if pair.same_weights:
        for one, other in zip(weights, fit.weights, strict=True):
            if not torch.allclose(one, other, atol=1e-5, equal_nan=True):
                lines.append(f"weights here {one.tolist()}, there {other.tolist()}")
                break
    if lines and fit.error is not None:
        lines.append(f"error there {fit.error!r}")
    return lines


def resumed_differences(pair, host, folder):
    """Return how a run that is cut in its second epoch, and resumed from the host's checkpoint of
    the first, differs from the uncut one.
    """
    for name in ("uncut", "cut"):
        (Path(folder) / name).mkdir()
    with contextlib.chdir(Path(folder) / "uncut"):
        callback, uncut = run(host, pair, saves=True)
        if uncut.error is not None:
            raise uncut.error
        effect, weights = pair.after_resume(pair.effect(callback, uncut)), uncut.weights
    with contextlib.chdir(Path(folder) / "cut"):
        _, cut = run(host, pair, saves=True, fails_at=2 * BATCHES + 5)
        assert isinstance(cut.error, RuntimeError), cut.error
        (checkpoint,) = cut.checkpoints.values()
        callback, fit = run(host, pair, saves=True, resume=checkpoint)
        if fit.error is not None:
            raise fit.error
        again = pair.after_resume(pair.effect(callback, fit))
    lines = []
    if not _equal(effect, again):
        lines.append(f"effect uncut {effect!r}, resumed {again!r}")
    for one, other in zip(weights, fit.weights, strict=True):
        if not torch.allclose(one, other, atol=1e-6, equal_nan=True):
            lines.append(f"weights after a resume: {one}, {other}")
            break
    return lines


def recording(hooks):
    """Return a callback of ours that notes its hooks, the epoch, the step and whole numbers."""
    calls = []

    def hook(name):
        def call(self, trainer, *given):
            told = [item for item in given[1:] if isinstance(item, int | str)]
            calls.append([name, trainer.current_epoch, trainer.global_step, *told])

        return call

    made = type("Recording", (Callback,), {name: hook(name) for name in hooks})()
    made.calls = calls
    return made


UNORDERED = frozenset(
    {
        # hosts load at other moments, and ask for a batch more or one ahead
        *("on_init_start", "on_init_end", "on_before_load", "on_after_load", "on_before_restore"),
        *("on_before_dataloader", "on_after_dataloader", "on_log", "on_checkpoint_saved"),
        # without a step of its own our module has no forward that we would see
        *("on_before_forward", "on_after_forward", "on_before_zero_grad"),
        *("on_validation_before_forward", "on_validation_after_forward"),
        *("on_before_loss", "on_after_loss", "on_configure_model", "on_save_checkpoint"),
        *("on_iteration_start", "on_iteration_end", "on_iteration_checkpoint"),
        *("on_close", "on_post_close"),
    }
)
"""Hooks whose place is not compared."""


def order_differences(host, events, folder, without=(), **options):
    """Return where the order of hooks in a host leaves that of our own Trainer."""
    hooks = [h for h in HOOKS if h in events and h not in UNORDERED and h not in without]
    hooks = [h for h in hooks if not h.startswith(("on_test_", "on_predict_"))]
    orders = []
    for number, each in enumerate((Here(), host)):
        place = Path(folder) / str(number)
        place.mkdir()
        callback = recording(hooks)
        with contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()):
            fit = each.fit(callback, epochs=2, **options)
        if fit.error is not None:
            raise fit.error
        orders.append(callback.calls)
    for index, (one, other) in enumerate(zip(*orders, strict=False)):
        if one != other:
            return f"after {orders[0][index - 1]}: here {one}, there {other}"
    return "" if len(orders[0]) == len(orders[1]) else f"ends {orders[0][-1]}, {orders[1][-1]}"


def _equal(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-5)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return _equal(sorted(one.items()), sorted(other.items()))
    return one == other
