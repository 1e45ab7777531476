"""Checkpoints of every format so far, one file each, are read and resumed from."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.checkpoint.migrations import FORMAT, MIGRATIONS, migrate
from trainer_hooks.errors import CheckpointError

OLDER = range(1, FORMAT)


def test_every_older_format_has_an_example(examples):
    """A new format cannot come without a file of the one that it replaces."""
    names = sorted(path.name for path in examples.glob("format-*.ckpt"))
    assert names == [f"format-{number}.ckpt" for number in OLDER]
    assert len(MIGRATIONS) == len(OLDER)
    for number in OLDER:
        stored = torch.load(examples / f"format-{number}.ckpt", weights_only=True)
        assert stored["trainer_hooks"]["format"] == number


@pytest.mark.parametrize("number", OLDER)
def test_an_example_is_resumed_from(examples, example_run, tmp_path, number):
    """From an older file a run goes on as the same run that was never cut."""
    whole, resumed = example_run.Counter(), example_run.Counter()
    uncut = example_run.train([whole], tmp_path)
    path = examples / f"format-{number}.ckpt"
    trainer = example_run.train([resumed], tmp_path, ckpt_path=path)
    assert trainer.load_report.restored == ("Counter",)
    assert resumed.count == whole.count == 15
    assert resumed.seen == example_run.Counter().seen
    # format 1 does not say how many samples there were before
    unknown = {"samples_completed": uncut.progress.samples_completed} if number == 1 else {}
    assert replace(trainer.progress, **unknown) == uncut.progress
    assert (0 < trainer.clock.samples < uncut.clock.samples) is (number == 1)
    assert trainer.clock.batches_in_epoch == uncut.clock.batches_in_epoch
    expected = uncut.module.state_dict()
    for name, value in trainer.module.state_dict().items():
        # the file was made with one release of torch, and this may be another
        torch.testing.assert_close(value, expected[name])


@pytest.mark.parametrize("number", OLDER)
def test_an_example_has_the_keys_of_a_new_file(examples, example_run, tmp_path, number):
    """What an older file becomes has the form that the present code writes."""
    new = tmp_path / "new.ckpt"
    example_run.train([example_run.Counter(), example_run.Cutter(new)], tmp_path)
    older, newer = load_checkpoint(examples / f"format-{number}.ckpt"), load_checkpoint(new)
    assert set(older) == set(newer)
    # up to format 2 a file does not say with what settings it was saved, and whose turn it was
    unknown = {"setup", "slot"} if number <= 2 else set()
    assert set(older["trainer_hooks"]) == set(newer["trainer_hooks"]) - unknown
    assert older["trainer_hooks"]["state_versions"] == newer["trainer_hooks"]["state_versions"]
    assert older["loops"] == newer["loops"]
    assert older["callbacks"] == newer["callbacks"]
    assert older["trainer_hooks"]["progress"].items() <= newer["trainer_hooks"]["progress"].items()


@pytest.mark.parametrize("number", OLDER)
def test_an_examples_weights_are_loaded(examples, example_run, number):
    """Module.load_from_checkpoint takes an older file."""
    module = example_run.Net.load_from_checkpoint(examples / f"format-{number}.ckpt")
    assert module.hparams == {"width": 3, "rate": 0.1}


def test_a_present_file_is_left_alone():
    """Nothing is done to a checkpoint of the present format."""
    checkpoint = {"trainer_hooks": {"format": FORMAT, "version": "1"}, "a": [1]}
    assert migrate(checkpoint, "a.ckpt") == checkpoint


def test_what_was_read_is_not_changed(examples):
    """A migration returns another checkpoint, and leaves the one that it was given."""
    stored = torch.load(examples / "format-1.ckpt", weights_only=True)
    before = set(stored["trainer_hooks"]), stored["loops"]
    migrate(stored, "a.ckpt")
    assert (set(stored["trainer_hooks"]), stored["loops"]) == before


def test_a_newer_format_is_refused_by_every_reader(examples, example_run, tmp_path):
    """A file from the future is named with its format and version; its weights are not used."""
    stored = torch.load(examples / "format-1.ckpt", weights_only=True)
    stored["trainer_hooks"].update(format=FORMAT + 1, version="9.9")
    torch.save(stored, tmp_path / "new.ckpt")
    text = rf"has format {FORMAT + 1}, saved by trainer_hooks 9.9: this version knows formats up to"
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
        ({"loops": 5}, "is not what a file of format 1 is"),
        ({"loops": {"fit_loop": {}}}, "is not what a file of format 1 is"),
        ({"callbacks": 5}, "is not what a file of format 1 is"),
        ({"callbacks": {"a": holding_itself()}}, "is not what a file of format 1 is"),
    ],
    ids=str,
)
def test_a_file_that_is_not_what_it_says_is_one_clear_error(examples, tmp_path, changes, said):
    """A damaged or foreign section is refused by the file's name, with no other exception."""
    stored = torch.load(examples / "format-1.ckpt", weights_only=True)
    torch.save({**stored, **changes}, tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match=said):
        load_checkpoint(tmp_path / "a.ckpt")
