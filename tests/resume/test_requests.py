"""A run in which validations and checkpoints are asked for is resumed as if it had not been cut."""

from __future__ import annotations

import pytest
import torch
from samples import one_in
from torch.utils.data import DataLoader

from trainer_hooks import Callback
from trainer_hooks.callbacks import Checkpoint, ModelCheckpoint

pytestmark = [
    pytest.mark.slow,  # each saves at every place of a run, and resumes from all of them
    # what these look at does not depend on the place
    pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook"),
]


def calls_of(trainer, recorder) -> list:
    return next(c for c in trainer.callbacks if isinstance(c, recorder)).calls


class Asking(Callback):
    """Asks for both at a hook, at some numbers of completed batches."""

    def __init__(self, hook: str, at: set[int]) -> None:
        self.hook, self.at = hook, at

    def run_event(self, event: str, *args) -> None:
        if event == self.hook and args[0].progress.batches_completed in self.at:
            args[0].request_validation()
            args[0].request_checkpoint()


class OnRequest(Checkpoint):
    """Saves on request, and notes where in the recorder's calls."""

    def __init__(self, folder, recorder) -> None:
        self.folder, self.recorder = folder, recorder
        self.cuts: list[tuple] = []

    def save_now(self, trainer, module) -> None:
        path = self.folder / f"requested-{len(self.cuts)}-{trainer.progress.stage}.ckpt"
        trainer.save_checkpoint(path)
        self.cuts.append((path, len(calls_of(trainer, self.recorder))))


class ByHand(Callback):
    """Saves once, in any hook."""

    def __init__(self, hook: str, at: int, path, recorder) -> None:
        self.hook, self.at, self.path, self.recorder = hook, at, path, recorder

    def run_event(self, event: str, *args) -> None:
        is_due = event == self.hook and args[0].progress.batches_completed == self.at
        if is_due and not self.path.exists():
            args[0].save_checkpoint(self.path)
            self.calls_before = len(calls_of(args[0], self.recorder))


def setup(kit, *callbacks, **options):
    data = DataLoader(kit.Samples(), batch_size=4, shuffle=True)
    val = DataLoader(
        kit.Samples(11), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(2)
    )

    class Noisy(kit.Net):
        def validation_step(self, batch, batch_idx):
            super().validation_step((batch[0] + torch.randn(3), *batch[1:]), batch_idx)

    return kit.Setup(Noisy(), data, val, options, list(callbacks))


OPTIONS = [{}, {"val_check_interval": 0.4, "accumulate_grad_batches": 2}]
ASKED = {2, 5, 8, 10}
HOOKS = ["on_train_batch_start", "on_train_batch_end", "on_batch_checkpoint", "on_train_epoch_end"]


@pytest.mark.parametrize("options", OPTIONS, ids=["at end", "inside"])
@pytest.mark.parametrize("hook", one_in(2, HOOKS))
def test_cut_at_any_slot(hook, options, lab, kit) -> None:
    """From a slot on, a run that asks for validations is the same run."""
    saver = {"dirpath": lab.folder / "saved", "enable_version_counter": False}

    def make():
        return setup(kit, Asking(hook, ASKED), ModelCheckpoint(**saver), **options)

    assert lab.check(make) == 18


@pytest.mark.parametrize("options", OPTIONS, ids=["at end", "inside"])
@pytest.mark.parametrize("hook", one_in(2, HOOKS))
def test_resumed_from_what_was_asked_for(hook, options, lab, kit) -> None:
    """A file saved on request resumes exactly, and asks for nothing itself."""
    saver = OnRequest(lab.folder / "saved", kit.Recorder)
    uncut = lab.run(lambda: setup(kit, Asking(hook, ASKED), saver, **options), "uncut")
    assert len(saver.cuts) == (2 if hook == "on_train_epoch_end" else 4)
    for number, (path, calls_before) in enumerate(saver.cuts):
        counters = torch.load(path, weights_only=True)["trainer_hooks"]["progress"]
        assert not counters["is_checkpoint_requested"]
        again = OnRequest(lab.folder / f"again-{number}", kit.Recorder)
        resumed = lab.run(
            lambda again=again: setup(kit, Asking(hook, ASKED), again, **options),
            f"resumed-{number}",
            path,
            seed=77,
        )
        lab.compare(uncut, resumed, calls_before, path.stem)
        assert len(again.cuts) == len(saver.cuts) - 1 - number


@pytest.mark.filterwarnings("ignore:the checkpoint was saved inside batch")
@pytest.mark.parametrize("options", OPTIONS, ids=["at end", "inside"])
@pytest.mark.parametrize(
    ("asked", "saved", "at"),
    [
        ("on_train_batch_start", "on_train_batch_start", 2),
        ("on_train_batch_end", "on_train_batch_end", 2),
        ("on_train_batch_end", "on_train_batch_end", 5),
        ("on_train_batch_end", "on_batch_checkpoint", 2),
        ("on_train_batch_end", "on_validation_batch_start", 3),
        ("on_batch_checkpoint", "on_before_dataloader", 2),
        ("on_train_batches_end", "on_train_batches_end", 5),
        ("on_train_epoch_end", "on_train_epoch_end", 5),
        ("on_epoch_checkpoint", "on_train_epoch_start", 10),
    ],
)
def test_a_request_that_was_not_served_yet(asked, saved, at, options, lab, kit) -> None:
    """A checkpoint that somebody else saves in between carries both; the resume serves them."""
    path = lab.folder / "between.ckpt"
    first = OnRequest(lab.folder / "first", kit.Recorder)
    by_hand = ByHand(saved, at, path, kit.Recorder)
    uncut = lab.run(lambda: setup(kit, Asking(asked, {at}), by_hand, first, **options), "uncut")
    counters = torch.load(path, weights_only=True)["trainer_hooks"]["progress"]
    # a checkpoint that is asked for in a slot is saved in it
    is_open = asked not in {"on_batch_checkpoint", "on_epoch_checkpoint"}
    assert counters["is_checkpoint_requested"] is is_open
    # one that is due comes before the slot of the batch
    assert counters["is_validation_requested"] is (saved != "on_batch_checkpoint")
    # nobody asks in the resumed run: what is served comes out of the file
    again = OnRequest(lab.folder / "again", kit.Recorder)
    resumed = lab.run(lambda: setup(kit, again, **options), "resumed", path, seed=77)
    assert [cut[0].name for cut in again.cuts] == [cut[0].name for cut in first.cuts if is_open]
    assert len(first.cuts) == 1
    assert kit.differences(uncut.end["state_dict"], resumed.end["state_dict"]) == []
    assert kit.differences(uncut.end["loops"], resumed.end["loops"]) == []
    assert kit.differences(uncut.metrics, resumed.metrics) == []
    expected = uncut.recorder.calls[by_hand.calls_before :]
    validations = [call for call in expected if call[0] == "on_validation_end"]
    assert validations == [c for c in resumed.recorder.calls if c[0] == "on_validation_end"]
