"""Deliberate differences from Lightning: names that are not here, and other meanings."""

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
        "cli": "`TrainerCLI`; [the command line](command-line.md)",
        "core": "`Module`, `DataModule`",
        "demos": "`trainer-hooks demo`",
        "loops": _LOOP,
        "overrides": "DDP needs none here; [several processes](distributed.md)",
        "plugins": "`Trainer(precision=...)` takes names; `plugins` takes a "
        "[CheckpointIO](checkpoints.md#a-checkpointio-of-your-own) and names of "
        "[packages](plugins.md)",
        "serve": "not available",
        "strategies": "`DDPStrategy`, `FSDPStrategy`; [several processes](distributed.md)",
        "tuner": "`Tuner`",
    },
    "options": {},
    "trainer": {
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
"""The replacement of each name of Lightning's that is not here, or the reason why there is none."""

MEANINGS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "Steps and optimization": (
        (
            "LBFGS, or another optimizer that evaluates the loss itself, with accumulation",
            "steps with the last batch of a window",
            "is an error",
        ),
        (
            "Order of a step",
            "`training_step`, `zero_grad`, `backward`",
            "`zero_grad`, `training_step`, `backward`",
        ),
        (
            "`training_step` that returns None for each batch of an epoch",
            "continues",
            "an error; a single None gives a warning, as in Lightning",
        ),
        (
            "A step with the argument `dataloader_iter`",
            "takes its batches itself",
            "is an error; each step gets a batch",
        ),
        (
            '`outputs["loss"]` of `on_train_batch_end` with accumulation',
            "is divided by `accumulate_grad_batches`",
            "is the return value of the step",
        ),
        (
            "`trainer.global_step` after a batch that made no step",
            "counts it: the loss was None, or an `optimizer_step` of its own did not step",
            "counts the actual steps",
        ),
        (
            "`on_before_zero_grad` in manual optimization",
            "is not called",
            "is called by `optimizer.zero_grad()`",
        ),
        (
            "`on_validation_model_zero_grad` in manual optimization",
            "clears the gradients",
            "leaves them as they are, unless it is overridden",
        ),
        (
            "`clip_gradients` with other values than the Trainer was given",
            "is an error",
            "clips by them",
        ),
        (
            '`clip_gradients` in manual optimization with `precision="16-mixed"`',
            "clips the gradients with the loss scale",
            "clips the true gradients; a backward between two clips before a step is an error",
        ),
        (
            'The loss scale of `precision="16-mixed"` with several optimizers',
            "is updated at each step, so that the next optimizer may get the wrong one",
            "is updated once all have stepped with the gradients of a backward",
        ),
        (
            "`frequency` of a scheduler that steps by step",
            "counts the batches, from 1 in each epoch",
            "counts optimizer steps over all epochs",
        ),
        (
            "An unknown key of the dict of an optimizer or a scheduler",
            "gives a warning",
            "is an error",
        ),
        (
            "`self.optimizers().step()` with automatic optimization",
            "steps once more",
            "is an error",
        ),
    ),
    "Hooks and callbacks": (
        (
            "The module argument of hooks",
            "`pl_module`",
            "`module`; hooks are called by position; those of built-in callbacks take both names",
        ),
        (
            "What hooks return",
            "-1 from the module's `on_train_batch_start` ends the epoch, without its validation",
            (
                "-1 ends the epoch there too, with its hooks and validation; other "
                "values give a warning"
            ),
        ),
        (
            "Order of callbacks",
            "as listed, checkpoints last",
            "by [bands](writing-a-callback.md#order-of-callbacks), and as listed within a band",
        ),
        (
            "Callbacks of installed packages, from the group `lightning.pytorch.callbacks_factory`",
            "take part in each Trainer",
            "take part where [`Trainer(plugins=...)`](plugins.md#choose-plugins) names the package",
        ),
        (
            "`trainer.callbacks.insert(0, callback)`",
            "puts it first",
            "registers it; its [band](writing-a-callback.md#order-of-callbacks) decides its place",
        ),
        (
            "`state_dict` of a callback",
            "is called where a checkpoint is saved",
            "is called there, as a fit that saves begins, and before each validation of a fit",
        ),
        (
            "`teardown` after an exception",
            "is not called",
            "is called for callbacks, module and data",
        ),
        (
            "`on_exception` after an exception in `teardown`",
            "is called",
            "is not called, since the run has been torn down",
        ),
        (
            "`EarlyStopping` at a value that ends the run by a threshold or by not being finite",
            "ignores that value",
            "counts it in `best_score` and `wait_count`, too",
        ),
        (
            "`StochasticWeightAveraging` of a module with BatchNorm",
            "trains one more epoch without steps, with hooks, logged values and a validation",
            "makes one more pass over the training batches, without any",
        ),
        (
            "`ModelPruning(use_lottery_ticket_hypothesis=True)` that prunes again",
            "resets the weights the first time alone",
            "resets them each time",
        ),
        (
            "The weights that `use_lottery_ticket_hypothesis` resets to after a resume",
            "are those with which the new process has built the module",
            "are the first ones of the training, which the state of `ModelPruning` holds",
        ),
        (
            "The weights that `ModelPruning` ranks as it prunes again",
            "are those of the last forward, from before the last step",
            "are those after the last step",
        ),
        (
            '`LearningRateMonitor("step")` with accumulation',
            "writes a row for each batch",
            "writes one for each step; with or without it, the rates are in `logged_metrics`, too",
        ),
        (
            "`ThroughputMonitor`'s counts of validation, `validate/batches` and its like, in a fit",
            (
                "begin again in each validation, and their steps in each epoch; a resume "
                "begins all counts again"
            ),
            "go on through all validations and a resume, so that each row has a step of its own",
        ),
        (
            "`DeviceStatsMonitor` with accumulation, and in the sanity check",
            "writes a row for each batch, and in the check",
            "writes one for each step, and none in the check",
        ),
        (
            "The members of `EarlyStoppingReason`",
            "are the numbers 0 to 4",
            "are texts such as `patience_exhausted`",
        ),
        (
            "`batch_indices` in a `BasePredictionWriter`, where the sampler is not known",
            "is `[]`",
            "is None, after a warning",
        ),
        (
            "An unknown `annealing_strategy` of `StochasticWeightAveraging`",
            "is accepted",
            "is an error",
        ),
        (
            "The last digit of means, of logged values and of weights in `WeightAveraging`",
            "sums up in 32 bits; on the CPU adds the difference, divided",
            "sums up in 64 bits; interpolates, as torch does on a GPU",
        ),
        (
            "Private methods of built-in callbacks, such as `ModelCheckpoint._save_checkpoint`",
            "can be overridden",
            "are called where one does the same here, and else warned of, with what to define",
        ),
    ),
    "Data": (
        (
            "Evaluation data of several processes, in numbers that do not divide evenly",
            "some samples count twice, so that all processes have as many",
            "no sample counts twice; a process may have fewer batches, or none",
        ),
        (
            "A list of batches (tensors, or lists of them) where loaders are passed",
            "each item is a loader",
            "one loader; a list of loaders is the same as in Lightning",
        ),
        (
            "Loaders are made",
            "after `on_fit_start`",
            "before `configure_optimizers` and `on_fit_start`",
        ),
        (
            "`reload_dataloaders_every_n_epochs`",
            "makes validation loaders before a validation; a resume does so at its own epochs",
            "makes both before the epoch; a resume does so at the epochs of the interrupted run",
        ),
        (
            "A training loader that `reload_dataloaders_every_n_epochs` makes anew",
            "is begun twice, so that a generator of its own is a draw ahead",
            "is begun once",
        ),
        (
            "Persistent workers of a loader",
            "end with the run",
            "live as long as their loader, so that the next fit has them",
        ),
        (
            "Random numbers of persistent workers, and of workers of a `StatefulDataLoader`",
            "go on from epoch to epoch",
            (
                "start anew in each epoch, for exact resumes; "
                "`persistent_workers=False` gives Lightning's"
            ),
        ),
        (
            (
                "A loader and a training that draw global random numbers by turns, over 1000 in an "
                "epoch"
            ),
            "share the global random state in the whole epoch",
            (
                "the loader has a random state of its own from then on; with a generator of its "
                "own it draws as in Lightning"
            ),
        ),
        (
            "`set_epoch` of a batch sampler of your own",
            "is not called",
            "is called in each epoch, as that of a sampler is in both",
        ),
        ("`seed_everything(7.5)`", "takes 7", "is an error"),
        (
            "`seed_everything(workers=True)`",
            "seeds workers by the seed, their number and the rank",
            "leaves workers the seeds of torch, as `workers=False` does in both",
        ),
        (
            "Going through a `CombinedLoader` yourself",
            "gives `(batch, batch_idx, dataloader_idx)`",
            "gives the batch",
        ),
        (
            '`CombinedLoader(mode="sequential")` in training',
            "is an error",
            "trains on one loader after another",
        ),
        (
            "A loader without batches; a limit of 0 in `validate`, `test` and `predict`",
            "gives a warning, and nothing is run; `[]`",
            "is an error",
        ),
        (
            "A training batch that is None",
            "`on_train_batch_end` alone is called",
            "no hook of the batch is called",
        ),
        (
            "The method `to` of a batch, in a run on the CPU",
            "is called",
            "is not called, as the batch is there already",
        ),
    ),
    "Length and validation": (
        (
            "Environment variables `PL_TRAINER_...`",
            "are options of the Trainer that it was not given",
            "are not read; a command line or config sets options",
        ),
        (
            "`Trainer(min_epochs=3, max_epochs=2)`, and `min_steps` over `max_steps`",
            "end at the greatest length",
            "are errors",
        ),
        (
            "`max_steps` reached inside an epoch",
            "no validation",
            "the epoch is validated as at its end",
        ),
        (
            "A fit with nothing left to train",
            "calls neither `on_train_start` nor `on_train_end`; beyond `max_epochs` it is an error",
            "calls both, with a warning",
        ),
        (
            "A second `fit` with another module",
            "continues to count epochs",
            "starts at epoch 0; with the same module it continues to count",
        ),
        (
            "A second `fit` with the same module",
            "makes new optimizers",
            "goes on with the states of its optimizers and schedulers",
        ),
        (
            "`estimated_stepping_batches` in a `fit` after one that was left inside an epoch",
            "does not count the steps of the epoch that begins again",
            "counts those made before, too; the epoch begins again in both",
        ),
        (
            "`test`, `validate`, `predict` without a model, after a fit that saved nothing",
            "an error",
            (
                "use the module's weights; after a fit that saved, the best "
                "checkpoint, as in Lightning"
            ),
        ),
        (
            "The module's mode after an exception in an evaluation",
            "stays that of evaluation",
            "is as before",
        ),
    ),
    "Logging": (
        (
            "Default logger",
            "TensorBoard, `lightning_logs`",
            (
                "CSV, `trainer_logs`, for a LightningModule too: a Trainer logs to one place, "
                'whichever module it trains; `logger="tensorboard"` is the other'
            ),
        ),
        (
            "A subclass of `CSVLogger` or `TensorBoardLogger` that overrides `name` or `version`",
            "writes into the folder of that name",
            "writes into that of the arguments, which it passes to `super().__init__`",
        ),
        (
            "`CSVLogger` with a `version` whose folder has a `metrics.csv`, in a new training",
            "deletes that file, with a warning",
            "moves its rows to `metrics.earlier_run_0.csv`, and says so",
        ),
        (
            "Checkpoints with a logger whose class is your own and defines `log_dir`",
            "go to `save_dir/name/version_N/checkpoints`, as without `log_dir` in both",
            "go to `log_dir/checkpoints`",
        ),
        (
            "Progress bar and model summary where rich is installed",
            "are rich's",
            "are plain ones; `RichProgressBar` and `RichModelSummary` are there",
        ),
        (
            "`init_train_tqdm` and so on of a progress bar, without a terminal",
            "are called",
            "are not called, as one line is printed for each epoch",
        ),
        (
            "`config.yaml` of `LightningCLI` with `--trainer.logger=False`",
            "is written to the working folder",
            "is not written; checkpoints hold the config",
        ),
        (
            "Files in the folder of a logger",
            "`hparams.yaml`, also without hyperparameters; `metrics.csv` from the first metrics on",
            (
                "`hparams.yaml` and `hparams.json` if there are any, with the loggers of "
                "`compat.lightning` always; `metrics.csv` at once; `run.jsonl`"
            ),
        ),
        (
            "A name with characters that MLflow forbids, in `MLFlowLogger`",
            "loses them, and so do letters outside ASCII: `acc@1` is `acc1`",
            "has underscores for them: `acc_1`; letters of all languages stay",
        ),
        (
            "A value that is logged at some steps only",
            "goes to the loggers at each step that is logged, with its last value",
            "goes to the loggers once, at the first step that is logged after it",
        ),
        (
            "The x axis of a validation inside an unfinished accumulation window",
            "is the index of that window",
            "is the index of the last finished one, as `global_step` counts finished steps",
        ),
        (
            "`on_step=True` with a metric object that was only updated",
            "gives no step value",
            "gives its value over the epoch so far",
        ),
        (
            "`reduce_fx` that is a function of one's own",
            "is an error",
            "is called with the tensor of all values",
        ),
        (
            "A hyperparameter of one name with two values in module and data module",
            "is an error if there is a logger",
            "gives a warning; the loggers get the module's",
        ),
    ),
    "Checkpoints and resumes": (
        (
            "`load_from_checkpoint(hparams_file=...)` of a file that is not there",
            "goes on without it, with a warning",
            "is an error",
        ),
        (
            "`load_from_checkpoint(strict=True)` of a module with `strict_loading = False`",
            "is an error",
            "loads strictly, as the argument goes before",
        ),
        (
            "`ModelCheckpoint(every_n_train_steps=4)` with `val_check_interval=4`",
            "saves before the validation, with the metrics of the one before",
            "saves after it, with its metrics",
        ),
        (
            "An address of another store (`s3://...`) as the folder of a CSVLogger",
            "is written to",
            (
                "is an error: a resume cuts the files, which such a store cannot; checkpoints may "
                "go there, and a logger uploads"
            ),
        ),
        (
            '`fit(ckpt_path="last")` where nothing was saved',
            "begins a new training, with a warning",
            'is an error; `"auto"` begins a new training',
        ),
        (
            '`"last"` and `"best"` in a trainer that has not trained',
            "load a file called `last`, or nothing, with a warning; `best` is an error",
            (
                "take the files of [the same run](checkpoints.md#several-runs-in-one-folder) of an "
                "earlier process; where there are those of other runs alone, an error names them"
            ),
        ),
        (
            "A resume with more `max_steps`, at an epoch's end that `max_steps` made early",
            "continues that epoch with the first batches of a loader that starts again",
            (
                "begins the next epoch, as a second `fit` does in both; from a checkpoint of a "
                "batch (`every_n_train_steps`) it continues the epoch with its next batch"
            ),
        ),
        (
            "A resume inside an epoch",
            "loaders start again, and random numbers are not restored",
            "continues with the next batch, bit for bit",
        ),
        (
            "`trainer.state.stage` as a saver saves after a validation",
            "is `validate`",
            "is `train`, as the validation is over",
        ),
        (
            "Random numbers on a resume at the end of an epoch",
            "are not restored",
            "are restored: the order of the samples is that of the run that was not interrupted",
        ),
        (
            "The folder of a logger without a `version` on a resume",
            "is a new one",
            "is that of the run that goes on",
        ),
        (
            "Another `patience` of `EarlyStopping` on a resume",
            "is replaced by that of the checkpoint",
            "is used",
        ),
        (
            "Callbacks and counters on a resume",
            "are restored before `configure_optimizers`, and after `on_fit_start`",
            "are all restored between these two",
        ),
        (
            "A stop that was requested before the checkpoint was saved",
            "is forgotten: the resumed run trains on, for an epoch at least",
            (
                "stops the resumed run, unless its limits are others, its callback is gone or the "
                "callback's options no longer call for it"
            ),
        ),
        ("Sanity check on a resume", "is run", "is not run"),
        (
            "Callback states where `test`, `validate` or `predict` loads a `ckpt_path` after a fit",
            "are those of the checkpoint",
            "stay as the fit left them; in a trainer that has not trained, are the checkpoint's",
        ),
        (
            "`BackboneFinetuning` in a run that resumes after the unfreezing",
            "leaves the backbone frozen, but for its BatchNorm",
            "has the backbone unfrozen",
        ),
        (
            "`ModelCheckpoint(every_n_train_steps=N)` where a batch makes several steps",
            "saves after a batch where `global_step` is a multiple of N",
            "saves after each batch in which `global_step` reaches or passes a multiple of N",
        ),
        (
            "`ModelCheckpoint(save_top_k=-1)` with a filename that does not change",
            "writes over its file",
            "keeps all, as `-v1`, `-v2` ...",
        ),
        (
            "`ModelCheckpoint(save_last=True)` with a monitor",
            "`last.ckpt` is the last state that was among the best",
            "is the state at the last save that was due",
        ),
        (
            "`save_hyperparameters()` in another method, which `__init__` calls",
            "saves the arguments of `__init__`",
            "is an error: call it in `__init__`, or pass a dict",
        ),
        (
            "Hyperparameters of a module that another module makes in its `__init__`",
            "have the other's arguments, too",
            "have its own",
        ),
        (
            "`ModelCheckpoint(save_on_exception=True)`",
            "writes `filename`, or `epoch=E-step=S.ckpt`",
            "writes `filename`; `exception-epoch=E-step=S.ckpt` if it is None or names a metric",
        ),
        ("`ModelCheckpoint` where the metric is NaN", "it may be the best", "it is never the best"),
        (
            "A name in `ModelCheckpoint(filename=...)` that was not logged",
            "shows as 0",
            "shows as nan, with a warning",
        ),
        (
            "Callback state that only running code could load",
            "is saved; refused, or run, when loaded",
            "is an error when saved, which names the callback",
        ),
        (
            "Hyperparameters that are no plain data",
            "are in checkpoints, which `weights_only=False` opens",
            "are left out, with a warning; of a LightningModule they are kept, with a warning",
        ),
        (
            "`weights_only=False` where a checkpoint is opened",
            "runs the code that the file names",
            "lets `load_from_checkpoint` open hyperparameters that are pickles; else has no effect",
        ),
    ),
    "Attributes of the Trainer": (
        ("`trainer.max_epochs`, `max_steps`", "can only be read", "can be set, to train longer"),
        (
            "`trainer.max_epochs`, `num_sanity_val_steps`, `fast_dev_run`",
            "None for no end; infinity for all; True",
            "-1 for no end; -1 for all; a number",
        ),
        (
            "`trainer.min_epochs`, `min_steps`, `gradient_clip_algorithm` that were not given",
            "None",
            "0, 0 and `norm`",
        ),
        (
            "Callbacks of the trainer in a search of the `Tuner`",
            "have `setup` and `teardown` called, and no other hook",
            "take no part",
        ),
        (
            "`Tuner(trainer).lr_find` with fewer batches until `max_epochs` than `num_training`",
            "ends with them",
            "goes on through the data until `num_training`",
        ),
        (
            "The column FLOPs of a model summary",
            "is there always, 0 without an example",
            "is there where `example_input_array` was run",
        ),
        ("`log_every_n_steps=0`, read from the trainer", "0", "`sys.maxsize`"),
        (
            "`trainer.num_training_batches`, `num_val_batches` with a limit of 0",
            "infinity; an empty list",
            "0; a list of 0",
        ),
        (
            "`trainer.num_training_batches` of a loader without a length, after the fit",
            "infinity",
            "the batches of the last epoch",
        ),
        (
            '`CombinedLoader(mode="min_size")` of loaders of which one has no length',
            "has the length of the shortest other; an epoch that ends sooner gets no validation",
            "has no length, as any of them may end the epoch; validates at its end",
        ),
        (
            "`trainer.num_val_batches` of a `CombinedLoader`",
            "has a number for each of its loaders",
            "has one number, of the batches that are run",
        ),
        (
            "`trainer.val_dataloaders`, `test_dataloaders` ... after a run",
            "the loaders that were passed",
            "None; the loaders during the run",
        ),
        (
            "`trainer.fit_loop.epoch_loop.batch_progress` after a run",
            "includes the last epoch and a batch that was begun",
            "counts complete batches only",
        ),
        (
            "`trainer.state.status` in `teardown`",
            "is running",
            "is finished, or interrupted",
        ),
    ),
    "Settings and endings of a run": (
        (
            "`Trainer(deterministic=True)`",
            "holds from then on, also after the run",
            "holds during a run; the former setting is restored",
        ),
        ("`Trainer(benchmark=True)`", "remains set after the run", "is restored after each run"),
        (
            "`profiler`",
            "names such as `[Strategy]SingleDeviceStrategy.training_step`",
            "`training_step`; all [actions](profiling.md#actions)",
        ),
        (
            '`lr_find(...).results["loss"]`',
            "is half of the loss at first, as the mean is corrected for one value too many",
            "is the smoothed loss",
        ),
        (
            "`lr_find(...).suggestion()`",
            "is where the loss falls most by the growth of the rate, which favours low rates",
            "is where the loss falls most from one rate to the next",
        ),
        ("Ctrl-C", "raises `SystemExit`", "raises `KeyboardInterrupt`, after the batch"),
        ("SIGTERM", "exit code 0", "saves a checkpoint; exit code 143"),
        (
            "The class of some errors",
            "`MisconfigurationException`, or any class of Python",
            (
                "a `TrainerHooksError`, most of which are a `ValueError`, `TypeError` "
                "or `RuntimeError`"
            ),
        ),
        (
            "Copying or pickling a Trainer in a run",
            "works",
            "is a `TypeError`; between runs it works",
        ),
    ),
}
"""Names with two meanings, by section: where, in Lightning, here.

The programs in tests/lightning/programs show them, and name them by the first column.
"""
