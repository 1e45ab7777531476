"""How long a training is in each unit, when it is resumed and extended; validation intervals."""

from __future__ import annotations

import math
import time

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Time, Trainer, every, once
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.testing import TinyModule

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


class Words(TinyModule):
    """Counts three tokens a sample; validates nothing unless given data."""

    def num_tokens(self, batch):
        return 3 * len(batch[0])

    def val_dataloader(self):
        return None


class Saver(Callback):
    """Save after each batch."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def on_batch_checkpoint(self, trainer, module) -> None:
        trainer.save_checkpoint(self.folder / f"{trainer.clock.batches}.ckpt")


class Validated(Callback):
    """Note after which batches there was a validation."""

    def __init__(self) -> None:
        self.at: list[int] = []

    def on_validation_run_end(self, trainer, module) -> None:
        self.at.append(trainer.clock.batches)


def batches(count: int = 4, size: int = 2) -> list[list[torch.Tensor]]:
    """Return batches as TinyModule takes them, each another."""
    return [
        [torch.full((size, 2), float(n)), torch.zeros(size, dtype=torch.long)] for n in range(count)
    ]


def fit(*callbacks, module=None, val=None, ckpt_path=None, **options) -> Trainer:
    trainer = Trainer(callbacks=callbacks, **{**QUIET_OPTIONS, **options})
    trainer.fit(module or Words(), batches(), val, ckpt_path=ckpt_path)
    return trainer


DURATIONS = [
    ("7ba", 7), ("3ep", 12), ("5st", 10), ("13sp", 7), ("14sp", 7), ("40tok", 7), ("2iter", 16),
    (Time("1ba"), 1),
]  # fmt: skip


@pytest.mark.parametrize(("duration", "done"), DURATIONS, ids=str)
def test_each_unit_ends_a_training(duration, done) -> None:
    """The batch that reaches it is the last, in the middle of an epoch too, and hooks pair."""
    trainer = fit(max_duration=duration, iteration_length=2, accumulate_grad_batches=2)
    assert trainer.clock.batches == done
    assert trainer.clock.share_done == 1.0
    assert trainer.max_duration == Time(duration)


def test_wall_time_ends_a_training(monkeypatch) -> None:
    """Time of training and validation counts; the batch in work is finished."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Work(Callback):
        def on_train_batch_end(self, *args) -> None:
            now[0] += 10

        def on_validation_run_end(self, *args) -> None:
            now[0] += 5

    trainer = fit(Work(), max_duration="1m", val=batches(1), val_check_interval=2)
    assert trainer.clock.batches == 5
    assert trainer.clock.total_seconds == 65.0  # a cut epoch is validated


@pytest.mark.parametrize(
    ("options", "done"),
    [
        ({"max_duration": "7ba", "max_epochs": 1}, 4),
        ({"max_duration": "3ba", "max_epochs": 1}, 3),
        ({"max_duration": "2ep", "max_steps": 5}, 5), ({"max_duration": "9st", "max_epochs": 2}, 8),
        ({"max_duration": "2ep", "max_epochs": 1}, 4),
        ({"max_duration": "1ep", "max_epochs": 2}, 4),
        ({"max_duration": "9ba", "fast_dev_run": 2}, 2),
    ],
    ids=str,
)  # fmt: skip
def test_with_other_limits_whichever_comes_first(options, done) -> None:
    """No limit goes before another."""
    assert fit(**options).clock.batches == done


@pytest.mark.slow
@pytest.mark.parametrize("duration", ["7ba", "14sp", "42tok", "7st"])
def test_a_longer_duration_goes_on_exactly(duration, tmp_path) -> None:
    """Resumed from any batch with a longer duration, it is the run that had that from the start."""
    unit = Time(duration).unit
    longer = Time(duration) * 2
    whole = fit(max_duration=longer)
    fit(Saver(tmp_path), max_duration=duration)
    for cut in range(1, 8):
        path = tmp_path / f"{cut}.ckpt"
        resumed = fit(ckpt_path=path, max_duration=longer)
        assert resumed.clock.time(unit) == longer
        for name, value in whole.module.state_dict().items():
            assert torch.equal(value, resumed.module.state_dict()[name]), (cut, name)


def test_a_finished_fit_goes_on_when_the_duration_is_set() -> None:
    """`trainer.max_duration` may be set between two fits, in any unit, and is checked."""
    trainer = fit(max_duration="5ba")
    with pytest.warns(TrainerHooksWarning, match=r"max_duration='5ba' is over.*trainer\.max_dur"):
        trainer.fit(trainer.module, batches())
    trainer.max_duration = "3ep"
    trainer.fit(trainer.module, batches())
    assert trainer.clock.epochs == 3
    trainer.max_epochs = 4
    assert trainer.max_duration is None
    trainer.fit(trainer.module, batches())
    assert trainer.clock.epochs == 4
    for value in ("5", 5, "0.5dur", "2iter"):
        with pytest.raises(OptionError, match="max_duration="):
            trainer.max_duration = value


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"max_duration": "7ba"}, 7), ({"max_duration": "7ba", "accumulate_grad_batches": 3}, 3),
        ({"max_duration": "8ba", "accumulate_grad_batches": 3}, 4), ({"max_duration": "2ep"}, 8),
        ({"max_duration": "5st", "max_epochs": 9}, 5),
        ({"max_duration": "1e6tok", "max_epochs": 2}, 8), ({"max_time": "9d", "max_epochs": 1}, 4),
    ],
    ids=str,
)  # fmt: skip
def test_the_steps_of_a_duration_are_known(options, steps) -> None:
    """`estimated_stepping_batches`, from which schedules are built, equals the steps done."""
    trainer = fit(**options)
    assert trainer.estimated_stepping_batches == trainer.clock.steps == steps


def test_the_steps_are_known_in_setup() -> None:
    """Who asks before there are loaders has the training loader made, which is made once."""
    asked = []

    class Counts(Words):
        def setup(self, stage):
            asked.append(self.trainer.estimated_stepping_batches)

        def train_dataloader(self):
            asked.append("train_dataloader")
            return super().train_dataloader()

    trainer = Trainer(**QUIET_OPTIONS, max_epochs=3)
    trainer.fit(Counts())
    assert asked == ["train_dataloader", trainer.global_step]


class Breaks(Callback):
    """End the fit with an error after some batches, once."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.clock.batches == self.at:
            self.at = -1
            raise ValueError("broken")


@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 3}, {"max_steps": 9}], ids=str)
def test_the_steps_of_an_epoch_that_begins_again_are_known(options, tmp_path) -> None:
    """They count once more in the fit after an error, and in a resume from its checkpoint."""
    asked = []

    class Counts(Words):
        def on_train_start(self):
            asked.append(self.trainer.estimated_stepping_batches)

    options = {**QUIET_OPTIONS, "max_epochs": 3, **options}
    trainer = Trainer(callbacks=[Breaks(7), Saver(tmp_path)], **options)
    module = Counts()
    with pytest.raises(ValueError, match="broken"):
        trainer.fit(module, batches())
    trainer.fit(module, batches())
    resumed = Trainer(**options)
    resumed.fit(Counts(), batches(), ckpt_path=tmp_path / "8.ckpt")
    usual, *later = asked
    assert later == [trainer.global_step] * 2 == [resumed.global_step] * 2
    more = 1 if "accumulate_grad_batches" in options else 3
    assert later[0] == usual + (0 if "max_steps" in options else more)


def test_an_error_after_the_steps_were_asked_for_in_setup_is_the_one_raised() -> None:
    """A run that ends before it has validation loaders keeps its error."""

    class Breaks(Words):
        def setup(self, stage):
            assert self.trainer.estimated_stepping_batches == 9
            raise ValueError("no data")

    trainer = Trainer(**QUIET_OPTIONS, max_epochs=3)
    with pytest.raises(ValueError, match="no data"):
        trainer.fit(Breaks())
    trainer.fit(Words())
    assert trainer.global_step == 9


def test_no_epochs_are_no_steps_of_a_loader_of_unknown_length() -> None:
    """With `max_epochs=0` the steps are 0, though the length of an epoch is infinite."""

    class Unknown(Words):
        def train_dataloader(self):
            return iter(super().train_dataloader())

        def setup(self, stage):
            asked.append(self.trainer.estimated_stepping_batches)

    asked = []
    with pytest.warns(TrainerHooksWarning, match="nothing to do"):
        Trainer(**QUIET_OPTIONS, max_epochs=0).fit(Unknown())
    assert asked == [0]


@pytest.mark.parametrize(
    ("duration", "accumulate", "drops", "steps"),
    [("3sp", 1, False, 2), ("12sp", 1, False, 7), ("20sp", 3, False, 5), ("12sp", 1, True, 6)],
)
def test_the_steps_of_samples_are_known(duration, accumulate, drops, steps) -> None:
    """A DataLoader says how many samples a batch has, with a smaller last one or without."""
    data = [(torch.ones(2), 0)] * 7
    trainer = Trainer(**QUIET_OPTIONS, max_duration=duration, accumulate_grad_batches=accumulate)
    trainer.fit(Words(), DataLoader(data, batch_size=2, drop_last=drops))
    assert trainer.estimated_stepping_batches == trainer.clock.steps == steps


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_duration": "9d"}, r"max_duration='777600sec' is in wall time"),
        ({"max_duration": "9tok"}, "max_duration='9tok' is in tokens"),
        ({"max_time": "9d"}, "max_time is wall time"),
        ({"max_epochs": -1}, "nothing ends the training"),
    ],
    ids=str,
)
def test_why_the_steps_are_not_known(options, why) -> None:
    """For a loader of unknown length it is infinite, and a warning gives the reason."""

    class Asks(Callback):
        def on_train_start(self, trainer, module):
            with pytest.warns(TrainerHooksWarning, match=why):
                assert trainer.estimated_stepping_batches == math.inf
            trainer.stop()

    fit(Asks(), **options)


@pytest.mark.parametrize(
    ("interval", "at"),
    [
        ("3ba", [3, 7]), ("2st", [4, 8]), ("6sp", [3, 6]), ("18tok", [3, 6]),
        (Time("10sp"), [5]), ("100tok", []),
    ],
    ids=str,
)  # fmt: skip
def test_validation_in_each_unit(interval, at) -> None:
    """It is due at each multiple, over epochs; in batches as an int is, within the epoch."""
    validated = Validated()
    every = 2 if interval == "2st" else 1
    fit(
        validated, max_epochs=2, val=batches(1), val_check_interval=interval,
        accumulate_grad_batches=every,
    )  # fmt: skip
    assert validated.at == at


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interval", "at"),
    [
        ("2ep", [8]), ("1ep", [4, 8, 12]), ("0.25dur", [3, 6, 9, 12]), ("2iter", [8]),
        (every("3ba"), [3, 6, 9, 12]), (once("5ba") | every("2ep"), [5, 8]),
        (lambda clock: clock.batches in (2, 7), [2, 7]), (every("100ba"), []),
    ],
    ids=["epochs", "one epoch", "shares", "iterations", "every", "joined", "a function", "never"],
)  # fmt: skip
def test_validation_by_the_clock(interval, at, tmp_path) -> None:
    """Whatever the clock counts may say when it is due, and a resume keeps to it."""
    options = {
        "max_epochs": 3, "val": batches(1), "val_check_interval": interval, "iteration_length": 1,
    }  # fmt: skip
    validated, done = Validated(), {}

    class Counted(Saver):
        def on_batch_checkpoint(self, trainer, module) -> None:
            super().on_batch_checkpoint(trainer, module)
            done[trainer.clock.batches] = len(validated.at)

    fit(validated, Counted(tmp_path), **options)
    assert validated.at == at
    for cut in range(1, 13):
        resumed = Validated()
        fit(resumed, ckpt_path=tmp_path / f"{cut}.ckpt", **options)
        assert resumed.at == at[done[cut] :]


def test_a_stopped_run_is_validated_at_its_end(tmp_path) -> None:
    """Whatever the interval, the last weights of a run that is stopped are validated."""

    class Stop(Callback):
        def on_train_batch_end(self, trainer, *args) -> None:
            if trainer.clock.batches == 6:
                trainer.stop("enough")

    validated = Validated()
    fit(validated, Stop(), max_epochs=3, val=batches(1), val_check_interval=every("5ba"))
    assert validated.at == [5, 6]


@pytest.mark.parametrize("interval", [every("2ba"), "2ba"], ids=["filter", "batches"])
def test_one_that_is_broken_off_is_run_again(interval, tmp_path) -> None:
    """A checkpoint from inside a validation that was due resumes with that validation."""

    class Break(Callback):
        def on_validation_batch_end(self, trainer, *args) -> None:
            if trainer.clock.batches == 2 and not trainer.sanity_checking:
                trainer.save_checkpoint(tmp_path / "inside.ckpt")
                raise RuntimeError("cut")

    options = {"max_epochs": 1, "val": batches(1), "val_check_interval": interval}
    with pytest.raises(RuntimeError, match="cut"):
        fit(Break(), **options)
    resumed = Validated()
    fit(resumed, ckpt_path=tmp_path / "inside.ckpt", **options)
    assert resumed.at == [2, 4]


@pytest.mark.parametrize("interval", ["25sec", "00:00:00:25", {"seconds": 25}], ids=str)
def test_validation_after_a_time(interval, monkeypatch) -> None:
    """It is due so long after the last one, at the next batch."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Work(Callback):
        def on_train_batch_end(self, *args) -> None:
            now[0] += 10

    validated = Validated()
    fit(validated, Work(), max_epochs=2, val=batches(1), val_check_interval=interval)
    assert validated.at == [3, 6]


@pytest.mark.slow
def test_validations_are_resumed_exactly(tmp_path) -> None:
    """Cut anywhere, a run validates where the uncut one does."""
    options = {"max_epochs": 3, "val": batches(1), "val_check_interval": "5sp"}
    whole = Validated()
    fit(whole, Saver(tmp_path), **options)
    assert whole.at == [3, 5, 8, 10]
    for cut in range(1, 13):
        resumed = Validated()
        fit(resumed, ckpt_path=tmp_path / f"{cut}.ckpt", **options)
        assert resumed.at == [at for at in whole.at if at > cut]
