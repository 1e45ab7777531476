"""Options that no callback of other systems is made with: each error names option and value."""

from __future__ import annotations

import math

from bad_options import each_value, refusal_of, require_named
from for_each import for_each

from trainer_hooks.compat.accelerated import callbacks as accelerated_callbacks
from trainer_hooks.compat.composer import callbacks as composer_callbacks

BAD = {
    "EarlyStoppingCallback": {
        "early_stopping_patience": [0],
        "early_stopping_threshold": [-1.0],
        "greater_is_better": ["yes"],
    },
    "SaveBestModelCallback": {"save_path": ["", 3], "reset_on_train": [1]},
    "SaveTrainingStateCallback": {"save_every_n_epochs": [0], "save_at_end": [False]},
    "LimitBatchesCallback": {"num_batches": [0]},
    "LimitEvalStepsCallback": {"num_eval_steps": [True], "limit_intermediate_only": ["no"]},
    "StepBasedEvaluationCallback": {"eval_every_n_steps": [0]},
    "CheckpointSaver": {
        "filename": ["{epoch", "../{epoch}", None],
        "save_interval": ["10 moons", None],
        "num_checkpoints_to_keep": [0, -2],
        "overwrite": [1],
        "weights_only": [None],
        "async_save": ["yes"],
        "remote_file_name": ["here/ep{epoch}.pt", 3, "memory://a/{epoch.pt"],
        "num_concurrent_uploads": [0],
        "upload_timeout_in_seconds": [0, float("nan"), "1h"],
        "ignore_keys": ["state_dict/*"],
    },
    "MemoryMonitor": {"memory_keys": [{}, {"a": 1}], "dist_aggregate_batch_interval": [0, "x"]},
    "GradMonitor": {"log_layer_grad_norms": [1]},
    "OptimizerMonitor": {"log_optimizer_metrics": [None], "batch_log_interval": [0, "x"]},
    "SpeedMonitor": {"window_size": [0], "time_unit": ["hour"]},
    "RuntimeEstimator": {"skip_batches": [-1], "time_unit": [1]},
    "SystemMetricsMonitor": {"log_all_data": ["x"]},
    "ThresholdStopper": {
        "monitor": [""],
        "dataloader_label": ["", None],
        "threshold": [math.nan],
        "comp": ["best"],
        "stop_on_batch": [1],
    },
    "EarlyStopper": {"min_delta": [-1], "patience": [-1, True, "2x", "1h"], "comp": [3]},
    "ModelEmaCallback": {
        "decay": [1.5, "0.9"],
        "evaluate_during_training": [1],
        "save_path": [""],
        "greater_is_better": ["no"],
        "model_ema": [0.99],
        "prefix": [""],
    },
}
"""The values by callback and option, each of which breaks the rule of the option alone."""
RULES = [
    ("CheckpointSaver", "remote_file_name", "nowhere://a/{epoch}.pt", "no store called nowhere"),
    ("CheckpointSaver", "latest_remote_file_name", "memory://a.pt", "without remote_file_name"),
    ("MemoryMonitor", "memory_keys", [], "it must be a dict"),
    ("MemoryMonitor", "memory_keys", {"a": "x", "b": "x"}, "no two may have the same name"),
]
"""Such a value, and a part of the message that says its rule or the nearest name."""
OTHERS = [
    ("EarlyStoppingCallback", {"watch_metric": ""}, "monitor '' of EarlyStoppingCallback"),
    (
        "SaveTrainingStateCallback",
        {"max_checkpoints": -1, "save_every_n_steps": 1},
        "max_checkpoints -1 of SaveTrainingStateCallback",
    ),
    ("CheckpointSaver", {"folder": 3}, "dirpath 3 of CheckpointSaver"),
    ("CheckpointSaver", {"latest_filename": ""}, "filename '' of CheckpointSaver"),
    (
        "CheckpointSaver",
        {"folder": "memory://a", "remote_file_name": "memory://b/{batch}"},
        "one of the two",
    ),
    ("SpeedMonitor", {"gpu_flops_available": -1}, "available_flops -1"),
    ("ModelEmaCallback", {"watch_metric": 3}, "3 of ModelEmaCallback"),
]
"""Options that exclude each other or are called otherwise there, and a part of the message."""
REQUIRED = {
    "LimitEvalStepsCallback": {"num_eval_steps": 1},
    "ThresholdStopper": {"monitor": "a", "dataloader_label": "eval", "threshold": 1},
    "EarlyStopper": {"monitor": "a", "dataloader_label": "eval"},
}
"""The arguments that a callback cannot be made without."""


def refusal(name, options):
    room = composer_callbacks if hasattr(composer_callbacks, name) else accelerated_callbacks
    return refusal_of(getattr(room, name), {**REQUIRED.get(name, {}), **options})


@for_each(each_value(BAD))
def test_a_value_outside_its_rule_is_named(name, option, value) -> None:
    """The message begins with the option, its value and the callback."""
    require_named(refusal(name, {option: value}), name, option, value)


@for_each(RULES)
def test_the_rule_is_told(name, option, value, rule) -> None:
    """After the same beginning the message says the rule, or the name that was meant."""
    require_named(refusal(name, {option: value}), name, option, value, rule)


@for_each(OTHERS)
def test_the_wrong_part_or_the_other_option_is_told(name, options, message) -> None:
    """Where more than the option and its value are to be known, the message has that."""
    assert message in refusal(name, options)
