"""Facts about a run: versions, code, command, seeds, machine; as plain data without secrets."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "LOCAL_RANK",
    "MKL_NUM_THREADS",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "PYTORCH_CUDA_ALLOC_CONF",
    "RANK",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_NNODES",
    "SLURM_NTASKS",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TRAINER_HOOKS_ALLOW_PLUGINS",
    "TRAINER_HOOKS_BLOCK_PLUGINS",
    "TRAINER_HOOKS_DISABLE_PLUGINS",
    "WORLD_SIZE",
)
"""The environment variables of a manifest. None holds a secret; all others are left out."""

HIDDEN = "***"
"""The text in place of a secret."""
_SECRET_WORD = r"(?:password|passwd|pwd|secret|token|key|apikey|credentials?)"
_SECRET = re.compile(rf"-{{0,2}}(?:.*[-_.])?{_SECRET_WORD}", re.IGNORECASE)
_QUOTED = r"""(?:"(?:\\.|[^"\\])*"?|'(?:''|[^'])*'?)"""
_SECRET_IN_TEXT = re.compile(
    # the whole name: neither the end of `monkey` nor the beginning of `key_size`
    rf"""(?<![^\s{{}}\[\],:="'?&])(?:[^\s{{}}\[\],:="'?&]*[-_.])?{_SECRET_WORD}"""
    # in YAML a colon ends a plain name only before a space, and a quoted one anywhere
    r"""(?:["']\s*:\s*|\s*:\s+|\s*=\s*)"""
    rf"""(?P<value>{_QUOTED}|\[(?:{_QUOTED}|[^\[\]"'])*\]?|[^\s,{{}}\[\]"'][^,{{}}\[\]\n]*)""",
    re.IGNORECASE,
)
"""A text, or a list in brackets, in a mapping that is one argument: YAML, JSON, `name=value`."""
_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_GIT_SECONDS = 5.0
_BRANCH, _COMMIT = "# branch.head ", "# branch.oid "


def versions() -> dict[str, str]:
    """Return the versions of Python, trainer_hooks, torch, and every loaded package."""
    packages = {
        name: str(version)
        # a copy, as another thread may import; sorted below, when few are left
        for name, module in list(sys.modules.items())
        # vars and not getattr: a lazy module would import its parts
        if "." not in name and name not in sys.stdlib_module_names and not name.startswith("_")
        if isinstance(module, ModuleType)
        and isinstance(version := vars(module).get("__version__"), str)
    }
    return {
        "python": platform.python_version(),
        **dict(sorted(packages.items())),
        "trainer_hooks": __version__,
    }


def command(arguments: Sequence[str] | None = None) -> list[str]:
    """Return the command line of this process without secrets.

    The value after an option whose name ends in password, secret, token, key or credentials is left
    out, also in a mapping that is given as text, and so are names and passwords in addresses. All
    else stays.

    Args:
        arguments: the command line to show; this process's unless given.
    """
    shown: list[str] = []
    hides_next = False
    # orig_argv: sys.argv lacks the interpreter and its options
    for argument in sys.orig_argv if arguments is None else arguments:
        name, separator, _ = argument.partition("=")
        if hides_next and not argument.startswith("-"):
            shown.append(HIDDEN)
        elif separator and _SECRET.fullmatch(name):
            shown.append(f"{name}={HIDDEN}")
        else:
            # not parsed and written anew: an argument without a secret must stay as it is
            text = _SECRET_IN_TEXT.sub(_hide_value, argument)
            shown.append(_ADDRESS.sub(HIDDEN, text))
        hides_next = argument.startswith("-") and _SECRET.fullmatch(argument) is not None
    return shown


def _hide_value(match: re.Match[str]) -> str:
    return match[0].removesuffix(match["value"]) + HIDDEN


def without_secrets(value: Any) -> Any:
    """Return plain data without the texts that `command` would leave out."""
    if isinstance(value, dict):
        return {
            name: HIDDEN
            if isinstance(each, str | list) and _SECRET.fullmatch(str(name))
            else without_secrets(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    return _ADDRESS.sub(HIDDEN, value) if isinstance(value, str) else value


def git_state() -> dict[str, Any] | None:
    """Return the git commit, the branch and the number of changed tracked files; None without git.

    The repository is that of the working directory, or else of the program's folder.
    """
    script = Path(sys.argv[0] if sys.argv else "").absolute().parent
    for folder in dict.fromkeys([Path.cwd(), script]):
        status = _git_status(folder)
        if status is not None:
            lines = status.splitlines()
            facts = {
                key: next((x.removeprefix(start) for x in lines if x.startswith(start)), "")
                for key, start in (("commit", _COMMIT), ("branch", _BRANCH))
            }
            changed = sum(not line.startswith("#") for line in lines)
            return {**facts, "changed_files": changed, "folder": str(folder)}
    return None


def _git_status(folder: Path) -> str | None:
    options = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
    try:
        done = subprocess.run(
            ("git", "-C", str(folder), *options),
            # no lock file: another git command of the user may run at the same time
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # no git here, no such folder, or a disk that does not answer
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def seeds() -> dict[str, int | None]:
    """Return the seed that `seed_everything` got, if it was called, and torch's initial seed."""
    # where `seed_everything` records its seed, as Lightning's does
    seed = os.environ.get("PL_GLOBAL_SEED", "")
    return {
        "seed_everything": int(seed) if seed.isdecimal() else None,
        "torch": torch.initial_seed(),
    }


def environment() -> dict[str, str]:
    """Return the environment variables that affect a computation: a short list without secrets."""
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def hardware(device: torch.device) -> dict[str, Any]:
    """Return facts about the machine and the device of the run."""
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": _memory(),
        "device": str(device),
    }
    if device.type == "cuda":
        facts["cuda"] = torch.version.cuda
        facts["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        facts["gpus"] = [
            {"name": gpu.name, "memory_bytes": gpu.total_memory}
            for gpu in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        ]
    return facts


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # a system without that file
    return platform.processor()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no such function
        return None
