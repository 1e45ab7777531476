"""A training in each host with the options that it has as they are, and the built-in callbacks.

Here a host validates, checks its sanity, draws its bars, summarizes the model, saves and logs as it
does for a user who passes nothing of that.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest
import torch
from host_fits import ComposerSteps, LoggingSteps, PlainNet, Rows, TransformersNet, sgd
from torch import nn
from torch.utils.data import DataLoader

from trainer_hooks import Callback
from trainer_hooks import callbacks as built_in
from trainer_hooks.compat.accelerated import callbacks as of_accelerated
from trainer_hooks.compat.composer import callbacks as of_composer
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCHS = 2


def loader() -> DataLoader[Any]:
    return DataLoader(Rows(), batch_size=2)


class Schedule(torch.optim.lr_scheduler.ConstantLR):
    """A schedule that says when its decays end, as `WSDCheckpointCallback` asks for."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer, factor=1)

    def get_checkpoint_steps(self) -> list[int]:
        return [4]


class Generating:
    """A module's method for `Generate`."""

    def generate(self, inputs: Any, **_: Any) -> Any:
        return inputs


class Plain(Generating, PlainNet):
    """The model for frameworks that take any."""


def fit_in_lightning(callback: Any) -> None:
    """Train with Lightning's bar, summary, saver, logger and sanity check."""
    import pytorch_lightning as pl

    class Net(Generating, LoggingSteps, pl.LightningModule):
        def configure_optimizers(self):
            optimizer = sgd(self)
            return [optimizer], [{"scheduler": Schedule(optimizer), "interval": "step"}]

    trainer = pl.Trainer(max_epochs=EPOCHS, accelerator="cpu", callbacks=[callback])
    trainer.fit(Net(), loader(), loader())


def fit_in_transformers(callback: Any) -> None:
    """Train with its bar, its saves and an evaluation an epoch."""
    import transformers

    class Net(Generating, TransformersNet):
        """The model."""

    arguments = transformers.TrainingArguments(
        output_dir="there", num_train_epochs=EPOCHS, per_device_train_batch_size=2,
        eval_strategy="epoch", use_cpu=True,
    )  # fmt: skip
    module = Net()
    transformers.Trainer(
        module, arguments, train_dataset=Rows(named=True), eval_dataset=Rows(named=True),
        callbacks=[callback], optimizers=(optimizer := sgd(module), Schedule(optimizer)),
    ).train()  # fmt: skip


def fit_in_composer(callback: Any) -> None:
    """Train with its bar and evaluations."""
    import composer

    class Net(Generating, ComposerSteps, composer.ComposerModel):
        """The model."""

    module = Net()
    optimizer = sgd(module)
    trainer = composer.Trainer(
        model=module, train_dataloader=loader(), eval_dataloader=loader(), optimizers=optimizer,
        schedulers=Schedule(optimizer), step_schedulers_every_batch=True,
        max_duration=f"{EPOCHS}ep", device="cpu", callbacks=[callback],
    )  # fmt: skip
    trainer.fit()
    trainer.close()


def fit_in_accelerated(callback: Any) -> None:
    """Train beside its default callbacks: its bar and its prints."""
    import pytorch_accelerated
    from pytorch_accelerated.trainer import DEFAULT_CALLBACKS

    module = Plain()
    options = {"num_workers": 0, "pin_memory": False}
    pytorch_accelerated.Trainer(
        module, nn.MSELoss(), sgd(module), [*DEFAULT_CALLBACKS, callback]
    ).train(
        Rows(), EPOCHS, Rows(), per_device_batch_size=2, train_dataloader_kwargs=options,
        eval_dataloader_kwargs=options, create_scheduler_fn=Schedule,
    )  # fmt: skip


def fit_in_ignite(callback: Any) -> None:
    """Train by Ignite's own makers of engines, with its bar."""
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import ProgressBar
    from ignite.metrics import Loss

    module, loss_fn = Plain(), nn.MSELoss()
    optimizer = sgd(module)
    trainer = create_supervised_trainer(module, optimizer, loss_fn)
    evaluator = create_supervised_evaluator(module, {"val_loss": Loss(loss_fn)})
    ProgressBar().attach(trainer)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _: evaluator.run(loader()))
    callback.attach(
        trainer, module, optimizer, evaluator=evaluator, loss_fn=loss_fn,
        to_save={"model": module, "optimizer": optimizer, "trainer": trainer, "ours": callback},
    )  # fmt: skip
    trainer.run(loader(), max_epochs=EPOCHS)


FITS: dict[str, Callable[[Any], None]] = {
    "lightning": fit_in_lightning,
    "transformers": fit_in_transformers,
    "composer": fit_in_composer,
    "accelerated": fit_in_accelerated,
    "ignite": fit_in_ignite,
}
MONITORS = {
    "transformers": "eval_loss", "composer": "MeanSquaredError", "accelerated": "eval_loss_epoch",
}  # fmt: skip


class _Lambda(built_in.LambdaCallback):
    def __init__(self) -> None:
        super().__init__(on_train_batch_end=lambda *_: None)


class _Writer(built_in.BasePredictionWriter):
    def write_on_batch_end(self, *given: Any) -> None:
        """Write nothing."""


class _HeadFirst(built_in.BaseFinetuning):
    def freeze_before_training(self, pl_module: Any) -> None:
        self.freeze(pl_module.backbone)

    def finetune_function(self, pl_module: Any, epoch: int, optimizer: Any) -> None:
        """Unfreeze nothing."""


def _samples_of(batch: Any) -> int:
    return len(next(iter(batch.values())) if hasattr(batch, "values") else batch[0])


def _as_images(batch: Any) -> Any:
    rows = batch["x"] if hasattr(batch, "keys") else batch[0]
    return rows.reshape(-1, 1, 2, 2)


DERIVED: dict[str, Callable[..., Callback]] = {
    "BaseFinetuning": _HeadFirst, "BasePredictionWriter": _Writer, "LambdaCallback": _Lambda,
}  # fmt: skip

ARGUMENTS: dict[str, Callable[[str], tuple[Any, ...]]] = {
    "EarlyStopper": lambda host: (MONITORS.get(host, "val_loss"), "eval"),
    "EarlyStoppingCallback": lambda host: (2, 0.01, MONITORS.get(host, "val_loss")),
    "EarlyStopping": lambda host: (MONITORS.get(host, "val_loss"),),
    "ExportForInferenceCallback": lambda _: ("torch.export", "m.pt2", None, torch.zeros(2, 4)),
    "Generate": lambda _: (["a prompt"], "1ep"),
    "GradientAccumulationScheduler": lambda _: ({1: 2},),
    "ImageVisualizer": lambda _: ("1ep", "input", 8, False, _as_images),
    "LimitBatchesCallback": lambda _: (3,),
    "LoadCheckpoint": lambda _: ("first.ckpt",),
    "MLPerfCallback": lambda host: (
        "submission",
        0,
        "resnet",
        0.5,
        "open",
        MONITORS.get(host, "val_loss"),
    ),
    "ModelPruning": lambda _: ("l1_unstructured",),
    "Notify": lambda _: (["true"],),
    "OnExceptionCheckpoint": lambda _: ("failed",),
    "PredictionWriter": lambda _: ("predictions.csv",),
    "SpikeDetection": lambda _: ("min", 10, 1, 100.0),
    "StepBasedEvaluationCallback": lambda _: (2,),
    "SaveBestModelCallback": lambda host: ("best.pt", MONITORS.get(host, "val_loss")),
    "StochasticWeightAveraging": lambda _: (0.1,),
    "ThresholdStopper": lambda host: (MONITORS.get(host, "val_loss"), "eval", 0.0),
    "ThroughputMonitor": lambda _: (_samples_of,),
}
"""The arguments of callbacks that need some, given the host."""

_BASES = (
    "Callback", "Checkpoint", "ProgressBar", "ProgressBarBase", "TrainerCallback",
    "LogMetricsCallback", "LimitEvalStepsCallback",
)  # fmt: skip
"""Classes to derive from, which do nothing by themselves."""


def _built_in() -> dict[str, type[Callback]]:
    """Return all classes of callbacks by name, those of the compatibility packages too."""
    found: dict[str, type[Callback]] = {}
    for package in (built_in, of_accelerated, of_composer):
        for name in package.__all__:
            kind = getattr(package, name)
            is_new = isinstance(kind, type) and kind not in found.values()
            if is_new and issubclass(kind, Callback) and name not in _BASES:
                found[name] = kind
    return found


KINDS = _built_in()
"""All built-in callbacks."""

WITH_OTHER_OPTIONS: dict[str, Callable[[str], Callback]] = {
    "ModelEmaCallback without a validation": lambda _: of_accelerated.ModelEmaCallback(
        evaluate_during_training=False
    ),
    "SaveBestModelCallback without its load": lambda host: of_accelerated.SaveBestModelCallback(
        "best.pt", MONITORS.get(host, "val_loss"), load_saved_checkpoint=False
    ),
}
"""Callbacks that are refused with their defaults, with options that a host can give them."""

NAMES = (*KINDS, *WITH_OTHER_OPTIONS)


def make(name: str, host: str) -> Callback:
    """Return a built-in callback."""
    if name in WITH_OTHER_OPTIONS:
        return WITH_OTHER_OPTIONS[name](host)
    kind = DERIVED.get(name, KINDS[name])
    return kind(*ARGUMENTS.get(name, lambda _: ())(host))


def convert(host: str, callback: Callback) -> Any:
    """Return a callback in a host's form."""
    adapters = importlib.import_module("trainer_hooks.adapters")
    return getattr(adapters, f"to_{host}")(callback)


_ALL = tuple(FITS)
REFUSED: dict[str, tuple[str, ...]] = {
    "BasePredictionWriter": _ALL,
    "BatchSizeFinder": _ALL,
    "GradientAccumulationScheduler": _ALL[1:],
    "LearningRateFinder": _ALL,
    "LimitBatchesCallback": _ALL,
    "MLPerfCallback": ("lightning", "transformers", "ignite"),
    "ModelEmaCallback": _ALL,
    "PredictionWriter": _ALL,
    "SaveBestModelCallback": _ALL[1:],
    "StepBasedEvaluationCallback": ("lightning", "composer", "accelerated", "ignite"),
    "WSDCheckpointCallback": ("ignite",),
}
"""The hosts that refuse a built-in callback as it is converted."""


def run_beside_defaults(name: str, host: str) -> None:
    """Train with a built-in callback in the present folder, or see it refused."""
    torch.manual_seed(1)
    callback = make(name, host)
    if host in REFUSED.get(name, ()):
        with pytest.raises(CallbackError, match=f"to_{host}\\(_?{type(callback).__name__}\\)"):
            convert(host, callback)
        return
    FITS[host](convert(host, callback))
