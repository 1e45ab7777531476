"""Costs of hooks: the time of each callback at each hook, as tallies, records and a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from trainer_hooks._text import show_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_hooks.hooks.relay import RelayMember

__all__ = [
    "ALL_HOOKS",
    "CostOwner",
    "HookCost",
    "HookCostTable",
    "HookTally",
    "format_duration",
    "print_costs",
]

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

    def add_in_batch(self, elapsed: int) -> None:
        """Count a call, which `add` has counted, as one inside a training batch that has ended."""
        self.calls_in_batches += 1
        self.in_batches += elapsed

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
        own = [tally for tally in self._tallies.values() if tally.owner is owner]
        return max(own, key=lambda tally: tally.in_batches)

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
