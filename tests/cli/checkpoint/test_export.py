"""`trainer-hooks checkpoint export`: the weights in a file of their own, whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from trainer_hooks.cli.checkpoint import export as checkpoint_export


def exported(ask, source, target, *options) -> Path:
    answer = ask("export", source, "--weights-only", "-o", target, *options)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"wrote {target}: 2 tensors, ")
    return Path(target)


def weights_of(path) -> dict:
    return torch.load(path, weights_only=True)["state_dict"]


def test_a_checkpoint_of_weights_makes_the_module_again(ask, save, net_type, tmp_path) -> None:
    """A .ckpt has the hyperparameters, so that the module can be made from it, and no more."""
    path = save(width=3)
    target = exported(ask, path, tmp_path / "out" / "weights.ckpt")
    module = net_type.load_from_checkpoint(target)
    assert module.hparams == {"width": 3, "rate": 0.1}
    assert torch.equal(module.layer.weight, weights_of(path)["layer.weight"])
    held = torch.load(target, weights_only=True)
    assert {"callbacks", "optimizer_states", "lr_schedulers"}.isdisjoint(held)
    assert set(held["trainer_hooks"]) == {"format", "version"}
    assert ask("verify", target).code == 0
    assert "  can be resumed from: no: it holds weights alone" in ask("show", target).out


def test_a_pt_file_is_what_load_state_dict_takes(ask, save, net_type, tmp_path) -> None:
    """Bare weights, as `torch.save(module.state_dict())` writes them."""
    path = save()
    held = torch.load(exported(ask, path, tmp_path / "weights.pt"), weights_only=True)
    net_type().load_state_dict(held)
    assert held._metadata == weights_of(path)._metadata
    assert all(torch.equal(held[name], value) for name, value in weights_of(path).items())


def test_a_safetensors_file_is_what_the_library_reads(ask, save, tmp_path) -> None:
    """Another tool finds the weights by their names."""
    from safetensors.torch import load_file

    path = save()
    held = load_file(exported(ask, path, tmp_path / "weights.safetensors"))
    assert {name: value.tolist() for name, value in held.items()} == {
        name: value.tolist() for name, value in weights_of(path).items()
    }
    back = exported(ask, tmp_path / "weights.safetensors", tmp_path / "back.pt")
    assert torch.load(back, weights_only=True).keys() == held.keys()


def test_a_lightning_checkpoint_is_exported(ask, tmp_path) -> None:
    """The counters and the version stay with the weights; nothing of ours is added."""
    source = {
        "epoch": 3,
        "global_step": 9,
        "pytorch-lightning_version": "2.5.1",
        "state_dict": {"a": torch.ones(2), "b": torch.ones(1)},
        "callbacks": {"X": {}},
        "hyper_parameters": {"width": 2},
    }
    torch.save(source, tmp_path / "l.ckpt")
    held = torch.load(exported(ask, tmp_path / "l.ckpt", tmp_path / "w.ckpt"), weights_only=True)
    assert held.keys() == source.keys() - {"callbacks"}
    assert held["hyper_parameters"] == {"width": 2}


def test_memory_around_the_weights_stays_behind(ask, tmp_path) -> None:
    """A weight that is a part of something big is written without the rest; tied ones stay tied."""
    big, tied = torch.zeros(100_000), torch.ones(10)
    state = {"state_dict": {"part": big[:10], "one": tied, "two": tied}, "x": big}
    torch.save(state, tmp_path / "big.ckpt")
    answer = ask("export", tmp_path / "big.ckpt", "--weights-only", "-o", tmp_path / "small.pt")
    assert answer.code == 0
    assert (tmp_path / "small.pt").stat().st_size < 10_000
    held = torch.load(tmp_path / "small.pt", weights_only=True)
    assert held["one"].data_ptr() == held["two"].data_ptr()
    assert torch.equal(held["part"], big[:10])


def test_a_file_is_written_over_only_by_force(ask, save, tmp_path) -> None:
    """What is there stays unless --force is given; a link that leads nowhere is there too."""
    path, target = save(), tmp_path / "out.pt"
    target.write_text("mine")
    error = ask("export", path, "--weights-only", "-o", target).error
    assert "is there already. Give --force" in error
    assert target.read_text() == "mine"
    exported(ask, path, target, "--force")
    (tmp_path / "link.pt").symlink_to("nowhere")
    assert (
        "is there already" in ask("export", path, "--weights-only", "-o", tmp_path / "link.pt").err
    )


def test_a_file_can_become_its_own_weights(ask, save) -> None:
    """By force a checkpoint is replaced by its weights, which are read from it meanwhile."""
    path = save()
    before = weights_of(path)
    exported(ask, path, path, "--force")
    assert all(torch.equal(weights_of(path)[name], value) for name, value in before.items())


def test_it_is_written_whole_or_not_at_all(ask, save, tmp_path, monkeypatch) -> None:
    """A write that fails leaves the file that was there, and no other."""
    path, target = save(), tmp_path / "out" / "w.safetensors"
    exported(ask, path, target)
    before = target.read_bytes()

    def fail(checkpoint, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_export, "dump_safetensors", fail)
    error = ask("export", path, "--weights-only", "-o", target, "--force").error
    assert "No space left on device" in error
    assert target.read_bytes() == before
    assert [entry.name for entry in target.parent.iterdir()] == ["w.safetensors"]


@pytest.mark.parametrize("name", ["out", "out.bin", "out.ckpt.gz"])
def test_a_name_that_says_nothing_is_refused(name, ask, save, tmp_path) -> None:
    """The suffix says what is written."""
    error = ask("export", save(), "--weights-only", "-o", tmp_path / name).error
    assert "must end in .ckpt, .pt or .safetensors" in error


def test_a_folder_is_no_output(ask, save, tmp_path) -> None:
    """Even by force."""
    (tmp_path / "x.pt").mkdir()
    arguments = ("export", save(), "--weights-only", "-o", tmp_path / "x.pt", "--force")
    assert "is a folder" in ask(*arguments).error


def test_weights_that_are_none(ask, tmp_path) -> None:
    """An empty state_dict is no model; what safetensors cannot hold is named."""
    torch.save({"state_dict": {}}, tmp_path / "empty.ckpt")
    torch.save({"state_dict": {"a": torch.ones(1), "_extra_state": 3}}, tmp_path / "extra.ckpt")
    arguments = ("--weights-only", "-o")
    error = ask("export", tmp_path / "empty.ckpt", *arguments, tmp_path / "x.pt").error
    assert "there are no weights in it" in error
    error = ask("export", tmp_path / "extra.ckpt", *arguments, tmp_path / "x.safetensors").error
    assert "_extra_state" in error
    assert not (tmp_path / "x.safetensors").exists()


def test_a_damaged_file_is_not_exported(ask, save, tmp_path) -> None:
    """The source is compared with its checksums: a wrong weight would go unnoticed."""
    path = Path(save())
    content = bytearray(path.read_bytes())
    content[content.index(weights_of(path)["layer.weight"].numpy().tobytes())] ^= 1
    path.write_bytes(content)
    error = ask("export", path, "--weights-only", "-o", tmp_path / "x.pt").error
    assert "damaged: it is not what was written" in error
    assert not (tmp_path / "x.pt").exists()


def test_weights_are_exported_without_being_asked_for(ask, save, tmp_path) -> None:
    """Nothing else could be exported."""
    assert ask("export", save(), "-o", tmp_path / "x.pt").code == 0
    assert set(torch.load(tmp_path / "x.pt", weights_only=True)) == {"layer.weight", "layer.bias"}


def test_without_the_library(ask, save, tmp_path, monkeypatch) -> None:
    """safetensors is optional; the error says what to install."""
    monkeypatch.setitem(sys.modules, "safetensors", None)
    arguments = ("export", save(), "--weights-only", "-o", tmp_path / "x.safetensors")
    assert f"checkpoint '{tmp_path / 'x.safetensors'}' needs the package" in ask(*arguments).error
    (tmp_path / "y.safetensors").write_bytes(b"something")
    assert "pip install" in ask("show", tmp_path / "y.safetensors").error
