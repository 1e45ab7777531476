"""A resume that fails before its first batch loses nothing of the training that it goes on with."""

from __future__ import annotations

import random

import pytest
import torch
from new_processes import forget_trainings
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Trainer
from trainer_hooks.callbacks import OnExceptionCheckpoint
from trainer_hooks.errors import TrainerHooksWarning

pytestmark = pytest.mark.filterwarnings("ignore:ckpt_path='auto' took .* once more")

OFF = {
    "logger": False, "plugins": False, "enable_progress_bar": False, "enable_model_summary": False,
    "accelerator": "cpu",
}  # fmt: skip
HOOKS = ("setup", "on_before_load", "on_load_checkpoint", "on_fit_start", "on_train_start")


class Failing(Callback):
    """Raises in a hook, once some batches are done."""

    def __init__(self, hook: str = "", error: type[BaseException] = RuntimeError, at: int = 0):
        self.hook, self.error, self.at = hook, error, at

    def run_event(self, event: str, *args) -> None:
        if event == self.hook and args[0].progress.batches_completed >= self.at:
            raise self.error


class FailingInTraining(Failing):
    """Raises in a hook that evaluations have, too, but not in those."""

    def run_event(self, event: str, *args) -> None:
        if event == self.hook and args[0].training:
            super().run_event(event, *args)


def fit(kit, *callbacks, seed=1, path=None, **options):
    forget_trainings()
    kit.scramble(seed)
    net = kit.Net(lambda net: torch.optim.Adam(net.parameters()))
    data = DataLoader(kit.Samples(), kit.BATCH_SIZE, shuffle=True), DataLoader(kit.Samples(11), 4)
    saves = any(isinstance(one, OnExceptionCheckpoint) for one in callbacks)
    options |= {"callbacks": list(callbacks), "enable_checkpointing": saves, **OFF}
    trainer = Trainer(max_epochs=2, **options)
    try:
        trainer.fit(net, *data, ckpt_path=path)
    except (RuntimeError, KeyboardInterrupt):
        assert trainer.interrupted
    return trainer, net


@pytest.mark.parametrize("seed", range(8))
def test_starts_that_fail_leave_the_training_as_it_was(kit, seed) -> None:
    """Cut in an epoch, then in drawn hooks of each start: the end is that of the uncut run."""
    chosen = random.Random(seed)
    _, uncut = fit(kit, OnExceptionCheckpoint(kit.folder / "uncut"))
    saver = lambda: OnExceptionCheckpoint(kit.folder / "saved")  # noqa: E731
    errors = (RuntimeError, KeyboardInterrupt)
    first = Failing("on_batch_checkpoint", chosen.choice(errors), chosen.randint(1, 9))
    fit(kit, saver(), first, path="auto")
    for number in range(chosen.randint(1, 3)):
        failing = Failing(chosen.choice(HOOKS), chosen.choice(errors))
        fit(kit, saver(), failing, path="auto", seed=number + 7)
    _, resumed = fit(kit, saver(), path="auto", seed=5)
    assert kit.differences(dict(uncut.state_dict()), dict(resumed.state_dict())) == []


@pytest.mark.parametrize(
    "hook", ["setup", "on_fit_start", "on_sanity_check_start", "on_train_start"]
)
def test_a_first_start_that_fails_leaves_no_file(kit, hook) -> None:
    """A training that has not begun is begun again, with its sanity check."""
    saver = OnExceptionCheckpoint(kit.folder / "saved")
    fit(kit, saver, Failing(hook), path="auto")
    assert not list(kit.folder.rglob("*.ckpt"))


@pytest.mark.parametrize("hook", ["on_train_start", "on_fit_start"])
def test_a_save_after_a_failed_start_holds_what_was_not_restored_yet(kit, hook) -> None:
    """Random numbers, the loaders' positions and gradients are those of the checkpoint."""
    cut = Failing("on_batch_checkpoint", at=7)
    fit(kit, OnExceptionCheckpoint(kit.folder / "saved"), cut, accumulate_grad_batches=2)
    path, again = kit.folder / "saved" / "on_exception.ckpt", kit.folder / "again.ckpt"
    trainer, _ = fit(kit, Failing(hook), path=path, seed=9, accumulate_grad_batches=2)
    if hook == "on_fit_start":  # the restoring was undone
        assert trainer.progress.is_untrained
        return
    trainer.save_checkpoint(again)
    first, second = (torch.load(file, weights_only=True) for file in (path, again))
    for name in ("rng", "stream", "gradients", "val_generators", "progress", "loop"):
        both = first["trainer_hooks"][name], second["trainer_hooks"][name]
        assert kit.differences(*both, name) == []
    assert kit.differences(first["optimizer_states"], second["optimizer_states"]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "is_told"),
    [("on_train_epoch_end", True), ("on_epoch_end", True), ("on_train_batches_end", False)],
)
def test_an_error_in_a_hook_that_is_called_again_is_told(kit, hook, is_told) -> None:
    """A resume warns that the hooks of the epoch's end are called once more; others are not."""
    fit(kit, OnExceptionCheckpoint(kit.folder / "saved"), FailingInTraining(hook))
    path = kit.folder / "saved" / "on_exception.ckpt"
    if is_told:
        with pytest.warns(TrainerHooksWarning, match=f"after an error in {hook}, .* not exactly"):
            fit(kit, Failing(), path=path)
        return
    _, uncut = fit(kit, Failing())
    _, resumed = fit(kit, Failing(), path=path, seed=4)
    assert kit.differences(dict(uncut.state_dict()), dict(resumed.state_dict())) == []


def test_callbacks_that_an_error_leaves_out_are_told(kit) -> None:
    """After an error in a hook of a batch the callbacks behind that one have had no turn."""
    saver = OnExceptionCheckpoint(kit.folder / "saved")
    fit(kit, saver, Failing("on_train_batch_end", at=3), kit.Recorder())
    with pytest.warns(TrainerHooksWarning, match="after an error in on_train_batch_end"):
        fit(kit, Failing(), path=kit.folder / "saved" / "on_exception.ckpt")
