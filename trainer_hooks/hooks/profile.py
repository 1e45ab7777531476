"""HookProfile: the time that callbacks take, by callback and hook, and a trace of their calls."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, TextIO

from trainer_hooks._files import replace_file
from trainer_hooks._log import warn
from trainer_hooks._text import show_table
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.hooks.relay import RelayMember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trainer_hooks.hooks.relay import HookRelay

_WARM_UP = 5
"""First training batches that do not count for the budget: one-time work is done in them."""

_MIN_BATCHES = 20
"""Training batches before the budget is enforced, so that one slow call proves nothing."""

_BATCHES_LANE = 0

Span = tuple[int, str, int, int]
"""An interval of a trace: lane number, name, start and length; the times in ns."""


class HookProfile:
    """Time every call of every callback, and of the module's hooks, while it is in a relay.

    `trainer.profile_hooks()` starts one; `stop()`, or the end of its `with` block, ends it.

    - Times are the host's. With a GPU, a hook that only enqueues work is cheap here, and one that
      waits for the device, as `.item()` does, has the whole wait.
    - A call counts with its own time. Hooks that it fires in turn, as `trainer.save_checkpoint` and
      `trainer.call_event` do, count for the callbacks that are called there: nothing counts twice,
      and all times add up. In the trace a call has its whole length.
    - A training batch lasts from the first call at `on_before_dataloader` to the last call at
      `on_batch_checkpoint`, without a validation in between. A callback's share is its time inside
      those batches, divided by the time of those batches. Other hooks have none. A batch that is
      cut off, as by an error, counts for no share.
    - The first 5 training batches do not count for the budget, and it is not enforced before the
      20th. It does not apply to the module.

    Args:
        budget: the share of the training batches' time, over 0 and under 1, that a callback may
            take. A callback that takes more is warned of once. None for no limit.
        max_events: the number of calls and batches that the trace keeps: the last ones.
        clock: returns the time in ns.

    Attributes:
        opening: the relay's first member, which begins training batches.
        closing: the relay's last member, which ends them.

    Raises:
        OptionError: an argument breaks its rule.
    """

    def __init__(
        self,
        *,
        budget: float | None = None,
        max_events: int = 100_000,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        if isinstance(max_events, bool) or not isinstance(max_events, int) or max_events < 1:
            raise OptionError(
                f"max_events {max_events!r} of HookProfile: it must be an int of at least 1. Leave "
                "it out to remember the last 100000."
            )
        self.budget = budget
        self._batch = BatchTimer(clock)
        # two members, as a batch is to enclose the calls of all others; a validation inside it is
        # left out with all calls of its first and last hook
        self.opening = RelayMember(
            SimpleNamespace(
                on_before_dataloader=self._begin_batch,
                on_validation_run_start=lambda *_: self._batch.pause(),
                teardown=self._abandon_batch,
            ),
            "the hook profile",
        )
        self.closing = RelayMember(
            SimpleNamespace(
                on_validation_run_end=lambda *_: self._batch.resume(),
                on_batch_checkpoint=self._end_batch,
            ),
            "the hook profile",
        )
        self._clock = clock
        self._table = HookCostTable()
        self._calls_in_batch: list[tuple[HookTally, int]] = []
        self._spans: deque[Span] = deque(maxlen=max_events)
        self._recorded = 0
        self._nested = 0
        self._batches_seen = 0
        self._budget_ns = 0
        self._relay: HookRelay | None = None

    # --- start and stop ---

    @property
    def budget(self) -> float | None:
        """The share of the training batches' time that a callback may take; may be set."""
        return self._budget

    @budget.setter
    def budget(self, share: float | None) -> None:
        if share is not None and not (isinstance(share, float) and 0 < share < 1):
            raise OptionError(
                f"budget {share!r} of HookProfile: it must be a float over 0 and under 1, the "
                "share of a training batch's time, or None. Write 0.02 for 2%."
            )
        self._budget = share

    @property
    def is_active(self) -> bool:
        """Whether the profile is in a relay."""
        return self._relay is not None

    def start(self, relay: HookRelay) -> Self:
        """Time the calls of a relay from its next firing on; return this profile."""
        self._relay = relay
        relay.observe(self)
        return self

    def stop(self) -> None:
        """Leave the relay, so that hooks cost no more than before; the records stay."""
        if self._relay is not None:
            self._relay.leave(self)
            self._relay = None
            # its end would come unseen, so that the batch would seem to last to the next start
            self._abandon_batch()

    def clear(self) -> None:
        """Forget all calls and batches; the times that count for the budget stay."""
        self._table.clear()
        self._batch.clear()
        self._calls_in_batch.clear()
        self._spans.clear()
        self._recorded = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- results ---

    @property
    def batches(self) -> int:
        """Number of training batches that were timed from their beginning to their end."""
        return self._batch.batches

    @property
    def batch_seconds(self) -> float:
        """Time of the timed training batches, in seconds."""
        return self._batch.total / 1e9

    @property
    def dropped_events(self) -> int:
        """Number of calls and batches that the trace no longer keeps."""
        return self._recorded - len(self._spans)

    @property
    def records(self) -> tuple[HookCost, ...]:
        """The cost of each callback at each hook at which it was called, most time first."""
        return self._table.costs(self._batch.total)

    @property
    def totals(self) -> tuple[HookCost, ...]:
        """The cost of each callback over all its hooks, most time first."""
        return self._table.totals(self._batch.total)

    def table(self, file: TextIO | None = None) -> None:
        """Print the records, most time first, and a total for a callback with several records.

        Args:
            file: the stream to write to; standard output if None. On a terminal, rich draws it.
        """
        spent = f", which took {format_duration(self.batch_seconds)}" if self.batches else ""
        title = f"Own time of hooks on the host; share of {self.batches} training batches{spent}"
        if self.dropped_events:
            title += (
                f". The trace has the last {len(self._spans)} of {self._recorded} events: "
                f"{self.dropped_events} were dropped"
            )
        print_costs(self.records, self.totals, title, file)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> str:
        """Write a trace for chrome://tracing or ui.perfetto.dev, whole or not at all.

        Each callback has a lane, and so do the training batches. The file holds the records, too,
        under `otherData`, where `trainer-hooks report` reads them.

        Args:
            path: the file; its folder is made.

        Returns:
            The file's absolute path.
        """
        lanes = {_BATCHES_LANE: "training batches"}
        lanes.update({owner.lane: title for owner, title in self._table.titles().items()})
        other_data = {
            "events": len(self._spans),
            "dropped_events": self.dropped_events,
            "training_batches": self.batches,
            "batch_seconds": self.batch_seconds,
            "costs": [asdict(cost) for cost in self.records],
        }
        trace = chrome_trace(self._spans, lanes, other_data)
        target = Path(path).absolute()
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, lambda file: json.dump(trace, file))
        return str(target)

    # --- measuring ---

    def watched(
        self, hook: str, member: RelayMember, call: Callable[..., object]
    ) -> Callable[..., Any]:
        """Return a function that calls `call` and counts how long that took."""
        # looked up once, when the relay connects, so that a call costs two readings of the clock
        tally = self._table.tally(member, hook)
        clock = self._clock

        def timed(*args: Any) -> object:
            # `_nested` sums the calls inside this one, which count for their own callbacks
            enclosing, self._nested = self._nested, 0
            start = clock()
            try:
                return call(*args)
            # also after an error, or the enclosing call would count this one's time as its own
            finally:
                elapsed = clock() - start
                self_time = elapsed - self._nested
                self._nested = enclosing + elapsed
                tally.add(self_time)
                if self._batch.is_running:
                    self._calls_in_batch.append((tally, self_time))
                self._record((tally.owner.lane, hook, start, elapsed))

        return timed

    def _record(self, span: Span) -> None:
        self._spans.append(span)
        self._recorded += 1

    def _begin_batch(self, *_: object) -> None:
        self._calls_in_batch.clear()
        self._batch.begin()

    def _abandon_batch(self, *_: object) -> None:
        self._calls_in_batch.clear()
        self._batch.abandon()

    def _end_batch(self, *_: object) -> None:
        times = self._batch.end()
        if times is None:  # the profile started, or the run was resumed, inside the batch
            return
        start, length, elapsed = times
        self._record((_BATCHES_LANE, f"batch {self.batches}", start, length))
        # shares count only now, as a batch that an error cuts off is to count for none
        calls, self._calls_in_batch = self._calls_in_batch, []
        for tally, self_time in calls:
            tally.calls_in_batches += 1
            tally.in_batches += self_time
        self._batches_seen += 1
        if self._batches_seen > _WARM_UP:
            self._budget_ns += elapsed
            for tally, self_time in calls:
                tally.owner.budget_ns += self_time
        if self._budget is not None and self._batches_seen >= _MIN_BATCHES:
            self._enforce_budget({tally.owner: None for tally, _ in calls}, self._budget)

    def _enforce_budget(self, owners: Iterable[CostOwner], budget: float) -> None:
        """Warn once of each callback over the budget.

        Args:
            owners: the callbacks called in the last batch; no other can have come over the budget.
            budget: the share of the training batches' time that a callback may take.
        """
        for owner in owners:
            # the module's hooks are a part of the training, which has no budget
            is_callback = owner.member.skip == 0
            if is_callback and not owner.is_reported and owner.budget_ns > budget * self._budget_ns:
                owner.is_reported = True
                worst = self._table.costliest(owner)
                warn(
                    f"{owner.member.label} takes {100 * owner.budget_ns / self._budget_ns:.3g}% of "
                    f"the time of a training batch, most of it in {worst.hook!r}: the hook budget "
                    f"is {100 * budget:.3g}%. Let it do less, or do it less often; take it out; or "
                    "raise the budget. trainer.hook_profile.table() shows what each hook costs.",
                    TrainerHooksWarning,
                )


class BatchTimer:
    """Time training batches one after another, without the pauses in them; times are in ns.

    Args:
        clock: returns the time.

    Attributes:
        batches: number of batches that ended.
        total: time of those, without the pauses.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.batches = 0
        self.total = 0
        self._clock = clock
        self._start: int | None = None
        self._paused_at: int | None = None
        self._paused = 0

    @property
    def is_running(self) -> bool:
        """Whether a batch has begun, has not ended and is not paused."""
        return self._start is not None and self._paused_at is None

    def begin(self) -> None:
        """Begin a batch; forget one that has begun and never ended."""
        self._paused_at = None
        self._paused = 0
        self._start = self._clock()

    def pause(self) -> None:
        """Leave out the time from now on."""
        if self.is_running:
            self._paused_at = self._clock()

    def resume(self) -> None:
        """Count the time again."""
        if self._paused_at is not None:
            self._paused += self._clock() - self._paused_at
            self._paused_at = None

    def end(self) -> tuple[int, int, int] | None:
        """End the batch; return its start, its whole length and its time without the pauses.

        None if no batch has begun.
        """
        if self._start is None:
            return None
        self.resume()
        start, self._start = self._start, None
        length = self._clock() - start
        elapsed = length - self._paused
        self.batches += 1
        self.total += elapsed
        return start, length, elapsed

    def abandon(self) -> None:
        """Forget a batch that was cut off before its end."""
        self._start = self._paused_at = None

    def clear(self) -> None:
        """Forget all batches."""
        self.abandon()
        self.batches = self.total = 0


def chrome_trace(
    spans: Iterable[Span], lanes: Mapping[int, str], other_data: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a trace as plain data for JSON: "complete" events in microseconds.

    Args:
        spans: the intervals.
        lanes: the lanes' names by number; they are drawn in that order.
        other_data: further plain data, put under `otherData`.
    """
    process = os.getpid()
    # a viewer nests spans by order: an enclosing one comes first, though it ended last
    ordered = sorted(spans, key=lambda span: (span[2], -span[3]))
    origin = ordered[0][2] if ordered else 0
    events: list[dict[str, Any]] = [
        {"name": name, "ph": "M", "pid": process, "tid": lane, "args": arguments}
        for lane, title in lanes.items()
        for name, arguments in (
            ("thread_name", {"name": title}),
            ("thread_sort_index", {"sort_index": lane}),
        )
    ]
    events += [
        {
            "name": name,
            "cat": "hook" if lane else "batch",
            "ph": "X",
            "ts": (start - origin) / 1000,
            "dur": length / 1000,
            "pid": process,
            "tid": lane,
        }
        for lane, name, start, length in ordered
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(other_data)}


ALL_HOOKS = "all hooks"
"""The hook name in a record that is the total of one callback's hooks."""

_HEADER = ("callback", "from", "hook", "calls", "total", "mean", "max", "share")
_FLUSH_RIGHT = range(3, len(_HEADER))


@dataclass(frozen=True, slots=True)
class HookCost:
    """The cost of one callback at one hook. Times are in seconds, and the host's.

    Attributes:
        name: the callback's class, and its state_key or a number if several have that class name.
        state_key: the callback's state_key; empty for the module.
        supplier: who supplied the callback, in words.
        hook: the hook, or `"all hooks"`.
        calls: number of calls.
        total: time of all calls, without other listeners that were called inside them.
        mean: mean time of a call.
        max: time of the longest call.
        share: the calls inside training batches, as a share of the time of those batches, from 0
            to 1; None if no call was inside one.
    """

    name: str
    state_key: str
    supplier: str
    hook: str
    calls: int
    total: float
    mean: float
    max: float
    share: float | None


@dataclass(slots=True, eq=False)
class CostOwner:
    """A callback, or the module, whose calls are tallied.

    Attributes:
        member: the callback. Tallies are keyed by its id, which a kept object gives to no other.
        lane: its number in the trace, from 1 on.
        budget_ns: its time in the training batches that count for the budget, in ns.
        is_reported: whether a warning about its budget was given.
    """

    member: RelayMember
    lane: int
    budget_ns: int = 0
    is_reported: bool = False

    @property
    def name(self) -> str:
        """The name of the callback's class."""
        return type(self.member.implementer).__qualname__

    @property
    def state_key(self) -> str:
        """The callback's state_key, or an empty string."""
        key = getattr(self.member.implementer, "state_key", "")
        # a module's attribute of that name may be anything
        return key if isinstance(key, str) else ""


@dataclass(slots=True, eq=False)
class HookTally:
    """The time of one callback at one hook, in ns.

    Attributes:
        owner: the callback.
        hook: the hook.
        calls: number of calls.
        total: time of all calls.
        longest: time of the longest call.
        calls_in_batches: number of calls inside training batches that ended.
        in_batches: time of those.
    """

    owner: CostOwner
    hook: str
    calls: int = 0
    total: int = 0
    longest: int = 0
    calls_in_batches: int = 0
    in_batches: int = 0

    def add(self, elapsed: int) -> None:
        """Count one call."""
        self.calls += 1
        self.total += elapsed
        self.longest = max(self.longest, elapsed)

    def clear(self) -> None:
        """Forget all calls."""
        self.calls = self.total = self.longest = self.calls_in_batches = self.in_batches = 0


class HookCostTable:
    """The tallies of all callbacks and hooks, and the records made of them."""

    def __init__(self) -> None:
        self._owners: dict[int, CostOwner] = {}
        self._tallies: dict[tuple[int, str], HookTally] = {}

    def tally(self, member: RelayMember, hook: str) -> HookTally:
        """Return the one tally of a member's implementer at a hook; make it if it is missing."""
        # by the implementer: the relay makes new members whenever its callbacks change
        key = id(member.implementer), hook
        if key not in self._tallies:
            owner = self._owners.setdefault(key[0], CostOwner(member, len(self._owners) + 1))
            self._tallies[key] = HookTally(owner, hook)
        return self._tallies[key]

    def clear(self) -> None:
        """Forget all calls; the times that count for the budget stay."""
        for tally in self._tallies.values():
            tally.clear()

    def costliest(self, owner: CostOwner) -> HookTally:
        """Return the hook in which a callback spent most of its time in training batches."""
        tallies = [tally for tally in self._tallies.values() if tally.owner is owner]
        return max(tallies, key=lambda tally: tally.in_batches)

    def costs(self, batch_ns: int) -> tuple[HookCost, ...]:
        """Return a record for each callback and hook that was called, most time first.

        Args:
            batch_ns: the time of the training batches, in ns, to compute shares of.
        """
        titles = self.titles()
        used = [tally for tally in self._tallies.values() if tally.calls]
        return _by_time(_cost(t.hook, [t], titles[t.owner], batch_ns) for t in used)

    def totals(self, batch_ns: int) -> tuple[HookCost, ...]:
        """Return a record for each callback over all its hooks, most time first; see `costs`."""
        titles = self.titles()
        tallies_of: dict[CostOwner, list[HookTally]] = {}
        for tally in self._tallies.values():
            if tally.calls:
                tallies_of.setdefault(tally.owner, []).append(tally)
        return _by_time(
            _cost(ALL_HOOKS, tallies, titles[owner], batch_ns)
            for owner, tallies in tallies_of.items()
        )

    def titles(self) -> dict[CostOwner, str]:
        """Return a unique title for each callback: class, and state_key or number if needed."""
        owners = self._owners.values()
        named = Counter(owner.name for owner in owners)
        titles = {}
        # by state_key where classes share a name, and by number where those are equal as well
        for owner in owners:
            title, key = owner.name, owner.state_key
            if named[title] > 1 and key:
                title = key if key.startswith(title) else f"{title} {key}"
            titles[owner] = title
        same, numbers = Counter(titles.values()), Counter[str]()
        for owner, title in titles.items():
            if same[title] > 1:
                numbers[title] += 1
                titles[owner] = f"{title} #{numbers[title]}"
        return titles


def _by_time(costs: Iterable[HookCost]) -> tuple[HookCost, ...]:
    return tuple(sorted(costs, key=lambda cost: cost.total, reverse=True))


def _cost(hook: str, tallies: list[HookTally], title: str, batch_ns: int) -> HookCost:
    owner = tallies[0].owner
    calls = sum(tally.calls for tally in tallies)
    total = sum(tally.total for tally in tallies)
    # a hook outside of training batches has no share, which is not the same as a share of 0
    is_in_batches = batch_ns and any(tally.calls_in_batches for tally in tallies)
    return HookCost(
        name=title,
        state_key=owner.state_key,
        supplier=owner.member.supplier,
        hook=hook,
        calls=calls,
        total=total / 1e9,
        mean=total / calls / 1e9,
        max=max(tally.longest for tally in tallies) / 1e9,
        share=sum(t.in_batches for t in tallies) / batch_ns if is_in_batches else None,
    )


def print_costs(
    records: Sequence[HookCost], totals: Sequence[HookCost], title: str, file: TextIO | None
) -> None:
    """Print a table of costs, most time first, with a total where a callback has several records.

    Args:
        records: a cost for each callback and hook.
        totals: a cost for each callback over all its hooks.
        title: a line above the table.
        file: the stream to write to; standard output if None.
    """
    hooks_of = Counter(record.name for record in records)
    several = [total for total in totals if hooks_of[total.name] > 1]
    rows = [_row(cost) for cost in _by_time([*several, *records])]
    show_table(_HEADER, rows, title=title, right=_FLUSH_RIGHT, file=file)


def format_duration(seconds: float) -> str:
    """Return a time as text in s, ms or us, the largest unit in which it is at least 1."""
    # "us" and not the Greek letter: every terminal and log file can show it
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"


def _row(cost: HookCost) -> tuple[str, ...]:
    times = (format_duration(seconds) for seconds in (cost.total, cost.mean, cost.max))
    share = "-" if cost.share is None else f"{cost.share:.2%}"
    return (cost.name, cost.supplier, cost.hook, str(cost.calls), *times, share)
