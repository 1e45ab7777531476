"""When and how often events fire, and what the counters are then.

Expected is what `composer/trainer/trainer.py` (0.32.1) does: `_train_loop`, `_iter_dataloader`,
`_run_evaluators` and `_eval_loop`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from trainer_hooks.compat.composer import Callback, Evaluator, Event, Time
from trainer_hooks.compat.composer.callbacks import CheckpointSaver


@pytest.mark.parametrize(
    ("longest", "asked", "given", "ends", "now"),
    [
        ("2ep", 10, 8, 2, (2, 8, 0, 32)),
        # the loop breaks off before the loader is asked
        ("8ba", 9, 8, 2, (2, 8, 0, 32)),
        # the batch's last event fires, an end of the epoch does not
        ("6ba", 7, 6, 1, (1, 6, 2, 24)),
    ],
    ids=["whole epochs", "ends with an epoch's last batch", "ends inside an epoch"],
)
def test_the_loader_is_asked_once_more_an_epoch(make, recorder, longest, asked, given, ends, now):
    """`BEFORE_DATALOADER` fires n + 1 times an epoch, `AFTER_DATALOADER` n times."""
    trainer = make(recorder, max_duration=longest)
    trainer.fit()
    count = Counter(recorder.names)
    assert (count["before_dataloader"], count["after_dataloader"]) == (asked, given)
    assert count["batch_checkpoint"] == given
    assert (count["epoch_start"], count["epoch_end"], count["epoch_checkpoint"]) == (2, ends, ends)
    assert (count["iteration_start"], count["iteration_end"], count["fit_end"]) == (1, 0, 1)
    time = trainer.state.timestamp
    assert (time.epoch, time.batch, time.batch_in_epoch, time.sample) == now


def test_counters_advance_before_the_end_events(make) -> None:
    """`BATCH_END` sees the batch counted, `EPOCH_END` the epoch, with nothing in the next one."""
    seen = []

    class Look(Callback):
        def run_event(self, event, state, logger):
            now = state.timestamp
            if event in (Event.BATCH_START, Event.BATCH_END, Event.EPOCH_END, Event.FIT_END):
                seen.append((event.value, *map(int, (now.epoch, now.batch, now.batch_in_epoch))))

    make(Look(), train_subset_num_batches=2).fit()
    assert seen == [
        ("batch_start", 0, 0, 0),
        ("batch_end", 0, 1, 1),
        ("batch_start", 0, 1, 1),
        ("batch_end", 0, 2, 2),
        ("epoch_end", 1, 2, 0),
        ("fit_end", 1, 2, 0),
    ]


@pytest.mark.parametrize(
    ("event", "at", "batches", "longest", "ends"),
    [
        ("batch_end", 2, 2, 2, []),
        ("batch_end", 4, 4, 4, ["epoch_end", "epoch_checkpoint"]),
        ("epoch_start", 4, 5, 4, []),
    ],
    ids=["in an epoch", "on its last batch", "as it begins"],
)
def test_stop_training_ends_after_the_batch(make, recorder, event, at, batches, longest, ends):
    """The batch that `state.stop_training()` comes in, or before, is trained with its events.

    The epoch has end events only where it is its last batch.
    """

    class Stop(Callback):
        def run_event(self, now, state, logger):
            if now.value == event and state.timestamp.batch == at:
                state.stop_training()

    trainer = make(Stop(), recorder, max_duration="3ep")
    trainer.fit()
    last = ["batch_end", "batch_checkpoint", *ends, "fit_end"]
    assert recorder.names[-len(last) :] == last
    now = trainer.state.timestamp
    assert (now.epoch, now.batch) == (batches // 4, batches)
    assert trainer.state.max_duration == Time(longest, "ba")


def test_evaluations_by_batches_come_before_the_slot(make, recorder, loader) -> None:
    """`eval_interval="2ba"`: after `BATCH_END` of every second batch, before its checkpoint."""
    make(recorder, eval_dataloader=loader(4), eval_interval="2ba").fit()
    at = [batch for name, _, batch in recorder.events if name == "eval_start"]
    assert at == [2, 4]
    first = recorder.names.index("eval_before_all")
    assert recorder.names[first - 1] == "batch_end"
    assert recorder.names[recorder.names.index("eval_after_all") + 1] == "batch_checkpoint"


def test_an_evaluation_at_the_end_comes_after_fit_end(make, recorder, loader) -> None:
    """What is due only because the training ends is evaluated after `FIT_END`."""
    make(recorder, eval_dataloader=loader(4), eval_interval="3ba").fit()
    assert [batch for name, _, batch in recorder.events if name == "eval_start"] == [3, 4]
    ends = [n for n in recorder.names if n.startswith(("fit_", "epoch_", "eval_start", "eval_af"))]
    assert ends == [
        "fit_start", "epoch_start", "eval_start", "eval_after_forward", "eval_after_all",
        "epoch_end", "epoch_checkpoint", "fit_end",
        "eval_start", "eval_after_forward", "eval_after_all",
    ]  # fmt: skip


def test_an_evaluation_after_a_broken_off_epoch(make, recorder, loader) -> None:
    """The same where the training ends inside an epoch, which has no end events."""
    make(recorder, eval_dataloader=loader(4), max_duration="6ba").fit()
    assert [batch for name, _, batch in recorder.events if name == "eval_start"] == [4, 6]
    assert recorder.names[-10:-7] == ["batch_checkpoint", "fit_end", "eval_before_all"]


def test_each_evaluator_goes_by_its_own_interval(make, recorder, loader) -> None:
    """One by epochs, one by batches, one never, and one as a function says."""
    asked, labels = [], []

    def due(state, event):
        asked.append(event)
        return event is Event.BATCH_END and state.timestamp.batch == 1

    class Labels(Callback):
        def eval_start(self, state, logger):
            labels.append((int(state.timestamp.batch), state.dataloader_label))

    intervals = {"epochs": "1ep", "batches": "2ba", "never": 0, "asked": due}
    some = [
        Evaluator(label=label, dataloader=loader(4), eval_interval=interval)
        for label, interval in intervals.items()
    ]
    make(Labels(), eval_dataloader=some).fit()
    assert labels == [(1, "asked"), (2, "batches"), (4, "batches"), (4, "epochs")]
    assert set(asked) <= {Event.BATCH_END, Event.EPOCH_END, Event.FIT_END}


def test_an_evaluator_that_says_no_at_the_end_is_left_alone(make, recorder, loader) -> None:
    """What the function of an evaluator does not want is neither run nor told of."""
    make(recorder, eval_dataloader=loader(4), eval_interval=lambda state, event: False).fit()
    assert not [name for name in recorder.names if name.startswith("eval")]


def test_eval_and_predict_on_their_own(make, recorder, loader) -> None:
    """`eval` has the standalone pair and no `EVAL_BEFORE_ALL`; `predict` its own events."""
    trainer = make(recorder, eval_dataloader=loader(8))
    recorder.events.clear()
    trainer.eval()
    batch = ["eval_batch_start", "eval_before_forward", "eval_after_forward", "eval_batch_end"]
    assert recorder.names == [
        "eval_standalone_start", "eval_start", *batch, *batch, "eval_end", "eval_standalone_end",
    ]  # fmt: skip
    recorder.events.clear()
    outputs = trainer.predict(loader(8))
    assert [tuple(one.shape) for one in outputs] == [(4, 3), (4, 3)]
    batch = [
        "predict_batch_start", "predict_before_forward", "predict_after_forward",
        "predict_batch_end",
    ]  # fmt: skip
    assert recorder.names == ["predict_start", *batch, *batch, "predict_end"]
    assert trainer.state.predict_timestamp.sample == 8
    assert trainer.predict(loader(8), 1, return_outputs=False) == []


def test_destinations_come_first_at_init_and_last_otherwise(make) -> None:
    """Loggers are called before callbacks at `INIT`, and after them at every other event."""
    from trainer_hooks.compat.composer.loggers import LoggerDestination

    order = []

    class One(Callback):
        def run_event(self, event, state, logger):
            order.append((event.value, "callback"))

    class Two(LoggerDestination):
        def run_event(self, event, state, logger):
            order.append((event.value, "logger"))

    make(One(), loggers=[Two()]).fit()
    assert [who for name, who in order if name == "init"] == ["logger", "callback"]
    assert [who for name, who in order if name == "fit_start"] == ["callback", "logger"]


def test_close_comes_when_the_trainer_goes(net, loader, recorder) -> None:
    """Without `close()` callbacks are closed once nobody holds the trainer, as by its engine."""
    from trainer_hooks.compat.composer import Trainer

    trainer = Trainer(
        model=net, train_dataloader=loader(), max_duration="1ep", device="cpu",
        optimizers=__import__("torch").optim.SGD(net.parameters(), lr=0.1),
        callbacks=[recorder], progress_bar=False,
    )  # fmt: skip
    trainer.fit()
    del trainer
    assert recorder.names[-2:] == ["close", "post_close"]


def test_a_close_that_fails_stops_nobody(make, recorder, caplog) -> None:
    """An error in `close` is logged, its callback has no `post_close`, the others have both."""

    class Bad(Callback):
        closed = 0

        def close(self, state, logger):
            raise ValueError("no")

        def post_close(self):
            self.closed += 1

    bad = Bad()
    make(bad, recorder).close()
    assert (bad.closed, recorder.names[-2:]) == (0, ["close", "post_close"])


def test_a_fit_that_fails_is_closed_like_any_other(make) -> None:
    """Every callback is closed, and then each has its `post_close`."""
    calls = []

    class Fails(Callback):
        def batch_end(self, state, logger):
            raise LookupError("here")

        def close(self, state, logger):
            calls.append("close")

        def post_close(self):
            calls.append("post_close")

    trainer = make(Fails(), type("Second", (Fails,), {})())
    with pytest.raises(LookupError):
        trainer.fit()
    assert calls == []
    trainer.close()
    assert calls == ["close", "close", "post_close", "post_close"]


def test_the_guard_against_two_trainers(make, recorder) -> None:
    """A callback that is still open in one trainer is refused by another until that is closed."""
    first = make(recorder)
    with pytest.raises(RuntimeError, match="takes part in a trainer that is not closed"):
        make(recorder)
    first.close()
    make(recorder).fit()


def test_an_error_names_the_event_and_the_callback(make) -> None:
    """An error in a callback keeps its type, and says at which event of whose it was raised."""

    class Bad(Callback):
        def batch_end(self, state, logger):
            raise LookupError("here")

    with pytest.raises(LookupError) as found:
        make(Bad()).fit()
    assert "raised at event 'batch_end' of" in found.value.__notes__[0]


@pytest.mark.parametrize(
    ("before", "event", "at", "after", "batches"),
    [
        ("2ep", "batch_end", 3, "3ep", 12), ("2ep", "fit_start", 0, "1ep", 4),
        ("2ep", "batch_end", 2, Time(5, "ba"), 5), ("2ep", "epoch_end", 4, "6ba", 6),
        ("3ep", "batch_end", 6, "1ep", 6), ("3ep", "batch_end", 6, "4ba", 6),
        ("5ba", "batch_checkpoint", 2, "7ba", 7), ("5ba", "batch_end", 5, "9ba", 9),
        ("6ba", "batch_end", 2, "2ep", 8), ("2ep", "batch_start", 1, "12sp", 3),
        ("12sp", "batch_end", 3, "20sp", 5),
        # as the epoch begins, its first batch is still trained
        ("3ep", "epoch_start", 4, "1ep", 5), ("3ep", "epoch_start", 4, "4ba", 5),
    ],
)  # fmt: skip
def test_max_duration_is_set_in_a_fit(make, recorder, loader, before, event, at, after, batches):
    """The fit under way obeys it: it ends later or earlier, with the events of its end."""

    class Change(Callback):
        def run_event(self, now, state, logger):
            if now.value == event and state.timestamp.batch == at:
                state.max_duration = after

    trainer = make(
        Change(), recorder, max_duration=before, eval_dataloader=loader(4), eval_interval="1dur"
    )
    trainer.fit()
    assert (trainer.state.timestamp.batch, str(trainer.state.max_duration)) == (
        batches, str(after) if isinstance(after, str) else "5ba",
    )  # fmt: skip
    assert [n for n, _, _ in recorder.events if n == "fit_end"] == ["fit_end"]
    assert [batch for name, _, batch in recorder.events if name == "eval_start"] == [batches]


@pytest.mark.parametrize(
    ("interval", "longest", "due"),
    [
        ("0.25dur", "2ep", [2, 4, 6, 8]), ("0.3dur", "2ep", [3, 6, 8]),
        ("0.3dur", "5ba", [2, 4, 5]), ("0.5dur", "24sp", [3, 6]),
    ],
)  # fmt: skip
def test_an_interval_that_is_a_share(make, recorder, loader, interval, longest, due) -> None:
    """`dur` is counted in batches, samples or tokens, rounded up, and due at the end, too."""
    options = {"eval_dataloader": loader(4), "eval_interval": interval}
    make(recorder, max_duration=longest, **options).fit()
    assert [batch for name, _, batch in recorder.events if name == "eval_start"] == due


def test_evaluators_due_at_the_end_beside_another(make, loader) -> None:
    """One that is due as the training ends runs, though another is due at that moment, too."""
    ran = []

    class Labels(Callback):
        def eval_start(self, state, logger):
            ran.append((state.dataloader_label, int(state.timestamp.batch)))

    some = [
        Evaluator(label=label, dataloader=loader(4), eval_interval=interval)
        for label, interval in (("a", "3ba"), ("b", "1ep"))
    ]
    make(Labels(), eval_dataloader=some, max_duration="2ep").fit()
    assert sorted(ran, key=lambda one: one[1])[:3] == [("a", 3), ("b", 4), ("a", 6)]
    assert sorted(ran[3:]) == [("a", 8), ("b", 8)]


@pytest.mark.parametrize("is_callback", [False, True])
def test_saves_at_a_share(make, tmp_path, is_callback) -> None:
    """`save_interval="0.3dur"` is rounded as an evaluator's interval is."""
    if is_callback:
        saver = CheckpointSaver(
            str(tmp_path / "saved"), "ba{batch}.pt", remote_file_name=None, latest_filename=None,
            save_interval="0.3dur",
        )  # fmt: skip
        make(saver, max_duration="2ep").fit()
    else:
        make(
            max_duration="2ep", save_folder=str(tmp_path / "saved"), save_interval="0.3dur",
            save_filename="ba{batch}.pt", save_latest_filename=None,
        ).fit()  # fmt: skip
    assert sorted(one.name for one in (tmp_path / "saved").glob("ba*")) == [
        "ba3.pt", "ba6.pt", "ba8.pt",
    ]  # fmt: skip
