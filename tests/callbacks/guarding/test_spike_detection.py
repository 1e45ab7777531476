from __future__ import annotations

import json
import pickle
import random
from contextlib import suppress

import pytest
import torch
from new_processes import forget_trainings

from trainer_hooks import Module
from trainer_hooks.callbacks import ModelCheckpoint, SpikeDetection, TrainingSpikeException
from trainer_hooks.errors import OptionError, UsageError

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


class Told(Module):
    """A module whose losses are told; its weight counts the steps that it took."""

    def __init__(self, losses):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.losses = losses
        self.seen = []

    def training_step(self, batch, batch_idx):
        number = self.trainer.progress.batches_completed
        self.seen.append(number)
        return self.losses[number] - self.weight + self.weight.detach()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


LOSSES = [1.0, 1.1, 0.9, 1.0, 5.0, 1.0, 0.2, float("nan"), 0.9, 3.0]
BATCHES = [torch.zeros(1)] * len(LOSSES)


def spikes(losses=LOSSES, **options):
    """The batches that are spikes."""
    detection = SpikeDetection(**options)
    found = []
    for number, loss in enumerate(losses):
        if detection.is_spike(loss):
            found.append(number)
        else:
            detection.last_val = loss
            detection._values.append(loss)
            detection._losses_seen += 1
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [4, 7, 9]),
        ({"warmup": 3, "window": 3}, [4, 7, 9]),
        ({"mode": "max"}, [7]),
        ({"atol": 1.0, "rtol": None}, [4, 7, 9]),
        ({"atol": 1.0, "rtol": 0.5}, [4, 7, 9]),
        ({"atol": 3.0}, [4, 7]),
        ({"warmup": 5}, [7]),
    ],
)
def test_what_a_spike_is(options, expected):
    """These are the batches that Lightning's finds among the same losses."""
    assert spikes(**options) == expected


def test_a_fall_is_none_where_it_should_fall():
    """A loss that falls far is no spike; a score that falls far is one."""
    losses = [5.0, 5.0, 5.0, 0.1, 5.0]
    assert spikes(losses, rtol=0.5) == []
    assert spikes(losses, rtol=0.5, mode="max") == [3]


def test_losses_that_are_not_finite():
    """With finite_only=False they are let through, and do not spoil the mean of the others."""
    assert spikes([1.0, float("inf"), 1.0], warmup=9) == [1]
    detection = SpikeDetection(finite_only=False)
    assert not detection.is_spike(float("nan"))


def run(bare, losses=LOSSES, *, batches=None, module=None, ckpt_path=None, trainer=None, **options):
    detection = SpikeDetection(**options)
    module = module or Told(losses)
    trainer = bare(detection, **(trainer or {}))
    try:
        trainer.fit(module, batches or BATCHES, ckpt_path=ckpt_path)
    except TrainingSpikeException as error:
        return detection, module, error
    return detection, module, None


def test_it_raises_before_the_step(bare, tmp_path):
    """A spike ends the run before the batch moves the weights; both batches come on the list."""
    detection, module, error = run(bare)
    assert error.batch_idx == 4
    assert "training spike detected in batch 4: its loss is 5, and 1 is usual" in str(error)
    assert module.weight.item() == 4.0
    assert detection.bad_batches == [3, 4]
    listed = json.loads((tmp_path / "skip_batches.json").read_text())
    assert (listed["batches"], listed["given"]) == ([3, 4], [])
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.batch_idx) == (str(error), 4)


def test_it_skips_and_goes_on(bare, tmp_path):
    """With on_spike="skip" the batch takes no part in the step, and the run goes on."""
    path = tmp_path / "lists" / "bad.json"
    detection, module, error = run(bare, on_spike="skip", exclude_batches_path=path)
    assert error is None
    assert detection.bad_batches == json.loads(path.read_text())["batches"] == [4, 7, 9]
    assert module.seen == list(range(10))
    assert module.weight.item() == 7.0
    assert not (tmp_path / "skip_batches.json").exists()


def test_a_skipped_batch_in_a_window(bare):
    """In a window of batches the others still make the step, and hooks get no outputs of it."""
    outputs = []
    module = Told(LOSSES)
    module.on_train_batch_end = lambda out, batch, batch_idx: outputs.append(sorted(out))
    run(bare, module=module, on_spike="skip", trainer={"accumulate_grad_batches": 2})
    assert module.weight.item() == 3 * 1.0 + 4 * 0.0 + (7 - 6) * 0.5
    assert [number for number, out in enumerate(outputs) if not out] == [4, 7, 9]


@pytest.mark.parametrize("on_spike", ["raise", "skip"])
def test_a_list_of_the_users_own(bare, tmp_path, on_spike):
    """Each run leaves out what is on a list that the user names, without running it."""
    path = tmp_path / "own.json"
    path.write_text("[3, 4, 7, 9]")
    losses = [*LOSSES[:6], 6.0, *LOSSES[7:]]
    for _ in range(2):
        detection, module, error = run(bare, losses, on_spike=on_spike, exclude_batches_path=path)
        assert (error is None) is (on_spike == "skip")
        assert module.seen == [0, 1, 2, 5, 6, 8][: 6 if on_spike == "skip" else 5]
        found = [6] if on_spike == "skip" else [5, 6]
        assert detection.bad_batches == sorted({3, 4, 7, 9, *found})
        listed = json.loads(path.read_text())
        assert (listed["given"], listed["batches"]) == ([3, 4, 7, 9], found)


@pytest.mark.parametrize("on_spike", ["raise", "skip"])
@pytest.mark.parametrize("is_named", [False, True])
def test_the_list_of_another_run(bare, tmp_path, on_spike, is_named):
    """A new training does not go by what an earlier one has found, wherever that wrote it."""
    options = {"exclude_batches_path": tmp_path / "bad.json"} if is_named else {}
    first, second = (run(bare, on_spike=on_spike, **options) for _ in range(2))
    assert first[1].seen == second[1].seen
    assert first[0].bad_batches == second[0].bad_batches
    assert type(first[2]) is type(second[2])


def test_a_list_in_the_folder_of_the_checkpoints(bare, tmp_path):
    """There it is found by the run's next start, and by no other run that logs beside it."""
    saver = ModelCheckpoint(tmp_path / "c", every_n_train_steps=2, save_top_k=-1)
    for seen in (range(5), [5, 6, 7]):
        forget_trainings()
        module = Told(LOSSES)
        with pytest.raises(TrainingSpikeException):
            bare(SpikeDetection(), saver, enable_checkpointing=True).fit(
                module, BATCHES, ckpt_path="auto"
            )
        assert module.seen == list(seen)
    assert (tmp_path / "c" / "skip_batches.json").is_file()
    assert not (tmp_path / "skip_batches.json").exists()


class Normed(Told):
    """Told, with all that a forward pass changes: dropout, the statistics of BatchNorm, a log."""

    def __init__(self, losses):
        super().__init__(losses)
        self.norm = torch.nn.BatchNorm1d(1)

    def training_step(self, batch, batch_idx):
        self.norm(torch.dropout(torch.full((2, 1), float(batch_idx)), 0.5, train=True))
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss.nan_to_num(7.0), on_epoch=True)
        return loss


@pytest.mark.parametrize("seed", range(6))
def test_a_skipping_run_that_was_killed_is_the_uncut_one(bare, tmp_path, seed):
    """It runs the batches that it skips also the second time; spikes and the cut are drawn."""
    chance = random.Random(seed)
    losses = [chance.choice([1.0, 1.1, 0.9, 50.0, float("inf")]) for _ in range(12)]
    cut, every = chance.randrange(1, 12), chance.choice([1, 2, 5])
    ends = []
    for folder, cuts in (("whole", ()), ("cut", (cut,))):
        for at in (*cuts, None):
            forget_trainings()
            # a resume has its random numbers from the checkpoint; without one it starts anew
            torch.manual_seed(99 if list((tmp_path / folder).glob("*.ckpt")) else 0)
            saver = ModelCheckpoint(tmp_path / folder, every_n_train_steps=every)
            detection = SpikeDetection(on_spike="skip")
            trainer = bare(detection, saver, enable_checkpointing=True, max_epochs=2)
            module = Normed(losses)
            if at is not None:
                module.on_train_batch_end = ends_at(trainer, at)
            with suppress(Killed):
                trainer.fit(module, BATCHES[:6], ckpt_path="auto")
        norm = {name: buffer.tolist() for name, buffer in module.norm.named_buffers()}
        ends.append((norm, module.weight.item(), detection.bad_batches, torch.rand(()).item()))
        ends[-1] += (float(trainer.callback_metrics["loss_epoch"]),)
    assert ends[0] == ends[1]


class Killed(BaseException):
    """Ends a run where a kill would."""


def ends_at(trainer, batches):
    def end(outputs, batch, batch_idx):
        if trainer.progress.batches_completed == batches:
            raise Killed

    return end


@pytest.mark.parametrize("text", ["{}", "[1.5]", "[-1]", "[true]", "nonsense"])
def test_a_file_with_something_else(bare, tmp_path, text):
    """A file that holds no list of numbers is an error that names it."""
    (tmp_path / "skip_batches.json").write_text(text)
    with pytest.raises(OptionError, match=r"skip_batches.json.*must hold a JSON list"):
        run(bare)


def saving_after(module, number, path):
    def save(outputs, batch, batch_idx):
        if module.trainer.progress.batches_completed == number:
            module.trainer.save_checkpoint(path)

    module.on_train_batch_end = save
    return module


def test_it_can_be_resumed(bare, tmp_path):
    """A run that a spike ended goes on from the checkpoint before, and leaves both batches out."""
    _, _, error = run(bare, module=saving_after(Told(LOSSES), 2, tmp_path / "2.ckpt"))
    assert error.batch_idx == 4
    detection, module, error = run(bare, ckpt_path=tmp_path / "2.ckpt")
    assert module.seen == [2, 5, 6, 7]
    assert error.batch_idx == 7
    assert detection.bad_batches == [3, 4, 6, 7]


def test_new_arguments_count_after_a_resume(bare, tmp_path):
    """The losses of before come back; tolerances and window are those given now."""
    run(bare, module=saving_after(Told(LOSSES), 4, tmp_path / "4.ckpt"))
    (tmp_path / "skip_batches.json").unlink()
    detection, _, error = run(bare, ckpt_path=tmp_path / "4.ckpt", rtol=100.0, window=2)
    assert error.batch_idx == 7
    assert detection.rtol == 100.0
    assert detection.state_dict()["values"] == [1.0, pytest.approx(0.2)]


def test_batches_are_numbered_over_the_epochs(bare):
    """The second epoch's batches have numbers of their own, as they hold other samples."""
    losses = [1.0, 1.0, 1.0, 9.0, 1.0, 1.0]
    detection, module, _ = run(
        bare, losses, batches=BATCHES[:3], on_spike="skip", trainer={"max_epochs": 2}
    )
    assert detection.bad_batches == [3]
    assert module.weight.item() == 5.0


class Manual(Told):
    automatic_optimization = False

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx).detach()


def test_manual_optimization(bare):
    """A module that steps itself is judged by the loss it returns; it cannot be skipped there."""
    detection, _, error = run(bare, module=Manual(LOSSES))
    assert (error.batch_idx, detection.bad_batches) == (4, [3, 4])
    with pytest.raises(UsageError, match="with manual optimization"):
        run(bare, module=Manual(LOSSES), on_spike="skip")


def test_a_root_in_another_store(bare):
    """The list is a local file, so that a path is needed where the root is none."""
    with pytest.raises(UsageError, match="Pass exclude_batches_path"):
        run(bare, trainer={"default_root_dir": "memory://run"})


def test_a_scaled_loss(bare):
    """With a scaler, it is the loss itself that is judged."""
    detection, _, _ = run(
        bare, on_spike="skip", trainer={"precision": "16-mixed", "accumulate_grad_batches": 2}
    )
    assert detection.bad_batches == [4, 7, 9]
    assert detection.last_val == pytest.approx(0.9)
