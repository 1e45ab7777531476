"""What is otherwise than in Lightning on purpose: names that are not here, and other meanings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["INSTEAD", "MEANINGS"]

_KEY = "the checkpoint's key `hyper_parameters`"
_LOOP = (
    "read `trainer.progress` and `trainer.clock`; act by `trainer.stop()`, `trainer.skip_batch()`"
)

INSTEAD: Mapping[str, Mapping[str, str]] = {
    "top": {
        "LightningModule": "`Module`",
        "LightningDataModule": "`DataModule`",
    },
    "packages": {
        "accelerators": "`Trainer(accelerator=...)` takes names",
        "cli": "not available yet; [by hand](sweeps-and-configs.md)",
        "core": "`Module`, `DataModule`",
        "demos": "`trainer-hooks demo`",
        "loops": _LOOP,
        "overrides": "DDP needs none here; [several processes](distributed.md)",
        "plugins": "`Trainer(precision=...)` takes names; plugins are [packages](plugins.md) here",
        "serve": "not available",
        "strategies": "`DDPStrategy`, `FSDPStrategy`; [several processes](distributed.md)",
        "tuner": "`Tuner`",
    },
    "options": {},
    "trainer": {
        "distributed_sampler_kwargs": "give the loader a DistributedSampler",
        "predict_loop": _LOOP,
        "test_loop": _LOOP,
        "val_check_batch": "`trainer.val_check_interval`",
        "validate_loop": _LOOP,
    },
    "module": {
        "CHECKPOINT_HYPER_PARAMS_KEY": _KEY,
        "CHECKPOINT_HYPER_PARAMS_NAME": _KEY,
        "CHECKPOINT_HYPER_PARAMS_TYPE": _KEY,
        "allow_zero_length_dataloader_with_multiple_devices": "always allowed in an evaluation",
        "configure_sharded_model": "`configure_model`",
        "fabric": "not available",
        "prepare_data_per_node": "it is called once on each machine",
        "remove_ignored_hparams": "`save_hyperparameters(ignore=[...])`",
        "to_tensorrt": "not available",
    },
    "datamodule": {
        "CHECKPOINT_HYPER_PARAMS_KEY": _KEY,
        "CHECKPOINT_HYPER_PARAMS_NAME": _KEY,
        "CHECKPOINT_HYPER_PARAMS_TYPE": _KEY,
        "allow_zero_length_dataloader_with_multiple_devices": "always allowed in an evaluation",
        "name": "an attribute of your own",
        "prepare_data_per_node": "it is called once on each machine",
        "remove_ignored_hparams": "`save_hyperparameters(ignore=[...])`",
    },
    "callback": {},
    "tuner": {},
    "callbacks": {},
    "loggers": {
        "LitLogger": "not available; a logger of your own is [a class](loggers.md)",
    },
}
"""Of each of Lightning's names that is not here, what to write instead, or why it is not."""

MEANINGS = (
    (
        "The module argument of hooks",
        "`pl_module`",
        "`module`; hooks are called by position; those of built-in callbacks take both names",
    ),
    (
        "What hooks return",
        "-1 from the module's `on_train_batch_start` ends the epoch, without its validation",
        "-1 ends the epoch there too, with its validation; any other value gives a warning",
    ),
    (
        "Order of a step",
        "`training_step`, `zero_grad`, `backward`",
        "`zero_grad`, `training_step`, `backward`",
    ),
    (
        "`test`, `validate`, `predict` without a model, after a fit that saved nothing",
        "an error",
        "take the weights that the module has; after one that saved, the best, as there",
    ),
    (
        "`training_step` that returns None for each batch of an epoch",
        "goes on",
        "an error; a single None is warned of, as there",
    ),
    (
        "A list of batches (tensors, or lists of them) where loaders are passed",
        "each item is a loader",
        "one loader; a list of loaders is as there",
    ),
    (
        "A name in `ModelCheckpoint(filename=...)` that was not logged",
        "shows as 0",
        "shows as nan, and is warned of",
    ),
    (
        "Persistent workers of a loader",
        "end with the run",
        "live as long as their loader, so that the next fit has them",
    ),
    (
        "A second `fit` with another module",
        "goes on counting epochs",
        "starts at epoch 0; with the same module it goes on counting",
    ),
    (
        "`on_validation_model_zero_grad` in manual optimization",
        "clears the gradients",
        "leaves them as they are, unless it is overridden",
    ),
    (
        "Loaders are made",
        "after `on_fit_start`",
        "before `configure_optimizers` and `on_fit_start`",
    ),
    (
        "`max_steps` reached inside an epoch",
        "no validation",
        "the epoch is validated as at its end",
    ),
    ("`trainer.max_epochs`, `max_steps`", "can only be read", "can be set, to train longer"),
    (
        "`trainer.callbacks.insert(0, callback)`",
        "puts it first",
        "registers it; its [band](writing-a-callback.md#its-order) decides its place",
    ),
    (
        "`weights_only=False` where a checkpoint is opened",
        "runs the code that the file names",
        "has no effect: no file is opened in a way that could run code",
    ),
    (
        "`reload_dataloaders_every_n_epochs`",
        "asks for validation loaders as a validation begins; a resume asks at its own epochs",
        "asks for both as the epoch begins; a resume asks at those of the run that was cut",
    ),
    ("`benchmark`, `deterministic`", "stay switched after the run", "are put back after each run"),
    (
        "`profiler`",
        "names such as `[Strategy]SingleDeviceStrategy.training_step`",
        "`training_step`; all [actions](profiling.md#actions)",
    ),
    ("Sanity check on a resume", "is run", "is not run"),
    (
        "A resume inside an epoch",
        "loaders start again, and random numbers are not restored",
        "goes on at the next batch, bit for bit",
    ),
    ("`teardown` after an exception", "is not called", "is called for callbacks, module and data"),
    ("Ctrl-C", "raises `SystemExit`", "raises `KeyboardInterrupt`, after the batch"),
    ("SIGTERM", "exit code 0", "saves a checkpoint; exit code 143"),
    (
        "Order of callbacks",
        "as listed, checkpoints last",
        "by [bands](writing-a-callback.md#its-order), and as listed within a band",
    ),
    (
        "Going through a `CombinedLoader` yourself",
        "gives `(batch, batch_idx, dataloader_idx)`",
        "gives the batch",
    ),
    ("Default logger", "TensorBoard, `lightning_logs`", "CSV, `trainer_logs`"),
    (
        "`trainer.val_dataloaders`, `test_dataloaders` ... after a run",
        "what was passed",
        "None; what was passed while it lasts",
    ),
    (
        "A training batch that is None",
        "`on_train_batch_end` alone is called",
        "no hook of the batch is called",
    ),
    ("`log_every_n_steps=0`, read from the trainer", "0", "`sys.maxsize`"),
    (
        "`trainer.max_epochs`, `num_sanity_val_steps`, `fast_dev_run`",
        "None for no end; infinity for all; True",
        "-1 for no end; -1 for all; a number",
    ),
    (
        "`ModelCheckpoint(save_on_exception=True)`",
        "writes `filename`",
        "writes `exception-epoch=E-step=S.ckpt`",
    ),
    ("`ModelCheckpoint` where the metric is NaN", "it may be the best", "it is never the best"),
    (
        "Callback state that only running code could load",
        "is saved; refused, or run, when loaded",
        "is an error when saved, which names the callback",
    ),
    (
        "An unknown key of a scheduler's dict",
        "gives a warning",
        "is an error",
    ),
    (
        "Copying or pickling a Trainer in a run",
        "works",
        "is a `TypeError`; at rest it works",
    ),
)
"""What has one name and two meanings: where, in Lightning, here."""
