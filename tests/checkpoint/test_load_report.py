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


def test_a_resume_says_once_where_it_goes_on(example_run, examples, tmp_path, caplog, monkeypatch):
    """The place, and how many states were restored, are told in one short line; all is kept."""
    path = examples / "format-4.ckpt"
    monkeypatch.chdir(tmp_path)  # away from the file: what is below is shown as seen from here
    with caplog.at_level("INFO", "trainer_hooks"):
        trainer = example_run.train([example_run.Counter()], tmp_path, ckpt_path=path)
    [told] = [line for line in caplog.messages if line.startswith("resuming from")]
    assert told == (
        f"resuming from {str(path)!r} at epoch 1, step 4, after 2 batches "
        "(callback states restored: 1)"
    )
    assert trainer.load_report.restored == ("Counter",)
    assert trainer.load_report.summary == ""


def test_what_differs_is_in_the_one_warning(example_run, examples, tmp_path, caplog):
    """Missing and unexpected states are warned of, and not told a second time."""
    with (
        caplog.at_level("INFO", "trainer_hooks"),
        pytest.warns(TrainerHooksWarning, match="no state for 'Other'; state without") as said,
    ):
        trainer = example_run.train([Other()], tmp_path, ckpt_path=examples / "format-4.ckpt")
    assert len(said) == 1
    assert "callback states restored: 0" in caplog.text
    assert "Other" not in caplog.text
    assert (trainer.load_report.missing, trainer.load_report.unexpected) == (
        ("Other",),
        ("Counter",),
    )


def test_weights_for_an_evaluation_are_no_resume(fitted, tmp_path, net_type, capsys, caplog):
    """predict, and so validate and test, name the file, and resume no training."""
    trainer = fitted()
    trainer.save_checkpoint(tmp_path / "a.ckpt")

    class Predicting(net_type):
        def predict_step(self, batch, batch_idx):
            return batch

    caplog.clear()
    caplog.set_level("INFO", "trainer_hooks")
    trainer.predict(Predicting(), [[0]], ckpt_path=tmp_path / "a.ckpt")
    path = str(tmp_path / "a.ckpt")
    assert caplog.messages == [f"predict: weights of {path!r} (epoch 1, step 2)"]
    assert capsys.readouterr().out == ""
    assert trainer.load_report is None or trainer.load_report.upgraded == ()


def test_without_a_checkpoint_there_is_no_report(fitted, capsys):
    """A run from nothing prints nothing and has no report."""
    assert fitted().load_report is None
    assert capsys.readouterr().out == ""
