"""A requested file of weights alone is there once, wherever the process was killed."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import Callback
from trainer_hooks.callbacks import ModelCheckpoint


class Asking(Callback):
    """Requests a checkpoint once; raises after so many files were saved."""

    def __init__(self, most: int = 9) -> None:
        self.left = most

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.progress.batches_completed == 3:
            trainer.request_checkpoint()

    def on_checkpoint_saved(self, trainer, module, path) -> None:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError


@pytest.mark.parametrize("most", [1, 2])
def test_a_resume_saves_no_second_file_of_weights(lab, kit, most) -> None:
    """Cut after the whole checkpoint, or after the weights too: the files are those of one run."""

    def setup(name, **options):
        where = {"dirpath": kit.folder / name, "every_n_train_steps": 99}
        weights = ModelCheckpoint(
            monitor="loss", filename="weights", save_weights_only=True, **where
        )
        return kit.Setup(
            kit.Net(), DataLoader(kit.Samples(), kit.BATCH_SIZE),
            callbacks=[weights, ModelCheckpoint(**where), Asking(**options)],
        )  # fmt: skip

    lab.run(lambda: setup("one"), "uncut")
    with pytest.raises(RuntimeError):
        lab.run(lambda: setup("two", most=most), "cut")
    # a path that the user named could be of a run that has ended: its files would stay
    lab.run(lambda: setup("two"), "resumed", "auto")
    one, two = (sorted(p.name for p in (kit.folder / name).iterdir()) for name in ("one", "two"))
    assert one == two == ["epoch=0-step=3.ckpt", "weights.ckpt"]


@pytest.mark.slow
def test_a_requested_file_leaves_the_one_alone_that_the_resume_has_saved_again(lab, kit) -> None:
    """The file of a fixed name was saved before the cut and after it; the request comes later."""

    def setup(name, **options):
        where = {"dirpath": kit.folder / name}
        weights = ModelCheckpoint(
            filename="weights", save_weights_only=True, every_n_train_steps=2,
            enable_version_counter=False, **where,
        )  # fmt: skip
        whole = ModelCheckpoint(every_n_train_steps=1, save_top_k=-1, **where)
        return kit.Setup(
            kit.Net(), DataLoader(kit.Samples(), kit.BATCH_SIZE),
            callbacks=[weights, whole, Asking(**options)], options={"max_steps": 3},
        )  # fmt: skip

    def steps(name):
        files = (kit.folder / name).glob("weights*")
        return {path.stem: torch.load(path, weights_only=True)["global_step"] for path in files}

    lab.run(lambda: setup("one"), "uncut")
    with pytest.raises(RuntimeError):
        lab.run(lambda: setup("two", most=2), "cut")
    assert steps("two") == {"weights": 2}
    lab.run(lambda: setup("two"), "resumed", "auto")
    assert steps("two") == steps("one") == {"weights": 2, "weights-v1": 3}
