"""The Trainer's options: declared, documented and checked in this one place."""

# ruff: noqa: RUF009 - `option` returns a field of the dataclass, made anew by each call
from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from trainer_hooks._annotations import signature_of
from trainer_hooks._options import (
    BOOL,
    CLIP_ALGORITHM,
    PATH,
    SWITCH,
    Combination,
    Rule,
    check_combinations,
    check_option,
    integer,
    is_int,
)
from trainer_hooks.clock.schedules import DueCondition
from trainer_hooks.clock.timing import Time, parse_span
from trainer_hooks.context.plan import NEVER, RunPlan
from trainer_hooks.errors import OptionError, did_you_mean
from trainer_hooks.trainer.options.limits import (
    SHARE_RULE,
    as_option,
    as_share,
    both_limits,
    check_duration,
    check_interval,
    is_interval,
    with_duration,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from datetime import timedelta

    from trainer_hooks.callback import Callback
    from trainer_hooks.checkpoint.custom_io import CheckpointIO
    from trainer_hooks.clock.schedules import When
    from trainer_hooks.loggers.base import Logger
    from trainer_hooks.profilers import Profiler
    from trainer_hooks.runtime.strategy_options import DDPStrategy, FSDPStrategy

_P = ParamSpec("_P")
_C = TypeVar("_C")
_S = TypeVar("_S")


PROFILERS = {
    "simple": "SimpleProfiler",
    "advanced": "AdvancedProfiler",
    "pytorch": "PyTorchProfiler",
}
"""The classes in `trainer_hooks.profilers` by their names in `Trainer(profiler=...)`."""


# --- the rules that only a Trainer's options have ---


def _is_limit(value: Any) -> bool:
    # 1 is one batch and 1.0 all of them, so an int is never taken for a float
    return is_int(value, 0) or (isinstance(value, float) and 0.0 <= value <= 1.0)


def _are_names(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value is None or isinstance(value, bool)
    # an iterator is not looked into: it can be read only once
    return not isinstance(value, list | tuple | set) or all(isinstance(v, str) for v in value)


def _is_checkpoint_io(value: Any) -> bool:
    # by its methods, as Lightning's own class is one, too
    methods = ("save_checkpoint", "load_checkpoint", "remove_checkpoint")
    return not isinstance(value, type) and all(callable(getattr(value, m, None)) for m in methods)


def _are_plugins(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        names = [each for each in value if not _is_checkpoint_io(each)]
        return len(value) - len(names) <= 1 and _are_names(names)
    return _is_checkpoint_io(value) or _are_names(value)


def _are_policies(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and policy in ("raise", "disable") for name, policy in value.items()
    )


def _is_profiler(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in PROFILERS
    # by its methods: any object that has them can measure a run
    methods = ("start", "stop", "setup", "teardown", "describe")
    return value is None or (
        not isinstance(value, type) and all(callable(getattr(value, m, None)) for m in methods)
    )


_LIMIT = Rule("an int of at least 0 (batches) or a float from 0.0 to 1.0 (a share)", _is_limit)
_LIMIT_OR_NONE = replace(_LIMIT, accepts=lambda value: value is None or _is_limit(value))
_INTERVAL = Rule(
    "an int of at least 1 (batches) or a float over 0.0 and up to 1.0 (a share of an epoch)",
    lambda value: value is None or is_interval(value) or (_is_limit(value) and value > 0),
)
_DRY_RUN = Rule(
    "a bool or an int of at least 0", lambda value: isinstance(value, int) and value >= 0
)
_MICROBATCH = Rule(
    "an int of at least 1, 'auto', or None",
    lambda value: value is None or value == "auto" or is_int(value, 1),
)
_CLIP_VALUE = Rule(
    "a number from 0 on",
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value >= 0,
)
_POLICY = Rule("'warn' or 'raise'", lambda value: value in ("warn", "raise"))
_POLICIES = Rule("a dict of 'raise' or 'disable' by state_key or class name", _are_policies)
_PLUGINS = Rule(
    "True, False, None, names of plugins in a list, or one object with the methods "
    "save_checkpoint, load_checkpoint and remove_checkpoint",
    _are_plugins,
)
_PROFILER = Rule(
    "'simple', 'advanced', 'pytorch', a profiler of trainer_hooks.profilers, or None", _is_profiler
)
_SHARE = Rule(SHARE_RULE, lambda value: as_share(value) is not None)
_DETERMINISTIC = Rule(
    "True, False, 'warn' or None",
    lambda value: value is None or isinstance(value, bool) or value == "warn",
)
_NO_REGISTRY = Rule(
    "None, as Lightning's model registry is not reached from here. Let ModelCheckpoint save to an "
    "address (default_root_dir='s3://...'), or a logger upload (log_model=True), and fit with "
    "ckpt_path=",
    lambda value: value is None,
)

NO_STORAGE_OPTIONS = Rule(
    "None",
    lambda value: value is None,
    "How a store such as s3:// is reached is fsspec's own configuration: its environment "
    "variables, or a file in ~/.config/fsspec.",
)
"""The rule of `storage_options`, which Lightning's methods for checkpoints take."""

_COMBINATIONS = (
    *(
        Combination(
            (f"min_{unit}", f"max_{unit}"),
            lambda least, most: most < 0 or least <= most,
            f"min_{unit} must not be over max_{unit}. Change one of them.",
        )
        for unit in ("epochs", "steps")
    ),
    Combination(
        ("val_check_interval", "check_val_every_n_epoch"),
        lambda interval, every: every is not None or not isinstance(interval, float),
        "counting over epochs needs a number of batches as an int.",
    ),
)
"""Rules for several options, checked with the defaults of the plan filled in."""

_BAREBONES: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_run_manifest": False,
    "num_sanity_val_steps": 0,
    "log_every_n_steps": 0,
}
"""The values that `barebones=True` gives these options; another value contradicts it."""

_NOT_IN_BAREBONES = (
    "fast_dev_run", "detect_anomaly", "profiler", "profile_hooks", "hook_budget",
)  # fmt: skip
"""Options that contradict `barebones=True` unless they are off."""

_PARTS = ("accelerator", "devices", "strategy", "callbacks", "logger", "precision")
"""Options that name the parts of a trainer; a run's summary shows the parts themselves."""


def option(default: Any, doc: str, rule: Rule | None = None) -> Any:
    """Declare an option: its default, its description for the docs, and its rule.

    Args:
        default: the default.
        doc: the description, in sentences of Markdown.
        rule: the rule for its values; None if the part that it names checks them.
    """
    return field(default=default, metadata={"doc": doc, "rule": rule})


_COMPARED = (
    "gradient_clip_val", "gradient_clip_algorithm", "limit_train_batches", "overfit_batches",
    "val_check_interval", "check_val_every_n_epoch",
)  # fmt: skip
"""Options of which another value in a resumed run makes it another training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """The options of a Trainer. Names, defaults and meanings are Lightning 2.x's.

    Raises:
        OptionError: a value breaks its option's rule, or two options contradict each other.
    """

    accelerator: str = option("auto", '`"auto"`, `"cpu"`, `"cuda"`, `"gpu"` or `"mps"`.')
    devices: int | str | list[int] = option(
        "auto",
        'Devices of this machine: `"auto"`, a number, or a list of indices. Each needs a '
        "process of its own, started by the Trainer or by torchrun.",
    )
    num_nodes: int = option(1, "Number of machines; torchrun or SLURM set it.", integer(1))
    strategy: str | DDPStrategy | FSDPStrategy = option(
        "auto",
        '`"auto"` (DDP if there are several processes), `"ddp"`, `"ddp_notebook"`, '
        '`"ddp_spawn"`, `"fsdp"`, `"single_device"`, or a `DDPStrategy(...)` or '
        "`FSDPStrategy(...)` with options.",
    )
    sync_batchnorm: bool = option(
        False,
        "Let BatchNorm compute its statistics over all processes; on GPUs only.",
        BOOL,
    )
    use_distributed_sampler: bool = option(
        True,
        "Give each of several processes its share of the data.",
        BOOL,
    )
    # the number first, as the command line takes the first type that fits
    precision: int | str | None = option(
        None,
        '`"32-true"` (default), `"64-true"`, `"bf16-mixed"`, `"16-mixed"`, `"bf16-true"` '
        'or `"16-true"`.',
    )
    # the text last, as the command line takes the first type that fits
    logger: Logger | Iterable[Logger | str] | bool | str | None = option(
        None,
        "A logger or its [name](loggers.md#loggers-by-name), several, True (default: a CSVLogger) "
        "or False.",
    )
    callbacks: Callback | Iterable[Callback] | None = option(
        None,
        "One callback, or any iterable of them; it is not changed.",
    )
    plugins: bool | CheckpointIO | Iterable[str | CheckpointIO] | None = option(
        True,
        "Whether callbacks of installed packages take part, or the names of those that "
        "do; None means True. A [`CheckpointIO`](checkpoints.md#a-checkpointio-of-your-own) may "
        "be given, too, alone or among them.",
        _PLUGINS,
    )
    plugin_errors: str = option(
        "warn",
        '`"warn"` to go on without a broken plugin, `"raise"` to stop.',
        _POLICY,
    )
    strict_hooks: bool = option(
        False,
        "Whether a method `on_...` that is no hook is an error, rather than a warning.",
        BOOL,
    )
    callback_errors: Mapping[str, str] | None = option(
        None,
        'What an error in a callback does: a dict of `"raise"` or `"disable"` by '
        "state_key or class name. It overrides the callback's own `on_error`.",
        _POLICIES.or_none(),
    )
    profile_hooks: bool = option(
        False,
        "Time every call of a callback; after each run, print what they cost and write "
        "`hook_trace.json` to the log folder.",
        BOOL,
    )
    profiler: str | Profiler | None = option(
        None,
        'A [profiler](profiling.md#profilers) of the whole run: `"simple"`, `"advanced"`, '
        '`"pytorch"`, or an object from `trainer_hooks.profilers`.',
        _PROFILER,
    )
    hook_budget: str | float | None = option(
        None,
        "The share of a training batch's time that a callback may take before a warning, "
        'as `"2%"` or `0.02`.',
        _SHARE.or_none(),
    )
    max_epochs: int | None = option(
        None,
        "Epochs to train; -1 for no end. Default: 1000, or no end if another limit is given.",
        integer(-1).or_none(),
    )
    min_epochs: int | None = option(
        None,
        "A request to stop waits until this many epochs are done.",
        integer(0).or_none(),
    )
    max_steps: int = option(-1, "Optimizer steps to train; -1 for no end.", integer(-1))
    min_steps: int | None = option(
        None,
        "A request to stop waits until this many optimizer steps are done.",
        integer(0).or_none(),
    )
    max_time: Mapping[str, int] | str | Time | timedelta | None = option(
        None,
        'Wall time to train: `"8h30m"`, `"DD:HH:MM:SS"`, a timedelta, or a dict of its '
        "arguments. A Timer callback then asks to stop, so min_epochs and min_steps still "
        "hold.",
    )
    max_duration: str | Time | timedelta | None = option(
        None,
        'How long to train, in any [unit](time.md#units): `"10ep"`, `"500ba"`, `"200st"`, '
        '`"50_000sp"`, `"1e9tok"`, `"2iter"`, `"1h30m"`. With other limits, whichever '
        "comes first.",
    )
    limit_train_batches: int | float | None = option(
        None,
        "Batches of each epoch to run: a number (int) or a share (float).",
        _LIMIT_OR_NONE,
    )
    limit_val_batches: int | float | None = option(
        None,
        "Batches of each validation loader to run: a number (int) or a share (float).",
        _LIMIT_OR_NONE,
    )
    limit_test_batches: int | float | None = option(
        None,
        "Batches of each test loader to run: a number (int) or a share (float).",
        _LIMIT_OR_NONE,
    )
    limit_predict_batches: int | float | None = option(
        None,
        "Batches of each predict loader to run: a number (int) or a share (float).",
        _LIMIT_OR_NONE,
    )
    fast_dev_run: int | bool = option(
        False,
        "Dry run: one epoch of this many batches of each loader (True: 1), without logs "
        "and checkpoints.",
        _DRY_RUN,
    )
    overfit_batches: int | float = option(
        0.0,
        "Train and validate on this many batches (or this share), not shuffled.",
        _LIMIT,
    )
    val_check_interval: Mapping[str, int] | int | float | When | timedelta | None = option(
        None,
        "Validate every so many batches (int), every share of an epoch (float), or at [an "
        'interval](time.md#intervals): `"100ba"`, `"200st"`, `"1e6tok"`, `"0.1dur"`, '
        '`"15m"`, `"DD:HH:MM:SS"`, a timedelta or a dict of its arguments, a filter, or a '
        "function of the clock.",
        _INTERVAL,
    )
    check_val_every_n_epoch: int | None = option(
        1,
        "Validate in every n-th epoch. None: `val_check_interval` counts batches across epochs.",
        integer(1).or_none(),
    )
    num_sanity_val_steps: int | None = option(
        None,
        "Validation batches to run before training (default 2); -1 for all, 0 for none.",
        integer(-1).or_none(),
    )
    log_every_n_steps: int | None = option(
        None,
        "Pass metrics to the loggers every so many steps (default 50); 0 passes none at steps.",
        integer(0).or_none(),
    )
    accumulate_grad_batches: int | None = option(
        1,
        "Batches whose gradients are accumulated into one step (a window).",
        integer(1).or_none(),
    )
    microbatch_size: int | str | None = option(
        None,
        "Split each training batch into parts of this many samples, to save memory; "
        '`"auto"`: as large as fit.',
        _MICROBATCH,
    )
    gradient_clip_val: float | None = option(
        None,
        "Clip gradients to this value; 0 or None for no clipping.",
        _CLIP_VALUE.or_none(),
    )
    gradient_clip_algorithm: str | None = option(
        None,
        'Clip by `"norm"` (default) or `"value"`.',
        CLIP_ALGORITHM,
    )
    iteration_length: int | None = option(
        None,
        "Epochs in a cycle (an *iteration*), for the `on_iteration_...` hooks.",
        integer(1).or_none(),
    )
    reload_dataloaders_every_n_epochs: int = option(
        0,
        "Ask the module or data module for its loaders anew as every n-th epoch begins; 0 "
        "for never.",
        integer(0),
    )
    enable_checkpointing: bool | None = option(
        None,
        "Add a ModelCheckpoint unless a checkpoint callback is given; None means True.",
        SWITCH,
    )
    enable_progress_bar: bool | None = option(
        None,
        "Add a progress bar unless one is given; None means True.",
        SWITCH,
    )
    enable_model_summary: bool | None = option(
        None,
        "Add a ModelSummary unless one is given; None means True.",
        SWITCH,
    )
    enable_run_manifest: bool | None = option(
        None,
        "Add a RunManifest, which keeps a journal of the run in the log folder, unless "
        "one is given; None means True.",
        SWITCH,
    )
    enable_autolog_hparams: bool = option(
        True,
        "Pass the saved hyperparameters to the loggers as a run begins.",
        BOOL,
    )
    barebones: bool = option(
        False,
        "Switch off what a run does beside the loops, to measure these: checkpoints, "
        "loggers, `log` (warned of once), the bar, the summary, the journal, the sanity "
        "check, plugins.",
        BOOL,
    )
    default_root_dir: str | os.PathLike[str] | None = option(
        None,
        "Where logs and checkpoints go; None means the working directory. Checkpoints may "
        "go to an address such as `s3://bucket/run`.",
        PATH.or_none(),
    )
    deterministic: bool | str | None = option(
        None,
        'True uses only deterministic algorithms during a run; `"warn"` warns where there is none.',
        _DETERMINISTIC,
    )
    benchmark: bool | None = option(
        None,
        "During a run, whether cuDNN tries which algorithms are fastest. None: as it is "
        "set in torch, but off with `deterministic`.",
        SWITCH,
    )
    inference_mode: bool = option(
        True,
        "Evaluate under torch.inference_mode; False uses no_grad.",
        BOOL,
    )
    detect_anomaly: bool | None = option(
        False,
        "Let autograd find the operation that made a NaN; slow.",
        SWITCH,
    )
    model_registry: str | None = option(
        None,
        "None: a model registry of Lightning's cloud is not reached from here.",
        _NO_REGISTRY,
    )

    def __post_init__(self) -> None:
        """Check every option against its rule, and the options that depend on each other."""
        for item in fields(self):
            rule = item.metadata["rule"]
            if rule is not None:
                check_option(item.name, getattr(self, item.name), "Trainer", rule, is_call=True)
        # after the rules: it reads values that must be valid
        if self.barebones:
            self._switch_off()
        plan = self.plan()
        values = {item.name: getattr(plan, item.name, None) for item in fields(self)}
        # as given: the default interval of 1.0 is no float that the user has asked for
        values["val_check_interval"] = self.val_check_interval
        values["check_val_every_n_epoch"] = self.check_val_every_n_epoch
        check_combinations("Trainer", _COMBINATIONS, values)
        is_condition = isinstance(plan.val_check_interval, DueCondition)
        if is_condition and self.check_val_every_n_epoch not in (1, None):
            raise OptionError(
                f"Trainer(val_check_interval={self.val_check_interval!r}, check_val_every_n_epoch="
                f"{self.check_val_every_n_epoch}): such an interval says by itself in which epochs "
                "to validate. Leave check_val_every_n_epoch out, or join it: every('2ep') & ..."
            )

    def _switch_off(self) -> None:
        """Give the options that `barebones` switches off their values.

        Raises:
            OptionError: one of them was given another value.
        """
        given = [name for name, off in _BAREBONES.items() if getattr(self, name) not in (None, off)]
        given += [name for name in _NOT_IN_BAREBONES if getattr(self, name) not in (None, False, 0)]
        if given:
            shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in given)
            raise OptionError(
                f"Trainer(barebones=True, {shown}): barebones switches that off, to show what the "
                "loops cost without it. Leave one of them out."
            )
        # `plugins` is on by default, so True there is no contradiction, as it would be in the table
        for name, value in (*_BAREBONES.items(), ("plugins", False)):
            object.__setattr__(self, name, value)  # the dataclass is frozen

    @property
    def checkpoint_io(self) -> CheckpointIO | None:
        """The object among the plugins that writes, reads and removes checkpoints, or None."""
        if isinstance(self.plugins, bool | str | None):
            return None
        if _is_checkpoint_io(self.plugins):
            return cast("CheckpointIO", self.plugins)
        if not isinstance(self.plugins, list | tuple | set):  # an iterator has names alone
            return None
        return next((each for each in self.plugins if _is_checkpoint_io(each)), None)

    @property
    def plugin_names(self) -> bool | Iterable[str]:
        """The installed plugins that take part: True for all, False for none, or their names."""
        io = self.checkpoint_io
        if self.plugins is None or self.plugins is io:
            return True
        if io is None:
            return cast("bool | Iterable[str]", self.plugins)
        names = [each for each in cast("Iterable[Any]", self.plugins) if each is not io]
        return names or True

    @property
    def given(self) -> str:
        """The options that are not at their defaults, as they would be written in a call."""
        named = ((item.name, getattr(self, item.name), item.default) for item in fields(self))
        return ", ".join(
            f"{name}={value!r}"
            for name, value, default in named
            if name not in _PARTS and value is not default and value != default
        )

    def plan(self) -> RunPlan:
        """Return the numbers that the loops use, with the defaults filled in.

        An option has the same name in the plan. Those that the plan takes as they are given are
        copied by name.
        """
        names = {item.name for item in fields(self)}
        values: dict[str, Any] = {
            item.name: getattr(self, item.name) for item in fields(RunPlan) if item.name in names
        }
        interval = 1.0 if self.val_check_interval is None else self.val_check_interval
        has_other_limit = any(
            limit not in (None, -1) for limit in (self.max_steps, self.max_time, self.max_duration)
        )
        values |= {
            "max_epochs": _first(self.max_epochs, -1 if has_other_limit else 1000),
            "accumulate_grad_batches": _first(self.accumulate_grad_batches, 1),
            "min_epochs": self.min_epochs or 0,
            "min_steps": self.min_steps or 0,
            "max_seconds": None
            if self.max_time is None
            else as_option(parse_span, "max_time", self.max_time),
            # added below: `with_duration` also sets the limit in its unit
            "max_duration": None,
            "val_check_interval": check_interval(interval),
            "num_sanity_val_steps": _first(self.num_sanity_val_steps, 2),
            # the step clips unless it is None; 0 would make every gradient 0
            "gradient_clip_val": self.gradient_clip_val or None,
            "gradient_clip_algorithm": self.gradient_clip_algorithm or "norm",
            # 0 stands for never; as an interval it would be a division by zero
            "log_every_n_steps": _first(self.log_every_n_steps, 50) or NEVER,
            "detect_anomaly": bool(self.detect_anomaly),
            "shares_loaders": self.use_distributed_sampler,
        }
        for prefix in ("train", "val", "test", "predict"):
            limit = f"limit_{prefix}_batches"
            values[limit] = _first(values[limit], 1.0)
        if self.overfit_batches:
            values["limit_train_batches"] = values["limit_val_batches"] = self.overfit_batches
        # last: a dry run overrides every limit above
        if self.fast_dev_run:
            values |= _dry_run(int(self.fast_dev_run))
        plan = RunPlan(**values)
        if self.max_duration is None:
            return plan
        # a wrong duration is an error in a dry run, too
        duration = check_duration(self.max_duration, self.iteration_length)
        # `with_duration` replaces the limit in its unit, and of two limits the nearer one counts
        return plan if self.fast_dev_run else both_limits(with_duration(plan, duration), plan)

    def compared_options(self) -> dict[str, Any]:
        """Return the options that change the training, as plain data that a resume compares.

        They are the options as passed, with the defaults filled in: what a callback changes in a
        run is its own state.
        """
        plan = self.plan()
        # one number for each meaning: of the limits the type counts, so that 1 is not 1.0
        options = {name: _plain_number(getattr(plan, name)) for name in _COMPARED}
        options["overfit_batches"] = options["overfit_batches"] or 0
        if plan.gradient_clip_val is not None:
            options["gradient_clip_val"] = float(plan.gradient_clip_val)
        # an option that another one sets is no change of its own
        if self.overfit_batches:
            del options["limit_train_batches"]
        if self.fast_dev_run:
            set_by_it = _dry_run(1)
            return {name: value for name, value in options.items() if name not in set_by_it}
        interval = plan.val_check_interval
        if isinstance(interval, Time):
            options["val_check_interval"] = str(interval)
        elif not isinstance(interval, int | float):
            del options["val_check_interval"]  # a function, which no text tells from another
        return options


def _dry_run(batches: int) -> dict[str, Any]:
    """Return the values of a plan for one epoch of so many batches of each loader."""
    return {
        "max_epochs": 1,
        "min_epochs": 0,
        "max_steps": batches,
        "min_steps": 0,
        "max_seconds": None,
        "limit_train_batches": batches,
        "limit_val_batches": batches,
        "limit_test_batches": batches,
        "limit_predict_batches": batches,
        "val_check_interval": 1.0,
        "check_val_every_n_epoch": 1,
        "num_sanity_val_steps": 0,
    }


def _plain_number(value: Any) -> Any:
    """Return a number of a subclass, such as NumPy's `float64`, as one of Python."""
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else value


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value


def option_docs() -> list[tuple[str, str, str]]:
    """Return name, default and description of every option, in order."""
    return [(item.name, repr(item.default), item.metadata["doc"]) for item in fields(TrainerConfig)]


def _unknown_options_text(unknown: dict[str, Any], options: Iterable[str]) -> str:
    """Return the message about options that there are not, with advice for each of them."""
    from trainer_hooks._words import advice, instead_of

    hints = {}
    for name, value in unknown.items():
        answer = instead_of("options", name)
        hints[name] = did_you_mean(name, options) if answer is None else advice(answer, value)
    listed = "help(trainer_hooks.Trainer) lists them."
    if len(hints) == 1:
        ((name, hint),) = hints.items()
        return f"Trainer({name}=...): there is no option {name!r}.{hint} {listed}"
    lines = [f"  {name}:{hint or ' no option is like it.'}" for name, hint in hints.items()]
    return "\n".join([f"Trainer(...): there are no such {len(hints)} options. {listed}", *lines])


def takes_options(
    config: Callable[_P, _C],
) -> Callable[[Callable[[_S, _C], None]], Callable[Concatenate[_S, _P], None]]:
    """Decorate an `__init__(self, config)` so that it takes the config's fields by keyword.

    So each option is declared once, and type checkers, `help` and editors see it all the same.

    Args:
        config: the dataclass of the options.
    """

    def decorate(init: Callable[[_S, _C], None]) -> Callable[Concatenate[_S, _P], None]:
        options = signature_of(config)

        @functools.wraps(init)
        def accept(self: _S, *args: _P.args, **kwargs: _P.kwargs) -> None:
            # the dataclass refuses them, too, but in the words of its own `__init__`
            if args:
                kind = type(args[0]).__name__
                is_short = isinstance(args[0], str | int | float)
                hints = ""
                if hasattr(args[0], "named_parameters"):
                    hints += " Pass the module to trainer.fit."
                if any(type(given).__name__.endswith("TrainingArguments") for given in args):
                    hints += (
                        " The options of the fields of TrainingArguments are in "
                        "docs/coming-from.md."
                    )
                raise OptionError(
                    f"Trainer({repr(args[0]) if is_short else kind + '(...)'}, ...): options are "
                    f"given by keyword, as in Trainer(max_epochs=3).{hints}"
                )
            unknown = {name: kwargs[name] for name in kwargs if name not in options.parameters}
            if unknown:
                raise OptionError(_unknown_options_text(unknown, options.parameters))
            init(self, config(*args, **kwargs))

        parameters = [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *options.parameters.values(),
        ]
        # in `__dict__`, as mypy knows no attribute of that name
        accept.__dict__["__signature__"] = options.replace(
            parameters=parameters, return_annotation=None
        )
        return accept  # type: ignore[return-value]

    return decorate
