"""What MLPerf asks of the system that a run is made on, as far as it can be known."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._files import replace_file
from trainer_hooks._version import __version__
from trainer_hooks.callbacks.reporting.run_facts import hardware

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = ["AVAILABILITY", "default_system_name", "describe_system"]

AVAILABILITY = {
    "onprem": "Available on-premise",
    "cloud": "Available cloud",
    "preview": "Preview",
    "research": "Research, Development, or Internal (RDI)",
}
"""How a system's description has each status of a submission."""

_GIB = 2**30


def default_system_name(trainer: Trainer) -> str:
    """Return how many accelerators of which kind: `8xnvidia_h100_trainer_hooks`."""
    gpus = _gpus(trainer)
    kind = gpus[0]["name"] if gpus else trainer.device.type
    text = re.sub(r"[^a-z0-9.-]+", "_", f"{max(len(gpus), 1)}x{kind}".lower())
    return f"{text}_trainer_hooks"


def describe_system(path: Path, trainer: Trainer, **told: str) -> None:
    """Write the description of the system, unless there is one, which somebody may have completed.

    What cannot be known is an empty text.

    Args:
        path: the file.
        trainer: the run.
        told: what the user says of the system.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**_found(trainer), **told}, indent=2)
    replace_file(path, lambda file: file.write(f"{text}\n"))


def _found(trainer: Trainer) -> dict[str, str]:
    facts, gpus, processors = hardware(trainer.device), _gpus(trainer), _processors()
    memory = facts["memory_bytes"]
    software = {"Python": platform.python_version(), "trainer_hooks": __version__}
    if gpus:
        software |= {"CUDA": facts["cuda"], "cuDNN": facts["cudnn"]}
    return {
        "submitter": "",
        "division": "",
        "status": "",
        "system_name": "",
        "number_of_nodes": "1",
        "host_processors_per_node": processors["sockets"],
        "host_processor_model_name": facts["processor"],
        "host_processor_core_count": processors["cores"],
        "host_processor_vcpu_count": str(os.cpu_count() or ""),
        "host_processor_frequency": "",
        "host_processor_caches": "",
        "host_processor_interconnect": "",
        "host_memory_capacity": "" if memory is None else f"{memory / _GIB:.0f} GiB",
        "host_storage_type": "",
        "host_storage_capacity": "",
        "host_networking": "",
        "host_networking_topology": "",
        "host_memory_configuration": "",
        "accelerators_per_node": str(len(gpus)),
        "accelerator_model_name": gpus[0]["name"] if gpus else "",
        "accelerator_host_interconnect": "",
        "accelerator_frequency": "",
        "accelerator_on-chip_memories": "",
        "accelerator_memory_configuration": "",
        "accelerator_memory_capacity": f"{gpus[0]['memory_bytes'] / _GIB:.0f} GiB" if gpus else "",
        "accelerator_interconnect": "",
        "accelerator_interconnect_topology": "",
        "cooling": "",
        "hw_notes": "",
        "framework": f"PyTorch {torch.__version__}",
        "other_software_stack": ", ".join(f"{name} {found}" for name, found in software.items()),
        "operating_system": facts["system"],
        "sw_notes": "",
    }


def _gpus(trainer: Trainer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = hardware(trainer.device).get("gpus", [])
    return found[: trainer.world_size]


def _processors() -> dict[str, str]:
    """Return how many processors and cores there are, where the system tells."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"sockets": "", "cores": ""}  # a system without that file
    sockets = re.findall(r"^physical id\s*:\s*(\d+)", told, re.MULTILINE)
    cores = re.findall(r"^core id\s*:\s*(\d+)", told, re.MULTILINE)
    both = set(zip(sockets, cores, strict=False))
    return {"sockets": str(len(set(sockets)) or ""), "cores": str(len(both) or "")}
