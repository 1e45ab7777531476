"""Files of an MLPerf submission: the result of a run, and the description of its system."""

from __future__ import annotations

import json
import logging
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._files import replace_file
from trainer_hooks._version import __version__
from trainer_hooks.callbacks.reporting.run_facts import hardware
from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.context.context import Trainer

__all__ = ["AVAILABILITY", "ResultFile", "default_system_name", "describe_system"]


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


AVAILABILITY = {
    "onprem": "Available on-premise",
    "cloud": "Available cloud",
    "preview": "Preview",
    "research": "Research, Development, or Internal (RDI)",
}
"""The status of a submission as a system's description spells it, by the option's value."""

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
