"""A stored checkpoint is read and resumed from; files of other formats are refused."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.checkpoint.parts import FORMAT
from trainer_hooks.errors import CheckpointError


@pytest.fixture
def example(examples):
    """A file that an earlier build wrote; each format from the first kept on has one."""
    [path] = examples.glob("format-*.ckpt")
    assert path.name == f"format-{FORMAT}.ckpt"
    return path


def test_the_example_is_resumed_from(example, example_run, tmp_path):
    """From it a run goes on as the same run that was never cut."""
    whole, resumed = example_run.Counter(), example_run.Counter()
    uncut = example_run.train([whole], tmp_path)
    trainer = example_run.train([resumed], tmp_path, ckpt_path=example)
    assert trainer.load_report.restored == ("Counter",)
    assert resumed.count == whole.count == 15
    assert resumed.seen == example_run.Counter().seen
    assert trainer.progress == uncut.progress
    assert trainer.clock.samples == uncut.clock.samples
    expected = uncut.module.state_dict()
    for name, value in trainer.module.state_dict().items():
        # the file was made with one release of torch, and this may be another
        torch.testing.assert_close(value, expected[name])


def test_the_example_has_the_keys_of_a_new_file(example, example_run, tmp_path):
    """A change of the layout needs a new number, and a file of the layout before it."""
    new = tmp_path / "new.ckpt"
    example_run.train([example_run.Counter(), example_run.Cutter(new)], tmp_path)
    older, newer = load_checkpoint(example), load_checkpoint(new)
    assert set(older) == set(newer)
    assert set(older["trainer_hooks"]) == set(newer["trainer_hooks"])
    for key in ("loops", "callbacks"):
        assert older[key] == newer[key]
    for key in ("state_versions", "progress"):
        assert older["trainer_hooks"][key] == newer["trainer_hooks"][key]


def test_the_examples_weights_are_loaded(example, example_run):
    """Module.load_from_checkpoint takes it."""
    module = example_run.Net.load_from_checkpoint(example)
    assert module.hparams == {"width": 3, "rate": 0.1}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (FORMAT + 1, f"saved by trainer_hooks 9.9: this version knows formats up to {FORMAT}"),
        (FORMAT - 1, f"before its first version: this version reads format {FORMAT}. Load its"),
    ],
)
def test_another_format_is_refused_by_every_reader(example, example_run, tmp_path, number, text):
    """The file is named with its format and the cure; its weights are not used."""
    stored = torch.load(example, weights_only=True)
    stored["trainer_hooks"].update(format=number, version="9.9")
    torch.save(stored, tmp_path / "new.ckpt")
    text = f"has format {number}, .*{text}"
    with pytest.raises(CheckpointError, match=text):
        example_run.Net.load_from_checkpoint(tmp_path / "new.ckpt")
    with pytest.raises(CheckpointError, match=text):
        example_run.train([], tmp_path, ckpt_path=tmp_path / "new.ckpt")


def holding_itself():
    loop = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trainer_hooks": 3}, "says nothing of its format"),
        ({"trainer_hooks": {"format": True}}, "says nothing of its format"),
        ({"trainer_hooks": {"format": 0}}, "says nothing of its format"),
        ({"trainer_hooks": {"format": "2"}}, "says nothing of its format"),
        ({"callbacks": 5}, "callbacks"),
        ({"callbacks": {"a": holding_itself()}}, "a.ckpt"),
    ],
    ids=str,
)
def test_a_file_that_is_not_what_it_says_is_one_clear_error(example, tmp_path, changes, said):
    """A damaged or foreign section is refused by the file's name, with no other exception."""
    stored = torch.load(example, weights_only=True)
    torch.save({**stored, **changes}, tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match=said):
        load_checkpoint(tmp_path / "a.ckpt")
