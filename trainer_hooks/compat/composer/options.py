"""The options of Composer's Trainer: declared, documented and checked in this one place."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.absent import OPTIONS
from trainer_hooks.compat.composer.utils import format_name_with_dist
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TrainerOptions"]


def _doc(text: str) -> dict[str, str]:
    return {"doc": text}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerOptions:
    """What `Trainer(...)` was given. Names, defaults and meanings are Composer's.

    Raises:
        OptionError: a value breaks its option's rule, or asks for what is not here.
    """

    model: Any = field(metadata=_doc("A `ComposerModel`, or what has its methods."))
    train_dataloader: Any = field(
        default=None, metadata=_doc("A loader, a `DataSpec`, or a dict of its arguments.")
    )
    train_dataloader_label: str = field(
        default="train", metadata=_doc("`state.dataloader_label` in the training.")
    )
    train_subset_num_batches: int = field(
        default=-1, metadata=_doc("Batches an epoch; -1 for all.")
    )
    spin_dataloaders: bool = True
    max_duration: Any = field(
        default=None, metadata=_doc('How long: `"10ep"`, `"500ba"`, or a number of epochs.')
    )
    algorithms: Any = None
    algorithm_passes: Any = None
    optimizers: Any = field(
        default=None,
        metadata=_doc("The optimizer; `DecoupledSGDW(lr=0.1)` with a warning if None."),
    )
    schedulers: Any = field(
        default=None,
        metadata=_doc("torch's schedulers, or functions of the state that return a factor."),
    )
    scale_schedule_ratio: float = field(
        default=1.0, metadata=_doc("Stretches the training and its schedulers.")
    )
    step_schedulers_every_batch: bool | None = field(
        default=None,
        metadata=_doc("Whether schedulers step after batches; None: unless one is torch's."),
    )
    eval_dataloader: Any = field(
        default=None, metadata=_doc("A loader, an `Evaluator`, or a list of them.")
    )
    eval_interval: Any = field(
        default=1,
        metadata=_doc(
            "When to evaluate: a time, a number of epochs, or a function of state and event."
        ),
    )
    eval_subset_num_batches: int = field(
        default=-1, metadata=_doc("Batches of each evaluation; -1 for all.")
    )
    callbacks: Any = field(
        default=None, metadata=_doc("Callbacks of Composer's kind, and of trainer_hooks.")
    )
    loggers: Any = field(default=None, metadata=_doc("Destinations, and loggers of trainer_hooks."))
    run_name: str | None = field(
        default=None, metadata=_doc("The run's name; one is made up if None.")
    )
    progress_bar: bool = field(default=True, metadata=_doc("Whether to show one."))
    log_to_console: bool = field(default=False, metadata=_doc("Whether to add a `ConsoleLogger`."))
    console_stream: Any = field(default="stderr", metadata=_doc("Where that prints."))
    console_log_interval: Any = field(default="1ba", metadata=_doc("When that prints."))
    log_traces: bool = False
    auto_log_hparams: bool = field(default=False, metadata=_doc("Whether to log these options."))
    load_path: str | None = field(default=None, metadata=_doc("A checkpoint to go on from."))
    load_object_store: Any = None
    load_weights_only: bool = field(default=False, metadata=_doc("Take its weights alone."))
    load_strict_model_weights: bool = field(
        default=True, metadata=_doc("Whether each weight must be on both sides.")
    )
    load_progress_bar: bool = True
    load_ignore_keys: Any = None
    load_exclude_algorithms: Any = None
    save_folder: str | None = field(
        default=None, metadata=_doc("Where checkpoints go; adds a `CheckpointSaver`.")
    )
    save_filename: str = field(
        default="ep{epoch}-ba{batch}-rank{rank}.pt", metadata=_doc("Their names.")
    )
    save_latest_filename: str | None = field(
        default="latest-rank{rank}.pt", metadata=_doc("The link to the newest of them.")
    )
    save_overwrite: bool = field(
        default=False, metadata=_doc("Whether files that are there may be written over.")
    )
    save_interval: Any = field(
        default="1ep", metadata=_doc("When to save, in the forms of `eval_interval`.")
    )
    save_weights_only: bool = field(
        default=False, metadata=_doc("Leave out what only a resume needs.")
    )
    save_ignore_keys: Any = field(
        default=None, metadata=_doc("What is not saved, as in `CheckpointSaver`.")
    )
    save_num_checkpoints_to_keep: int = field(
        default=-1, metadata=_doc("How many are kept; -1 for all.")
    )
    save_metrics: bool = False
    autoresume: bool = field(
        default=False,
        metadata=_doc("Go on from the newest checkpoint of `save_folder`, if there is one."),
    )
    parallelism_config: Any = None
    device: str | None = field(
        default=None, metadata=_doc('`"cpu"`, `"gpu"`, `"mps"`, or None for the best.')
    )
    precision: str | None = field(
        default=None,
        metadata=_doc(
            '`"fp32"`, `"amp_fp16"` or `"amp_bf16"`; None: `"amp_fp16"` on a GPU, else `"fp32"`.'
        ),
    )
    precision_config: Any = None
    device_train_microbatch_size: int | float | str | None = field(
        default=None,
        metadata=_doc('Samples of a batch that are run at a time; `"auto"`: as many as fit.'),
    )
    accumulate_train_batch_on_tokens: bool = False
    seed: int | None = field(
        default=None, metadata=_doc("Seeds Python, NumPy and torch when the trainer is made.")
    )
    deterministic_mode: bool = field(
        default=False, metadata=_doc("Use algorithms that give the same numbers again.")
    )
    dist_timeout: float = 300.0
    ddp_sync_strategy: Any = None
    profiler: Any = None
    python_log_level: str | None = field(
        default=None, metadata=_doc("The level of the package's log.")
    )
    compile_config: Any = None

    def __post_init__(self) -> None:
        """Check what is not here, and what must come together."""
        for name, (taken, advice) in OPTIONS.items():
            value = getattr(self, name)
            if not any(value is one or _is_same(value, one) for one in taken):
                raise OptionError(f"Trainer({name}={value!r}): it is not here: {advice}.")
        if not callable(getattr(self.model, "loss", None)):
            raise OptionError(
                f"Trainer(model={type(self.model).__qualname__}): must be a ComposerModel, with "
                "forward(batch) and loss(outputs, batch). Derive it from ComposerModel, or wrap it "
                "in a ComposerClassifier."
            )
        needed = {"save_folder": self.save_folder, "run_name": self.given_run_name}
        missing = [name for name, value in needed.items() if value is None]
        if self.autoresume and (missing or self.save_latest_filename is None):
            missing += [] if self.save_latest_filename else ["save_latest_filename"]
            raise OptionError(
                f"Trainer(autoresume=True, {missing[0]}=None): a run that goes on by itself is "
                f"found by its name and its folder. Pass {' and '.join(missing)}."
            )

    @property
    def given_run_name(self) -> str | None:
        """The run's name, as an argument or in the environment says it."""
        found = (os.environ.get(name) for name in ("COMPOSER_RUN_NAME", "RUN_NAME"))
        return self.run_name or next((name for name in found if name), None)

    def named(self) -> str:
        """Return the run's name, made up if need be."""
        return self.given_run_name or f"{int(time.time())}-{secrets.token_hex(3)}"

    def native_saving(self, asked: Callable[..., Any]) -> Any:
        """Return when to save as trainer_hooks takes it: a function of the clock, or a time.

        Args:
            asked: makes a function of the clock of one of the state and the event.
        """
        interval = self.save_interval
        return asked(interval) if callable(interval) else _text(interval)

    def place(self, run_name: str) -> str | None:
        """Return the folder of the checkpoints."""
        if self.save_folder is None:
            return None
        return format_name_with_dist(str(self.save_folder), run_name)


def _is_same(value: object, other: object) -> bool:
    return type(value) is type(other) and value == other


def _text(interval: Any) -> Any:
    return interval if isinstance(interval, int) else str(interval)
