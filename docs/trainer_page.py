"""The page of the Trainer: its options, attributes and methods, by what one wants to do."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from tables import cell, member_row
from trainer_hooks.trainer.options.config import option_docs
from trainer_hooks.trainer.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["trainer_page"]

_MORE = "Further"

_OPTIONS = {
    "How long": (
        "max_epochs", "min_epochs", "max_steps", "min_steps", "max_time", "max_duration",
        "limit_train_batches", "iteration_length",
    ),
    "Validation, test, prediction": (
        "val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps",
        "limit_val_batches", "limit_test_batches", "limit_predict_batches", "inference_mode",
    ),
    "Devices, processes, precision": (
        "accelerator", "devices", "num_nodes", "strategy", "precision", "sync_batchnorm",
        "use_distributed_sampler", "microbatch_size",
    ),
    "Optimization and data": (
        "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm",
        "reload_dataloaders_every_n_epochs",
    ),
    "Logging, checkpoints, output": (
        "logger", "log_every_n_steps", "default_root_dir", "enable_checkpointing",
        "enable_progress_bar", "enable_model_summary", "enable_run_manifest",
        "enable_autolog_hparams",
    ),
    "Callbacks": (
        "callbacks", "plugins", "plugin_errors", "strict_hooks", "callback_errors",
    ),
    "Debugging and speed": (
        "fast_dev_run", "overfit_batches", "detect_anomaly", "deterministic", "benchmark",
        "profiler", "profile_hooks", "hook_budget", "barebones",
    ),
}  # fmt: skip
"""The options by section; one that is in none stands in a section of further ones."""

_ATTRIBUTES = {
    "Progress": (
        "progress", "clock", "current_epoch", "global_step", "is_last_batch",
        "estimated_stepping_batches", "num_training_batches", "num_val_batches",
        "num_test_batches", "num_predict_batches", "num_sanity_val_batches",
    ),
    "What is going on": (
        "state", "training", "validating", "testing", "predicting", "evaluating",
        "sanity_checking", "should_stop", "stop_reason", "interrupted", "received_sigterm",
    ),
    "Metrics and logs": (
        "callback_metrics", "logged_metrics", "progress_bar_metrics", "history", "logger",
        "loggers", "log_dir",
    ),
    "Module, data, optimizers": (
        "module", "datamodule", "optimizers", "lr_scheduler_configs", "train_dataloader",
        "val_dataloaders", "test_dataloaders", "predict_dataloaders", "predictions",
    ),
    "Callbacks and checkpoints": (
        "callbacks", "checkpoint_callback", "checkpoint_callbacks", "early_stopping_callback",
        "early_stopping_callbacks", "progress_bar_callback", "ckpt_path", "load_report",
        "plugins",
    ),
    "Devices and processes": (
        "device", "precision", "strategy", "accelerator", "is_global_zero", "global_rank",
        "local_rank", "node_rank", "world_size", "num_nodes", "num_devices", "device_ids",
    ),
}  # fmt: skip
"""The attributes that users read, by section."""

_METHODS = {
    "Running": ("fit", "validate", "test", "predict", "close"),
    "In a hook or a step": (
        "stop", "skip_batch", "end_epoch", "request_validation", "request_checkpoint",
        "validate_again", "reload_dataloaders", "log_metrics", "print", "call_event",
    ),
    "Checkpoints": (
        "save_checkpoint", "save_in_background", "finish_saves", "dump_checkpoint",
    ),
    "Callbacks and hooks": (
        "add_callback", "remove_callback", "describe_hooks", "profile_hooks",
    ),
}  # fmt: skip
"""The methods that users call, by section."""


def trainer_page() -> str:
    """Return docs/trainer.md."""
    properties, methods = _public_members(Trainer)
    options = {
        name: f"| `{name}` | `{default}` | {cell(doc)} |" for name, default, doc in option_docs()
    }
    rows = {**_attribute_rows(properties), **{name: member_row(Trainer, name) for name in methods}}
    # of an option that can be read back, the table of options has said all
    listed = {name for names in _ATTRIBUTES.values() for name in names}
    read_back = [name for name in properties if name in options and name not in listed]
    lines = [
        "# The Trainer: options, attributes, methods",
        "",
        "<!-- search: trainer, trainer options -->",
        "",
        "<!-- made by docs/generate.py from trainer_hooks/trainer/: do not edit -->",
        "",
        "Pass all options by keyword. Options that Lightning 2.x also has keep its names, defaults",
        "and meanings, except for [these differences](differences-from-lightning.md).",
        "",
        "## Options",
        *_tables(_OPTIONS, options, "| option | default | meaning |\n|---|---|---|"),
        "",
        "## Attributes",
        *_tables(
            _ATTRIBUTES,
            {n: rows[n] for n in properties if n in rows},
            "| name | value |\n|---|---|",
            leave_out=read_back,
        ),
        "",
        "These options can be read under their names; `max_epochs`, `max_steps`, `max_duration`",
        "and `accumulate_grad_batches` may be set, too, to train longer or otherwise:",
        f"{', '.join(f'`{name}`' for name in read_back)}.",
        "",
        "## Methods",
        *_tables(_METHODS, {n: rows[n] for n in methods}, "| name | description |\n|---|---|"),
    ]
    return "\n".join(lines) + "\n"


def _tables(
    sections: Mapping[str, Iterable[str]],
    rows: Mapping[str, str],
    head: str,
    leave_out: Iterable[str] = (),
) -> Iterator[str]:
    """Yield the lines of one table for each section, and of one for the rows in no section.

    Raises:
        ValueError: a section names something that is not there.
    """
    listed = [name for names in sections.values() for name in names]
    if unknown := [name for name in listed if name not in rows]:
        raise ValueError(f"{unknown} in docs/trainer_page.py: the Trainer has none of that name.")
    rest = [name for name in rows if name not in listed and name not in leave_out]
    for title, names in {**sections, _MORE: rest}.items():
        if shown := [rows[name] for name in names]:
            if title == _MORE and sections is not _OPTIONS:
                title = "Rarely needed: for loggers, adapters and callbacks with a special job"
            yield from ("", f"### {title}", "", head, *shown)


def _attribute_rows(names: list[str]) -> dict[str, str]:
    """Return a row for each property under its first name, with all its names."""
    named: dict[object, list[str]] = {}
    for name in names:
        named.setdefault(inspect.getattr_static(Trainer, name), []).append(name)
    return {
        first: member_row(Trainer, first).replace(
            f"`{first}`", ", ".join(f"`{name}`" for name in (first, *others)), 1
        )
        for first, *others in named.values()
    }


def _public_members(owner: type) -> tuple[list[str], list[str]]:
    """Return the names of a class's properties and of its methods, in their order."""
    names = [name for kind in reversed(owner.__mro__) for name in vars(kind) if name[0] != "_"]
    found = {name: inspect.getattr_static(owner, name) for name in names}
    properties = [name for name, member in found.items() if isinstance(member, property)]
    return properties, [name for name in found if name not in properties]
