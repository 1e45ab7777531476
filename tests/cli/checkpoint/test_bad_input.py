"""Every action of `trainer-hooks checkpoint` on files that are wrong, or mean harm."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
import warm_python


class Harm:
    """Would make a file, if it were ever rebuilt."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def _nested(marker: Path) -> dict:
    return {"state_dict": {"a": torch.ones(2)}, "callbacks": {"C": {"x": [{"y": Harm(marker)}]}}}


def _rewritten(path: Path, pickled: bytes) -> None:
    """Write a torch file whose pickle is another one."""
    torch.save({"state_dict": {}}, path)
    with zipfile.ZipFile(path) as parts:
        items = {name: parts.read(name) for name in parts.namelist()}
    with zipfile.ZipFile(path, "w") as parts:
        for name, content in items.items():
            parts.writestr(name, pickled if name.endswith("data.pkl") else content)


def _write(place: str, path: Path, marker: Path) -> None:
    harm = Harm(marker)
    weights = {"a": torch.ones(2)}
    if place == "raw pickle":
        path.write_bytes(pickle.dumps({"state_dict": weights, "x": harm}))
    elif place == "raw pickle, old protocol":
        path.write_bytes(pickle.dumps(harm, protocol=0))
    elif place == "old torch format":
        torch.save(_nested(marker), path, _use_new_zipfile_serialization=False)
    elif place == "old opcodes":
        code = f"open({str(marker)!r}, 'w')"
        _rewritten(path, f"(V{code}\ni__builtin__\neval\n.".encode())
    else:
        torch.save(
            {
                "state": {"state_dict": {"a": harm}},
                "callback": _nested(marker),
                "hyperparameter": {"state_dict": weights, "hyper_parameters": {"x": harm}},
                "ours": {"state_dict": weights, "trainer_hooks": {"format": 4, "plugins": [harm]}},
                "key": {"state_dict": weights, (harm,): 1},
                "whole": harm,
            }[place],
            path,
        )


PLACES = [
    "state", "callback", "hyperparameter", "ours", "key", "whole", "raw pickle",
    "raw pickle, old protocol", "old torch format", "old opcodes",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_means_harm_is_refused_and_nothing_runs(place, ask, save, tmp_path) -> None:
    """Wherever the code hides: each action refuses the file, in one line, and leaves it there."""
    marker = tmp_path / "it-ran"
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "harm.ckpt"
    _write(place, path, marker)
    good = save("folder/good.ckpt")
    for arguments in (
        ("show", path),
        ("show", path, "--json"),
        ("diff", path, good),
        ("diff", good, path),
        ("export", path, "--weights-only", "-o", tmp_path / "out.pt"),
    ):
        error = ask(*arguments).error
        assert "harm.ckpt" in error
        if place != "raw pickle, old protocol":  # a text like any other, to look at
            assert "needs code" in error
    assert ask("verify", path).code == 1
    answer = ask("prune", folder, "--yes", "--damaged")
    assert answer.code == 0
    assert path.exists()
    assert not (tmp_path / "out.pt").exists()
    assert not marker.exists()


def test_the_harm_is_real(tmp_path) -> None:
    """The file of the test above does run code, where it is opened without care."""
    marker = tmp_path / "it-ran"
    torch.save(_nested(marker), tmp_path / "x.ckpt")
    torch.load(tmp_path / "x.ckpt", weights_only=False)
    assert marker.exists()


@pytest.mark.slow
def test_no_code_of_the_model_is_needed(ask, save, tmp_path) -> None:
    """A fresh process without the model's module shows and verifies; no plugin is imported."""
    path = save()
    root = Path(__file__).parents[3]
    for action in ("show", "verify"):
        done = warm_python.run(
            [sys.executable, "-m", "trainer_hooks", "checkpoint", action, path],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


ACTIONS = [
    ("show", "{}"),
    ("show", "{}", "--json"),
    ("diff", "{}", "{good}"),
    ("diff", "{good}", "{}"),
    ("export", "{}", "--weights-only", "-o", "{out}"),
]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: "-".join(action[:2]))
@pytest.mark.parametrize("kind", ["missing", "no folder", "folder", "text", "cut", "empty", "zip"])
def test_bad_files_are_told_in_one_line(kind, action, ask, save, tmp_path) -> None:
    """What is wrong, on stderr, with code 2 and no traceback."""
    good = Path(save())
    path = tmp_path / ("none/x.ckpt" if kind == "no folder" else "bad.ckpt")
    if kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("a text")
    elif kind == "cut":
        path.write_bytes(good.read_bytes()[:4000])
    elif kind == "empty":
        path.touch()
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as parts:
            parts.writestr("a/readme", "text")
    places = {"{}": path, "{good}": good, "{out}": tmp_path / "out.pt"}
    error = ask(*(places.get(word, word) for word in action)).error
    assert error.startswith(f"trainer-hooks checkpoint {action[0]}: error: {str(path)!r}: ")
    expected = {
        "missing": "missing: not there. In its folder there are: end.ckpt.",
        "no folder": f"missing: not there. Its folder {str(path.parent)!r} does not exist either.",
        "folder": "no checkpoint: it is a folder",
        "text": "no checkpoint: it was not written by torch.save",
        "cut": "damaged: ",
        "empty": "damaged: it is empty",
        "zip": "no checkpoint: it was not written by torch.save",
    }
    assert expected[kind] in error
    assert not (tmp_path / "out.pt").exists()


def _circle() -> dict:
    circle: list = []
    circle.append(circle)
    return {"circle": circle}


def _laughs() -> dict:
    value = ["ha"] * 10
    for _ in range(30):
        value = [value] * 10
    return {"laughs": value}


@pytest.mark.slow
@pytest.mark.parametrize("make", [_circle, _laughs])
def test_a_small_file_that_is_endless(make, ask, tmp_path) -> None:
    """Text and comparison end; JSON, which cannot, says so."""
    path = tmp_path / "x.ckpt"
    torch.save({"state_dict": {"a": torch.ones(1)}, "callbacks": make()}, path)
    answer = ask("show", path)
    assert (answer.code, answer.err) == (0, "")
    assert len(answer.out) < 10_000
    assert ask("diff", path, path).code == 0
    assert "more than 1,000,000 values" in ask("show", path, "--json").error or make is _circle


def test_a_file_that_is_nested_without_end(ask, tmp_path) -> None:
    """JSON of what lies too deep is refused in one line."""
    path = tmp_path / "x.ckpt"
    torch.save({"state_dict": {"a": torch.ones(1)}, "callbacks": _circle()}, path)
    assert "nested too deep, or holds itself" in ask("show", path, "--json").error


def test_without_an_action_the_help_is_given(ask) -> None:
    """On stderr, with code 2."""
    answer = ask()
    assert (answer.code, answer.out) == (2, "")
    assert "usage: trainer-hooks checkpoint" in answer.err


@pytest.mark.parametrize("action", ["show", "verify", "diff", "prune", "export"])
def test_every_action_has_help(action, ask, capsys) -> None:
    """`--help` is answered without torch."""
    code = (
        "import sys\n"
        "from trainer_hooks.cli.main import main\n"
        "try:\n"
        f"    main(['checkpoint', {action!r}, '--help'])\n"
        "finally:\n"
        "    assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: trainer-hooks checkpoint {action}")


@pytest.mark.slow
def test_output_that_nobody_reads(save, tmp_path) -> None:
    """`show | head -1` ends without a traceback."""
    done = subprocess.run(
        f"{sys.executable} -m trainer_hooks checkpoint show --json {save()} | head -1",
        shell=True,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_json_of_a_folder_of_files_is_json(ask, save, tmp_path) -> None:
    """`verify --json` is a list of records with path, state and reason."""
    save()
    (record,) = json.loads(ask("verify", tmp_path, "--json").out)
    assert record == {
        "path": str(tmp_path / "end.ckpt"),
        "state": "ok",
        "what": "checkpoint of trainer_hooks, epoch 1, step 3",
    }
