"""`trainer-hooks checkpoint show FILE`: all that a file tells."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import os
import re
import sys
import textwrap
from collections import deque
from pathlib import Path, PurePosixPath

import numpy as np
import pyte
import pytest
import torch
import warm_python

from trainer_hooks import Trainer, __version__
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.checkpoint.file import write_checkpoint
from trainer_hooks.cli.main import main
from trainer_hooks.cli.values import JsonWriter
from trainer_hooks.testing import TinyModule

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)

ROOT = Path(__file__).parents[3]

EXAMPLES = Path(__file__).parents[2] / "checkpoint" / "examples"


def told(ask, path, *options) -> dict:
    answer = ask("show", path, "--json", *options)
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out, parse_constant=pytest.fail)


def lines(ask, path, *options) -> list[str]:
    answer = ask("show", path, *options)
    assert (answer.code, answer.err) == (0, "")
    return answer.out.splitlines()


def test_a_checkpoint_is_told_in_text(ask, save) -> None:
    """What it is, where it stands, and each part that it has, a line each."""
    shown = lines(ask, save())
    assert shown[0].endswith("end.ckpt")
    assert shown[1].startswith(f"  checkpoint of trainer_hooks {__version__}, format ")
    for line in (
        "  can be resumed from: yes, between two epochs, before epoch 1",
        "    optimizer_steps: 3",
        "    batches_completed: 3",
        "  weights: 2 tensors, 3 elements, float32 (2)",
        "    width: 2",
        "    0: torch.optim.adam.Adam, keeps step, exp_avg, exp_avg_sq for 2 parameters",
        "      count: 3",
        "      list: [0, 1, 2, 3, 4, 5, ...]",
        "      best: tensor(0.5)",
    ):
        assert line in shown, line
    assert any(line.startswith("    Counter{'what': 'batches'}") for line in shown)
    (options,) = [line for line in shown if line.startswith("      parameters 2, lr 0.01, ")]
    assert "betas (0.9, 0.999)" in options
    assert any(line.startswith("  random states: python, torch") for line in shown)
    assert not any(line.startswith("  gradients") for line in shown)


def test_it_begins_with_the_run_its_length_and_its_metrics(ask, tmp_path) -> None:
    """Whose it is, from when, how far it got and how good it is come before all else."""
    saver = ModelCheckpoint(monitor="val_loss")
    trainer = Trainer(
        max_epochs=2, default_root_dir=tmp_path, callbacks=[saver], accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(TinyModule())
    shown = lines(ask, saver.best_model_path)
    assert re.fullmatch(r"  saved: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+", shown[3])
    assert [line.strip() for line in (shown[2], *shown[4:8])] == [
        "module: TinyModule",
        f"logs: {tmp_path}/trainer_logs/version_0",
        "trained: 2 epochs, 6 optimizer steps, 12 samples",
        "can be resumed from: yes, at the end of epoch 1, after its end hooks",
        "metrics",
    ]
    assert f"    val_loss: {saver.best_model_score.item():.6g}" in shown[8:12]
    assert any(line.startswith("    ModelCheckpoint (state version") for line in shown)
    assert "every_n_epochs" not in "".join(shown)


def test_a_checkpoint_is_told_as_json(ask, save) -> None:
    """The same as data, with the callbacks' values whole."""
    path = save()
    found = told(ask, path)
    assert found["kind"] == "checkpoint of trainer_hooks"
    assert found["bytes"] == Path(path).stat().st_size
    assert found["version"] == __version__
    assert found["is_resumable"] is True
    assert found["counters"]["epoch"] == 1
    assert found["counters"]["optimizer_steps"] == 3
    assert found["counters"]["stage"] == "between"
    assert found["weights"]["list"] == [
        {"name": "layer.weight", "shape": [1, 2], "dtype": "float32", "bytes": 8},
        {"name": "layer.bias", "shape": [1], "dtype": "float32", "bytes": 4},
    ]
    assert found["hyperparameters"] == {"width": 2, "rate": 0.1}
    state = found["callbacks"]["Counter{'what': 'batches'}"]
    assert state["count"] == 3
    assert state["list"] == list(range(100))
    assert state["best"] == {"dtype": "float32", "shape": [], "values": 0.5}
    (group,) = found["optimizers"][0]["groups"]
    assert group["lr"] == pytest.approx(0.01)
    assert found["schedulers"][0]["last_epoch"] == 1


def test_the_sections_sum_up_to_the_file(ask, save) -> None:
    """Each section has its bytes and its share, and together they are the file."""
    path = save()
    sections = told(ask, path)["sections"]
    assert sum(part["bytes"] for part in sections) == Path(path).stat().st_size
    assert sum(part["share"] for part in sections) == pytest.approx(1)
    assert {"state_dict", "callbacks", "trainer_hooks.rng"} <= {part["name"] for part in sections}


def test_memory_that_is_shared_counts_once(ask, save, changed, tmp_path) -> None:
    """A tensor that two sections hold is written once, and counts in the first."""

    def change(checkpoint):
        big = torch.zeros(100_000)
        checkpoint["state_dict"]["big"] = big
        checkpoint["hyper_parameters"]["again"] = big[:10]

    sections = told(ask, changed(save(), tmp_path / "big.ckpt", change))["sections"]
    sizes = {part["name"]: part["bytes"] for part in sections}
    assert 400_000 < sizes["state_dict"] < 401_000
    assert sizes["hyper_parameters"] < 1000


def test_each_tensor_is_listed(ask, save) -> None:
    """`--tensors` adds a table of names, shapes, dtypes and bytes."""
    assert lines(ask, save(), "--tensors")[-4:] == [
        "tensor        shape   dtype    bytes",
        "------------------------------------",
        "layer.weight  (1, 2)  float32      8",
        "layer.bias    (1,)    float32      4",
    ]


def test_plugins_versions_and_gradients_are_told(ask, save, changed, tmp_path) -> None:
    """The plugins that took part, the versions of callback states, and gradients that are kept."""

    def change(checkpoint):
        record = {
            "distribution": "acme-hooks",
            "version": "2.1",
            "entry_point": "audit",
            "class": "Audit",
            "state_key": "Audit",
        }
        checkpoint["trainer_hooks"]["plugins"] = [record]
        checkpoint["trainer_hooks"]["state_versions"] = {"Counter{'what': 'batches'}": 4}
        checkpoint["trainer_hooks"]["gradients"] = {"layer.bias": torch.ones(1)}

    path = changed(save(), tmp_path / "plugged.ckpt", change)
    shown = lines(ask, path)
    assert "    acme-hooks 2.1: Audit by entry point 'audit', state key Audit" in shown
    assert "    Counter{'what': 'batches'} (state version 4)" in shown
    assert "  gradients: of 1 parameter" in shown
    assert told(ask, path)["plugins"][0]["distribution"] == "acme-hooks"


@pytest.mark.parametrize(
    ("stage", "place"),
    [
        ("batches", "yes, inside epoch 4, after batch 2 of 3"),
        ("validating", "yes, at the end of epoch 4, before the validation that may be due"),
        ("closing", "yes, at the end of epoch 4, before its end hooks are done"),
        ("ended", "yes, at the end of epoch 4, after its end hooks"),
        ("between", "yes, between two epochs, before epoch 4"),
        ("beyond", "yes, at the end of epoch 4, in an unknown stage"),
    ],
)
def test_the_place_is_told_in_words(stage, place, ask, save, changed, tmp_path) -> None:
    """Each stage of an epoch has its words."""

    def change(checkpoint):
        own = checkpoint["trainer_hooks"]
        progress = own.get("progress", checkpoint["loops"]["fit_loop"])
        progress.update(epochs_completed=4, batches_in_epoch=2, stage=stage)
        own["stream"]["num_batches"] = 3

    assert told(ask, changed(save(), tmp_path / "x.ckpt", change))["place"] == place


def test_a_place_inside_an_accumulation_window_is_told(ask, save, tmp_path) -> None:
    """Between two steps, the batches whose gradients are in the file are counted."""
    save(at={1: "cut.ckpt"}, options={"accumulate_grad_batches": 2})
    place = told(ask, tmp_path / "cut.ckpt")["place"]
    assert place.startswith("yes, inside epoch 0, after batch 1 of 3")
    assert "with the gradients of 1 batch accumulated" in place
    assert told(ask, tmp_path / "cut.ckpt")["gradients"] == ["layer.weight", "layer.bias"]


def test_weights_alone_are_told_as_such(ask, save) -> None:
    """A checkpoint of weights alone cannot be resumed from, and says so."""
    found = told(ask, save(weights_only=True))
    assert found["is_resumable"] is False
    assert found["place"] == "no: it holds weights alone"
    assert (found["callbacks"], found["optimizers"]) == ({}, [])


def test_a_lightning_checkpoint_is_shown_as_far_as_it_goes(ask, tmp_path) -> None:
    """Its weights, counters, optimizers and callbacks are told; what only we write is missing."""
    weights = {"layer.weight": torch.ones(1, 2)}
    optimizer = {"state": {}, "param_groups": [{"lr": 0.5, "params": [0]}]}
    torch.save(
        {
            "epoch": 3,
            "global_step": 7,
            "pytorch-lightning_version": "2.5.1",
            "state_dict": weights,
            "loops": {"fit_loop": {"epoch_progress": {}}},
            "callbacks": {"EarlyStopping{'monitor': 'x'}": {"wait_count": 2}},
            "optimizer_states": [optimizer],
            "lr_schedulers": [],
        },
        tmp_path / "l.ckpt",
    )
    shown = lines(ask, tmp_path / "l.ckpt")
    assert shown[1].startswith("  checkpoint of Lightning, laid out as Lightning 2.5.1, ")
    assert "    optimizer_steps: 7" in shown
    assert "      parameters 1, lr 0.5" in shown
    assert "      wait_count: 2" in shown


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("lightning-epoch-end", "yes, before epoch 2"),
        ("lightning-inside", "yes, inside epoch 1, after 2 batches, but not exactly"),
    ],
)
def test_where_a_lightning_checkpoint_goes_on(name, place, ask) -> None:
    """It is told where a fit goes on from a file of Lightning's, and that it is not exact."""
    found = told(ask, EXAMPLES / f"{name}.ckpt")
    assert found["place"].startswith(place)


@pytest.mark.parametrize("is_zip", [True, False])
def test_bare_weights_are_shown(is_zip, ask, tmp_path) -> None:
    """A state_dict by itself is shown, in torch's old file format too."""
    path = tmp_path / "weights.pt"
    torch.save({"a": torch.ones(3)}, path, _use_new_zipfile_serialization=is_zip)
    found = told(ask, path)
    assert (found["kind"], found["counters"]) == ("bare weights", {})
    assert found["weights"]["elements"] == 3


def test_safetensors_are_shown(ask, tmp_path) -> None:
    """A file of another tool is shown with its tensors."""
    from safetensors.torch import save_file

    save_file({"a": torch.ones(3, dtype=torch.bfloat16)}, tmp_path / "w.safetensors")
    found = told(ask, tmp_path / "w.safetensors")
    assert found["kind"] == "weights as safetensors"
    assert found["weights"]["dtypes"] == {"bfloat16": 1}


def test_strange_values_are_shown(ask, save, changed, tmp_path) -> None:
    """NaN, bytes, sets, tuples, sparse and complex tensors: all have a text, and JSON that is."""
    values = {
        "nan": float("nan"),
        "bytes": b"\x01\x02",
        "set": {2, 1},
        "tuple": (1, (2,)),
        1: "an int as key",
        "sparse": torch.eye(2).to_sparse(),
        "complex": torch.tensor([1j]),
        "huge": 10**400,
        "big": torch.zeros(2000),
        "integer": torch.tensor(7),
    }

    def change(checkpoint):
        checkpoint["callbacks"] = {"Strange": values, "Empty": {}, "None": None}

    path = changed(save(), tmp_path / "strange.ckpt", change)
    found = told(ask, path)["callbacks"]
    assert found["Strange"]["nan"] == "nan"
    assert found["Strange"]["bytes"] == {"bytes": "0102"}
    assert found["Strange"]["set"] == [1, 2]
    assert found["Strange"]["tuple"] == [1, [2]]
    assert found["Strange"]["1"] == "an int as key"
    assert found["Strange"]["sparse"]["values"] == [[1.0, 0.0], [0.0, 1.0]]
    assert found["Strange"]["big"] == {"dtype": "float32", "shape": [2000], "bytes": 8000}
    assert found["Empty"] == {}
    shown = lines(ask, path)
    assert "      integer: tensor(7)" in shown
    assert "      big: float32 tensor of shape (2000,)" in shown


def test_values_that_json_does_not_know() -> None:
    """Queues and NumPy's arrays are lists, paths and dates the text that they have."""
    values = {
        "deque": deque([1, 2], maxlen=2),
        "array": np.array([[1.5, math.nan]]),
        "number": np.float32(0.5),
        "path": PurePosixPath("a/b"),
        "date": dt.date(2026, 1, 31),
    }
    assert JsonWriter().write(values) == {
        "deque": [1, 2],
        "array": [[1.5, "nan"]],
        "number": 0.5,
        "path": "a/b",
        "date": "2026-01-31",
    }


def test_long_states_are_cut_in_text(ask, save, changed, tmp_path) -> None:
    """Of a state with many values the first are shown, and how many more there are."""

    def change(checkpoint):
        checkpoint["callbacks"] = {"Long": {f"value{n}": n for n in range(50)}}

    shown = lines(ask, changed(save(), tmp_path / "long.ckpt", change))
    assert "      and 30 more (--json tells all)" in shown


def test_what_would_steer_a_terminal_is_written_out(ask, save, changed, tmp_path) -> None:
    """A name with escape sequences in it is shown, and does nothing."""

    def change(checkpoint):
        checkpoint["callbacks"] = {"\x1b[2J\nX": {"\x1b[31m": "\x1b]0;title\x07"}}
        checkpoint["state_dict"]["\x1b[31mred"] = torch.ones(1)

    path = changed(save(), tmp_path / "\x1b[31mred.ckpt", change)
    text = ask("show", path, "--tensors").out
    assert "\x1b" not in text
    assert "\\x1b[2J\\nX" in text


@pytest.mark.parametrize(
    "parts",
    [
        {"callbacks": [1], "optimizer_states": 3, "loops": [], "trainer_hooks": {}},
        {"optimizer_states": [1, {"param_groups": [2], "state": []}], "trainer_hooks": {}},
        {"trainer_hooks": {"format": "x", "rng": 1, "plugins": [1], "metrics": 2}},
        {"trainer_hooks": 1, "hyper_parameters": "x", "lr_schedulers": [None], "epoch": "y"},
        {"trainer_hooks": {"rng": {}}, "optimizer_states": [], "loops": {"fit_loop": 1}},
    ],
)
def test_a_checkpoint_with_strange_parts_is_shown(parts, ask, tmp_path) -> None:
    """What another tool, or a bug, put in the place of a part is no reason to fail."""
    torch.save({"state_dict": {"a": torch.ones(1)}, **parts}, tmp_path / "s.ckpt")
    assert told(ask, tmp_path / "s.ckpt")["weights"]["tensors"] == 1
    assert lines(ask, tmp_path / "s.ckpt")


@pytest.mark.parametrize(
    "change", [lambda content: content[:-20], lambda content: content + b"0" * 9]
)
def test_a_file_that_every_load_refuses_is_not_shown(change, ask, save) -> None:
    """torch opens it; its end says that it is not as it was written."""
    path = Path(save())
    path.write_bytes(change(path.read_bytes()))
    answer = ask("show", path)
    assert answer.code == 2
    assert "its end is missing or damaged" in answer.err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_is_drawn_on_a_terminal(save, monkeypatch) -> None:
    """A tree and a table on a screen of 80 columns; keys with brackets are shown as they are."""
    path = save()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["checkpoint", "show", path]) == 0
    screen = pyte.Screen(80, 200)
    pyte.Stream(screen).feed(terminal.getvalue().replace("\n", "\r\n"))
    text = "\n".join(screen.display)
    assert "├── callbacks" in text
    assert "Counter{'what': 'batches'}" in text
    assert "list: [0, 1, 2, 3, 4, 5, ...]" in text
    assert any(line.split()[:1] == ["trainer_hooks.rng"] for line in screen.display)


_IN_A_PROCESS = """
import resource, sys
from trainer_hooks.cli.main import main
from trainer_hooks.cli.values import JsonWriter
from trainer_hooks.testing import TinyModule
def read():
    return int(open("/proc/self/io").read().split()[1])
import torch, trainer_hooks.cli.checkpoint.show
before, memory = read(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert main(["checkpoint", "show", sys.argv[1]]) == 0
print(read() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux tells what was read")
@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_the_tensors_are_not_read(suffix, tmp_path) -> None:
    """Of a file of 4 GB a few megabytes are read, and not more than that is held in memory."""
    path = tmp_path / f"big{suffix}"
    if suffix == ".ckpt":
        with torch.serialization.skip_data():  # leaves holes in the file, which take no room
            torch.save({"state_dict": {"big": torch.empty(2**30)}, "epoch": 1}, path)
    else:
        header = {"big": {"dtype": "F32", "shape": [2**30], "data_offsets": [0, 2**32]}}
        text = json.dumps(header).encode().ljust(88)
        with path.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + 2**32)
    assert path.stat().st_size > 4e9
    done = warm_python.run(
        [sys.executable, "-c", textwrap.dedent(_IN_A_PROCESS), str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "weights: 1 tensor, 1,073,741,824 elements" in done.stdout
    bytes_read, kilobytes = map(int, done.stdout.splitlines()[-1].split())
    assert bytes_read < 10_000_000
    assert kilobytes < 100_000


def test_weights_that_are_no_tensors_are_named(ask, tmp_path) -> None:
    """Weights that are no tensors, such as a module's extra state, are named."""
    path = write_checkpoint({"state_dict": {"a": torch.ones(1), "_extra_state": 3}}, tmp_path / "e")
    shown = lines(ask, path)
    assert "    no tensors: _extra_state" in shown
    assert shown[1].startswith("  checkpoint of another tool, ")
