"""MLPerfCallback: record a run in the form of a submission to MLPerf Training."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import platform
import re
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._files import replace_file
from trainer_hooks._options import (
    FLAG,
    METRIC_NAME,
    TEXT,
    Combination,
    Rule,
    check_option,
    finite_number,
    one_of,
    option_rules,
    whole_number,
)
from trainer_hooks._system import shell_line
from trainer_hooks._version import __version__
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import is_real_fit
from trainer_hooks.callbacks.monitored_metric import (
    as_score,
    has_validation,
    missing_monitor_message,
)
from trainer_hooks.callbacks.reporting.run_facts import hardware, seeds
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.data.loaders import loaders_in
from trainer_hooks.errors import CheckpointError, DataError, MetricError, OptionError
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

AVAILABILITY = {
    "onprem": "Available on-premise",
    "cloud": "Available cloud",
    "preview": "Preview",
    "research": "Research, Development, or Internal (RDI)",
}
"""The status of a submission as a system's description spells it, by the option's value."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_NAME_CURE = (
    "it names a folder or a file of the submission. Pass a text of letters, digits, '_', '-' and "
    "'.', which does not begin with a point."
)
_SHOWN = 500
_WHERE = "MLPerfCallback"


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(_NAME.fullmatch(value))


class MLPerfCallback(Callback):
    """Record a run in the form of a submission to MLPerf Training, open division.

    The folder then has `results/<system>/<benchmark>/result_<index>.txt`, the events of the run in
    MLPerf's own form, and `systems/<system>.json`, a description of the system as far as it is
    known: check and complete it. An existing description is left alone.

    MLPerf's run is over when a validation finds the metric at the target: no later event is
    written. If the fit ends before, its status is `aborted`. Epochs count from 1. No result is ever
    overwritten; a resumed run appends to its own, from its length in the checkpoint.

    Args:
        root_folder: the folder of the submission.
        index: the number of this repetition of the run.
        benchmark: MLPerf's name of the benchmark.
        target: the value at which the metric is good enough.
        division: `"open"`; the closed one prescribes the model and how it is trained.
        metric_name: the metric that validation logs, a share from 0 to 1.
        metric_label: the label of the evaluator, where the metric is logged as `name/label`; the
            callback also looks for `metrics/label/name`, as Composer has it, and the plain name.
        submitter: the organization that submits.
        system_name: the name of the system; by default the number and model of its accelerators.
        status: `"onprem"`, `"cloud"`, `"preview"` or `"research"`.
        cache_clear_cmd: a command that empties the system's caches before the run: a list of its
            words, or a text for a shell.
        host_processors_per_node: the number of processors, where the machine's own report is wrong.
        exit_at_target: whether the trainer is asked to stop when the target is reached.

    Raises:
        OptionError: an argument is outside its rule, mlperf_logging is not installed, the result
            exists already, or the command fails.
        DataError: in a run, there is no validation, or the samples cannot be counted.
        MetricError: in a run, validation does not log the metric.
        CheckpointError: a run is resumed without its result.

    State: the run's id, the length of its result, and whether the target was reached; a resumed run
    then requests a stop again.

    Example::

        report = MLPerfCallback(
            "submission", 0, target=0.8, metric_name="val_acc", submitter="us", exit_at_target=True
        )
        trainer = Trainer(max_epochs=2, callbacks=[report])
        trainer.fit(module, train_loader, val_loader)
    """

    # before the savers, as early stopping: the checkpoint of a stop knows of it
    band = Band.CONTROL

    needs_steps: ClassVar[bool] = True
    renews_stop: ClassVar[bool] = True

    @option_rules(
        Combination(("benchmark",), _is_name, _NAME_CURE, "benchmark {benchmark!r} of {owner}"),
        Combination(
            ("system_name",),
            lambda name: name is None or _is_name(name),
            _NAME_CURE,
            "system_name {system_name!r} of {owner}",
        ),
        root_folder=Rule(
            "the path of a folder of this machine",
            lambda path: (
                isinstance(path, str | Path) and bool(str(path)) and "://" not in str(path)
            ),
            "Pass such a path.",
        ),
        index=whole_number(),
        target=finite_number(),
        division=one_of("open"),
        metric_label=TEXT,
        status=one_of(*tuple(AVAILABILITY)),
        submitter=TEXT,
        cache_clear_cmd=Rule(
            "a command",
            lambda command: (
                bool(command.strip())
                if isinstance(command, str)
                else isinstance(command, list | tuple)
                and bool(command)
                and all(isinstance(word, str) for word in command)
            ),
            "Pass a list of its words, a text for a shell, or None.",
        ).unless(None),
        host_processors_per_node=whole_number(1).unless(None),
        exit_at_target=FLAG,
    )
    def __init__(
        self,
        root_folder: str | os.PathLike[str],
        index: int,
        benchmark: str = "resnet",
        target: float = 0.759,
        division: str = "open",
        metric_name: str = "MulticlassAccuracy",
        metric_label: str = "eval",
        submitter: str = "trainer_hooks",
        system_name: str | None = None,
        status: str = "onprem",
        cache_clear_cmd: str | Sequence[str] | None = None,
        host_processors_per_node: int | None = None,
        exit_at_target: bool = False,
    ) -> None:
        if importlib.util.find_spec("mlperf_logging") is None:
            raise OptionError(
                f"{_WHERE} writes with the package mlperf_logging, which is not installed. Install "
                "it: pip install 'trainer-hooks[mlperf]'."
            )
        self.root_folder = Path(root_folder).expanduser()
        self.index = index
        self.benchmark = benchmark
        self.target = target
        self.division = division
        self.metric_name = check_option("monitor", metric_name, _WHERE, METRIC_NAME)
        self.metric_label = metric_label
        self.submitter = submitter or "trainer_hooks"
        self.system_name = system_name
        self.status = status
        command = cache_clear_cmd
        self.cache_clear_cmd = list(command) if isinstance(command, list | tuple) else command
        self.host_processors_per_node = host_processors_per_node
        self.exit_at_target = exit_at_target
        self._began_ms = 0
        self._file: ResultFile | None = None
        self._reset()

    def _reset(self) -> None:
        self._run_id, self._size, self._epoch = "", 0, 0
        self._is_in_epoch = self._is_reached = False

    @property
    def state_key(self) -> str:
        """The class name with the benchmark and the index."""
        return self._generate_state_key(benchmark=self.benchmark, index=self.index)

    def state_dict(self) -> dict[str, Any]:
        """Return the run's id, the length of its result, and the epoch's progress."""
        return {
            "run_id": self._run_id,
            "size": self._size,
            "epoch": self._epoch,
            "is_in_epoch": self._is_in_epoch,
            "is_reached": self._is_reached,
        }

    @checks_state(
        {"run_id": str, "size": int, "epoch": int, "is_in_epoch": bool, "is_reached": bool}
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the run's id, the length of its result, and the epoch's progress."""
        self._run_id, self._size = state_dict["run_id"], state_dict["size"]
        self._epoch, self._is_in_epoch = state_dict["epoch"], state_dict["is_in_epoch"]
        self._is_reached = state_dict["is_reached"]

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Record the time at which the run's setup begins."""
        # MLPerf counts the setup apart from the training
        self._began_ms = int(time.time() * 1000)

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin the result, or reopen the result of a resumed run."""
        if trainer.progress.is_new_training:
            self._reset()
        if not is_real_fit(trainer) or not trainer.is_global_zero:
            return
        name = self.system_name or default_system_name(trainer)
        path = self.root_folder / "results" / name / self.benchmark / f"result_{self.index}.txt"
        if trainer.progress.is_new_training:
            self._begin(trainer, path, name)
        # MLPerf counts the time from the first step: a result cannot begin in the middle.
        elif not self._run_id:
            raise CheckpointError(
                f"checkpoint {trainer.ckpt_path!r} has no run of {_WHERE}: a result must begin "
                "with its training. Train from the start, or leave the callback out."
            )
        elif not self._is_reached:
            self._file = ResultFile.reopen(path, self._run_id, self._size)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Request a stop again if the resumed training had reached the target."""
        if self._is_reached and self.exit_at_target and is_real_fit(trainer):
            trainer.stop(self._reason)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Write the start of an epoch."""
        if self._file is not None:
            self._epoch, self._is_in_epoch = trainer.current_epoch + 1, True
            self._file.start("epoch_start", epoch_num=self._epoch)
            self._record_size()

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Write the end of an epoch's training."""
        self._end_epoch()

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Write the start of an evaluation."""
        if self._file is not None and not trainer.sanity_checking:
            self._file.start("eval_start", **self._position(trainer))
            self._record_size()

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Write the evaluation's metric; at the target end the run.

        Raises:
            MetricError: the validation did not log the metric.
        """
        if self._file is None or trainer.sanity_checking:
            return
        value = self._metric(trainer)
        self._file.event("eval_accuracy", value, **self._position(trainer))
        self._file.end("eval_stop", **self._position(trainer))
        self._record_size()
        if value < self.target:
            return
        self._end_epoch()
        self._is_reached = True
        self._stop("success")
        if self.exit_at_target:
            trainer.stop(self._reason)

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Write the end of a run that missed the target, unless the run was interrupted."""
        # an interrupted run may be resumed, and then appends to this result
        if self._file is not None and not trainer.interrupted:
            self._stop("aborted")

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Close the result."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @property
    def _reason(self) -> str:
        return f"{_WHERE}: {self.metric_name} reached the target of {self.target:.5g}"

    def _begin(self, trainer: Trainer, path: Path, name: str) -> None:
        """Write the system's description and the first events of the result."""
        # first all checks: a refused run must leave no files behind
        samples = count_samples(trainer)
        if path.exists():
            raise OptionError(
                f"index {self.index} of {_WHERE}: the result {str(path)!r} is there already. "
                "Choose another index, or move the file away."
            )
        if self.cache_clear_cmd is not None:
            clear_cache(self.cache_clear_cmd)
        options = {"submitter": self.submitter, "division": self.division, "system_name": name}
        if self.host_processors_per_node is not None:
            options["host_processors_per_node"] = str(self.host_processors_per_node)
        system = self.root_folder / "systems" / f"{name}.json"
        describe_system(system, trainer, status=AVAILABILITY[self.status], **options)
        # distinguishes this run's file from one that another run wrote to the same path
        self._run_id = uuid.uuid4().hex
        facts = {
            "cache_clear": self.cache_clear_cmd is not None,
            "submission_benchmark": self.benchmark,
            "submission_division": self.division,
            "submission_org": self.submitter,
            "submission_platform": name,
            "submission_status": self.status,
            "seed": seeds()["torch"],
            **samples,
        }
        self._file = ResultFile.begin(path, self._run_id, self._began_ms, facts)
        self._record_size()

    def _end_epoch(self) -> None:
        if self._file is not None and self._is_in_epoch:
            self._file.end("epoch_stop", epoch_num=self._epoch)
            self._is_in_epoch = False
            self._record_size()

    def _stop(self, status: str) -> None:
        """Write the end of the run and close the result.

        An aborted run may be resumed: the length in the state then stays before the end, so that
        the resumed run cuts it off.
        """
        assert self._file is not None
        self._file.end("run_stop", status=status)
        # without the target the run may be resumed, which cuts this end off again
        if self._is_reached:
            self._record_size()
        self._file.close()
        self._file = None

    def _record_size(self) -> None:
        """Record the length of the result in the state."""
        assert self._file is not None
        self._size = self._file.size

    def _position(self, trainer: Trainer) -> dict[str, int]:
        """Return the position of an evaluation in the training, in both of MLPerf's forms."""
        return {"epoch_num": self._epoch, "samples_count": trainer.progress.samples_completed}

    def _metric(self, trainer: Trainer) -> float:
        name, label, logged = self.metric_name, self.metric_label, trainer.callback_metrics
        # the metric of a labelled evaluator, its name in Composer, and that of an unlabelled one
        names = (f"{name}/{label}", f"metrics/{label}/{name}", f"{label}/{name}", name)
        logged_name = next((each for each in names if each in logged), None)
        if logged_name is None:
            raise MetricError(missing_monitor_message(name, _WHERE, logged))
        return as_score(logged[logged_name], logged_name, _WHERE).item()


def clear_cache(command: str | Sequence[str]) -> None:
    """Run the command that empties the system's caches.

    Raises:
        OptionError: it cannot be run, or it fails.
    """
    shown = command if isinstance(command, str) else shell_line(command)
    try:
        done = subprocess.run(
            command, shell=isinstance(command, str), stdin=subprocess.DEVNULL,
            capture_output=True, check=False,
        )  # fmt: skip
    except OSError as error:
        raise OptionError(
            f"cache_clear_cmd {shown!r} of {_WHERE} cannot be run: {error}. Correct it, or leave "
            "it out."
        ) from error
    if done.returncode:
        output = (done.stderr or done.stdout).decode(errors="replace").strip()[-_SHOWN:]
        raise OptionError(
            f"cache_clear_cmd {shown!r} of {_WHERE} ended with status {done.returncode}: {output}. "
            "Correct it, or leave it out."
        )


def count_samples(trainer: Trainer) -> dict[str, int]:
    """Return the numbers of training and validation samples, and of samples in a global batch.

    Raises:
        DataError: there is no validation, or a number is unknown.
    """
    if not has_validation(trainer):
        raise DataError(
            f"validation of {_WHERE}: there is none, and MLPerf asks for the metric of one. Pass a "
            "validation loader."
        )
    train = trainer.train_dataloader
    numbers = {
        "train_samples": _samples_of(train, trainer.num_training_batches),
        "eval_samples": sum(
            _samples_of(loader, batches)
            for loader, batches in zip(
                loaders_in(trainer.val_dataloaders), trainer.num_val_batches, strict=True
            )
        ),
    }
    size = getattr(train, "batch_size", None)
    if isinstance(size, int):
        numbers["global_batch_size"] = size * trainer.world_size
    return numbers


def _samples_of(loader: Any, batches: float) -> int:
    """Return the number of samples of a loader, by its data set or by its batches."""
    dataset = getattr(loader, "dataset", None)
    if hasattr(dataset, "__len__"):
        return len(dataset)  # type: ignore[arg-type]
    size = getattr(loader, "batch_size", None)
    size = 1 if size is None else size
    if not isinstance(size, int) or batches == float("inf"):
        raise DataError(
            f"loader {type(loader).__qualname__} of {_WHERE}: its number of samples is unknown. "
            "Give its data set a __len__."
        )
    return int(batches) * size


_RUN_ID = "trainer_hooks_run"
"""The key of the line with the run's id; MLPerf's rules allow further keys."""


class ResultFile:
    """A result file in MLPerf's form, which a resumed run can reopen.

    MLPerf's own logger writes the lines, each of them at once.

    Args:
        path: the file; lines are appended.
    """

    def __init__(self, path: Path) -> None:
        from mlperf_logging.mllog.mllog import MLLogger  # type: ignore[import-untyped]

        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._handler = logging.FileHandler(path, encoding="utf-8")
        # not registered with `logging`, so that no handler or level of the process applies
        logger = logging.Logger("trainer_hooks.mlperf", logging.INFO)  # noqa: LOG001
        logger.addHandler(self._handler)
        self._mllog = MLLogger(logger)

    @classmethod
    def begin(cls, path: Path, run_id: str, began_ms: int, facts: Mapping[str, Any]) -> ResultFile:
        """Return the result file of a run that starts now.

        Args:
            path: the file.
            run_id: the id of the run.
            began_ms: the time at which the run's setup began, in milliseconds since 1970.
            facts: facts about the run, by MLPerf's keys.
        """
        file = cls(path)
        file.start("init_start", began_ms)
        for key, value in {_RUN_ID: run_id, **facts}.items():
            file.event(key, value)
        file.end("init_stop")
        file.start("run_start")
        return file

    @classmethod
    def reopen(cls, path: Path, run_id: str, size: int) -> ResultFile:
        """Return the result file of a resumed run, cut to its length at the checkpoint.

        Args:
            path: the file.
            run_id: the id of the run.
            size: the length at the checkpoint, in bytes.

        Raises:
            CheckpointError: the file is missing, or belongs to another run.
        """
        try:
            with path.open("rb+") as file:
                # at an end before `size` the file is shorter than at the checkpoint
                if f'"{run_id}"'.encode() not in file.read(size) or file.tell() != size:
                    raise CheckpointError(_not_reopened(path, "it is another run's"))
                file.truncate(size)
        except FileNotFoundError as error:
            raise CheckpointError(_not_reopened(path, "it is not there")) from error
        return cls(path)

    @property
    def size(self) -> int:
        """The length of the file in bytes."""
        return self._path.stat().st_size

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Write an event of this moment."""
        self._mllog.event(key, value, metadata)

    def start(self, key: str, time_ms: int | None = None, **metadata: Any) -> None:
        """Write that an interval begins, now or at another time."""
        self._mllog.start(key, None, metadata, time_ms=time_ms)

    def end(self, key: str, **metadata: Any) -> None:
        """Write that an interval ends."""
        self._mllog.end(key, None, metadata)

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


def _not_reopened(path: Path, why: str) -> str:
    return (
        f"result file {str(path)!r} of MLPerfCallback cannot be continued: {why}. Restore the file "
        "that the run began, or begin a new run with another index."
    )


_SYSTEM_KEYS = """
submitter division status system_name number_of_nodes host_processors_per_node
host_processor_model_name host_processor_core_count host_processor_vcpu_count
host_processor_frequency host_processor_caches host_processor_interconnect host_memory_capacity
host_storage_type host_storage_capacity host_networking host_networking_topology
host_memory_configuration accelerators_per_node accelerator_model_name
accelerator_host_interconnect accelerator_frequency accelerator_on-chip_memories
accelerator_memory_configuration accelerator_memory_capacity accelerator_interconnect
accelerator_interconnect_topology cooling hw_notes framework other_software_stack
operating_system sw_notes
"""
_GIB = 2**30


def default_system_name(trainer: Trainer) -> str:
    """Return the number and model of the accelerators: `8xnvidia_h100_trainer_hooks`."""
    gpus = _gpus(trainer)
    model = gpus[0]["name"] if gpus else trainer.device.type
    text = re.sub(r"[^a-z0-9.-]+", "_", f"{max(len(gpus), 1)}x{model}".lower())
    return f"{text}_trainer_hooks"


def describe_system(path: Path, trainer: Trainer, **options: str) -> None:
    """Write the description of the system, unless the file exists: the user may have edited it.

    Unknown facts are empty texts.

    Args:
        path: the file.
        trainer: the trainer of the run.
        options: facts about the system from the user's options.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**_system_facts(trainer), **options}, indent=2)
    replace_file(path, lambda file: file.write(f"{text}\n"))


def _system_facts(trainer: Trainer) -> dict[str, str]:
    facts, gpus, processors = hardware(trainer.device), _gpus(trainer), _processors()
    memory = facts["memory_bytes"]
    software = {"Python": platform.python_version(), "trainer_hooks": __version__}
    if gpus:
        software |= {"CUDA": facts["cuda"], "cuDNN": facts["cudnn"]}
    return {
        # all keys first, in the order of MLPerf's own descriptions
        **dict.fromkeys(_SYSTEM_KEYS.split(), ""),
        "number_of_nodes": "1",
        "host_processors_per_node": processors["sockets"],
        "host_processor_model_name": facts["processor"],
        "host_processor_core_count": processors["cores"],
        "host_processor_vcpu_count": str(os.cpu_count() or ""),
        "host_memory_capacity": "" if memory is None else f"{memory / _GIB:.0f} GiB",
        "accelerators_per_node": str(len(gpus)),
        "accelerator_model_name": gpus[0]["name"] if gpus else "",
        "accelerator_memory_capacity": f"{gpus[0]['memory_bytes'] / _GIB:.0f} GiB" if gpus else "",
        "framework": f"PyTorch {torch.__version__}",
        "other_software_stack": ", ".join(
            f"{name} {version}" for name, version in software.items()
        ),
        "operating_system": facts["system"],
    }


def _gpus(trainer: Trainer) -> list[dict[str, Any]]:
    gpus: list[dict[str, Any]] = hardware(trainer.device).get("gpus", [])
    # a process uses one GPU, and the machine may have more
    return gpus[: trainer.world_size]


def _processors() -> dict[str, str]:
    """Return the numbers of processors and cores, as far as /proc/cpuinfo has them."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"sockets": "", "cores": ""}  # a system without that file
    sockets = re.findall(r"^physical id\s*:\s*(\d+)", cpuinfo, re.MULTILINE)
    cores = re.findall(r"^core id\s*:\s*(\d+)", cpuinfo, re.MULTILINE)
    # core ids repeat in each socket, and once for each hyperthread
    distinct_cores = set(zip(sockets, cores, strict=False))
    return {"sockets": str(len(set(sockets)) or ""), "cores": str(len(distinct_cores) or "")}
