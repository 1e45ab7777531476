"""How short the way is from an entry point to the user's code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import trainer_hooks
import trainer_hooks.compat.lightning as pl
from trainer_hooks import Callback

PACKAGE = str(Path(trainer_hooks.__file__).parent)


def library_frames(until: str) -> list[tuple[str, str]]:
    """Return file and function of the library's frames from here up to the function `until`."""
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            frames.append((Path(code.co_filename).name, code.co_name))
            if code.co_name == until:
                return frames
        frame = frame.f_back
    raise AssertionError(f"{until} did not call this: {frames}")


def test_from_fit_to_a_training_step(bare, tiny, batches) -> None:
    """Five frames in three files lie between the call of fit and the user's training_step."""
    found = []

    class Looks(tiny):
        def training_step(self, batch, batch_idx):
            found.append(library_frames("fit"))
            return super().training_step(batch, batch_idx)

    bare().fit(Looks(), batches(2))
    assert len(found) == 2
    for frames in found:
        assert len(frames) <= 5, frames
        assert len({file for file, _ in frames}) <= 3, frames


@pytest.mark.filterwarnings("ignore:.*nothing calls the method 'on_epoch_end'")
def test_names_left_to_the_user_cost_no_frame(bare, tiny, batches) -> None:
    """A LightningModule's step is as near, also where the module uses our names for its own."""
    found = []

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.num_samples, self.split_batch = 5, None
            self.layer = tiny().layer

        def training_step(self, batch, batch_idx):
            found.append(library_frames("fit"))
            return self.layer(batch[0]).sum()

        def on_epoch_end(self, metrics):
            raise AssertionError

        def configure_optimizers(self):
            return None

    bare().fit(Net(), batches(2))
    assert [len(frames) for frames in found] == [5, 5]


@pytest.mark.parametrize("base", [Callback, pl.Callback])
def test_from_the_loop_to_a_hook(base, bare, tiny, batches) -> None:
    """The relay's is the one frame between the loop's and a callback's hook."""
    found = {}

    class Looks(base):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            found["batch"] = library_frames("_epoch")

        def on_train_start(self, trainer, module):
            found["fit"] = library_frames("_open_training")

        def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx):
            found["validation"] = library_frames("_end_batch")

    bare(Looks()).fit(tiny(), batches(1), batches(1))
    assert found == {
        "batch": [("relay.py", "fire"), ("fit.py", "_epoch")],
        "fit": [("relay.py", "fire"), ("fit.py", "_open_training")],
        "validation": [("relay.py", "fire"), ("evaluation.py", "_end_batch")],
    }
