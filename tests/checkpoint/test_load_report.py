"""What a resume says of what it restored."""

from __future__ import annotations

import pytest

from trainer_hooks import Callback
from trainer_hooks.errors import TrainerHooksWarning


class Counter(Callback):
    count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state_dict):
        self.count = state_dict["count"]


class Other(Counter):
    pass


def test_a_resume_says_once_where_it_goes_on(example_run, examples, tmp_path, capsys):
    """Place and restored states are printed when the training goes on, and kept."""
    path = examples / "format-1.ckpt"
    trainer = example_run.train([example_run.Counter()], tmp_path, ckpt_path=path)
    assert capsys.readouterr().out == (
        f"resuming from {str(path)!r}: epoch 1, step 4, after 2 batches; "
        "callback states restored: Counter\n"
    )
    assert trainer.load_report.restored == ("Counter",)
    assert trainer.load_report.summary == ""


def test_what_differs_is_in_the_one_warning(example_run, examples, tmp_path, capsys):
    """Missing and unexpected states are warned of, and not printed a second time."""
    with pytest.warns(TrainerHooksWarning, match="no state for 'Other'; state without") as said:
        trainer = example_run.train([Other()], tmp_path, ckpt_path=examples / "format-1.ckpt")
    assert len(said) == 1
    out = capsys.readouterr().out
    assert "callback states restored: none" in out
    assert "Other" not in out
    assert (trainer.load_report.missing, trainer.load_report.unexpected) == (
        ("Other",),
        ("Counter",),
    )


def test_weights_for_an_evaluation_are_no_resume(fitted, tmp_path, net_type, capsys):
    """predict, and so validate and test, say nothing of a training's place."""
    trainer = fitted()
    trainer.save_checkpoint(tmp_path / "a.ckpt")

    class Predicting(net_type):
        def predict_step(self, batch, batch_idx):
            return batch

    trainer.predict(Predicting(), [[0]], ckpt_path=tmp_path / "a.ckpt")
    assert capsys.readouterr().out == ""
    assert trainer.load_report is None or trainer.load_report.upgraded == ()


def test_without_a_checkpoint_there_is_no_report(fitted, capsys):
    """A run from nothing prints nothing and has no report."""
    assert fitted().load_report is None
    assert capsys.readouterr().out == ""
