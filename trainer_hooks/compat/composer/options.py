"""TrainerOptions: the options of Composer's Trainer, with their documentation and checks."""

# ruff: noqa: RUF009 - option() returns a field of the dataclass

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from trainer_hooks.compat.composer.not_offered import OPTIONS
from trainer_hooks.compat.composer.utils import format_name_with_dist
from trainer_hooks.errors import OptionError
from trainer_hooks.trainer.options.config import option

__all__ = ["TrainerOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerOptions:
    """The options of `Trainer(...)`; names, defaults and meanings are Composer's.

    Raises:
        OptionError: a value breaks its option's rule, or asks for a feature that is not here.
    """

    model: Any = field(metadata={"doc": "A `ComposerModel`, or an object with its methods."})
    train_dataloader: Any = option(None, "A loader, a `DataSpec`, or a dict of its arguments.")
    train_dataloader_label: str = option("train", "The `state.dataloader_label` of the training.")
    train_subset_num_batches: int = option(-1, "The number of batches of an epoch; -1 for all.")
    # an option without a text has no effect here: OPTIONS has the values that are accepted
    spin_dataloaders: bool = True
    max_duration: Any = option(None, 'How long: `"10ep"`, `"500ba"`, or a number of epochs.')
    algorithms: Any = None
    algorithm_passes: Any = None
    optimizers: Any = option(None, "The optimizer; `DecoupledSGDW(lr=0.1)` with a warning if None.")
    schedulers: Any = option(
        None, "Schedulers of torch, or functions of the state that return a factor."
    )
    scale_schedule_ratio: float = option(
        1.0, "The factor that stretches the training and its schedulers."
    )
    step_schedulers_every_batch: bool | None = option(
        None, "Whether schedulers step after each batch; None: unless one is torch's."
    )
    eval_dataloader: Any = option(None, "A loader, an `Evaluator`, or a list of them.")
    eval_interval: Any = option(
        1, "When to evaluate: a time, a number of epochs, or a function of state and event."
    )
    eval_subset_num_batches: int = option(
        -1, "The number of batches of each evaluation; -1 for all."
    )
    callbacks: Any = option(None, "Callbacks of this package, and of trainer_hooks.")
    loggers: Any = option(None, "Logger destinations, and loggers of trainer_hooks.")
    run_name: str | None = option(None, "The name of the run; generated if None.")
    progress_bar: bool = option(True, "Whether to show a progress bar.")
    log_to_console: bool = option(False, "Whether to add a `ConsoleLogger`.")
    console_stream: Any = option("stderr", "The stream of the `ConsoleLogger`.")
    console_log_interval: Any = option("1ba", "The interval of the `ConsoleLogger`.")
    log_traces: bool = False
    auto_log_hparams: bool = option(False, "Whether to log these options as hyperparameters.")
    load_path: str | None = option(None, "The checkpoint to resume from.")
    load_object_store: Any = None
    load_weights_only: bool = option(False, "Whether to load only the weights of the checkpoint.")
    load_strict_model_weights: bool = option(
        True, "Whether the weights of model and checkpoint must have the same names."
    )
    load_progress_bar: bool = True
    load_ignore_keys: Any = None
    load_exclude_algorithms: Any = None
    save_folder: str | None = option(
        None, "The folder of the checkpoints; adds a `CheckpointSaver`."
    )
    save_filename: str = option(
        "ep{epoch}-ba{batch}-rank{rank}.pt", "The template of the checkpoints' names."
    )
    save_latest_filename: str | None = option(
        "latest-rank{rank}.pt", "The template of the link to the newest checkpoint."
    )
    save_overwrite: bool = option(False, "Whether existing files may be overwritten.")
    save_interval: Any = option("1ep", "When to save, in the forms of `eval_interval`.")
    save_weights_only: bool = option(
        False, "Whether to leave out the state that only a resume needs."
    )
    save_ignore_keys: Any = option(None, "The keys that are not saved, as in `CheckpointSaver`.")
    save_num_checkpoints_to_keep: int = option(-1, "The number of checkpoints to keep; -1 for all.")
    save_metrics: bool = False
    autoresume: bool = option(
        False, "Whether to resume from the newest checkpoint of `save_folder`, if any."
    )
    parallelism_config: Any = None
    device: str | None = option(None, '`"cpu"`, `"gpu"`, `"mps"`, or None for the best.')
    precision: str | None = option(
        None, '`"fp32"`, `"amp_fp16"` or `"amp_bf16"`; None: `"amp_fp16"` on a GPU, else `"fp32"`.'
    )
    precision_config: Any = None
    device_train_microbatch_size: int | float | str | None = option(
        None, 'The most samples of a microbatch; `"auto"`: as many as fit into memory.'
    )
    accumulate_train_batch_on_tokens: bool = False
    seed: int | None = option(
        None, "The seed of Python, NumPy and torch, set when the trainer is made."
    )
    deterministic_mode: bool = option(False, "Whether to use deterministic algorithms.")
    dist_timeout: float = 300.0
    ddp_sync_strategy: Any = None
    profiler: Any = None
    python_log_level: str | None = option(None, "The level of the log of trainer_hooks.")
    compile_config: Any = None

    def __post_init__(self) -> None:
        """Check the options that have no effect here, and those that need each other."""
        for name, (accepted, advice) in OPTIONS.items():
            value = getattr(self, name)
            if not any(value is choice or _is_same(value, choice) for choice in accepted):
                raise OptionError(f"Trainer({name}={value!r}): it is not here: {advice}.")
        if not callable(getattr(self.model, "loss", None)):
            raise OptionError(
                f"Trainer(model={type(self.model).__qualname__}): must be a ComposerModel, with "
                "forward(batch) and loss(outputs, batch). Derive it from ComposerModel, or wrap it "
                "in a ComposerClassifier."
            )
        needed = {"save_folder": self.save_folder, "run_name": self.configured_run_name}
        missing = [name for name, value in needed.items() if value is None]
        if self.autoresume and (missing or self.save_latest_filename is None):
            missing += [] if self.save_latest_filename else ["save_latest_filename"]
            raise OptionError(
                f"Trainer(autoresume=True, {missing[0]}=None): a run that goes on by itself is "
                f"found by its name and its folder. Pass {' and '.join(missing)}."
            )

    @property
    def configured_run_name(self) -> str | None:
        """The name of the run from the argument or the environment; None without one."""
        variables = "COMPOSER_RUN_NAME", "RUN_NAME"
        names = (self.run_name, *(os.environ.get(variable) for variable in variables))
        return next((name for name in names if name), None)

    def make_run_name(self) -> str:
        """Return the name of the run, generated if none is given."""
        # random too, as the jobs of an array may start within one second
        return self.configured_run_name or f"{int(time.time())}-{secrets.token_hex(3)}"

    def save_folder_of(self, run_name: str) -> str | None:
        """Return the folder of a run's checkpoints, with its placeholders filled in."""
        if self.save_folder is None:
            return None
        return format_name_with_dist(str(self.save_folder), run_name)


def _is_same(value: object, other: object) -> bool:
    # to Python, True equals 1
    return type(value) is type(other) and value == other
