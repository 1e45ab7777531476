"""The Trainer's options: declared, documented and checked in this one place."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock import Filter
from trainer_hooks.context import NEVER, Plan
from trainer_hooks.errors import OptionError
from trainer_hooks.trainer.options.limits import (
    both_limits,
    check_duration,
    check_interval,
    check_span,
    with_duration,
)
from trainer_hooks.trainer.options.option_rules import RULES

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from trainer_hooks.callback import Callback
    from trainer_hooks.clock import Time, When
    from trainer_hooks.loggers.base import Logger
    from trainer_hooks.runtime import DDPStrategy

__all__ = ["TrainerConfig", "option_docs"]


_OF_PARTS = ("accelerator", "devices", "strategy", "callbacks", "logger", "precision")
"""Options that name what a trainer is made of, which is told by what became of them."""


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
        default="auto",
        metadata=_doc(
            'Devices of this machine: `"auto"`, how many, or a list of indices. Each takes a '
            "process, which torchrun starts."
        ),
    )
    num_nodes: int = field(default=1, metadata=_doc("Machines; torchrun knows how many."))
    strategy: str | DDPStrategy = field(
        default="auto",
        metadata=_doc(
            '`"auto"` (DDP where there are several processes), `"ddp"`, `"single_device"`, or a '
            "`DDPStrategy(...)` with options."
        ),
    )
    sync_batchnorm: bool = field(
        default=False,
        metadata=_doc("Whether BatchNorm takes its statistics over all processes; on GPUs."),
    )
    use_distributed_sampler: bool = field(
        default=True,
        metadata=_doc("Whether each of several processes is given its share of the loaders."),
    )
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
    plugins: bool | Iterable[str] | None = field(
        default=True,
        metadata=_doc(
            "Whether callbacks of installed packages take part, or names of those; None is True."
        ),
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
            '`"2iter"`, `"1h30m"`, `"1.5h"`, `"90min"`. With other limits, whichever comes first.'
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
        default=None, metadata=_doc("Steps between two hand-overs to the loggers (50); 0 for none.")
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
    gradient_clip_val: float | None = field(
        default=None, metadata=_doc("Bound on the gradients; 0 or None for none.")
    )
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
    detect_anomaly: bool | None = field(
        default=False, metadata=_doc("Let autograd look for the origin of a NaN; slow.")
    )

    def __post_init__(self) -> None:
        """Check every option against its rule."""
        for name, rule, is_met in RULES:
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

    @property
    def given(self) -> str:
        """The options that are not at their defaults, as they would be written."""
        named = ((item.name, getattr(self, item.name), item.default) for item in fields(self))
        return ", ".join(
            f"{name}={value!r}"
            for name, value, default in named
            if name not in _OF_PARTS and value is not default and value != default
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
            gradient_clip_val=self.gradient_clip_val or None,
            gradient_clip_algorithm=self.gradient_clip_algorithm or "norm",
            log_every_n_steps=_first(self.log_every_n_steps, 50) or NEVER,
            iteration_length=self.iteration_length,
            inference_mode=self.inference_mode,
            detect_anomaly=bool(self.detect_anomaly),
            shares_loaders=self.use_distributed_sampler,
            **limits,
        )
        if self.max_duration is None:
            return plan
        duration = check_duration(self.max_duration, self.iteration_length)
        return plan if runs else both_limits(with_duration(plan, duration), plan)


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value


def option_docs() -> list[tuple[str, str, str]]:
    """Return name, default and documentation of every option, in order."""
    return [(f.name, repr(f.default), f.metadata["doc"]) for f in fields(TrainerConfig)]
