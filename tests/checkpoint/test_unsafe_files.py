"""A file that would run code is refused, and nothing of it has run."""

from __future__ import annotations

import pickle
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks.errors import CheckpointError

SECTIONS = (
    "callbacks",
    "epoch",
    "extra",
    "hyper_parameters",
    "lr_schedulers",
    "optimizer_states",
    "state_dict",
    "trainer_hooks",
)


class Trap:
    """An object that makes a file when it is unpickled."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


class BuiltinTrap(Trap):
    """The same by way of a builtin and a string, which some filters let through."""

    def __reduce__(self):
        return eval, (f"open({str(self.path)!r}, 'w').close()",)


class StateTrap:
    """The same, as the state of a harmless object."""

    def __init__(self, path) -> None:
        self.__dict__["trap"] = Trap(path)


@pytest.fixture
def checkpoint(fitted, tmp_path):
    """A good checkpoint as a dict."""
    fitted().save_checkpoint(tmp_path / "good.ckpt")
    return torch.load(tmp_path / "good.ckpt", weights_only=True)


@pytest.fixture
def evidence(tmp_path):
    """The file that is there if code of a checkpoint has run."""
    return tmp_path / "it ran"


def put(checkpoint, section, trap):
    """Hide a trap in a section of a checkpoint, inside what is there already."""
    held = checkpoint.get(section)
    if isinstance(held, dict):
        held["trap"] = trap
    elif isinstance(held, list):
        held.append({"trap": [trap]})
    else:
        checkpoint[section] = {"trap": trap}


def save_zip(checkpoint, path) -> None:
    torch.save(checkpoint, path)


def save_legacy(checkpoint, path) -> None:
    torch.save(checkpoint, path, _use_new_zipfile_serialization=False)


def save_pickle(checkpoint, path) -> None:
    path.write_bytes(pickle.dumps({**checkpoint, "state_dict": {}}))


def refused_everywhere(path, net_type, fitted, evidence) -> None:
    """Make sure that each way to open a file refuses it, and that nothing ran."""
    module = net_type()
    data = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    trainer = fitted()
    ways = (
        lambda: net_type.load_from_checkpoint(path),
        lambda: trainer.fit(module, data, ckpt_path=path),
        lambda: trainer.predict(module, data, ckpt_path=path),
    )
    for way in ways:
        with pytest.raises(CheckpointError, match=r"cannot be (opened|read)"):
            way()
        assert not evidence.exists()


@pytest.mark.parametrize("trap", [Trap, BuiltinTrap, StateTrap])
def test_the_traps_of_this_file_are_real(tmp_path, evidence, trap):
    """Opened by plain pickle, each trap makes its file: the tests below could fail."""
    save_pickle({"a": trap(evidence)}, tmp_path / "a.ckpt")
    pickle.loads((tmp_path / "a.ckpt").read_bytes())
    assert evidence.exists()


@pytest.mark.parametrize("save", [save_zip, save_legacy, save_pickle])
@pytest.mark.parametrize("section", SECTIONS)
def test_code_in_any_section_is_refused_and_not_run(
    checkpoint, tmp_path, evidence, net_type, fitted, section, save
):
    """Wherever the trap is, and however old the form of the file."""
    put(checkpoint, section, Trap(evidence))
    if save is save_pickle and section == "state_dict":
        put(checkpoint, "other", Trap(evidence))
    save(checkpoint, tmp_path / "bad.ckpt")
    refused_everywhere(tmp_path / "bad.ckpt", net_type, fitted, evidence)


@pytest.mark.parametrize("trap", [BuiltinTrap, StateTrap])
def test_other_kinds_of_traps_are_refused_and_not_run(
    checkpoint, tmp_path, evidence, net_type, fitted, trap
):
    """A builtin that runs a string, and a trap in an object's state."""
    put(checkpoint, "callbacks", trap(evidence))
    save_zip(checkpoint, tmp_path / "bad.ckpt")
    refused_everywhere(tmp_path / "bad.ckpt", net_type, fitted, evidence)


def test_code_before_the_checkpoint_is_not_run(checkpoint, tmp_path, evidence, net_type, fitted):
    """A pickle that runs something first and then gives a proper checkpoint."""
    path = tmp_path / "bad.ckpt"
    save_zip(checkpoint, tmp_path / "good.ckpt")
    with zipfile.ZipFile(tmp_path / "good.ckpt") as good, zipfile.ZipFile(path, "w") as bad:
        for name in good.namelist():
            content = good.read(name)
            if name.endswith("data.pkl"):
                trap = pickle.dumps(Trap(evidence), protocol=2)[2:-1]  # without begin and end
                content = content[:2] + trap + b"0" + content[2:]
            bad.writestr(name, content)
    refused_everywhere(path, net_type, fitted, evidence)


def test_a_safetensors_file_runs_nothing(tmp_path, evidence, net_type, fitted):
    """A pickle under the name of a safetensors file is refused like any damaged one."""
    path = tmp_path / "bad.safetensors"
    torch.save({"state_dict": Trap(evidence)}, path)
    refused_everywhere(path, net_type, fitted, evidence)
    header = b'{"__metadata__":{"trainer_hooks":"[1]"}}'
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    refused_everywhere(path, net_type, fitted, evidence)
