"""trainer.clock: what is counted, within what, how long it took, and all of it after a resume."""

from __future__ import annotations

import copy
import time

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Callback, Clock, Time, Trainer
from trainer_hooks.clock.clock import Stopwatch
from trainer_hooks.data.batch_counts import count_samples_and_tokens
from trainer_hooks.errors import ModuleError, OptionError
from trainer_hooks.testing import TinyModule

COUNTS = ("iterations", "epochs", "batches", "steps", "samples", "tokens")


class Reader(Callback):
    """Keep the clock of each moment."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Clock]] = []

    def run_event(self, event, *args) -> None:
        if event not in ("on_init_start", "on_init_end", "on_close"):
            self.seen.append((event, args[0].clock))

    def at(self, event: str) -> list[Clock]:
        return [clock for name, clock in self.seen if name == event]


def batches(*sizes: int) -> list[list[torch.Tensor]]:
    """Return batches as TinyModule takes them."""
    return [[torch.ones(size, 2), torch.zeros(size, dtype=torch.long)] for size in sizes]


def fit(*callbacks, module=None, data=None, val=None, ckpt_path=None, **options) -> Trainer:
    trainer = Trainer(callbacks=callbacks, **{**QUIET_OPTIONS, **options})
    data = batches(4, 4, 1) if data is None else data
    trainer.fit(module or TinyModule(), data, val, ckpt_path=ckpt_path)
    return trainer


def test_nothing_is_counted_before() -> None:
    """A trainer that has run nothing has a clock that stands at zero, and knows its end."""
    clock = Trainer(max_duration="10ba", **QUIET_OPTIONS).clock
    assert [getattr(clock, name) for name in COUNTS] == [0] * 6
    assert (clock.total_seconds, clock.share_done) == (0.0, 0.0)
    assert clock.time("dur") == Time("0dur")


def test_what_is_counted() -> None:
    """Batches, steps, samples, epochs and iterations add up, over all and within."""
    reader = Reader()
    clock = fit(reader, max_epochs=4, iteration_length=3, accumulate_grad_batches=2).clock
    assert [getattr(clock, name) for name in COUNTS] == [1, 4, 12, 8, 36, 0]
    assert (clock.epochs_in_iteration, clock.batches_in_iteration) == (1, 3)
    assert (clock.steps_in_iteration, clock.samples_in_iteration) == (2, 9)
    seen = [(c.batches, c.batches_in_epoch, c.samples_in_epoch, c.steps_in_epoch)
            for c in reader.at("on_train_batch_end")]  # fmt: skip
    assert seen[:6] == [
        (1, 1, 4, 0),
        (2, 2, 8, 1),
        (3, 3, 9, 2),
        (4, 1, 4, 0),
        (5, 2, 8, 1),
        (6, 3, 9, 2),
    ]
    assert [clock.time(unit) for unit in ("iter", "ep", "ba", "st", "sp", "tok")] == [
        Time("1iter"), Time("4ep"), Time("12ba"), Time("8st"), Time("36sp"), Time("0tok")
    ]  # fmt: skip
    with pytest.raises(OptionError, match="there is no unit 'moons'"):
        clock.time("moons")


def test_an_epoch_is_completed_with_its_last_batch() -> None:
    """From `on_train_batches_end` on it counts; what was counted in it stays until the next."""
    reader = Reader()
    fit(reader, max_epochs=2, iteration_length=2, val=batches(1))
    for event, epochs in {
        "on_train_epoch_start": [0, 1], "on_train_batches_end": [1, 2],
        "on_train_epoch_end": [1, 2],
        "on_epoch_checkpoint": [1, 2], "on_validation_run_start": [1, 2], "on_train_end": [2],
    }.items():  # fmt: skip
        assert [clock.epochs for clock in reader.at(event)] == epochs, event
    assert [clock.epochs for clock in reader.at("on_train_batch_end")] == [0, 0, 0, 1, 1, 1]
    assert [c.batches_in_epoch for c in reader.at("on_train_epoch_end")] == [3, 3]
    assert [c.batches_in_epoch for c in reader.at("on_train_epoch_start")] == [0, 0]
    assert [c.iterations for c in reader.at("on_iteration_end")] == [1]


@pytest.mark.parametrize(
    "options",
    [{"max_epochs": 2}, {"max_steps": 6}, {"max_duration": "6ba"}, {"max_duration": "18sp"}],
    ids=str,
)
def test_the_share_that_is_done(options) -> None:
    """It grows to 1.0 whatever the end is given in, inside an epoch, too."""
    reader = Reader()
    fit(reader, data=batches(3, 3, 3), **options)
    shares = [clock.share_done for clock in reader.at("on_train_batch_end")]
    assert shares == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1.0])
    assert reader.at("on_train_end")[0].share_done == 1.0


def test_the_share_follows_what_comes_first_and_is_nothing_without_an_end() -> None:
    """Of two ends the nearer one counts; without any the share stays at zero."""
    stop = type("Stop", (Callback,), {"on_train_epoch_end": lambda self, t, m: t.stop("enough")})()
    assert fit(stop, max_epochs=-1).clock.share_done == 0.0
    reader = Reader()
    fit(reader, max_epochs=2, max_steps=5, max_time="1h")
    assert [c.share_done for c in reader.at("on_train_batch_end")][:2] == pytest.approx([0.2, 0.4])


def test_a_module_counts_its_own_way() -> None:
    """`num_samples` and `num_tokens` are asked once for each batch, before the step changes it."""

    class Words(TinyModule):
        def num_samples(self, batch):
            return len(batch["text"])

        def num_tokens(self, batch):
            return sum(map(len, batch["text"]))

        def training_step(self, batch, batch_idx):
            batch.pop("text")
            pair = batch["x"], batch["y"]
            return self.loss(self(pair), pair)

    x, y = batches(2)[0]
    data = [{"text": ["ab", "cde"], "x": x, "y": y} for _ in range(3)]
    clock = fit(module=Words(), data=data, max_epochs=1, limit_val_batches=0).clock
    assert (clock.batches, clock.samples, clock.tokens) == (3, 6, 15)


def test_what_is_counted_by_default() -> None:
    """Samples are the first tensor's first dimension, tokens the ids of a mapping that has them."""
    module = TinyModule()
    ids = torch.zeros(4, 7, dtype=torch.long)
    for batch, samples, tokens in [
        (torch.ones(3, 2), 3, 0), ([torch.ones(3, 2), torch.ones(5)], 3, 0),
        ((torch.ones(2),), 2, 0), (["a", "b"], 1, 0), ({"input_ids": [1, 2]}, 1, 0),
        ({"input_ids": ids, "mask": ids}, 4, 28), ({"x": torch.ones(3)}, 3, 0), ([], 1, 0),
        ([torch.tensor(1.0), torch.ones(3)], 3, 0), ([[torch.ones(6)]], 6, 0), (None, 1, 0),
    ]:  # fmt: skip
        assert (module.num_samples(batch), module.num_tokens(batch)) == (samples, tokens)
        assert count_samples_and_tokens(batch) == (samples, tokens)


@pytest.mark.parametrize("returned", [None, -1, 1.5, True, torch.tensor(3), "3"], ids=str)
@pytest.mark.parametrize("method", ["num_samples", "num_tokens"])
def test_what_a_module_may_not_count(method, returned) -> None:
    """A count is a whole number on the host; anything else is refused, naming the method."""
    module = TinyModule()
    setattr(module, method, lambda batch: returned)
    with pytest.raises(ModuleError, match=rf"TinyModule\.{method}\(batch\) returned .*an int"):
        fit(module=module, max_epochs=1)


def test_skipped_batches_are_counted() -> None:
    """As `batches` does, samples count batches that were skipped."""

    class Skip(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx) -> None:
            if batch_idx == 1:
                trainer.skip_batch()

    clock = fit(Skip(), max_epochs=1).clock
    assert (clock.batches, clock.samples, clock.steps) == (3, 9, 2)


def test_wall_times(monkeypatch) -> None:
    """Training and validation are told apart, over all and within; the sanity check is neither."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Work(Callback):
        def on_train_batch_end(self, *args) -> None:
            now[0] += 10

        def on_validation_batch_end(self, *args) -> None:
            now[0] += 1

    reader = Reader()
    trainer = fit(Work(), reader, max_epochs=2, val=batches(1, 1), iteration_length=1)
    clock = trainer.clock
    assert (clock.train_seconds, clock.eval_seconds, clock.total_seconds) == (60.0, 4.0, 64.0)
    first, second = reader.at("on_train_epoch_end")
    assert (first.train_seconds, first.eval_seconds) == (30.0, 2.0)
    assert (second.train_seconds_in_epoch, second.eval_seconds_in_epoch) == (30.0, 2.0)
    assert (second.total_seconds_in_epoch, second.total_seconds_in_iteration) == (32.0, 32.0)
    assert clock.time("sec") == Time("64sec")
    now[0] += 500
    assert trainer.clock == clock
    trainer.max_epochs = 3
    trainer.fit(trainer.module, batches(4), batches(1))
    assert (trainer.clock.train_seconds, trainer.clock.eval_seconds) == (70.0, 5.0)


def test_a_stopwatch_that_is_not_running_stays(monkeypatch) -> None:
    """A validation outside of a training is no time of it."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = Stopwatch()
    watch.start_evaluating()
    now[0] += 5
    watch.end_evaluating()
    watch.stop()
    assert watch.read() == (0.0, 0.0)


class Saver(Callback):
    def __init__(self, folder) -> None:
        self.folder = folder

    def on_batch_checkpoint(self, trainer, module) -> None:
        trainer.save_checkpoint(self.folder / f"{trainer.clock.batches}.ckpt")


@pytest.mark.slow
def test_the_clock_is_resumed(tmp_path) -> None:
    """A run that is cut anywhere goes on with the counts that the uncut one had there."""
    counts = [*COUNTS, *(f"{n}_in_epoch" for n in ("batches", "steps", "samples", "tokens")),
              *(f"{n}_in_iteration" for n in ("epochs", "batches", "steps", "samples")),
              "share_done"]  # fmt: skip

    def read(reader: Reader) -> list:
        return [(event, [getattr(clock, name) for name in counts]) for event, clock in reader.seen]

    saving = ("on_save_checkpoint", "on_checkpoint_saved")
    whole = Reader()
    options = {"max_epochs": 3, "iteration_length": 2}
    fit(whole, Saver(tmp_path), **options)
    for cut in range(1, 10):
        resumed = Reader()
        trainer = fit(resumed, ckpt_path=tmp_path / f"{cut}.ckpt", **options)
        after = read(resumed)
        after = after[[event for event, _ in after].index("on_train_start") + 1 :]
        told = [call for call in read(whole) if call[0] not in saving]
        assert after == told[len(told) - len(after) :]
        saved = torch.load(tmp_path / f"{cut}.ckpt", weights_only=True)["trainer_hooks"]
        assert trainer.clock.train_seconds > saved["wall_times"]["train_seconds"] > 0


def test_another_module_starts_the_clock_anew() -> None:
    """Counters and times belong to the training of one module."""
    trainer = fit(max_epochs=1)
    first = trainer.clock
    trainer.fit(TinyModule(), batches(2))
    assert trainer.clock.samples == 2
    assert trainer.clock.total_seconds < first.total_seconds + 1
    assert first.samples == 9 == copy.copy(first).samples
