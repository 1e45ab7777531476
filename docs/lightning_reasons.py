"""What is otherwise than in Lightning on purpose: names that are not here, and other meanings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.trainer.options import NOT_YET

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["INSTEAD", "MEANINGS"]

_ONE = "not available yet; [what there is for several processes](distributed.md)"
_KEY = "a constant of the checkpoint format; the key is `hyper_parameters`"
_LOOP = (
    "read `trainer.progress` and `trainer.clock`; act by `trainer.stop()`, `trainer.skip_batch()`"
)
_ADVICE = {name: absent.advice for name, absent in NOT_YET.items()}

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
        "overrides": "DDP needs no override here; [several processes](distributed.md)",
        "plugins": "`Trainer(precision=...)` takes names; plugins are [packages](plugins.md) here",
        "profilers": "`trainer.profile_hooks()`, [torch's profiler](callbacks/Profiler.md)",
        "serve": "not available",
        "strategies": "`DDPStrategy`; [several processes](distributed.md)",
        "trainer": "`Trainer`",
        "tuner": "`Tuner`",
    },
    "options": _ADVICE,
    "trainer": {
        "barebones": _ADVICE["barebones"],
        "distributed_sampler_kwargs": "give the loader a DistributedSampler",
        "enable_autolog_hparams": _ADVICE["enable_autolog_hparams"],
        "enable_validation": "`trainer.val_dataloaders` is empty where nothing is validated",
        "init_module": "build large layers in `configure_model`",
        "overfit_batches": "`trainer.limit_train_batches` is the number then",
        "predict_loop": _LOOP,
        "profiler": _ADVICE["profiler"],
        "received_sigterm": "`trainer.is_leaving`",
        "reload_dataloaders_every_n_epochs": _ADVICE["reload_dataloaders_every_n_epochs"],
        "test_loop": _LOOP,
        "val_check_batch": "`trainer.val_check_interval`",
        "validate_loop": _LOOP,
    },
    "module": {
        "CHECKPOINT_HYPER_PARAMS_KEY": _KEY,
        "CHECKPOINT_HYPER_PARAMS_NAME": _KEY,
        "CHECKPOINT_HYPER_PARAMS_TYPE": _KEY,
        "allow_zero_length_dataloader_with_multiple_devices": "an evaluation's share may be empty",
        "configure_sharded_model": "`configure_model`",
        "device_mesh": _ONE,
        "fabric": "not available",
        "prepare_data_per_node": "it is called once on each machine",
        "remove_ignored_hparams": "`save_hyperparameters(ignore=[...])`",
        "to_tensorrt": "not available",
    },
    "datamodule": {
        "CHECKPOINT_HYPER_PARAMS_KEY": _KEY,
        "CHECKPOINT_HYPER_PARAMS_NAME": _KEY,
        "CHECKPOINT_HYPER_PARAMS_TYPE": _KEY,
        "allow_zero_length_dataloader_with_multiple_devices": "an evaluation's share may be empty",
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
    ("The module argument of hooks", "`pl_module`", "`module`; hooks are called by position"),
    (
        "What hooks return",
        "-1 from the module's `on_train_batch_start` ends the epoch, which is not validated",
        "the same, and the epoch is validated; any other value that a hook returns is warned of",
    ),
    (
        "Order of a step",
        "`training_step`, `zero_grad`, `backward`",
        "`zero_grad`, `training_step`, `backward`",
    ),
    (
        "`test`, `validate`, `predict` without a model, after fit",
        "load the best checkpoint",
        'use the weights that the module has; `ckpt_path="best"` for the best',
    ),
    (
        "A second `fit` with another module",
        "epochs go on",
        "starts at epoch 0; with the same module it goes on",
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
        "Schedulers that step each epoch",
        "before the last batch's `on_train_batch_end`",
        "after the last batch's hooks and saves, before the epoch's validation",
    ),
    (
        "`max_steps` reached inside an epoch",
        "no validation",
        "the epoch is validated as if it were over",
    ),
    ("`trainer.max_epochs`, `max_steps`", "can be read", "can be set, to train longer"),
    (
        "`trainer.callbacks.insert(0, callback)`",
        "puts it first",
        "registers it; its [band](writing-a-callback.md#its-order) decides its place",
    ),
    ("A resume", "runs the sanity check", "runs none"),
    (
        "A resume inside an epoch",
        "loaders start again, and random numbers are not restored",
        "goes on at the next batch, bit for bit",
    ),
    ("`teardown` after an exception", "is not called", "is called for callbacks, module and data"),
    ("Ctrl-C", "`SystemExit`", "`KeyboardInterrupt`, after the batch"),
    ("SIGTERM", "exit code 0", "a checkpoint is saved; exit code 143"),
    (
        "Order of callbacks",
        "as listed, checkpoints last",
        "by [bands](writing-a-callback.md#its-order), and as listed within a band",
    ),
    ("Default logger", "TensorBoard, `lightning_logs`", "CSV, `trainer_logs`"),
    ("`trainer.val_dataloaders`, `test_dataloaders` ...", "what was passed", "always a list"),
    (
        "`trainer.max_epochs`, `num_sanity_val_steps`, `fast_dev_run`",
        "None for no end; inf; True",
        "-1 for no end; -1; a number",
    ),
    (
        "`ModelCheckpoint(save_on_exception=True)`",
        "writes `filename`",
        "writes `exception-epoch=E-step=S.ckpt`",
    ),
    ("`ModelCheckpoint` where the metric is NaN", "it may be the best", "it is never the best"),
    (
        "State that only running code could load",
        "is saved; refused, or run, when loaded",
        "is an error when it is saved, which names it",
    ),
    (
        "An unknown key of a scheduler's dict",
        "is warned of",
        "is an error",
    ),
    ("Copying or pickling a Trainer", "works", "is a `TypeError`; a Module is copied without it"),
)
"""What has one name and means two things: where, in Lightning, here."""
