"""The Trainer's options: declared, documented and checked in this one place."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from trainer_hooks.context import Plan
from trainer_hooks.errors import OptionError, nearest
from trainer_hooks.filters import Filter
from trainer_hooks.limits import (
    both_limits,
    check_duration,
    check_interval,
    check_span,
    is_interval,
    with_duration,
)
from trainer_hooks.profiling import SHARE_RULE, as_share

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from trainer_hooks.callback import Callback
    from trainer_hooks.filters import When
    from trainer_hooks.loggers.base import Logger
    from trainer_hooks.timing import Time

__all__ = ["NOT_YET", "TrainerConfig", "takes_options"]

NOT_YET: Mapping[str, str] = {
    "barebones": "leave features off one by one; an unused one costs nothing",
    "benchmark": "set torch.backends.cudnn.benchmark",
    "enable_autolog_hparams": "save_hyperparameters(logger=False) keeps them from the loggers",
    "model_registry": "give ckpt_path a file",
    "num_nodes": "training in several processes is not available yet",
    "profiler": "not available yet; use torch.profiler around fit",
    "reload_dataloaders_every_n_epochs": "not available yet; call fit once an epoch",
    "sync_batchnorm": "training in several processes is not available yet",
    "use_distributed_sampler": "training in several processes is not available yet",
}
"""Options of Lightning that are not here, and what to do instead."""


def _doc(text: str) -> dict[str, str]:
    return {"doc": text}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """What `Trainer(...)` was given. Names, defaults and meanings are Lightning 2.x's.

    Raises:
        OptionError: a value breaks its option's rule; the message says which.
    """

    accelerator: str = field(
        default="auto", metadata=_doc('`"auto"`, `"cpu"`, `"cuda"`, `"gpu"` or `"mps"`.')
    )
    devices: int | str | list[int] = field(
        default="auto", metadata=_doc('`"auto"`, `1`, or a list with one index.')
    )
    strategy: str = field(default="auto", metadata=_doc('`"auto"` or `"single_device"`.'))
    precision: str | int | None = field(
        default=None,
        metadata=_doc('`"32-true"` (default), `"64-true"`, `"bf16-mixed"` or `"16-mixed"`.'),
    )
    logger: Logger | Iterable[Logger] | bool | None = field(
        default=None,
        metadata=_doc("A logger, several, True (default: a CSVLogger) or False."),
    )
    callbacks: Callback | Iterable[Callback] | None = field(
        default=None, metadata=_doc("One callback or any iterable of them; never changed.")
    )
    plugins: bool | Iterable[str] = field(
        default=True,
        metadata=_doc("Whether callbacks of installed packages take part, or names of those."),
    )
    plugin_errors: str = field(
        default="warn",
        metadata=_doc('`"warn"` to go on without a broken plugin, `"raise"` to stop.'),
    )
    strict_hooks: bool = field(
        default=False,
        metadata=_doc("Whether a method `on_...` that is no hook is an error, not a warning."),
    )
    callback_errors: Mapping[str, str] | None = field(
        default=None,
        metadata=_doc(
            'What an error in a callback does, by its state_key or class: `"raise"` or '
            '`"disable"`. It goes before the callback\'s own `on_error`.'
        ),
    )
    profile_hooks: bool = field(
        default=False,
        metadata=_doc(
            "Whether to time every call of a callback, and at the end of each run to print what "
            "they cost and write `hook_trace.json` into the log folder."
        ),
    )
    hook_budget: str | float | None = field(
        default=None,
        metadata=_doc(
            "The share of a training batch's time that a callback may take before it is warned "
            'of, as `"2%"` or `0.02`.'
        ),
    )
    max_epochs: int | None = field(
        default=None,
        metadata=_doc("Epochs to train; -1 for no end. 1000 unless something else ends it."),
    )
    min_epochs: int | None = field(
        default=None, metadata=_doc("Epochs before a stop that is asked for is heeded.")
    )
    max_steps: int = field(default=-1, metadata=_doc("Optimizer steps to train; -1 for no end."))
    min_steps: int | None = field(
        default=None, metadata=_doc("Optimizer steps before a stop that is asked for is heeded.")
    )
    max_time: str | Time | timedelta | Mapping[str, int] | None = field(
        default=None,
        metadata=_doc(
            'Wall time of training: `"8h30m"`, `"DD:HH:MM:SS"`, a timedelta, or a dict for one. A '
            "Timer asks to stop then, so min_epochs and min_steps are heeded."
        ),
    )
    max_duration: str | Time | timedelta | None = field(
        default=None,
        metadata=_doc(
            'What to train, in any unit: `"10ep"`, `"500ba"`, `"200st"`, `"50_000sp"`, `"1e9tok"`, '
            '`"2iter"`, `"1h30m"`. With other limits, whichever comes first.'
        ),
    )
    limit_train_batches: int | float | None = field(
        default=None, metadata=_doc("Batches an epoch: a number (int) or a share (float).")
    )
    limit_val_batches: int | float | None = field(
        default=None, metadata=_doc("Likewise, of each validation loader.")
    )
    limit_test_batches: int | float | None = field(
        default=None, metadata=_doc("Likewise, of each test loader.")
    )
    limit_predict_batches: int | float | None = field(
        default=None, metadata=_doc("Likewise, of each predict loader.")
    )
    fast_dev_run: int | bool = field(
        default=False,
        metadata=_doc("Run so many batches of everything once, without logs or checkpoints."),
    )
    overfit_batches: int | float = field(
        default=0.0,
        metadata=_doc("Train and validate on so many batches, unshuffled, to see it overfit."),
    )
    val_check_interval: int | float | When | timedelta | Mapping[str, int] | None = field(
        default=None,
        metadata=_doc(
            "Validate every so many batches (int), at every such share of an epoch (float), or "
            'after a time: `"100ba"`, `"200st"`, `"1e6tok"`, `"0.1dur"`, `"15m"`, `"DD:HH:MM:SS"`, '
            "a timedelta, or a dict for one; or when a filter, or a function of the clock, says so."
        ),
    )
    check_val_every_n_epoch: int | None = field(
        default=1, metadata=_doc("Validate in every n-th epoch; None counts batches over epochs.")
    )
    num_sanity_val_steps: int | None = field(
        default=None,
        metadata=_doc("Validation batches run before training (2); -1 for all, 0 for none."),
    )
    log_every_n_steps: int | None = field(
        default=None, metadata=_doc("Steps between two hand-overs to the loggers (50).")
    )
    accumulate_grad_batches: int = field(
        default=1, metadata=_doc("Batches whose gradients make one step.")
    )
    microbatch_size: int | str | None = field(
        default=None,
        metadata=_doc(
            "Split each training batch into parts of so many samples, to save memory; "
            '`"auto"`: as large as fit.'
        ),
    )
    gradient_clip_val: float | None = field(default=None, metadata=_doc("Bound on the gradients."))
    gradient_clip_algorithm: str | None = field(
        default=None, metadata=_doc('`"norm"` (default) or `"value"`.')
    )
    iteration_length: int | None = field(
        default=None, metadata=_doc("Epochs of a cycle, for the on_iteration hooks.")
    )
    enable_checkpointing: bool | None = field(
        default=None, metadata=_doc("Whether a ModelCheckpoint takes part if none was given.")
    )
    enable_progress_bar: bool | None = field(
        default=None, metadata=_doc("Whether a progress bar takes part if none was given.")
    )
    enable_model_summary: bool | None = field(
        default=None, metadata=_doc("Whether a ModelSummary takes part if none was given.")
    )
    enable_run_manifest: bool | None = field(
        default=None,
        metadata=_doc(
            "Whether a RunManifest, which keeps a journal of the run in the log folder, takes part "
            "if none was given."
        ),
    )
    default_root_dir: str | os.PathLike[str] | None = field(
        default=None,
        metadata=_doc(
            "Where logs and checkpoints go; the working directory if None. Checkpoints may go to "
            "an address such as `s3://bucket/run`."
        ),
    )
    deterministic: bool | str | None = field(
        default=None,
        metadata=_doc('True for deterministic algorithms during a run, `"warn"` where possible.'),
    )
    inference_mode: bool = field(
        default=True,
        metadata=_doc("Evaluate under torch.inference_mode; False uses no_grad."),
    )
    detect_anomaly: bool = field(
        default=False, metadata=_doc("Let autograd look for the origin of a NaN; slow.")
    )

    def __post_init__(self) -> None:
        """Check every option against its rule."""
        for name, rule, is_met in _RULES:
            value = getattr(self, name)
            if not is_met(value):
                raise OptionError(f"Trainer({name}={value!r}): must be {rule}.")
        plan = self.plan()
        for unit, least, most in (
            ("epochs", plan.min_epochs, plan.max_epochs),
            ("steps", plan.min_steps, plan.max_steps),
        ):
            if 0 <= most < least:
                raise OptionError(
                    f"Trainer(min_{unit}={least}, max_{unit}={most}): min_{unit} must not be over "
                    f"max_{unit}. Change one of them."
                )
        if self.check_val_every_n_epoch is None and isinstance(self.val_check_interval, float):
            raise OptionError(
                f"Trainer(val_check_interval={self.val_check_interval!r}, check_val_every_n_epoch="
                "None): counting over epochs needs a number of batches as an int."
            )
        if isinstance(plan.val_check_interval, Filter) and self.check_val_every_n_epoch not in (
            1,
            None,
        ):
            raise OptionError(
                f"Trainer(val_check_interval={self.val_check_interval!r}, check_val_every_n_epoch="
                f"{self.check_val_every_n_epoch}): such an interval says by itself in which epochs "
                "to validate. Leave check_val_every_n_epoch out, or join it: every('2ep') & ..."
            )

    def plan(self) -> Plan:
        """Return the numbers that the loops go by, with the defaults filled in."""
        runs = int(self.fast_dev_run)
        overfits = self.overfit_batches
        limits: dict[str, Any] = {
            name: runs or _first(getattr(self, name), 1.0)
            for name in ("limit_train_batches", "limit_val_batches", "limit_test_batches")
        }
        if overfits and not runs:
            limits["limit_train_batches"] = limits["limit_val_batches"] = overfits
        seconds = None if self.max_time is None else check_span("max_time", self.max_time)
        interval = check_interval(_first(self.val_check_interval, 1.0))
        bounded_otherwise = any(
            given not in (None, -1) for given in (self.max_steps, self.max_time, self.max_duration)
        )
        plan = Plan(
            max_epochs=1 if runs else _first(self.max_epochs, -1 if bounded_otherwise else 1000),
            min_epochs=0 if runs else self.min_epochs or 0,
            max_steps=runs or self.max_steps,
            min_steps=0 if runs else self.min_steps or 0,
            max_seconds=None if runs else seconds,
            limit_predict_batches=runs or _first(self.limit_predict_batches, 1.0),
            overfit_batches=overfits,
            val_check_interval=1.0 if runs else interval,
            check_val_every_n_epoch=1 if runs else self.check_val_every_n_epoch,
            num_sanity_val_steps=0 if runs or overfits else _first(self.num_sanity_val_steps, 2),
            accumulate_grad_batches=self.accumulate_grad_batches,
            microbatch_size=self.microbatch_size,
            gradient_clip_val=self.gradient_clip_val,
            gradient_clip_algorithm=self.gradient_clip_algorithm or "norm",
            log_every_n_steps=_first(self.log_every_n_steps, 50),
            iteration_length=self.iteration_length,
            inference_mode=self.inference_mode,
            detect_anomaly=self.detect_anomaly,
            **limits,
        )
        if self.max_duration is None:
            return plan
        duration = check_duration(self.max_duration, self.iteration_length)
        return plan if runs else both_limits(with_duration(plan, duration), plan)


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value


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
        return isinstance(value, bool)
    return not isinstance(value, list | tuple | set) or all(isinstance(v, str) for v in value)


def _are_policies(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and policy in ("raise", "disable") for name, policy in value.items()
    )


_LIMIT = "an int of at least 0 (batches) or a float from 0.0 to 1.0 (a share)"
_SWITCH = "True, False or None"

_RULES: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("plugins", "True, False, or names of plugins in a list", _is_names_or_bool),
    ("plugin_errors", "'warn' or 'raise'", lambda v: v in ("warn", "raise")),
    ("strict_hooks", "True or False", lambda v: isinstance(v, bool)),
    (
        "callback_errors",
        "a dict of 'raise' or 'disable' by state_key or class name, or None",
        lambda v: v is None or _are_policies(v),
    ),
    ("profile_hooks", "True or False", lambda v: isinstance(v, bool)),
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
    ("log_every_n_steps", "an int of at least 1, or None", _is_count(1)),
    ("accumulate_grad_batches", "an int of at least 1", _is_count(1, optional=False)),
    (
        "microbatch_size",
        "an int of at least 1, 'auto', or None",
        lambda v: v == "auto" or _is_count(1)(v),
    ),
    (
        "gradient_clip_val",
        "a number over 0, or None",
        lambda v: v is None or (isinstance(v, int | float) and not isinstance(v, bool) and v > 0),
    ),
    ("gradient_clip_algorithm", "'norm' or 'value'", lambda v: v in (None, "norm", "value")),
    ("iteration_length", "an int of at least 1, or None", _is_count(1)),
    ("enable_checkpointing", _SWITCH, _is_bool_or_none),
    ("enable_progress_bar", _SWITCH, _is_bool_or_none),
    ("enable_model_summary", _SWITCH, _is_bool_or_none),
    ("enable_run_manifest", _SWITCH, _is_bool_or_none),
    (
        "default_root_dir",
        "a path, or None",
        lambda v: v is None or isinstance(v, str | os.PathLike),
    ),
    ("deterministic", "True, False, 'warn' or None", lambda v: _is_bool_or_none(v) or v == "warn"),
    ("inference_mode", "True or False", lambda v: isinstance(v, bool)),
    ("detect_anomaly", "True or False", lambda v: isinstance(v, bool)),
)

_P = ParamSpec("_P")
_C = TypeVar("_C")
_S = TypeVar("_S")


def takes_options(
    config: Callable[_P, _C],
) -> Callable[[Callable[[_S, _C], None]], Callable[Concatenate[_S, _P], None]]:
    """Give an `__init__(self, config)` the options of a config class as its keyword arguments.

    So each option is declared once, and is seen by type checkers, `help` and editors all the same.
    """

    def decorate(init: Callable[[_S, _C], None]) -> Callable[Concatenate[_S, _P], None]:
        options = inspect.signature(config)

        @functools.wraps(init)
        def accept(self: _S, *args: _P.args, **kwargs: _P.kwargs) -> None:
            if args:
                raise OptionError(
                    f"Trainer({args[0]!r}, ...): options are given by keyword, as in "
                    "Trainer(max_epochs=3)."
                )
            for name in kwargs:
                if name not in options.parameters:
                    raise OptionError(_unknown(name, options.parameters))
            init(self, config(*args, **kwargs))

        parameters = [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *options.parameters.values(),
        ]
        accept.__dict__["__signature__"] = options.replace(
            parameters=parameters, return_annotation=None
        )
        return accept  # type: ignore[return-value]

    return decorate


def _unknown(name: str, known: Iterable[str]) -> str:
    if name in NOT_YET:
        return f"Trainer({name}=...): Lightning's option {name!r} is not here: {NOT_YET[name]}."
    return (
        f"Trainer({name}=...): there is no option {name!r}.{nearest(name, known)} "
        "help(trainer_hooks.Trainer) lists them."
    )


def option_docs() -> list[tuple[str, str, str]]:
    """Return name, default and documentation of every option, in order."""
    return [(f.name, repr(f.default), f.metadata["doc"]) for f in fields(TrainerConfig)]
