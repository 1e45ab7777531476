"""Examines the installation: its versions, devices and plugins, and its broken parts.

Code of others runs in processes of its own: one that crashes or hangs is a finding, and no end.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from importlib_metadata import distributions

from trainer_hooks._version import __version__, old_torch, release_of
from trainer_hooks.cli.commands import one_line
from trainer_hooks.cli.doctor.privacy import without_private_parts
from trainer_hooks.cli.doctor.untested import untested
from trainer_hooks.hooks.discovery import name_and_version
from trainer_hooks.hooks.plugin import normal_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from importlib_metadata import Distribution

_OWN = "trainer-hooks"

_TIME_LIMIT = 120.0
"""Seconds for the import of torch or of the plugins: on a cold network file system it is slow."""

_NO_USERS_EXTRAS = re.compile(r"dev|docs|bench|.*-tests")
"""The extras for work on the package itself."""

_FRAMEWORKS = (
    "lightning", "pytorch-lightning", "transformers", "accelerate", "pytorch-ignite", "mosaicml",
    "pytorch-accelerated", "torchmetrics", "torchdata", "torchvision", "peft", "deepspeed",
)  # fmt: skip

_VARIABLES = re.compile(
    r"TRAINER_HOOKS_\w+|PL_\w+|CUDA_VISIBLE_DEVICES|OMP_NUM_THREADS|PYTORCH_CUDA_ALLOC_CONF"
    r"|CUBLAS_WORKSPACE_CONFIG|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|SLURM_JOB_ID|PYTHONPATH"
)
"""The environment variables whose names are told: they change what a run does."""

_IMPORT_NAMES = {"importlib-metadata": "importlib_metadata"}
"""The module of a required distribution, where it is called otherwise."""


def examine() -> dict[str, Any]:
    """Return the facts about this installation as plain data, without anything private."""
    versions = _installed_versions()
    copies = _own_distributions()
    required, extras = _requirements(copies[0] if copies else None)
    broken: list[str] = []
    torch = _in_child("torch", "torch", broken)
    plugins = _in_child("plugins", "the installed plugins", broken) or []
    before = len(broken)
    broken += _faults_of_packages(required, extras, versions)
    # a package without metadata, or with those of an earlier install, does not require it
    if (line := old_torch()) and not any(fault.startswith("torch ") for fault in broken[before:]):
        broken.append(line)
    broken += _faults_of_imports(required, broken)
    broken += [_plugin_fault(plugin) for plugin in plugins if plugin["status"] == "failed"]
    if len(copies) > 1:
        broken.append(
            f"{_OWN} is installed {len(copies)} times: the first on sys.path wins. Uninstall it "
            "until pip no longer finds it, and install it once"
        )
    return {
        "version": __version__,
        "installation": _installation(copies[0] if copies else None),
        "python": f"Python {platform.python_version()}, {platform.python_implementation()}",
        "system": " ".join(
            filter(None, [platform.system(), platform.machine(), *platform.libc_ver()])
        ),
        "torch": torch,
        "packages": {name: versions.get(normal_name(name)) for name in required},
        "extras": {
            extra: {name: versions.get(normal_name(name)) for name in names}
            for extra, names in extras.items()
        },
        "frameworks": {name: versions[name] for name in _FRAMEWORKS if name in versions},
        "plugins": [
            {key: plugin[key] for key in ("distribution", "version", "entry_point", "status")}
            for plugin in plugins
        ],
        "environment_variables": sorted(filter(_VARIABLES.fullmatch, os.environ)),
        "untested": [
            one_line(line)
            for line in untested(
                system=platform.system(),
                machine=platform.machine(),
                implementation=platform.python_implementation(),
                python=platform.python_version(),
                torch=torch,
            )
        ],
        "broken": [one_line(fault) for fault in broken],
    }


def _installed_versions() -> dict[str, str]:
    """Return the versions of the installed distributions by their normal names."""
    versions: dict[str, str] = {}
    for distribution in distributions():
        name, version = name_and_version(distribution)
        if name:  # an interrupted uninstall leaves a folder without metadata
            versions.setdefault(normal_name(name), version or "unknown")
    return versions


def _own_distributions() -> list[Distribution]:
    """Return the package's own distributions, but not the folder that a build leaves behind."""
    return [
        distribution
        for distribution in distributions(name=_OWN)
        if distribution.read_text("METADATA")
    ]


_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,.\s-]*\])?\s*([^;]*)(?:;(.*))?$")
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)['\"]")


def _requirements(
    distribution: Distribution | None,
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the version bounds of the dependencies, and of each extra for users."""
    required: dict[str, str] = {}
    extras: dict[str, dict[str, str]] = {}
    for line in (distribution.requires if distribution else None) or []:
        match = _REQUIREMENT.match(line)
        assert match is not None, line
        name, bounds, marker = match[1], match[2].strip(" ()"), match[3] or ""
        if "platform_machine" in marker and platform.machine() not in marker:
            continue
        if extra := _EXTRA.search(marker):
            if not _NO_USERS_EXTRAS.fullmatch(extra[1]) and name != _OWN:
                extras.setdefault(extra[1], {})[name] = bounds
        else:
            required[name] = bounds
    return required, extras


def _installation(distribution: Distribution | None) -> str:
    """Return how the package was installed, without the place."""
    if distribution is None:
        return "not installed: it is imported from a folder on sys.path"
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return "installed editable, from a checkout"
    return "installed from a file or folder" if origin else "installed from a package index"


def _in_child(part: str, subject: str, broken: list[str], *words: str) -> Any:
    """Return the facts of one part from a process of its own; None, and a fault, if it fails."""
    # -P: a file in the working folder that is called as a package would be imported in its place
    command = [sys.executable, "-P", "-m", "trainer_hooks.cli.doctor.child", part, *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT,
            check=False,
            # the child finds packages where this process does
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        broken.append(f"{subject} hang: no answer after {_TIME_LIMIT:.0f} s")
        return None
    if done.returncode == 0:
        return json.loads(done.stdout)
    if done.returncode < 0:
        number = signal.Signals(-done.returncode)
        broken.append(f"{subject} crash Python: {number.name}")
    else:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        broken.append(f"{subject} cannot be used: {without_private_parts(lines[-1])}")
    return None


def _faults_of_packages(
    required: Mapping[str, str],
    extras: Mapping[str, Mapping[str, str]],
    versions: Mapping[str, str],
) -> Iterator[str]:
    """Yield the dependencies that are missing, and the packages that are out of bounds."""
    for name, bounds in required.items():
        version = versions.get(normal_name(name))
        if version is None:
            yield f"{name} is not installed: pip install '{name}{bounds}'"
        elif not is_allowed(version, bounds):
            yield f"{name} {version} is not {bounds}: pip install '{name}{bounds}'"
    for extra, names in extras.items():
        for name, bounds in names.items():
            version = versions.get(normal_name(name))
            if version is not None and not is_allowed(version, bounds):
                yield f"{name} {version} is not {bounds}: pip install '{_OWN}[{extra}]'"


def _faults_of_imports(required: Mapping[str, str], broken: list[str]) -> Iterator[str]:
    """Yield the dependencies that are installed, and cannot be imported."""
    missing = {fault.partition(" is not installed")[0] for fault in broken}
    names = [_IMPORT_NAMES.get(n, n) for n in required if n != "torch" and n not in missing]
    crashes: list[str] = []
    errors = _in_child("imports", "the dependencies", crashes, *names) or {}
    yield from crashes
    for module, error in errors.items():
        if error:
            yield f"{module} cannot be imported: {without_private_parts(error)}"


def _plugin_fault(plugin: Mapping[str, Any]) -> str:
    return (
        f"plugin {plugin['distribution']} {plugin['version']} (entry point "
        f"{plugin['entry_point']!r}): {without_private_parts(plugin['reason'])}"
    )


def is_allowed(version: str, bounds: str) -> bool:
    """Return whether a version is within bounds such as `>=1.6,<5` or `==2.6.*`.

    Only these three forms occur in the package's metadata. `packaging` knows all of them, but is
    not among the dependencies.
    """
    for bound in filter(None, map(str.strip, bounds.split(","))):
        match = re.fullmatch(r"(>=|<|==)\s*([\d.]+?)(\.\*)?", bound)
        assert match is not None, bound
        sign, limit = match[1], release_of(match[2])
        release = release_of(version)
        length = max(len(release), len(limit))
        padded = (*limit, *[0] * (length - len(limit)))
        padded_release = (*release, *[0] * (length - len(release)))
        if sign == ">=" and padded_release < padded:
            return False
        if sign == "<" and padded_release >= padded:
            return False
        if sign == "==" and padded_release[: len(limit)] != limit:
            return False
    return True
