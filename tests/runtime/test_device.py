"""The choice of the device, and the errors for one that is missing."""

from __future__ import annotations

import re

import pytest
import torch

from trainer_hooks.errors import OptionError
from trainer_hooks.runtime.device import pick_device
from trainer_hooks.runtime.topology import Topology


@pytest.fixture
def machine(monkeypatch):
    """Pretend to a machine with so many CUDA devices, or with MPS."""

    def pretend(cuda: int = 0, mps: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return pretend


@pytest.mark.parametrize(
    ("cuda", "mps", "accelerator", "devices", "expected"),
    [
        (0, False, "auto", "auto", "cpu"),
        (0, False, "cpu", 1, "cpu"),
        (2, False, "auto", "auto", "cuda:0"),
        (2, False, "gpu", "1,", "cuda:1"),
        (2, False, "cuda", [1], "cuda:1"),
        (2, False, "cpu", "auto", "cpu"),
        (1, False, "cuda", -1, "cuda:0"),
        (1, False, "cuda", "1", "cuda:0"),
        (0, True, "auto", "auto", "mps"),
        (0, True, "gpu", 1, "mps"),
        (1, True, "auto", 1, "cuda:0"),
    ],
)
def test_the_device_that_was_asked_for_is_picked(
    machine, cuda, mps, accelerator, devices, expected
):
    """auto takes CUDA, then MPS, then the CPU; a list of one index picks a CUDA device."""
    machine(cuda, mps)
    assert pick_device(accelerator, devices) == torch.device(expected)


@pytest.mark.parametrize("accelerator", ["cuda", "gpu", "mps"])
def test_hardware_that_is_not_there_is_said(machine, accelerator):
    """A device that this machine lacks is an error with an alternative."""
    machine()
    with pytest.raises(OptionError, match=rf"accelerator='{accelerator}'.*finds no such device"):
        pick_device(accelerator, "auto")


@pytest.mark.parametrize(
    "devices",
    [0, "0", [], ",", [-1], True, "two", "2x", "0,x", [None], [True], -2, 1.5, None, [0, 0], "1,1"],
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_no_devices_is_refused(machine, devices, ranks):
    """None, unknown values and a device twice are errors that show the value and all forms."""
    machine(cuda=2)
    message = rf"Trainer\(devices={re.escape(repr(devices))}\): must .* a number of devices above 0"
    with pytest.raises(OptionError, match=message):
        pick_device("auto", devices, Topology(world_size=ranks, local_world_size=ranks))


@pytest.mark.parametrize("devices", [2, "2", "0,1", [0, 1], -1])
def test_several_devices_in_one_process_are_refused(machine, devices):
    """One process trains on one device."""
    machine(cuda=2)
    with pytest.raises(OptionError, match=r"Trainer\(devices=.*must be 'auto', 1, or a list"):
        pick_device("auto", devices)


def test_an_index_too_high_is_refused(machine):
    """A CUDA index that is not there is answered with those that are."""
    machine(cuda=2)
    with pytest.raises(OptionError, match=r"has 2 CUDA device\(s\), numbered 0 to 1"):
        pick_device("cuda", [2])


def test_unknown_names_are_refused_with_the_known_ones(machine):
    """A mistyped accelerator is answered with those that there are."""
    machine()
    with pytest.raises(OptionError, match=r"must be one of auto, cpu, .*Did you mean 'cuda'"):
        pick_device("cudaa", "auto")


def test_each_process_takes_the_device_of_its_local_rank(machine):
    """Of several processes the second takes the second device, or the second of a list."""
    machine(cuda=4)
    second = Topology(2, 1, 1, 0, 2, "torchrun")
    assert pick_device("auto", "auto", second) == torch.device("cuda:1")
    assert pick_device("cuda", [3, 2], second) == torch.device("cuda:2")
    assert pick_device("cuda", "3,2", second) == torch.device("cuda:2")
    machine(cuda=1)
    with pytest.raises(OptionError, match="device 1 is asked for"):
        pick_device("auto", 2, second)
    machine(mps=True)
    assert pick_device("auto", "auto", second) == torch.device("cpu")
    with pytest.raises(OptionError, match="no collectives for MPS"):
        pick_device("mps", "auto", second)
