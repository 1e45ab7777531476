"""Every callback that comes with trainer_hooks keeps the contract that it asks of others."""

from __future__ import annotations

import contextlib
import copy
import gc
import math
import os
import random
import signal
import tempfile
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from own_loops import TrainerByRun
from samples import one_in, spread
from torch import Tensor, nn
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Module, Run, Trainer, callbacks, every, once
from trainer_hooks.callbacks import (
    ActivationMonitor,
    BackboneFinetuning,
    BaseFinetuning,
    BasePredictionWriter,
    BatchSizeFinder,
    Checkpoint,
    ConvertSyncBatchNormCallback,
    DeviceStatsMonitor,
    EarlyStopping,
    EMAWeightAveraging,
    ExportForInferenceCallback,
    FreeOutputs,
    GarbageCollection,
    Generate,
    GradientAccumulationScheduler,
    GradientNormMonitor,
    ImageVisualizer,
    LambdaCallback,
    LearningRateFinder,
    LearningRateMonitor,
    LoadCheckpoint,
    MemorySnapshot,
    MLPerfCallback,
    ModelCheckpoint,
    ModelPruning,
    ModelSummary,
    MoveModulesToDeviceCallback,
    NaNGuard,
    Notify,
    OnExceptionCheckpoint,
    OOMObserver,
    PredictionWriter,
    PrintMetricsCallback,
    PrintProgressCallback,
    Profiler,
    ProgressBar,
    QuantizationAwareTraining,
    RichModelSummary,
    RichProgressBar,
    RunManifest,
    RuntimeEstimator,
    SampleInspector,
    SlowStepDetector,
    SpikeDetection,
    StochasticWeightAveraging,
    ThroughputMonitor,
    Timer,
    TQDMProgressBar,
    WeightAveraging,
    WSDCheckpointCallback,
)
from trainer_hooks.compat.accelerated import callbacks as accelerated_callbacks
from trainer_hooks.compat.accelerated.callbacks import (
    EarlyStoppingCallback,
    LimitBatchesCallback,
    LimitEvalStepsCallback,
    LogMetricsCallback,
    ModelEmaCallback,
    ProgressBarCallback,
    SaveBestModelCallback,
    SaveTrainingStateCallback,
    StepBasedEvaluationCallback,
    TerminateOnNaNCallback,
)
from trainer_hooks.compat.composer import callbacks as composer_callbacks
from trainer_hooks.compat.composer.callbacks import (
    CheckpointSaver,
    EarlyStopper,
    GradMonitor,
    LRMonitor,
    MemoryMonitor,
    NaNMonitor,
    OptimizerMonitor,
    SpeedMonitor,
    SystemMetricsMonitor,
    ThresholdStopper,
)
from trainer_hooks.errors import CallbackError, TerminationSignal
from trainer_hooks.runtime import rng
from trainer_hooks.testing import TinyModule, harness, resume_check
from trainer_hooks.testing.contract import CHECKS
from trainer_hooks.testing.harness import CallbackHarness
from trainer_hooks.testing.nested_diff import nested_differences

pytestmark = pytest.mark.slow  # a training for each check of each callback


def _nothing(*args: object) -> None:
    pass


class _Stumbling(TinyModule):
    """Breaks in one batch of an epoch, whichever place it has in it."""

    def loss(self, outputs: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = super().loss(outputs, batch)
        return loss * math.nan if self.training and bool(batch[0].flatten()[0] == 0) else loss


def _samples(batch: list) -> int:
    return len(batch[0])


class _Writer(BasePredictionWriter):
    def write_on_batch_end(self, trainer, pl_module, prediction, *about: object) -> None:
        pass

    def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices) -> None:
        pass


class _Shadow(nn.Module):
    """Keeps an average in the way that classes of other libraries do."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__()
        self.module = copy.deepcopy(module)
        self.decay = decay
        self.register_buffer("updates", torch.tensor(0))

    def update(self, module: nn.Module) -> None:
        self.updates += 1
        for kept, now in zip(self.module.parameters(), module.parameters(), strict=True):
            kept.lerp_(now, 1 - self.decay)


class _Sized(TinyModule):
    def __init__(self) -> None:
        super().__init__()
        self.batch_size = 1

    def train_dataloader(self) -> DataLoader:
        loader = super().train_dataloader()
        generator = torch.Generator().manual_seed(0)
        return DataLoader(loader.dataset, self.batch_size, shuffle=True, generator=generator)


class _Split(TinyModule):
    """A module with a backbone, whose optimizer is made of what is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.BatchNorm1d(2), nn.Linear(2, 2, device="meta").to_empty(device="cpu")
        )
        self.backbone[1].load_state_dict(self.layer.state_dict())

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return self.layer(self.backbone(batch[0]))

    def configure_optimizers(self) -> dict[str, Any]:
        trained = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=self.lr)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
        }


class _LayerLater(BaseFinetuning):
    """Trains the layer in the second epoch, in two groups."""

    def freeze_before_training(self, pl_module: Module) -> None:
        self.freeze(pl_module.layer)

    def finetune_function(self, pl_module: Module, epoch: int, optimizer: Any) -> None:
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.layer, optimizer, lr=0.5)


def _saved(*, weights_only: bool) -> str:
    """Save a module as it is before any training, and return the path."""
    path = f"saved-{weights_only}.ckpt"
    trainer = Trainer(
        max_epochs=1,
        logger=False,
        plugins=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with rng.isolated():
        trainer.fit(TinyModule())
        trainer.save_checkpoint(path, weights_only)
    return path


class _Decays(torch.optim.lr_scheduler.ConstantLR):
    """Says when its decays end."""

    decay_phase_ratio = 0.5

    def get_checkpoint_steps(self) -> list[int]:
        return [2, 4]


class _Decaying(TinyModule):
    """Is trained with such a schedule."""

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        return [optimizer], [{"scheduler": _Decays(optimizer), "interval": "step"}]


def _as_pictures(batch: list[Tensor]) -> Tensor:
    return batch[0].unsqueeze(-1)


class _Segmenting(TinyModule):
    """Predicts a class for each of two pixels."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> dict[str, Tensor]:
        outputs = self(batch)
        return {"loss": self.loss(outputs, batch), "outputs": outputs.unsqueeze(-1)}

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self(batch).unsqueeze(-1)


class _Writing(TinyModule):
    """Generates."""

    def generate(self, prompts: list[str]) -> list[str]:
        return [f"{prompt} {torch.rand(()).item()}" for prompt in prompts]


_SPLIT = {"module": _Split}
_LOGGED = {"trainer_options": {"log_every_n_steps": 1}}
_THREE_EPOCHS = {**_SPLIT, "trainer_options": {"max_epochs": 3}}


CASES = {
    "ActivationMonitor": (lambda: ActivationMonitor("1ba", only_log_wandb=False), {}),
    "ActivationMonitor, for wandb": (ActivationMonitor, {}),
    "BackboneFinetuning": (lambda: BackboneFinetuning(1), _THREE_EPOCHS),
    "BackboneFinetuning, from the start": (
        lambda: BackboneFinetuning(0, backbone_initial_lr=0.5, train_bn=False),
        _SPLIT,
    ),
    "BackboneFinetuning, not yet": (BackboneFinetuning, _SPLIT),
    "BaseFinetuning": (_LayerLater, _SPLIT),
    "BasePredictionWriter": (lambda: _Writer("batch_and_epoch"), {}),
    "BatchSizeFinder": (lambda: BatchSizeFinder(steps_per_trial=1, max_val=4), {"module": _Sized}),
    "BatchSizeFinder, binsearch": (
        lambda: BatchSizeFinder("binsearch", steps_per_trial=1, margin=0.5),
        {"module": _Sized},
    ),
    "Checkpoint": (Checkpoint, {}),
    "CheckpointSaver": (lambda: CheckpointSaver(overwrite=True), {}),
    "CheckpointSaver, batches": (
        lambda: CheckpointSaver(
            "kept", save_interval="1ba", num_checkpoints_to_keep=2, overwrite=True
        ),
        {},
    ),
    "CheckpointSaver, by samples and at a moment": (
        lambda: CheckpointSaver("s", save_interval=every("3sp") | once("0.5dur"), overwrite=True),
        {},
    ),
    "ConvertSyncBatchNormCallback": (ConvertSyncBatchNormCallback, {}),
    "DeviceStatsMonitor": (DeviceStatsMonitor, {}),
    "DeviceStatsMonitor, processor too": (lambda: DeviceStatsMonitor(cpu_stats=True), {}),
    "EMAWeightAveraging": (lambda: EMAWeightAveraging(decay=0.5), {}),
    "EMAWeightAveraging, epochs": (
        lambda: EMAWeightAveraging(
            "cpu", False, update_every_n_steps=2, update_starting_at_epoch=0
        ),
        {},
    ),
    "EarlyStopper": (lambda: EarlyStopper("val_loss", "eval"), {}),
    "EarlyStopper, by batches": (
        lambda: EarlyStopper("train_loss", "train", "lt", 0.01, "1ba"),
        {},
    ),
    "EarlyStopping": (lambda: EarlyStopping("val_loss"), {}),
    "EarlyStopping, after training": (
        lambda: EarlyStopping("train_loss", check_on_train_epoch_end=True, mode="max"),
        {},
    ),
    "EarlyStopping, at once": (lambda: EarlyStopping("val_loss", patience=1, min_delta=9.0), {}),
    "EarlyStoppingCallback": (EarlyStoppingCallback, {}),
    "EarlyStoppingCallback, goes on": (
        lambda: EarlyStoppingCallback(3, 0.0, "train_loss_epoch", reset_on_train=False),
        {},
    ),
    "ExportForInferenceCallback": (
        lambda: ExportForInferenceCallback("torch.export", "tiny.pt2"),
        {},
    ),
    "ExportForInferenceCallback, to TorchScript": (
        lambda: ExportForInferenceCallback("torchscript", "tiny.pt"),
        {},
    ),
    "FreeOutputs": (FreeOutputs, {}),
    "GarbageCollection": (lambda: GarbageCollection(every_n_steps=5), {}),
    "Generate": (lambda: Generate("a", "2ba"), {"module": _Writing}),
    "GradMonitor": (GradMonitor, {}),
    "GradMonitor, each layer": (
        lambda: GradMonitor(True),
        _LOGGED,
    ),
    "GradientAccumulationScheduler": (
        lambda: GradientAccumulationScheduler({0: 1, 1: 2}),
        {"trainer_options": {"accumulate_grad_batches": 1}},
    ),
    "GradientAccumulationScheduler, at first": (
        lambda: GradientAccumulationScheduler({0: 2, 1: 3}),
        {"trainer_options": {"accumulate_grad_batches": 1}},
    ),
    "GradientNormMonitor": (GradientNormMonitor, {}),
    "GradientNormMonitor, each layer": (
        lambda: GradientNormMonitor(1.0, per_layer=True, clipping="both"),
        {"trainer_options": {"gradient_clip_val": 0.1}},
    ),
    "ImageVisualizer": (lambda: ImageVisualizer("2ba", input_key=_as_pictures), {}),
    "ImageVisualizer, masks": (
        lambda: ImageVisualizer("1ep", "segmentation", 1, False, _as_pictures, _as_pictures),
        {"module": _Segmenting},
    ),
    "LRMonitor": (LRMonitor, {}),
    "LambdaCallback": (lambda: LambdaCallback(on_train_batch_end=_nothing, teardown=_nothing), {}),
    "LearningRateFinder": (
        lambda: LearningRateFinder(1e-3, num_training_steps=20),
        {"skip": ("neighbours",)},
    ),
    "LearningRateFinder, without setting it": (
        lambda: LearningRateFinder(1e-3, num_training_steps=20, update_attr=False),
        {},
    ),
    "LearningRateMonitor": (LearningRateMonitor, {}),
    "LearningRateMonitor, by batches": (lambda: LearningRateMonitor("2ba"), {}),
    "LearningRateMonitor, steps": (
        lambda: LearningRateMonitor("step", log_momentum=True, log_weight_decay=True),
        {},
    ),
    "LimitBatchesCallback": (lambda: LimitBatchesCallback(2), {}),
    "LimitEvalStepsCallback": (
        lambda: LimitEvalStepsCallback(1),
        {"trainer_options": {"val_check_interval": 1}},
    ),
    "LimitEvalStepsCallback, all": (lambda: LimitEvalStepsCallback(1, False), {}),
    "LoadCheckpoint": (lambda: LoadCheckpoint(_saved(weights_only=False)), {}),
    "LoadCheckpoint, weights after an epoch": (
        lambda: LoadCheckpoint(_saved(weights_only=True), True, event="on_train_epoch_end"),
        {},
    ),
    "LogMetricsCallback": (LogMetricsCallback, {}),
    "MLPerfCallback": (
        lambda: MLPerfCallback("submission", 0, metric_name="val_acc", target=1.0),
        {"skip": ("refits",)},  # it never writes a result of another run over
    ),
    "MLPerfCallback, stopping": (
        lambda: MLPerfCallback(
            "submission", 1, "bert", 0.1, metric_name="val_acc", exit_at_target=True
        ),
        {"skip": ("refits",)},
    ),
    "MemoryMonitor": (MemoryMonitor, {}),
    "MemoryMonitor, over processes": (
        lambda: MemoryMonitor({"num_ooms": "ooms"}, "3ba"),
        _LOGGED,
    ),
    "MemorySnapshot": (MemorySnapshot, {}),
    "MemorySnapshot, an epoch": (lambda: MemorySnapshot(0, "1ep", overwrite=True), {}),
    "ModelCheckpoint": (ModelCheckpoint, {}),
    "ModelCheckpoint, best and last": (
        lambda: ModelCheckpoint(monitor="val_loss", save_top_k=2, save_last=True),
        {},
    ),
    "ModelCheckpoint, in the background": (
        lambda: ModelCheckpoint(monitor="val_loss", save_last=True, async_save=True),
        # when a file is done that a thread writes is a matter of chance; the end is compared
        {"may_differ": ("store", "on_checkpoint_saved")},
    ),
    "ModelCheckpoint, by samples and at a moment": (
        lambda: ModelCheckpoint(
            "kept", monitor="train_loss", save_interval=every("3sp") | once("0.5dur")
        ),
        {},
    ),
    "ModelCheckpoint, steps": (
        lambda: ModelCheckpoint(
            dirpath="kept", monitor="train_loss", every_n_train_steps=1, save_top_k=-1
        ),
        {},
    ),
    "ModelEmaCallback": (lambda: ModelEmaCallback(0.5), {}),
    "ModelEmaCallback, unseen": (
        lambda: ModelEmaCallback(
            0.5, False, model_ema=_Shadow, callbacks=EarlyStopping("val_loss")
        ),
        {},
    ),
    "ModelPruning": (lambda: ModelPruning("l1_unstructured", amount=0.25), {}),
    "ModelPruning, each on its own": (
        lambda: ModelPruning(
            "l1_unstructured",
            amount=lambda epoch: 0.25 * (epoch % 3),
            use_global_unstructured=False,
        ),
        _THREE_EPOCHS,
    ),
    "ModelPruning, structured": (
        lambda: ModelPruning(
            "ln_structured",
            use_global_unstructured=False,
            amount=1,
            make_pruning_permanent=False,
            use_lottery_ticket_hypothesis=False,
            pruning_dim=0,
            pruning_norm=2,
            prune_on_train_epoch_end=False,
        ),
        {},
    ),
    "ModelSummary": (ModelSummary, {}),
    "MoveModulesToDeviceCallback": (MoveModulesToDeviceCallback, {}),
    "NaNGuard": (NaNGuard, {}),
    "NaNGuard, goes back": (
        lambda: NaNGuard("rollback", check_every_n_steps=2, snapshot_every_n_steps=1),
        {"module": _Stumbling},
    ),
    "NaNGuard, skips": (lambda: NaNGuard("skip"), {"module": _Stumbling}),
    "NaNMonitor": (NaNMonitor, {}),
    "Notify": (lambda: Notify("true", stages=("fit", "validate", "test", "predict")), {}),
    "OOMObserver": (OOMObserver, {}),
    "OnExceptionCheckpoint": (lambda: OnExceptionCheckpoint("kept"), {}),
    "OptimizerMonitor": (OptimizerMonitor, {}),
    "OptimizerMonitor, by samples": (lambda: OptimizerMonitor(False, "3sp"), {}),
    "PredictionWriter": (lambda: PredictionWriter("predictions.csv"), {}),
    "PrintMetricsCallback": (PrintMetricsCallback, {}),
    "PrintProgressCallback": (PrintProgressCallback, {}),
    "Profiler": (lambda: Profiler(activities="cpu"), {}),
    "Profiler, all the time": (
        lambda: Profiler(0, 0, 1, repeat=0, activities="cpu", compress=False),
        {},
    ),
    "ProgressBar": (ProgressBar, {}),
    "ProgressBarCallback": (ProgressBarCallback, {}),
    "QuantizationAwareTraining": (QuantizationAwareTraining, {}),
    "QuantizationAwareTraining, not converted": (
        lambda: QuantizationAwareTraining(
            collect_quantization=4,
            quantize_on_fit_end=False,
            observer_enabled_stages=["train", "validate"],
        ),
        {},
    ),
    "RichModelSummary": (lambda: RichModelSummary(max_depth=-1), {}),
    "RichProgressBar": (RichProgressBar, {}),
    "RichProgressBar, each epoch stays": (lambda: RichProgressBar(leave=True), {}),
    "RunManifest": (RunManifest, {}),
    "RunManifest, in a folder": (lambda: RunManifest("notes", in_checkpoint=False), {}),
    "RuntimeEstimator": (RuntimeEstimator, {}),
    "RuntimeEstimator, at once": (
        lambda: RuntimeEstimator(0, "seconds"),
        _LOGGED,
    ),
    "SampleInspector": (
        lambda: SampleInspector(3, ("train", "validate", "test", "predict"), inputs=0, targets=1),
        {},
    ),
    "SaveBestModelCallback": (SaveBestModelCallback, {}),
    "SaveBestModelCallback, of the accuracy": (
        lambda: SaveBestModelCallback("kept/best.pt", "val_acc", True, False),
        {},
    ),
    "SaveTrainingStateCallback": (
        lambda: SaveTrainingStateCallback(
            save_every_n_epochs=1, save_every_n_steps=1, max_checkpoints=2
        ),
        {},
    ),
    "SlowStepDetector": (lambda: SlowStepDetector(min_steps=1, factor=1.01), {}),
    "SpeedMonitor": (SpeedMonitor, {}),
    "SpeedMonitor, short": (
        lambda: SpeedMonitor(1, 1e12, "seconds"),
        _LOGGED,
    ),
    "SpikeDetection": (lambda: SpikeDetection(rtol=1e9), {}),
    "SpikeDetection, skipping": (lambda: SpikeDetection(rtol=0.01, warmup=0, on_spike="skip"), {}),
    "StepBasedEvaluationCallback": (lambda: StepBasedEvaluationCallback(1), {}),
    "StochasticWeightAveraging": (lambda: StochasticWeightAveraging(0.05), {}),
    "StochasticWeightAveraging, from the start": (
        lambda: StochasticWeightAveraging([0.05], 1, 0, "linear", device=None),
        {},
    ),
    "SystemMetricsMonitor": (SystemMetricsMonitor, {}),
    "SystemMetricsMonitor, all": (
        lambda: SystemMetricsMonitor(True),
        _LOGGED,
    ),
    "TQDMProgressBar": (TQDMProgressBar, {}),
    "TQDMProgressBar, each epoch stays": (lambda: TQDMProgressBar(leave=True), {}),
    "TerminateOnNaNCallback": (TerminateOnNaNCallback, {}),
    "TerminateOnNaNCallback, of a loss that breaks": (
        TerminateOnNaNCallback,
        {"module": _Stumbling},
    ),
    "ThresholdStopper": (lambda: ThresholdStopper("val_loss", "eval", 9.0), {}),
    "ThresholdStopper, of batches": (
        lambda: ThresholdStopper("train_loss", "train", 0.01, stop_on_batch=True),
        {},
    ),
    "ThroughputMonitor": (lambda: ThroughputMonitor(_samples), {}),
    "ThroughputMonitor, items": (
        lambda: ThroughputMonitor(_samples, _samples, window_size=2, separator="|"),
        {},
    ),
    "Timer": (Timer, {}),
    "Timer, with an end": (lambda: Timer(timedelta(hours=1), interval="epoch"), {}),
    "WSDCheckpointCallback": (WSDCheckpointCallback, {"module": _Decaying}),
    "WeightAveraging": (WeightAveraging, {}),
}


_PLAIN = [name for name in CASES if ", " not in name]
_WITH_OTHER_OPTIONS = [
    pytest.param(name, marks=pytest.mark.exhaustive) for name in CASES if ", " in name
]
VARIANTS = [*_PLAIN, *_WITH_OTHER_OPTIONS]
"""All cases; those of a callback with other options are exhaustive."""
_ALWAYS = {
    "BatchSizeFinder", "EarlyStopping", "GradientAccumulationScheduler", "ModelCheckpoint",
    "RichProgressBar", "ThroughputMonitor", "WeightAveraging",
}  # fmt: skip
"""A callback of each kind: one that tries, stops, schedules, saves, shows, measures, averages."""
CONTRACT = [
    pytest.param(name, marks=() if name in _ALWAYS else pytest.mark.exhaustive) for name in CASES
]
"""All cases; one of each kind of callback is checked always, and an eighth of the others drawn."""


@pytest.mark.parametrize("name", CONTRACT)
def test_a_built_in_callback_keeps_the_contract(name, callback_contract) -> None:
    """Whatever an author's callback must do, the built-in ones do, in the ways they are used."""
    gc.freeze()  # what other tests made; a callback collects often
    factory, options = CASES[name]
    callback_contract(factory, **options)


def _all_but(*names: str) -> list[str]:
    """Return the names of all other checks."""
    return [check.name for check in CHECKS if check.name not in names]


_NOT_OF_THE_LOOP = _all_but("refits", "failing_run", "resumes")
"""Checks whose outcome does not depend on who goes through the batches."""
_CUTS_OF_THE_LOOP = 3
"""Of the kit's nine cuts so many, drawn by the case's name: the check of `fit` takes all."""


# its validations lie inside of batches, whose lines a resume goes through once more: the loop of
# this test calls the hooks of the module's default step in them
@pytest.mark.parametrize("name", one_in(40, (n for n in CASES if n != "LimitEvalStepsCallback")))
def test_it_keeps_the_contract_in_an_own_loop(
    name, callback_contract, monkeypatch, tmp_path
) -> None:
    """So does it where the fit is a loop by Run, for which a fit, an error and a resume differ.

    A callback that needs steps is refused.
    """

    def draw_cuts(moments: list[str]) -> frozenset[str]:
        cuts = sorted(choose_cuts(moments))
        return frozenset(random.Random(name).sample(cuts, min(_CUTS_OF_THE_LOOP, len(cuts))))

    gc.freeze()
    monkeypatch.chdir(tmp_path)  # some factories save a file there
    factory, options = CASES[name]
    monkeypatch.setattr(harness, "Trainer", TrainerByRun)
    choose_cuts = resume_check._choose_cuts
    monkeypatch.setattr(resume_check, "_choose_cuts", draw_cuts)
    if factory().needs_steps:
        with pytest.raises(CallbackError, match="cannot take part in a Run"):
            Run(nn.Linear(1, 1), callbacks=[factory()], accelerator="cpu", plugins=False)
        return
    skipped = [*options.get("skip", ()), *_NOT_OF_THE_LOOP]
    callback_contract(factory, **{**options, "skip": skipped})


_VALIDATIONS = {
    "after each batch": {"accumulate_grad_batches": 1, "val_check_interval": 1},
    "now and then": {
        "accumulate_grad_batches": 1, "check_val_every_n_epoch": 2, "max_epochs": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "when"), spread(["EarlyStopping", "ModelCheckpoint, best and last"], [*_VALIDATIONS])
)
def test_they_resume_with_validations_elsewhere(name, when, callback_contract) -> None:
    """Those that go by validations are resumed exactly wherever in the epoch these are."""
    skip = _all_but("resumes")
    callback_contract(CASES[name][0], trainer_options=_VALIDATIONS[when], skip=skip)


class _Leaves(Callback):
    """Sends SIGTERM as an epoch begins, or after a batch."""

    def __init__(self, at: int | None) -> None:
        self.at = at

    def on_train_epoch_start(self, trainer, module) -> None:
        if self.at == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.progress.batches_completed == self.at:
            os.kill(os.getpid(), signal.SIGTERM)


class _SavesAsItLeaves(Checkpoint):
    """Saves nothing but one checkpoint as the process is told to end."""

    def save_now(self, trainer, module) -> None:
        trainer.save_checkpoint("left/left.ckpt")


def _end_of_run(harness: CallbackHarness, *cuts: int) -> dict[str, Any]:
    """Train in an empty folder, cut after some batches; return the state at the end."""
    with harness.new_folder():
        for at in (*cuts, None):
            is_resumed = Path("left/left.ckpt").exists()
            with rng.isolated():
                rng.reseed(3 + is_resumed)
                callback, module = harness.make(), harness.make_module()
                # the first saver is the one that saves
                callbacks = _SavesAsItLeaves(), _Leaves(at), callback
                trainer = harness.make_trainer(*callbacks, enable_checkpointing=True)
                ckpt_path = "left/left.ckpt" if is_resumed else None
                # a callback may have ended the run before that batch
                ends = pytest.raises if at == 0 else contextlib.suppress
                with ends(TerminationSignal):
                    trainer.fit(module, ckpt_path=ckpt_path)
        state = callback.state_dict()
        return {
            **{key: copy.deepcopy(state[key]) for key in state.keys() - callback.volatile_state},
            "weights": dict(module.state_dict()),
            "steps": trainer.global_step,
            "metrics": dict(trainer.callback_metrics),
            "files": sorted(str(file) for file in Path().rglob("*") if "left" not in str(file)),
        }


def _harness(name: str, folder: str) -> CallbackHarness:
    """Return what trains the callback of a case in a folder."""
    factory, options = CASES[name]
    return CallbackHarness(
        factory,
        options.get("module", TinyModule),
        options.get("trainer_options", {}),
        frozenset(options.get("may_differ", ())),
        Path(folder).resolve(),
    )


@pytest.mark.parametrize("name", one_in(4, VARIANTS))
def test_a_run_that_made_way_at_step_0_is_the_uncut_one(name) -> None:
    """What a callback had done before the first batch counts: it is no new training after it.

    Some are cut a second time, after a batch that is drawn.
    """
    factory, _ = CASES[name]
    chance = random.Random(name)
    later = chance.sample(range(1, 4), chance.randrange(2))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        harness = _harness(name, folder)
        with contextlib.chdir(folder):
            if not factory().is_stateful:
                return
            uncut, again, cut = (_end_of_run(harness, *cuts) for cuts in ((), (), (0, *later)))
    if name == "CheckpointSaver":
        del uncut["files"]  # it also saves as the training of an interrupted process ends
    steady = [
        key
        for key in uncut
        if key not in harness.may_differ and not nested_differences(uncut[key], again[key])
    ]
    differing = {key: nested_differences(uncut[key], cut.get(key)) for key in steady}
    assert {key: found for key, found in differing.items() if found} == {}


WRONG = ["\x1b[31m", -1.5, True, {"no": ["such", object]}, [[[]]], Tensor, torch.ones(2, 3)]


def _wrong_states(state: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return states that lack an item, or hold one of another type, by the item's name."""
    wrong: dict[str, Any] = {}
    for name, value in state.items():
        # a tuple may become a list in a file
        kind = list if isinstance(value, tuple) else type(value)
        others = [one for one in WRONG if type(one) is not kind]
        if isinstance(value, Tensor | int) and not isinstance(value, bool):
            others = [one for one in others if not isinstance(one, float)]
        if value is None:
            others = [Tensor]  # the class: which type a value would have is not known
        wrong[name] = {**state, name: chance.choice(others)}
    return wrong


@pytest.mark.parametrize("name", VARIANTS)
def test_a_state_of_wrong_types_is_refused_whole(name) -> None:
    """Each item of another type is named in one error, and nothing of the state is loaded."""
    factory, _ = CASES[name]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        harness = _harness(name, folder)
        with contextlib.chdir(folder):
            if not factory().is_stateful:
                return
            trained = harness.make()
            harness.make_trainer(trained).fit(harness.make_module())
            good = copy.deepcopy(trained.state_dict())
            fresh = factory()
            before = copy.deepcopy(fresh.state_dict())
            for item, state in _wrong_states(good, random.Random(name)).items():
                if item in _NOT_LOADED:
                    continue
                with pytest.raises(TypeError, match=item) as caught:
                    fresh.load_state_dict(state)
                assert str(caught.value).isprintable()
                assert nested_differences(before, fresh.state_dict()) == [], item
            with pytest.raises(TypeError, match="must be a dict"):
                fresh.load_state_dict(None)


_NOT_LOADED = {"patience", "monitor"}
"""Options that are in a state for other readers of the file."""


def test_no_built_in_callback_is_left_out() -> None:
    """A callback that is made public must be added to the table."""
    public = {
        name
        for room in (callbacks, composer_callbacks, accelerated_callbacks)
        for name in room.__all__
        if isinstance(value := getattr(room, name), type) and issubclass(value, Callback)
    } - {"Callback", "TrainerCallback"}  # to derive from
    assert public == {name.partition(",")[0] for name in CASES}
