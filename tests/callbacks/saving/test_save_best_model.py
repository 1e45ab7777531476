"""SaveBestModelCallback beside what it saves at the end of epochs."""

from __future__ import annotations

import os
import signal

import pytest

from trainer_hooks import Callback
from trainer_hooks.callbacks import SaveBestModelCallback
from trainer_hooks.errors import TerminationSignal
from trainer_hooks.testing import TinyModule


class InSecondEpoch(Callback):
    """Does something after the first batch of the second epoch, when the file is there."""

    def __init__(self, action) -> None:
        self.action = action

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.current_epoch == 1 and batch_idx == 0:
            self.action(trainer)


def test_a_checkpoint_asked_for_stands_beside_the_best(quiet_trainer, tmp_path) -> None:
    """It has a name of its own, and the best one stays as it is."""
    saver = SaveBestModelCallback(tmp_path / "best.pt")
    ask = InSecondEpoch(lambda trainer: trainer.request_checkpoint())
    trainer = quiet_trainer(callbacks=[saver, ask], enable_checkpointing=True, max_epochs=2)
    trainer.fit(TinyModule())
    assert {path.name for path in tmp_path.glob("*.pt")} == {"best.pt", "best-v1.pt"}
    assert saver.best_model_path == str(tmp_path / "best.pt")


@pytest.mark.parametrize("resumable", [True, False])
def test_a_run_that_makes_way_is_found_again(quiet_trainer, tmp_path, resumable) -> None:
    """A signal leaves all that a resume needs, which `ckpt_path="last"` finds; then it goes."""

    def make(*others):
        options = {"save_optimizer": resumable, "save_scheduler": resumable}
        saver = SaveBestModelCallback(tmp_path / "best.pt", **options)
        return quiet_trainer(callbacks=[saver, *others], enable_checkpointing=True, max_epochs=3)

    leave = InSecondEpoch(lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(TerminationSignal):
        make(leave).fit(TinyModule())
    (left,) = tmp_path.glob("preempted-*.pt")
    trainer = make()
    trainer.fit(TinyModule(), ckpt_path="last")
    assert trainer.ckpt_path == str(left)
    assert trainer.current_epoch == 3
    assert {path.name for path in tmp_path.glob("*.pt")} == {"best.pt"}
