"""The parts of this machine that are not tested, a line each, with advice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trainer_hooks._version import OLDEST_TORCH, TESTED, release_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PYTHONS = sorted({release_of(python)[:2] for python, _ in TESTED})
_TORCHES = sorted({release_of(torch)[:2] for _, torch in TESTED})

_RELEASE = re.compile(r"\d+(\.\d+)+(\+(cpu|cu\d+|rocm[\d.]+|xpu))?")
"""The version of a torch as it is published; others are made before a release, or by somebody."""

_SYSTEMS = {
    "Windows": "Windows is tested by a stand-in on Linux alone: docs/install.md names what differs",
    "Darwin": "macOS is tested by a stand-in on Linux alone: docs/install.md names what differs",
}

_X86 = ("x86_64", "AMD64")


def untested(
    *, system: str, machine: str, implementation: str, python: str, torch: Mapping[str, Any] | None
) -> Iterator[str]:
    """Yield a line for each part of a machine with which no test was run.

    Args:
        system: the name that `platform.system()` returns.
        machine: that of `platform.machine()`.
        implementation: that of `platform.python_implementation()`.
        python: the version of Python.
        torch: the facts about torch; None if it cannot be imported.
    """
    if system != "Linux":
        yield _SYSTEMS.get(system, f"{system or 'this system'} is not tested: Linux is")
    if machine not in _X86:
        yield f"processors {machine or 'of an unknown kind'} are not tested: x86-64 is"
    if implementation != "CPython":
        yield f"{implementation} is not tested: take CPython {_text(_PYTHONS[-1])}"
    yield from _of_python(python)
    if torch is not None:
        yield from _of_torch(str(torch["version"]))
        yield from _of_devices(torch)


def _of_python(version: str) -> Iterator[str]:
    release = release_of(version)
    if release[:2] > _PYTHONS[-1]:
        yield (
            f"Python {version} is newer than {_text(_PYTHONS[-1])}, the newest that is tested: if "
            "something fails, try that"
        )
    elif release[:2] < _PYTHONS[0]:
        yield f"Python {version} is too old: take {_text(_PYTHONS[0])} to {_text(_PYTHONS[-1])}"
    elif release == (3, 13, 0):
        yield "Python 3.13.0 is slower with torch.compile, which warns of it: take 3.13.1 or newer"


def _of_torch(version: str) -> Iterator[str]:
    release, newest = release_of(version)[:2], _TORCHES[-1]
    above = f"{newest[0]}.{newest[1] + 1}"
    if len(release) < 2:
        yield (
            f"torch {version}: no version that can be read, so that it may be too old or too new: "
            f"install a release, pip install 'torch>={OLDEST_TORCH},<{above}'"
        )
    elif release > newest:
        yield (
            f"torch {version} is newer than {_text(newest)}, the newest that is tested: if "
            f"something fails, pip install 'torch<{above}'"
        )
    elif not _RELEASE.fullmatch(version):
        yield (
            f"torch {version} is no release: if something fails, pip install "
            f"'torch>={OLDEST_TORCH},<{above}'"
        )


def _of_devices(torch: Mapping[str, Any]) -> Iterator[str]:
    if torch.get("mps"):
        yield "mps is not tested: if a value looks wrong, compare with accelerator='cpu'"
    if torch.get("xpu"):
        yield "xpu is not supported: the Trainer takes accelerator='cpu', 'cuda' or 'mps'"
    if torch.get("hip"):
        yield f"ROCm {torch['hip']} is not tested: CUDA is, and ROCm's devices have its name"
    if torch.get("driver") and torch.get("cuda") and not torch["gpus"]:
        yield (
            f"torch finds no GPU, and NVIDIA's driver {torch['driver']} is there: if "
            "CUDA_VISIBLE_DEVICES hides none, the driver may be too old for CUDA "
            f"{torch['cuda']}. nvidia-smi shows the newest that it takes: install a torch built "
            "for that, https://pytorch.org/get-started/locally"
        )
    if not torch.get("hip"):
        yield from _of_gpus(torch["gpus"], torch.get("architectures") or ())


def _of_gpus(gpus: Sequence[Mapping[str, Any]], architectures: Sequence[str]) -> Iterator[str]:
    """Yield a line for each GPU for which torch has no code.

    Args:
        gpus: the GPUs, with their `capability`.
        architectures: those that torch is built for, such as `sm_90`.
    """
    built_for = [
        (int(n[:-1]), int(n[-1])) for n in re.findall(r"\bsm_(\d+)", " ".join(architectures))
    ]
    for number, gpu in enumerate(gpus):
        capability = tuple(gpu.get("capability") or ())
        if not built_for or not capability:
            continue
        # code for one architecture runs on the later ones of its generation
        if any(
            major == capability[0] and (major, minor) <= capability for major, minor in built_for
        ):
            continue
        age = "old" if capability < min(built_for) else "new"
        yield (
            f"GPU {number}, {gpu['name']}, is too {age} for this torch, which is built for "
            f"{', '.join(architectures)}: https://pytorch.org/get-started/locally has others"
        )


def _text(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
