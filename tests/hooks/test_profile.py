"""HookProfile: exact times by a clock that only the listeners move."""

from __future__ import annotations

import io
import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainer_hooks.callback import Callback
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.errors import OptionError, StopTraining, TrainerHooksWarning
from trainer_hooks.hooks.profile import HookProfile

if TYPE_CHECKING:
    from trainer_hooks.hooks.relay import HookRelay

MS = 1_000_000


class Clock:
    """Tells a time that stands still until somebody lets it pass."""

    def __init__(self) -> None:
        self.now = 5_000

    def __call__(self) -> int:
        return self.now

    def passes(self, milliseconds: float):
        self.now += int(milliseconds * MS)


class Taking(Callback):
    """Takes a time at the hooks that it is told of: a number of ms, or a list of them."""

    def __init__(self, clock: Clock, key: str = "Taking", **times) -> None:
        self.key = key
        for hook, taken in times.items():
            setattr(self, hook, self._listener(clock, taken))

    @staticmethod
    def _listener(clock, taken):
        left = list(taken) if isinstance(taken, list) else None

        def listen(*args):
            clock.passes(taken if left is None else left.pop(0))

        return listen

    @property
    def state_key(self) -> str:
        return self.key


class Other(Taking):
    """Another class."""


class Loop:
    """A relay of a connector, fired as a loop fires it; `work` ms pass in a batch itself."""

    def __init__(self, clock: Clock, *callbacks: Callback, **options) -> None:
        self.clock = clock
        self.connector = CallbackConnector(callbacks, discover=False)
        self.relay = self.connector.relay
        self.profile = HookProfile(clock=clock, **options).start(self.relay)

    def begin(self) -> None:
        self.relay.on_before_dataloader("trainer", "module")

    def end(self) -> None:
        self.relay.on_train_batch_end("trainer", "module", {}, "batch", 0)
        self.relay.on_batch_checkpoint("trainer", "module")

    def batch(self, work: float = 10) -> None:
        self.begin()
        self.clock.passes(work)
        self.end()

    def batches(self, number: int, work: float = 10) -> None:
        for _ in range(number):
            self.batch(work)

    def cost(self, hook, name="Taking"):
        found = [r for r in self.profile.records if (r.hook, r.name) == (hook, name)]
        assert len(found) == 1, self.profile.records
        return found[0]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def table_of(profile: HookProfile) -> list[str]:
    """Return the lines of a profile's table."""
    file = io.StringIO()
    profile.table(file)
    return file.getvalue().splitlines()


def test_calls_total_mean_and_max(clock) -> None:
    """A record has the number of calls, their time together, the mean, and the longest."""
    loop = Loop(clock, Taking(clock, on_fit_start=[1, 6, 2]))
    for _ in range(3):
        loop.relay.on_fit_start("trainer", "module")
    (record,) = loop.profile.records
    assert (record.hook, record.calls) == ("on_fit_start", 3)
    assert (record.total, record.mean, record.max) == pytest.approx((0.009, 0.003, 0.006))


def test_a_record_says_whose_it_is(clock) -> None:
    """A record names the callback's class, its state_key, and who supplied it."""
    loop = Loop(clock, Taking(clock, "mine", on_fit_start=1))
    loop.relay.on_fit_start("trainer", "module")
    (record,) = loop.profile.records
    assert (record.name, record.state_key, record.supplier) == (
        "Taking",
        "mine",
        "Trainer(callbacks=...)",
    )


def test_hooks_that_were_not_called_have_no_record(clock) -> None:
    """Only what was called is listed."""
    loop = Loop(clock, Taking(clock, on_fit_start=1, on_fit_end=1))
    loop.relay.on_fit_end("trainer", "module")
    assert [record.hook for record in loop.profile.records] == ["on_fit_end"]


def test_the_module_is_listed_too(clock) -> None:
    """The module's own hooks have records, with the module's class as their name."""

    class Net:
        def on_fit_start(self):
            clock.passes(4)

    loop = Loop(clock, Taking(clock, on_fit_start=1))
    loop.connector.set_module(Net())
    loop.relay.on_fit_start("trainer", "module")
    record = loop.profile.records[0]
    assert record.name.endswith("Net")
    assert (record.supplier, record.state_key) == ("the module itself", "")
    assert record.total == pytest.approx(0.004)


def test_share_is_of_the_batches(clock) -> None:
    """A share is the time inside of training batches by the time of those batches."""
    loop = Loop(clock, Taking(clock, on_train_batch_end=2), Other(clock, on_batch_checkpoint=4))
    loop.batches(3, work=14)
    assert loop.profile.batches == 3
    assert loop.profile.batch_seconds == pytest.approx(0.060)
    assert loop.cost("on_train_batch_end").share == pytest.approx(2 / 20)
    assert loop.cost("on_batch_checkpoint", "Other").share == pytest.approx(4 / 20)


def test_a_batch_goes_from_the_first_thing_to_the_last(clock) -> None:
    """The listeners of the first and of the last hook are inside of the batch."""
    loop = Loop(clock, Taking(clock, on_before_dataloader=1, on_batch_checkpoint=1))
    loop.batches(2, work=8)
    clock.passes(100)
    assert loop.profile.batch_seconds == pytest.approx(0.020)
    assert loop.profile.totals[0].share == pytest.approx(0.2)


def test_hooks_outside_of_batches_have_no_share(clock) -> None:
    """What fires between batches has calls and times, and no share."""
    loop = Loop(clock, Taking(clock, on_train_epoch_end=5, on_train_batch_end=1))
    loop.batches(2, work=9)
    loop.relay.on_train_epoch_end("trainer", "module")
    assert loop.cost("on_train_epoch_end").share is None
    assert loop.cost("on_train_batch_end").share == pytest.approx(0.1)


def test_a_hook_that_fires_inside_and_outside_has_the_share_of_what_was_inside(clock) -> None:
    """`on_log` at the end of an epoch adds to the total, and not to the share."""
    loop = Loop(clock, Taking(clock, on_log=5))
    loop.begin()
    loop.relay.on_log("trainer", "module", {}, 0)
    clock.passes(15)
    loop.end()
    loop.relay.on_log("trainer", "module", {}, 0)
    assert loop.cost("on_log").total == pytest.approx(0.010)
    assert loop.cost("on_log").share == pytest.approx(5 / 20)


def test_a_validation_inside_of_a_batch_is_left_out(clock) -> None:
    """A validation that is due on a batch is no part of it: neither its time nor its hooks."""
    listener = Taking(clock, on_validation_run_start=7, on_validation_end=3, on_batch_checkpoint=1)
    loop = Loop(clock, listener)
    loop.begin()
    clock.passes(9)
    loop.relay.on_validation_run_start("trainer", "module")
    clock.passes(500)
    loop.relay.on_validation_end("trainer", "module")
    loop.relay.on_validation_run_end("trainer", "module")
    loop.end()
    assert loop.profile.batch_seconds == pytest.approx(0.010)
    assert loop.cost("on_validation_end").share is None
    assert loop.cost("on_validation_run_start").share is None
    assert loop.cost("on_batch_checkpoint").share == pytest.approx(0.1)


def test_a_batch_that_is_cut_off_counts_for_no_share(clock) -> None:
    """Where the loader ran out, or an error came, the calls count and the batch does not."""
    loop = Loop(clock, Taking(clock, on_before_dataloader=2, on_train_batches_end=50))
    loop.batches(1, work=8)
    loop.begin()
    clock.passes(70)
    loop.relay.on_train_batches_end("trainer", "module")
    loop.batches(1, work=8)
    assert loop.profile.batches == 2
    assert loop.cost("on_before_dataloader").calls == 3
    assert loop.cost("on_before_dataloader").share == pytest.approx(0.2)
    assert loop.cost("on_train_batches_end").share is None


def test_a_validation_that_is_cut_off_ends_with_its_batch(clock) -> None:
    """Where a validation inside of a batch came to no end, the next batch is timed as ever."""
    loop = Loop(clock, Taking(clock, on_train_batch_end=1))
    loop.begin()
    loop.relay.on_validation_run_start("trainer", "module")
    clock.passes(100)
    loop.batch(work=9)
    assert loop.profile.batch_seconds == pytest.approx(0.010)
    assert loop.cost("on_train_batch_end").share == pytest.approx(0.1)


def test_a_resumed_run_does_not_end_the_batch_of_another(clock) -> None:
    """`on_batch_checkpoint` without a beginning, as a resume fires it, ends no batch."""
    loop = Loop(clock, Taking(clock, on_batch_checkpoint=1))
    loop.begin()
    loop.relay.teardown("trainer", "module", "fit")
    clock.passes(1000)
    loop.end()
    assert loop.profile.batches == 0
    assert loop.cost("on_batch_checkpoint").share is None


class Firing(Callback):
    """Fires another hook inside of its own, 1 ms after it began and 2 ms before it ends."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.fire = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.clock.passes(1)
        self.fire()
        self.clock.passes(2)

    def on_log(self, trainer, module, metrics, step):
        self.clock.passes(4)


def test_nested_hooks_count_once(clock) -> None:
    """A hook that fires others has its own time; theirs is theirs; together they are the whole."""
    firing, other = Firing(clock), Taking(clock, on_log=8)
    loop = Loop(clock, firing, other)
    firing.fire = lambda: loop.relay.on_log("trainer", "module", {}, 0)
    loop.batch(work=5)
    assert loop.cost("on_train_batch_end", "Firing").total == pytest.approx(0.003)
    assert loop.cost("on_log", "Firing").total == pytest.approx(0.004)
    assert loop.cost("on_log").total == pytest.approx(0.008)
    assert loop.profile.totals[0].name == "Taking"
    assert loop.profile.totals[1].total == pytest.approx(0.007)
    assert sum(record.share for record in loop.profile.records) == pytest.approx(15 / 20)


def test_events_of_ones_own_are_timed(clock) -> None:
    """An event that is no hook is timed under its name, also inside of a hook."""

    class Listens(Callback):
        def paused(self, reason):
            clock.passes(3)

    firing = Firing(clock)
    loop = Loop(clock, firing, Listens())
    firing.fire = lambda: loop.relay.fire_event("paused", ("trainer", "module"), {"reason": "x"})
    loop.batch()
    found = [r for r in loop.profile.records if r.hook == "paused"]
    assert [(r.calls, round(r.total, 9)) for r in found] == [(1, 0.003)]
    assert loop.cost("on_train_batch_end", "Firing").total == pytest.approx(0.003)


def test_an_error_is_timed_and_keeps_its_notes(clock) -> None:
    """A hook that raises is timed, and the error says where it was raised as ever."""

    class Fails(Callback):
        def on_fit_start(self, trainer, module):
            clock.passes(2)
            raise RuntimeError("broken")

    loop = Loop(clock, Fails(), Taking(clock, on_fit_end=1))
    with pytest.raises(RuntimeError) as caught:
        loop.relay.on_fit_start("trainer", "module")
    assert any("'on_fit_start' of callback" in note for note in caught.value.__notes__)
    loop.relay.on_fit_end("trainer", "module")
    assert loop.profile.records[0].total == pytest.approx(0.002)
    assert loop.cost("on_fit_end").total == pytest.approx(0.001)


def test_an_error_in_a_nested_hook_leaves_the_times_in_order(clock) -> None:
    """After an error on its way through two hooks, each has its own time."""

    class Fails(Callback):
        def on_log(self, trainer, module, metrics, step):
            clock.passes(8)
            raise StopTraining("enough")

    firing = Firing(clock)
    loop = Loop(clock, firing, Fails())
    firing.fire = lambda: loop.relay.on_log("trainer", "module", {}, 0)
    with pytest.raises(StopTraining):
        loop.batch()
    assert loop.cost("on_train_batch_end", "Firing").total == pytest.approx(0.001)
    failed = next(r for r in loop.profile.records if r.name.endswith("Fails"))
    assert failed.total == pytest.approx(0.008)


def test_a_disabled_callback_is_still_disabled(clock) -> None:
    """`on_error = "disable"` holds while somebody looks on: reported once, and taken out."""

    class Fails(Callback):
        on_error = "disable"

        def on_fit_start(self, trainer, module):
            clock.passes(2)
            raise RuntimeError("broken")

    loop = Loop(clock, Fails(), Taking(clock, on_fit_start=1))
    with pytest.warns(TrainerHooksWarning, match="takes no further part"):
        loop.relay.on_fit_start("trainer", "module")
    loop.relay.on_fit_start("trainer", "module")
    failed = next(r for r in loop.profile.records if r.name.endswith("Fails"))
    assert (failed.calls, failed.total) == (1, pytest.approx(0.002))
    assert loop.cost("on_fit_start").calls == 2


def test_a_callback_that_comes_later_is_watched(clock) -> None:
    """One that is added while a hook fires is timed from the next firing on."""
    loop = Loop(clock)

    class Adds(Callback):
        def on_fit_start(self, trainer, module):
            loop.connector.add(Taking(clock, on_fit_start=3, on_fit_end=2))

    loop.connector.add(Adds())
    loop.relay.on_fit_start("trainer", "module")
    loop.relay.on_fit_end("trainer", "module")
    assert [r.hook for r in loop.profile.records if r.name == "Taking"] == ["on_fit_end"]


def test_a_callback_that_listens_to_every_event_has_its_hooks(clock) -> None:
    """A `run_event` is timed under the name of each event."""

    class Routes(Callback):
        def run_event(self, event, *args):
            clock.passes(1)

    loop = Loop(clock, Routes())
    loop.batch()
    assert {"on_before_dataloader", "on_train_batch_end"} <= {r.hook for r in loop.profile.records}
    assert loop.profile.totals[0].calls == 3


# --- taken out, it costs nothing ---


def frames_of(relay: HookRelay) -> list[tuple[str, str]]:
    """Return file and name of every Python function that one firing calls."""
    seen = []

    def note(frame, event, argument):
        if event == "call":
            seen.append((frame.f_code.co_filename.rpartition("/")[2], frame.f_code.co_name))

    sys.setprofile(note)
    try:
        relay.on_fit_start("trainer", "module")
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.linux  # a stand-in has frames of its own
@pytest.mark.posix
def test_taken_out_it_leaves_nothing_behind(clock) -> None:
    """After `stop()` a firing calls the functions that it called before, and no other."""

    class Plain(Callback):
        def on_fit_start(self, trainer, module):
            pass

    connector = CallbackConnector([Plain(), Plain()], discover=False)
    relay, listened = connector.relay, connector.relay.listened
    before = frames_of(relay)
    profile = HookProfile(clock=clock).start(relay)
    relay.on_fit_end("trainer", "module")
    during = frames_of(relay)
    profile.stop()
    relay.on_fit_end("trainer", "module")
    own = "test_profile.py", "on_fit_start"
    assert before == [("relay.py", "fire"), own, own]
    assert ("profile.py", "timed") in during
    assert frames_of(relay) == before
    assert relay.listened == listened
    assert [record.calls for record in profile.records] == [1, 1]


def test_a_profile_that_was_stopped_keeps_what_it_found(clock) -> None:
    """`stop()` twice does no harm, and calls after it are not counted."""
    loop = Loop(clock, Taking(clock, on_fit_start=1))
    with loop.profile as profile:
        assert profile.is_active
        loop.relay.on_fit_start("trainer", "module")
    profile.stop()
    loop.relay.on_fit_start("trainer", "module")
    assert not profile.is_active
    assert profile.records[0].calls == 1


def test_stopped_inside_of_a_batch(clock) -> None:
    """The batch in which it is taken out counts for nothing, nor does the hook that does it."""
    loop = Loop(clock)

    class Stops(Callback):
        def on_train_batch_end(self, *args):
            loop.profile.stop()

    loop.connector.add(Stops())
    loop.batches(2)
    assert loop.profile.batches == 0
    assert loop.profile.records[0].calls == 1
    assert loop.profile.records[0].share is None


def test_out_and_in_again_inside_of_a_batch(clock) -> None:
    """A batch of which a part went by unseen counts for nothing."""
    loop = Loop(clock, Taking(clock, on_train_batch_end=1))
    loop.begin()
    loop.profile.stop()
    clock.passes(100)
    loop.profile.start(loop.relay)
    loop.end()
    assert loop.profile.batches == 0
    loop.batch(work=9)
    assert loop.profile.batch_seconds == pytest.approx(0.010)


def test_clear_forgets_calls_and_batches(clock) -> None:
    """After `clear()` it begins anew, and goes on."""
    loop = Loop(clock, Taking(clock, on_train_batch_end=1), max_events=3)
    loop.batches(4)
    loop.profile.clear()
    assert (loop.profile.records, loop.profile.batches, loop.profile.dropped_events) == ((), 0, 0)
    loop.batches(2, work=9)
    assert loop.cost("on_train_batch_end").calls == 2
    assert loop.cost("on_train_batch_end").share == pytest.approx(0.1)


# --- names and table ---


def test_callbacks_of_one_class_are_told_apart(clock) -> None:
    """Several of one class are named by their state_key, and numbered where that is the same."""
    hook = {"on_fit_start": 1}
    keys = ["a", "Taking{'x': 1}", "same", "same"]
    loop = Loop(clock, *(Taking(clock, key, **hook) for key in keys), Other(clock, **hook))
    loop.relay.on_fit_start("trainer", "module")
    assert {r.name for r in loop.profile.records} == {
        "Taking a",
        "Taking{'x': 1}",
        "Taking same #1",
        "Taking same #2",
        "Other",
    }


def test_the_table_is_sorted_and_has_totals(clock) -> None:
    """Most time first; a callback with several hooks has a line for all of them; "-" for none."""
    first = Taking(clock, on_train_batch_end=1, on_fit_start=0.5)
    loop = Loop(clock, first, Other(clock, on_train_batch_end=0.75))
    loop.relay.on_fit_start("trainer", "module")
    loop.batch(work=8.25)
    title, head, rule, *lines = table_of(loop.profile)
    assert title == (
        "Own time of hooks on the host; share of 1 training batches, which took 10.00 ms"
    )
    assert head.split() == ["callback", "from", "hook", "calls", "total", "mean", "max", "share"]
    assert set(rule) == {"-"}
    cells = [line.replace("Trainer(callbacks=...)", "user").split("  ") for line in lines]
    assert [[cell.strip() for cell in row if cell] for row in cells] == [
        ["Taking", "user", "all hooks", "2", "1.50 ms", "750.00 us", "1.00 ms", "10.00%"],
        ["Taking", "user", "on_train_batch_end", "1", "1.00 ms", "1.00 ms", "1.00 ms", "10.00%"],
        ["Other", "user", "on_train_batch_end", "1", *["750.00 us"] * 3, "7.50%"],
        ["Taking", "user", "on_fit_start", "1", *["500.00 us"] * 3, "-"],
    ]


def test_an_empty_table(clock, capsys) -> None:
    """Without any call the table has its head, and goes to standard output."""
    HookProfile(clock=clock).table()
    printed = capsys.readouterr().out
    assert printed.startswith("Own time of hooks on the host; share of 0 training batches\n")


# --- the trace ---


def trace_in(path: str) -> dict:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def test_the_trace_can_be_read_back(clock, tmp_path) -> None:
    """The file is the JSON that trace viewers open: spans in microseconds, on named lanes."""
    firing = Firing(clock)
    loop = Loop(clock, firing, Taking(clock, on_log=8))
    firing.fire = lambda: loop.relay.on_log("trainer", "module", {}, 0)
    loop.batch(work=5)
    written = loop.profile.export_chrome_trace(tmp_path / "new" / "trace.json")
    assert written == str(tmp_path / "new" / "trace.json")
    trace = trace_in(written)
    lanes = {
        e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"
    }
    assert sorted(lanes.values()) == ["Firing", "Taking", "training batches"]
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [(lanes[e["tid"]], e["name"], e["ts"], e["dur"]) for e in spans] == [
        ("training batches", "batch 1", 0.0, 20_000.0),
        ("Firing", "on_train_batch_end", 5_000.0, 15_000.0),
        ("Firing", "on_log", 6_000.0, 4_000.0),
        ("Taking", "on_log", 10_000.0, 8_000.0),
    ]
    assert {e["ph"] for e in trace["traceEvents"]} == {"M", "X"}
    assert len({e["pid"] for e in trace["traceEvents"]}) == 1
    costs = trace["otherData"].pop("costs")
    assert costs == [asdict(record) for record in loop.profile.records]
    assert trace["otherData"] == {
        "events": 4,
        "dropped_events": 0,
        "training_batches": 1,
        "batch_seconds": 0.02,
    }
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["trace.json"]


def test_what_encloses_comes_first_in_the_trace(clock, tmp_path) -> None:
    """A batch stands before the hook that began with it, so that a viewer nests them."""
    loop = Loop(clock, Taking(clock, on_before_dataloader=1))
    loop.batch()
    trace = trace_in(loop.profile.export_chrome_trace(tmp_path / "trace.json"))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [(span["name"], span["ts"]) for span in spans] == [
        ("batch 1", 0.0),
        ("on_before_dataloader", 0.0),
    ]


def test_the_trace_remembers_the_last_events(clock, tmp_path) -> None:
    """Memory is bounded: old events go, and the file and the table say how many."""
    loop = Loop(clock, Taking(clock, on_train_batch_end=1), max_events=3)
    loop.batches(5)
    assert loop.profile.dropped_events == 7
    trace = trace_in(loop.profile.export_chrome_trace(tmp_path / "trace.json"))
    names = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert names == ["batch 4", "batch 5", "on_train_batch_end"]
    assert trace["otherData"]["dropped_events"] == 7
    assert "the last 3 of 10 events: 7 were dropped" in table_of(loop.profile)[0]
    assert loop.cost("on_train_batch_end").calls == 5


def test_an_empty_trace(clock, tmp_path) -> None:
    """A trace without an event is a valid file all the same."""
    trace = trace_in(HookProfile(clock=clock).export_chrome_trace(tmp_path / "trace.json"))
    lane, place = trace["traceEvents"]
    assert (lane["args"], place["args"]) == ({"name": "training batches"}, {"sort_index": 0})


def test_a_trace_is_written_whole_or_not_at_all(clock, tmp_path, monkeypatch) -> None:
    """If writing fails, what was there before is untouched and nothing is left beside it."""
    path = tmp_path / "trace.json"
    path.write_text("older")

    def fail(data, file):
        file.write("{")
        raise OSError("no room")

    monkeypatch.setattr("trainer_hooks.hooks.profile.json.dump", fail)
    with pytest.raises(OSError, match="no room"):
        HookProfile(clock=clock).export_chrome_trace(path)
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("value", [0, -1, 1.5, "10", True, None])
def test_max_events_must_be_a_number(value) -> None:
    """A bound that is none is refused with its rule."""
    with pytest.raises(OptionError, match=r"max_events .* must be an int of at least 1"):
        HookProfile(max_events=value)


# --- the budget ---


def warnings_of(loop: Loop, batches: int, work: float = 10) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.batches(batches, work)
    assert all(issubclass(w.category, TrainerHooksWarning) for w in caught)
    return [str(w.message) for w in caught]


def test_over_the_budget_is_warned_of_once_by_name(clock) -> None:
    """One warning: who, from whom, at which hook most, how much, the budget, and what to do."""
    slow = Taking(clock, "slow", on_train_batch_end=1, on_batch_checkpoint=0.25)
    loop = Loop(clock, slow, Other(clock, on_train_batch_end=0.05), budget=0.02)
    assert warnings_of(loop, 19, work=8.7) == []
    (message,) = warnings_of(loop, 100, work=8.7)
    assert message == (
        "callback Taking (state_key 'slow', from Trainer(callbacks=...)) takes 12.5% of the time "
        "of a training batch, most of it in 'on_train_batch_end': the hook budget is 2%. Let it do "
        "less, or do it less often; take it out; or raise the budget. "
        "trainer.hook_profile.table() shows what each hook costs."
    )


def test_each_callback_is_warned_of(clock) -> None:
    """Two that are over it are two warnings, whatever was cleared in between."""
    loop = Loop(
        clock, Taking(clock, on_log=1, on_train_batch_end=1), Other(clock, on_train_batch_end=1),
        budget=0.005,
    )  # fmt: skip
    first, second = warnings_of(loop, 30)
    assert first.startswith("callback Taking")
    assert second.startswith("callback Other")
    assert "is 0.5%" in second
    loop.profile.clear()
    assert warnings_of(loop, 30) == []


def test_within_the_budget_nothing_is_said(clock) -> None:
    """A callback that takes just what it may is not warned of."""
    loop = Loop(clock, Taking(clock, on_train_batch_end=1), budget=0.1)
    assert warnings_of(loop, 100, work=9) == []


def test_what_is_done_in_the_first_batches_does_not_count(clock) -> None:
    """A callback that takes its time once, at the start, is within the budget."""
    loop = Loop(clock, Taking(clock, on_train_batch_end=[500] * 5 + [0] * 95), budget=0.01)
    assert warnings_of(loop, 100) == []
    assert loop.cost("on_train_batch_end").share > 0.5


def test_what_is_outside_of_batches_does_not_count(clock) -> None:
    """The budget is about training batches: a slow end of an epoch is no breach of it."""
    loop = Loop(clock, Taking(clock, on_train_epoch_end=900), budget=0.01)
    assert warnings_of(loop, 30) == []
    loop.relay.on_train_epoch_end("trainer", "module")
    assert warnings_of(loop, 30) == []


def test_time_of_others_does_not_count_for_the_budget(clock) -> None:
    """Who fires a slow callback's hook is not the one who is over the budget."""
    firing = Firing(clock)
    loop = Loop(clock, firing, Taking(clock, on_log=100), budget=0.15)
    firing.fire = lambda: loop.relay.on_log("trainer", "module", {}, 0)
    (message,) = warnings_of(loop, 30)
    assert message.startswith("callback Taking")


def test_the_module_has_no_budget(clock) -> None:
    """The module is what is trained: it is listed, and not warned of."""

    class SlowModule:
        def on_train_batch_end(self, outputs, batch, batch_idx):
            clock.passes(50)

    loop = Loop(clock, budget=0.01)
    loop.connector.set_module(SlowModule())
    assert warnings_of(loop, 30) == []
    assert loop.profile.records[0].share > 0.5


def test_without_a_budget_nothing_is_said(clock) -> None:
    """By default no callback is too slow; a budget that is set later holds from then on."""
    loop = Loop(clock, Taking(clock, on_train_batch_end=50))
    assert warnings_of(loop, 40) == []
    loop.profile.budget = 0.5
    assert len(warnings_of(loop, 1)) == 1


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 2, 1, True, "2%", float("nan")])
def test_a_budget_must_be_a_share(value) -> None:
    """A budget outside of its rule is refused, when it is given and when it is set."""
    with pytest.raises(OptionError, match=r"budget .* over 0 and under 1"):
        HookProfile(budget=value)
    profile = HookProfile(budget=0.5)
    with pytest.raises(OptionError):
        profile.budget = value
    assert profile.budget == 0.5
