"""`trainer-hooks checkpoint verify PATH...`: ok or what is wrong, file by file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


def verdicts(ask, *paths) -> dict[str, tuple[str, str]]:
    answer = ask("verify", *paths, "--json")
    assert answer.err == ""
    found = json.loads(answer.out)
    assert answer.code == (0 if all(entry["state"] == "ok" for entry in found) else 1)
    return {Path(entry["path"]).name: (entry["state"], entry["what"]) for entry in found}


def test_whole_files_are_ok(ask, save, tmp_path) -> None:
    """A folder is searched through all levels, and all that is ok ends with code 0."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    save("deep/er/end.ckpt", at={1: "deep/cut.ckpt"})
    save("alone.ckpt", weights_only=True)
    answer = ask("verify", tmp_path)
    assert (answer.code, answer.err) == (0, "")
    rows = [line.split(maxsplit=2) for line in answer.out.splitlines()[2:]]
    assert rows == [
        ["ok", str(tmp_path / "alone.ckpt"), *_ours("epoch 1, step 3, weights alone")],
        ["ok", str(tmp_path / "deep/cut.ckpt"), *_ours("epoch 0, step 1")],
        ["ok", str(tmp_path / "deep/er/end.ckpt"), *_ours("epoch 1, step 3")],
    ]


def _ours(counters: str) -> list[str]:
    return [f"checkpoint of trainer_hooks, {counters}"]


def test_each_fault_has_its_name(ask, save, changed, tmp_path) -> None:
    """Damaged, no checkpoint, needs code, too new: told apart, with a reason, and code 1."""
    whole = Path(save("whole.ckpt"))
    content = whole.read_bytes()
    (tmp_path / "short.ckpt").write_bytes(content[: len(content) // 2])
    (tmp_path / "empty.ckpt").write_bytes(b"")
    (tmp_path / "text.ckpt").write_text("no checkpoint at all")
    torch.save([1, 2], tmp_path / "list.ckpt")
    torch.save({"state_dict": {}, "net": torch.nn.Linear(1, 1)}, tmp_path / "code.ckpt")
    changed(whole, tmp_path / "new.ckpt", lambda saved: saved["trainer_hooks"].update(format=99))
    changed(whole, tmp_path / "odd.ckpt", lambda saved: saved["trainer_hooks"].pop("format"))
    # whole by their checksums, and refused by every load
    changed(whole, tmp_path / "kind.ckpt", lambda saved: saved["trainer_hooks"].update(clock=[3]))
    changed(whole, tmp_path / "list.of.ckpt", lambda saved: saved.update(lr_schedulers={}))
    changed(
        whole, tmp_path / "tensor.ckpt",
        lambda saved: saved["trainer_hooks"]["stream"].update(num_batches=torch.ones(3)),
    )  # fmt: skip
    found = verdicts(ask, tmp_path)
    assert {name: state for name, (state, _) in found.items()} == {
        "whole.ckpt": "ok",
        "short.ckpt": "damaged",
        "empty.ckpt": "damaged",
        "text.ckpt": "no checkpoint",
        "list.ckpt": "no checkpoint",
        "code.ckpt": "needs code",
        "new.ckpt": "too new",
        "odd.ckpt": "damaged",
        "kind.ckpt": "damaged",
        "list.of.ckpt": "damaged",
        "tensor.ckpt": "damaged",
    }
    assert found["empty.ckpt"][1] == "it is empty"
    assert "torch.nn.modules.linear.Linear" in found["code.ckpt"][1]
    assert "format 99" in found["new.ckpt"][1]
    assert "it holds a list" in found["list.ckpt"][1]
    assert found["kind.ckpt"][1].startswith("cannot be used: its part 'clock' is a list.")
    assert "'num_batches' in its part 'stream' is a Tensor" in found["tensor.ckpt"][1]


def test_one_changed_bit_is_found(ask, save, tmp_path) -> None:
    """A weight that changed on the disk is damage, which torch would load without a word."""
    path = Path(save())
    content = bytearray(path.read_bytes())
    weight = torch.load(path, weights_only=True)["state_dict"]["layer.weight"]
    content[content.index(weight.numpy().tobytes())] ^= 1
    path.write_bytes(content)
    assert torch.load(path, weights_only=True)
    state, what = verdicts(ask, path)["end.ckpt"]
    assert state == "damaged"
    assert "it is not what was written" in what
    assert "/data/0" in what


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_is_damaged(kept, ask, save) -> None:
    """Wherever the rest is missing."""
    path = Path(save())
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    assert verdicts(ask, path)["end.ckpt"][0] == "damaged"


def test_what_is_missing_is_told_with_what_is_there(ask, save, tmp_path) -> None:
    """A missing file is a verdict like others, with the names beside it."""
    path = save()
    found = verdicts(ask, tmp_path / "ende.ckpt", path)
    assert found["ende.ckpt"] == ("missing", "not there. In its folder there are: end.ckpt.")
    assert found["end.ckpt"][0] == "ok"


def test_a_folder_without_checkpoints_is_not_ok(ask, tmp_path) -> None:
    """Who verifies a folder expects checkpoints in it; an unfinished file is none."""
    (tmp_path / ".run.ckpt.x.part").touch()
    (tmp_path / ".run.ckpt").touch()
    assert verdicts(ask, tmp_path)[tmp_path.name][0] == "missing"


def test_a_link_that_leads_nowhere_is_missing(ask, tmp_path) -> None:
    """A `last.ckpt` whose checkpoint is gone is found in a folder."""
    (tmp_path / "last.ckpt").symlink_to("gone.ckpt")
    assert verdicts(ask, tmp_path)["last.ckpt"][0] == "missing"


def test_what_is_no_file_is_not_waited_for(ask, tmp_path) -> None:
    """A pipe would never end; it is no checkpoint. A path through a file leads nowhere."""
    os.mkfifo(tmp_path / "pipe.ckpt")
    (tmp_path / "file").touch()
    found = verdicts(ask, tmp_path / "pipe.ckpt", tmp_path / "file" / "x.ckpt")
    assert found["pipe.ckpt"][0] == "no checkpoint"
    assert found["pipe.ckpt"][1].startswith(
        "it is no regular file but a pipe, a socket or a device"
    )
    assert found["x.ckpt"][0] == "missing"


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_an_unreadable_file_is_told(ask, save) -> None:
    """A file without the right to read it is not called damaged."""
    path = Path(save())
    path.chmod(0)
    assert verdicts(ask, path)["end.ckpt"] == ("unreadable", "Permission denied")


def test_other_files_that_are_named_are_verified(ask, tmp_path) -> None:
    """Bare weights and safetensors are ok as such; a damaged one of these is found."""
    from safetensors.torch import save_file

    torch.save({"a": torch.ones(3)}, tmp_path / "w.pt")
    save_file({"a": torch.ones(3)}, tmp_path / "w.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "w.safetensors").read_bytes()[:-1])
    found = verdicts(
        ask, *(tmp_path / name for name in ("w.pt", "w.safetensors", "cut.safetensors"))
    )
    assert found["w.pt"] == ("ok", "bare weights")
    assert found["w.safetensors"] == ("ok", "weights as safetensors")
    assert found["cut.safetensors"][0] == "damaged"
