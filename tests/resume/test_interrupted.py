"""What Ctrl-C, SIGTERM or a fault leaves behind is resumed as if nothing had happened."""

from __future__ import annotations

import os
import signal
from itertools import product
from typing import Any

import pytest
import torch
from samples import one_in
from torch.utils.data import DataLoader

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import TerminationSignal

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:a checkpoint was saved in the hook"  # these do not depend on the place
    ),
    pytest.mark.usefixtures("handlers"),
]


class Breaker(Callback):
    """Does something once, when a hook is called for the n-th time."""

    def __init__(self, hook: str, time: int, action) -> None:
        self.hook, self.left, self.action = hook, time, action

    def run_event(self, event: str, *args) -> None:
        trainer = args[0]
        if event == self.hook and not trainer.sanity_checking:
            self.left -= 1
            if self.left == 0:
                self.action(trainer)


def interrupt(trainer) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def terminate(trainer) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def preempt(trainer) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def fail(trainer) -> None:
    raise ValueError("the disk of the data set is gone")


class Idle(Callback):
    """Takes the place of a Breaker where nothing is broken off."""


def setup(kit, folder, options, breaker=None):
    data = DataLoader(kit.Samples(), batch_size=4, shuffle=True)
    val = DataLoader(
        kit.Samples(11), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(2)
    )

    class Noisy(kit.Net):
        def validation_step(self, batch, batch_idx):
            super().validation_step((batch[0] + torch.randn(3), *batch[1:]), batch_idx)

    saver = ModelCheckpoint(
        folder, save_on_exception=True, save_top_k=0, enable_version_counter=False
    )
    return kit.Setup(Noisy(), data, val, options, [breaker or Idle(), saver])


def broken_off(kit, lab, error, options, breaker):
    """Run until `error`; return the file that it left."""
    with pytest.raises(error):
        lab.run(lambda: setup(kit, lab.folder / "saved", options, breaker), "broken")
    files = list((lab.folder / "saved").glob("*.ckpt"))
    kind = "preempted" if error is TerminationSignal else "exception"
    assert [file.name.partition("-")[0] for file in files] == [kind]
    return files[0]


def compare_ends(lab, kit, file, options):
    def make():
        return setup(kit, lab.folder / "saved", options)

    uncut = lab.run(make, "uncut")
    resumed = lab.run(make, "resumed", file, seed=77)
    assert kit.differences(uncut.end, resumed.end) == []
    calls = resumed.recorder.after("on_train_start")
    assert len(calls) > 5
    assert kit.differences(uncut.recorder.calls[-len(calls) :], calls) == []
    seen = resumed.module.seen
    assert kit.differences(uncut.module.seen[-len(seen) :], seen) == []


def some_of(*tables: dict[str, Any]) -> list[Any]:
    """Return all combinations of named values as parameters, of which one in five is run always."""
    chosen = [zip(*items, strict=True) for items in product(*(table.items() for table in tables))]
    return one_in(5, [pytest.param(*values, id="-".join(names)) for names, values in chosen])


SIGNALS = {"SIGINT": interrupt, "SIGTERM": terminate, "SIGUSR1": preempt}
ENDS = {"SIGINT": interrupt, "fault": fail, "SIGTERM": terminate}
OPTIONS = {"at end": {}, "inside": {"val_check_interval": 0.4}}


def moments(*calls: tuple[str, int]) -> dict[str, tuple[str, int]]:
    """Return hooks with the call of each, by a name."""
    return {f"{hook} {time}": (hook, time) for hook, time in calls}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "action"),
    some_of(
        moments(
            ("on_train_batch_start", 1),
            ("on_before_backward", 3),
            ("on_train_batch_end", 5),
            ("on_train_batch_end", 7),
            ("on_batch_checkpoint", 8),
            ("on_train_epoch_start", 2),
            ("on_epoch_checkpoint", 1),
        ),
        SIGNALS,
    ),
)
def test_a_signal_leaves_a_checkpoint_that_is_resumed_exactly(lab, kit, action, moment):
    """A signal during a batch, or between epochs, is heeded where a resume is exact."""
    options = {"accumulate_grad_batches": 2}
    error = KeyboardInterrupt if action is interrupt else TerminationSignal
    file = broken_off(kit, lab, error, options, Breaker(*moment, action))
    compare_ends(lab, kit, file, options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "action", "options"),
    some_of(
        moments(
            ("on_validation_run_start", 2),
            ("on_validation_batch_start", 2),
            ("on_validation_batch_end", 5),
            ("on_validation_end", 1),
        ),
        ENDS,
        OPTIONS,
    ),
)
def test_a_validation_that_is_broken_off_is_run_again_from_its_start(
    lab, kit, options, action, moment
):
    """What breaks off inside a validation repeats that validation with its random numbers."""
    error = {interrupt: KeyboardInterrupt, terminate: TerminationSignal}.get(action, ValueError)
    file = broken_off(kit, lab, error, options, Breaker(*moment, action))
    compare_ends(lab, kit, file, options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "moment"),
    some_of(
        OPTIONS,
        moments(
            ("on_train_epoch_start", 2),
            ("on_train_batch_end", 2),
            ("on_train_batch_end", 5),
            ("on_train_batches_end", 2),
            ("on_train_epoch_end", 2),
            ("on_epoch_end", 2),
            ("on_validation_end", 2),
            ("on_train_epoch_start", 1),
        ),
    ),
)
def test_a_checkpoint_saved_in_another_hook_ends_with_the_same_weights(lab, kit, options, moment):
    """Outside the savers' slots too, training, validation and logging go on where they were."""
    path = lab.folder / "by_hand.ckpt"
    breaker = Breaker(*moment, lambda trainer: trainer.save_checkpoint(path))
    uncut = lab.run(lambda: setup(kit, lab.folder / "saved", options, breaker), "uncut")
    resumed = lab.run(lambda: setup(kit, lab.folder / "saved", options), "resumed", path, seed=7)
    assert kit.differences(uncut.end["state_dict"], resumed.end["state_dict"]) == []
    assert kit.differences(uncut.end["optimizer_states"], resumed.end["optimizer_states"]) == []
    assert kit.differences(uncut.end["loops"], resumed.end["loops"]) == []
    assert kit.differences(uncut.metrics, resumed.metrics) == []
    assert kit.differences(uncut.logged, resumed.logged) == []


class SetsModes(Callback):
    """Lets no dropout act from the first epoch on; the run's end takes that back."""

    trainer = None

    def on_train_start(self, trainer, module):
        self.trainer = trainer
        for part in module.modules():
            part.training = not isinstance(part, torch.nn.Dropout)


@pytest.mark.parametrize(
    ("moment", "action"),
    [
        (("on_train_batch_end", 4), interrupt),  # when a validation is due
        (("on_train_batch_end", 5), interrupt),
        (("on_validation_batch_end", 2), fail),
    ],
)
def test_a_script_that_saves_after_it_can_be_resumed_exactly(lab, kit, moment, action):
    """A checkpoint of the run that has ended holds its position, its validation and its modes."""
    options, modes = {"val_check_interval": 2}, SetsModes()

    def make(*others):
        made = setup(kit, lab.folder / "saved", options, *others)
        made.callbacks[-1:] = [modes]  # and no saver
        return made

    with pytest.raises((KeyboardInterrupt, ValueError)):
        lab.run(lambda: make(Breaker(*moment, action)), "broken")
    file = lab.folder / "by_hand.ckpt"
    modes.trainer.save_checkpoint(file)
    uncut, resumed = lab.run(make, "uncut"), lab.run(make, "resumed", file, seed=77)
    assert kit.differences(uncut.end, resumed.end) == []


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_validation_batch_end"])
def test_a_run_stopped_by_raising_saves_at_its_end_what_can_be_resumed(lab, kit, hook):
    """After StopTraining the epoch's last slot saves a checkpoint that starts the next epoch.

    The stop is in it: a run with other limits goes on.
    """

    def stop(trainer) -> None:
        raise StopTraining("enough")

    def make(breaker=None, **options):
        return setup(kit, lab.folder / "saved", options, breaker)

    lab.run(lambda: make(Breaker(hook, 3, stop)), "stopped", at_slots=True)
    file = lab.folder / "stopped" / "epoch-00.ckpt"
    assert lab.run(make, "stopped again", file).trainer.progress.epochs_completed == 1
    resumed = lab.run(lambda: make(max_epochs=4), "resumed", file)
    starts = [call for call in resumed.recorder.calls if call[0] == "on_train_epoch_start"]
    assert [call[1] for call in starts] == [1, 2, 3]
    assert resumed.trainer.progress.epochs_completed == 4


@pytest.mark.slow
def test_a_run_can_be_cut_again_and_again(lab, kit):
    """Resumed for one batch at a time, each time from the file before, it is still the same run."""

    def make():
        options = {"accumulate_grad_batches": 2, "max_epochs": 2}
        return setup(kit, lab.folder / "saved", options)

    uncut = lab.run(make, "uncut", at_slots=True)
    path = uncut.cutter.cuts[0][0]
    names = [cut[0].stem for cut in uncut.cutter.cuts]
    for number, name in enumerate(names[1:]):
        resumed = lab.run(make, f"again-{number}", path, at_slots=True)
        assert resumed.cutter.cuts[0][0].stem == name
        assert kit.differences(uncut.end, resumed.end) == [], name
        path = resumed.cutter.cuts[0][0]
