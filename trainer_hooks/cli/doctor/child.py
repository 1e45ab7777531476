"""The examinations that need a process of their own, since they run code of others.

`python -m trainer_hooks.cli.doctor.child NAME` prints the facts as JSON on its standard output.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from trainer_hooks.cli.plugins.survey import prints_diverted, survey_plugins
from trainer_hooks.errors import error_summary


def torch_facts() -> dict[str, Any]:
    """Import torch, use it once, and return its version and its devices."""
    import torch
    import torch.distributed as dist

    torch.ones(2).add(1).tolist()  # a broken build may import, and fail at its first kernel
    backends = ("gloo", "nccl", "mpi", "ucc", "xccl")
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [
            {
                "name": gpu.name,
                "gigabytes": round(gpu.total_memory / 1e9),
                "capability": [gpu.major, gpu.minor],
            }
            for gpu in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        ],
        "architectures": torch.cuda.get_arch_list(),
        "driver": _nvidia_driver(),
        "hip": torch.version.hip,
        "mps": torch.backends.mps.is_available(),
        "xpu": torch.xpu.is_available(),
        "distributed": [
            name for name in backends if dist.is_available() and dist.is_backend_available(name)
        ],
    }


def _nvidia_driver() -> str:
    """Return the version of NVIDIA's driver; empty if there is none, and on Windows."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return ""
    match = re.search(r"\b\d{3}\.\d[\d.]*", text)
    return match[0] if match else ""


def plugin_facts() -> list[dict[str, Any]]:
    """Load the installed plugins as a Trainer does, and return the status of each."""
    return [
        {
            "distribution": finding.plugin.distribution,
            "version": finding.plugin.version,
            "entry_point": finding.plugin.name,
            "group": finding.plugin.group,
            "status": finding.plugin.status,
            "reason": finding.plugin.reason,
            "warnings": list(finding.warnings),
        }
        for finding in survey_plugins().findings
    ]


def import_error(module: str) -> str:
    """Import a module, and return its error; empty if there is none."""
    try:
        __import__(module)
    # a package may raise anything as it is imported, SystemExit too
    except BaseException as error:  # noqa: BLE001
        return error_summary(error)
    return ""


def main(part: str, *modules: str) -> None:
    """Print the facts of one part as JSON."""
    with prints_diverted():
        if part == "torch":
            facts: Any = torch_facts()
        elif part == "plugins":
            facts = plugin_facts()
        else:
            facts = {module: import_error(module) for module in modules}
    print(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
