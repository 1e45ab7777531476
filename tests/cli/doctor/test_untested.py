"""What `trainer-hooks doctor` says is not tested, on machines that are not here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_hooks._version import TESTED, release_of
from trainer_hooks.cli.doctor.untested import untested

ROOT = Path(__file__).parents[3]

GPU = {"name": "NVIDIA H200", "gigabytes": 141, "capability": [9, 0]}
TORCH = {"version": "2.13.0+cpu", "cuda": None, "gpus": [], "mps": False, "distributed": ["gloo"]}
CUDA = {**TORCH, "version": "2.13.0+cu132", "cuda": "13.2", "architectures": ["sm_80", "sm_90"]}


def lines(torch=TORCH, python="3.11.7", **machine: str) -> list[str]:
    """Return the lines about a machine that is the tested one but for the arguments."""
    usual = {"system": "Linux", "machine": "x86_64", "implementation": "CPython"}
    return [*untested(python=python, torch=torch, **usual | machine)]


@pytest.mark.parametrize(("python", "torch"), TESTED)
def test_a_tested_pair_has_no_line(python, torch) -> None:
    """Whatever its third number, and the device that torch is built for."""
    for build in ("", "+cpu", "+cu132"):
        assert lines({**TORCH, "version": torch + build}, f"{python}.9") == []
    assert lines({**CUDA, "gpus": [GPU], "driver": "580.65.06"}) == []


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        ({"system": "Windows", "machine": "AMD64"}, "Windows is tested by a stand-in"),
        ({"system": "Darwin"}, "macOS is tested by a stand-in"),
        ({"system": "FreeBSD"}, "FreeBSD is not tested: Linux is"),
        ({"system": ""}, "this system is not tested: Linux is"),
        ({"machine": "aarch64"}, "processors aarch64 are not tested: x86-64 is"),
        ({"machine": ""}, "processors of an unknown kind are not tested"),
        ({"implementation": "PyPy"}, "PyPy is not tested: take CPython 3.13"),
        ({"python": "3.14.0"}, "Python 3.14.0 is newer than 3.13, the newest that is tested: if"),
        ({"python": "3.15.0a2+"}, "Python 3.15.0a2+ is newer than 3.13"),
        ({"python": "3.10.9"}, "Python 3.10.9 is too old: take 3.11 to 3.13"),
        (
            {"python": "3.13.0"},
            "Python 3.13.0 is slower with torch.compile, which warns of it: take",
        ),
    ],
)
def test_a_system_or_python_that_is_not_tested_is_named(machine, told) -> None:
    """In a line, with what to do."""
    [line] = lines(**machine)
    assert line.startswith(told)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("2.16.0", "torch 2.16.0 is newer than 2.15, the newest that is tested: if"),
        ("2.16.0.dev20261201+cpu", "torch 2.16.0.dev20261201+cpu is newer than 2.15"),
        ("3.0", "torch 3.0 is newer than 2.15"),
        ("2.15.0.dev20260101+cpu", "torch 2.15.0.dev20260101+cpu is no release: if something"),
        ("2.13.0a0+git123", "torch 2.13.0a0+git123 is no release"),
        ("2.14.0rc1", "torch 2.14.0rc1 is no release"),
        ("2.13.0+mine", "torch 2.13.0+mine is no release"),
        ("unknown", "torch unknown: no version that can be read, so that it may be too old or"),
        ("", "torch : no version that can be read"),
        ("2", "torch 2: no version that can be read"),
        ("git-1f2e", "torch git-1f2e: no version that can be read"),
    ],
)
def test_a_torch_that_is_not_tested_is_named(version, told) -> None:
    """With the line that installs another one."""
    [line] = lines({**TORCH, "version": version})
    assert line.startswith(told)
    assert "pip install 'torch" in line
    assert "<2.16'" in line


@pytest.mark.parametrize(
    ("torch", "told"),
    [
        ({**TORCH, "mps": True}, "mps is not tested: if a value looks wrong, compare"),
        ({**TORCH, "xpu": True}, "xpu is not supported: the Trainer takes"),
        ({**TORCH, "hip": "6.4", "gpus": [GPU]}, "ROCm 6.4 is not tested: CUDA is"),
        ({**CUDA, "driver": "470.1"}, "torch finds no GPU, and NVIDIA's driver 470.1 is there"),
        (
            {**CUDA, "gpus": [{**GPU, "capability": [6, 1]}]},
            "GPU 0, NVIDIA H200, is too old for this torch, which is built for sm_80, sm_90",
        ),
        (
            {**CUDA, "gpus": [GPU, {**GPU, "capability": [12, 0]}]},
            "GPU 1, NVIDIA H200, is too new for this torch",
        ),
    ],
)
def test_a_device_that_is_not_tested_is_named(torch, told) -> None:
    """And one that this torch cannot use."""
    [line] = lines(torch)
    assert line.startswith(told)


def test_a_gpu_runs_the_code_of_an_earlier_one_of_its_generation() -> None:
    """A torch without a list of architectures says nothing of any."""
    assert lines({**CUDA, "gpus": [{**GPU, "capability": [8, 9]}]}) == []
    assert lines({**CUDA, "gpus": [{**GPU, "capability": [6, 1]}], "architectures": []}) == []


def test_without_torch_the_rest_is_named() -> None:
    """A torch that cannot be imported is broken, which stands elsewhere."""
    assert lines(None, system="FreeBSD") == ["FreeBSD is not tested: Linux is"]


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("2.13.0", (2, 13, 0)),
        ("2.13.0a0+git123", (2, 13, 0)),
        ("2.15.0.dev20260101+cpu", (2, 15, 0)),
        ("2.8", (2, 8)),
        ("2.10rc1", (2, 10)),
        ("unknown", ()),
        ("", ()),
    ],
)
def test_the_numbers_of_a_version(version, numbers) -> None:
    """The suffix of a build or of a pre-release is left out."""
    assert release_of(version) == numbers


@pytest.mark.exhaustive
def test_the_command_names_what_is_not_tested(tmp_path) -> None:
    """As a list of its own, which makes nothing broken."""
    (tmp_path / "sitecustomize.py").write_text(
        "import platform\n"
        "platform.system = lambda: 'FreeBSD'\n"
        "platform.machine = lambda: 'riscv64'\n",
        encoding="utf-8",
    )
    environ = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""}
    command = [sys.executable, "-m", "trainer_hooks", "doctor"]
    done = subprocess.run([*command, "--json"], env=environ, capture_output=True, check=False)
    told = ["FreeBSD is not tested: Linux is", "processors riscv64 are not tested: x86-64 is"]
    facts = json.loads(done.stdout)
    assert [line for line in facts["untested"] if "3.13.0" not in line] == told
    text = subprocess.run(command, env=environ, capture_output=True, text=True, check=False).stdout
    assert f"not tested\n  {told[0]}\n  {told[1]}\n" in text
