"""The rules that the Trainer's options are checked against, one by one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trainer_hooks.trainer.options.limits import is_interval
from trainer_hooks.trainer.options.shares import SHARE_RULE, as_share

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RULES"]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(lowest: int, *, optional: bool = True) -> Callable[[Any], bool]:
    return lambda value: (value is None and optional) or (_is_int(value) and value >= lowest)


def _is_limit(value: Any) -> bool:
    if value is None or (_is_int(value) and value >= 0):
        return True
    return isinstance(value, float) and 0.0 <= value <= 1.0


def _is_bool_or_none(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _is_names_or_bool(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return _is_bool_or_none(value)
    return not isinstance(value, list | tuple | set) or all(isinstance(v, str) for v in value)


def _are_policies(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and policy in ("raise", "disable") for name, policy in value.items()
    )


def _is_profiler(value: Any) -> bool:
    if isinstance(value, str):
        from trainer_hooks.profilers.named import NAMES

        return value.lower() in NAMES
    return value is None or (
        not isinstance(value, type) and all(callable(getattr(value, m, None)) for m in _PROFILES)
    )


_PROFILES = ("start", "stop", "setup", "teardown", "describe")
_LIMIT = "an int of at least 0 (batches) or a float from 0.0 to 1.0 (a share)"
_SWITCH = "True, False or None"

RULES: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("num_nodes", "an int of at least 1", _is_count(1, optional=False)),
    ("sync_batchnorm", "True or False", lambda v: isinstance(v, bool)),
    ("use_distributed_sampler", "True or False", lambda v: isinstance(v, bool)),
    ("plugins", "True, False, None, or names of plugins in a list", _is_names_or_bool),
    ("plugin_errors", "'warn' or 'raise'", lambda v: v in ("warn", "raise")),
    ("strict_hooks", "True or False", lambda v: isinstance(v, bool)),
    (
        "callback_errors",
        "a dict of 'raise' or 'disable' by state_key or class name, or None",
        lambda v: v is None or _are_policies(v),
    ),
    ("profile_hooks", "True or False", lambda v: isinstance(v, bool)),
    (
        "profiler",
        "'simple', 'advanced', 'pytorch', a profiler of trainer_hooks.profilers, or None",
        _is_profiler,
    ),
    ("hook_budget", f"{SHARE_RULE}, or None", lambda v: v is None or as_share(v) is not None),
    ("max_epochs", "an int of at least -1, or None", _is_count(-1)),
    ("min_epochs", "an int of at least 0, or None", _is_count(0)),
    ("max_steps", "an int of at least -1", _is_count(-1, optional=False)),
    ("min_steps", "an int of at least 0, or None", _is_count(0)),
    ("limit_train_batches", _LIMIT, _is_limit),
    ("limit_val_batches", _LIMIT, _is_limit),
    ("limit_test_batches", _LIMIT, _is_limit),
    ("limit_predict_batches", _LIMIT, _is_limit),
    ("fast_dev_run", "a bool or an int of at least 0", lambda v: isinstance(v, int) and v >= 0),
    ("overfit_batches", _LIMIT, lambda v: v is not None and _is_limit(v)),
    (
        "val_check_interval",
        "an int of at least 1 (batches) or a float over 0.0 and up to 1.0 (a share of an epoch)",
        lambda v: v is None or is_interval(v) or (_is_limit(v) and v > 0),
    ),
    ("check_val_every_n_epoch", "an int of at least 1, or None", _is_count(1)),
    ("num_sanity_val_steps", "an int of at least -1, or None", _is_count(-1)),
    ("log_every_n_steps", "an int of at least 0, or None", _is_count(0)),
    ("accumulate_grad_batches", "an int of at least 1", _is_count(1, optional=False)),
    (
        "microbatch_size",
        "an int of at least 1, 'auto', or None",
        lambda v: v == "auto" or _is_count(1)(v),
    ),
    (
        "gradient_clip_val",
        "a number from 0 on, or None",
        lambda v: v is None or (isinstance(v, int | float) and not isinstance(v, bool) and v >= 0),
    ),
    ("gradient_clip_algorithm", "'norm' or 'value'", lambda v: v in (None, "norm", "value")),
    ("iteration_length", "an int of at least 1, or None", _is_count(1)),
    (
        "reload_dataloaders_every_n_epochs",
        "an int of at least 0",
        _is_count(0, optional=False),
    ),
    ("enable_checkpointing", _SWITCH, _is_bool_or_none),
    ("enable_progress_bar", _SWITCH, _is_bool_or_none),
    ("enable_model_summary", _SWITCH, _is_bool_or_none),
    ("enable_run_manifest", _SWITCH, _is_bool_or_none),
    ("enable_autolog_hparams", "True or False", lambda v: isinstance(v, bool)),
    ("barebones", "True or False", lambda v: isinstance(v, bool)),
    (
        "model_registry",
        (
            "None, as Lightning's model registry is not reached from here. Let ModelCheckpoint "
            "save to an address (default_root_dir='s3://...'), or a logger upload "
            "(log_model=True), and fit with ckpt_path="
        ),
        lambda v: v is None,
    ),
    (
        "default_root_dir",
        "a path, or None",
        lambda v: v is None or isinstance(v, str | os.PathLike),
    ),
    ("deterministic", "True, False, 'warn' or None", lambda v: _is_bool_or_none(v) or v == "warn"),
    ("benchmark", _SWITCH, _is_bool_or_none),
    ("inference_mode", "True or False", lambda v: isinstance(v, bool)),
    ("detect_anomaly", _SWITCH, _is_bool_or_none),
)
"""Of each option its name, its rule in words, and what tells whether a value meets it."""
