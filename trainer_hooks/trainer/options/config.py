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
    from trainer_hooks.profilers import Profiler
    from trainer_hooks.runtime import DDPStrategy, FSDPStrategy

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
            'Devices of this machine: `"auto"`, a number, or a list of indices. Each needs a '
            "process of its own, started by the Trainer or by torchrun."
        ),
    )
    num_nodes: int = field(
        default=1, metadata=_doc("Number of machines; torchrun or SLURM set it.")
    )
    strategy: str | DDPStrategy | FSDPStrategy = field(
        default="auto",
        metadata=_doc(
            '`"auto"` (DDP if there are several processes), `"ddp"`, `"ddp_notebook"`, `"fsdp"`, '
            '`"single_device"`, or a `DDPStrategy(...)` or `FSDPStrategy(...)` with options.'
        ),
    )
    sync_batchnorm: bool = field(
        default=False,
        metadata=_doc("Let BatchNorm compute its statistics over all processes; on GPUs only."),
    )
    use_distributed_sampler: bool = field(
        default=True,
        metadata=_doc("Give each of several processes its share of the data."),
    )
    # the number first: parsers take the first type that fits, and typing has one order for a set
    precision: int | str | None = field(
        default=None,
        metadata=_doc(
            '`"32-true"` (default), `"64-true"`, `"bf16-mixed"`, `"16-mixed"`, `"bf16-true"` or '
            '`"16-true"`.'
        ),
    )
    logger: Logger | Iterable[Logger] | bool | None = field(
        default=None,
        metadata=_doc("A logger, several, True (default: a CSVLogger) or False."),
    )
    callbacks: Callback | Iterable[Callback] | None = field(
        default=None, metadata=_doc("One callback, or any iterable of them; it is not changed.")
    )
    plugins: bool | Iterable[str] | None = field(
        default=True,
        metadata=_doc(
            "Whether callbacks of installed packages take part, or the names of those that do; "
            "None means True."
        ),
    )
    plugin_errors: str = field(
        default="warn",
        metadata=_doc('`"warn"` to go on without a broken plugin, `"raise"` to stop.'),
    )
    strict_hooks: bool = field(
        default=False,
        metadata=_doc(
            "Whether a method `on_...` that is no hook is an error, rather than a warning."
        ),
    )
    callback_errors: Mapping[str, str] | None = field(
        default=None,
        metadata=_doc(
            'What an error in a callback does: a dict of `"raise"` or `"disable"` by state_key or '
            "class name. It overrides the callback's own `on_error`."
        ),
    )
    profile_hooks: bool = field(
        default=False,
        metadata=_doc(
            "Time every call of a callback; after each run, print what they cost and write "
            "`hook_trace.json` to the log folder."
        ),
    )
    profiler: str | Profiler | None = field(
        default=None,
        metadata=_doc(
            'A [profiler](profiling.md#profilers) of the whole run: `"simple"`, `"advanced"`, '
            '`"pytorch"`, or an object from `trainer_hooks.profilers`.'
        ),
    )
    hook_budget: str | float | None = field(
        default=None,
        metadata=_doc(
            "The share of a training batch's time that a callback may take before a warning, as "
            '`"2%"` or `0.02`.'
        ),
    )
    max_epochs: int | None = field(
        default=None,
        metadata=_doc(
            "Epochs to train; -1 for no end. Default: 1000, or no end if another limit is given."
        ),
    )
    min_epochs: int | None = field(
        default=None, metadata=_doc("A request to stop waits until this many epochs are done.")
    )
    max_steps: int = field(default=-1, metadata=_doc("Optimizer steps to train; -1 for no end."))
    min_steps: int | None = field(
        default=None,
        metadata=_doc("A request to stop waits until this many optimizer steps are done."),
    )
    max_time: Mapping[str, int] | str | Time | timedelta | None = field(
        default=None,
        metadata=_doc(
            'Wall time to train: `"8h30m"`, `"DD:HH:MM:SS"`, a timedelta, or a dict of its '
            "arguments. A Timer callback then asks to stop, so min_epochs and min_steps still "
            "hold."
        ),
    )
    max_duration: str | Time | timedelta | None = field(
        default=None,
        metadata=_doc(
            'How long to train, in any [unit](time.md#units): `"10ep"`, `"500ba"`, `"200st"`, '
            '`"50_000sp"`, `"1e9tok"`, `"2iter"`, `"1h30m"`. With other limits, whichever comes '
            "first."
        ),
    )
    limit_train_batches: int | float | None = field(
        default=None,
        metadata=_doc("Batches of each epoch to run: a number (int) or a share (float)."),
    )
    limit_val_batches: int | float | None = field(
        default=None, metadata=_doc("The same for each validation loader.")
    )
    limit_test_batches: int | float | None = field(
        default=None, metadata=_doc("The same for each test loader.")
    )
    limit_predict_batches: int | float | None = field(
        default=None, metadata=_doc("The same for each predict loader.")
    )
    fast_dev_run: int | bool = field(
        default=False,
        metadata=_doc(
            "Dry run: one epoch of this many batches of each loader (True: 1), without logs and "
            "checkpoints."
        ),
    )
    overfit_batches: int | float = field(
        default=0.0,
        metadata=_doc("Train and validate on this many batches (or this share), not shuffled."),
    )
    val_check_interval: Mapping[str, int] | int | float | When | timedelta | None = field(
        default=None,
        metadata=_doc(
            "Validate every so many batches (int), every share of an epoch (float), or at [an "
            'interval](time.md#intervals): `"100ba"`, `"200st"`, `"1e6tok"`, `"0.1dur"`, `"15m"`, '
            '`"DD:HH:MM:SS"`, a timedelta or a dict of its arguments, a filter, or a function of '
            "the clock."
        ),
    )
    check_val_every_n_epoch: int | None = field(
        default=1,
        metadata=_doc(
            "Validate in every n-th epoch. None: `val_check_interval` counts batches across epochs."
        ),
    )
    num_sanity_val_steps: int | None = field(
        default=None,
        metadata=_doc(
            "Validation batches to run before training (default 2); -1 for all, 0 for none."
        ),
    )
    log_every_n_steps: int | None = field(
        default=None,
        metadata=_doc(
            "Pass metrics to the loggers every so many steps (default 50); 0 passes none at steps."
        ),
    )
    accumulate_grad_batches: int = field(
        default=1,
        metadata=_doc("Batches whose gradients are accumulated into one step (a window)."),
    )
    microbatch_size: int | str | None = field(
        default=None,
        metadata=_doc(
            'Split each training batch into parts of this many samples, to save memory; `"auto"`: '
            "as large as fit."
        ),
    )
    gradient_clip_val: float | None = field(
        default=None, metadata=_doc("Clip gradients to this value; 0 or None for no clipping.")
    )
    gradient_clip_algorithm: str | None = field(
        default=None, metadata=_doc('Clip by `"norm"` (default) or `"value"`.')
    )
    iteration_length: int | None = field(
        default=None,
        metadata=_doc("Epochs in a cycle (an *iteration*), for the `on_iteration_...` hooks."),
    )
    reload_dataloaders_every_n_epochs: int = field(
        default=0,
        metadata=_doc(
            "Ask the module or data module for its loaders anew as every n-th epoch begins; 0 for "
            "never."
        ),
    )
    enable_checkpointing: bool | None = field(
        default=None,
        metadata=_doc(
            "Add a ModelCheckpoint unless a checkpoint callback is given; None means True."
        ),
    )
    enable_progress_bar: bool | None = field(
        default=None, metadata=_doc("Add a progress bar unless one is given; None means True.")
    )
    enable_model_summary: bool | None = field(
        default=None, metadata=_doc("Add a ModelSummary unless one is given; None means True.")
    )
    enable_run_manifest: bool | None = field(
        default=None,
        metadata=_doc(
            "Add a RunManifest, which keeps a journal of the run in the log folder, unless one is "
            "given; None means True."
        ),
    )
    enable_autolog_hparams: bool = field(
        default=True,
        metadata=_doc("Pass the saved hyperparameters to the loggers as a fit begins."),
    )
    barebones: bool = field(
        default=False,
        metadata=_doc(
            "Switch off what a run does beside the loops, to measure these: checkpoints, loggers, "
            "`log` (warned of once), the bar, the summary, the journal, the sanity check, plugins."
        ),
    )
    default_root_dir: str | os.PathLike[str] | None = field(
        default=None,
        metadata=_doc(
            "Where logs and checkpoints go; None means the working directory. Checkpoints may go "
            "to an address such as `s3://bucket/run`."
        ),
    )
    deterministic: bool | str | None = field(
        default=None,
        metadata=_doc(
            'True uses only deterministic algorithms during a run; `"warn"` warns where there is '
            "none."
        ),
    )
    benchmark: bool | None = field(
        default=None,
        metadata=_doc(
            "During a run, whether cuDNN tries which algorithms are fastest. None: as it is set in "
            "torch, but off with `deterministic`."
        ),
    )
    inference_mode: bool = field(
        default=True,
        metadata=_doc("Evaluate under torch.inference_mode; False uses no_grad."),
    )
    detect_anomaly: bool | None = field(
        default=False, metadata=_doc("Let autograd find the operation that made a NaN; slow.")
    )

    model_registry: str | None = field(
        default=None,
        metadata=_doc("None: a model registry of Lightning's cloud is not reached from here."),
    )

    def __post_init__(self) -> None:
        """Check every option against its rule."""
        for name, rule, is_met in RULES:
            value = getattr(self, name)
            if not is_met(value):
                raise OptionError(f"Trainer({name}={value!r}): must be {rule}.")
        if self.barebones:
            from trainer_hooks.trainer.options.barebones import switched_off

            given = {item.name: getattr(self, item.name) for item in fields(self)}
            for name, value in switched_off(given).items():
                object.__setattr__(self, name, value)
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
            reload_dataloaders_every_n_epochs=self.reload_dataloaders_every_n_epochs,
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
