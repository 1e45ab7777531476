"""What each callback spent at each hook: tallies that grow, and records to read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from trainer_hooks._text import show_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_hooks.hooks.member import Member

__all__ = ["ALL_HOOKS", "HookCost", "Ledger", "Owner", "Tally", "duration", "show_costs"]

ALL_HOOKS = "all hooks"
"""What stands for the hook in a record that sums up those of one callback."""

_HEADER = ("callback", "from", "hook", "calls", "total", "mean", "max", "share")
_FLUSH_RIGHT = range(3, len(_HEADER))


@dataclass(frozen=True, slots=True)
class HookCost:
    """What one callback cost at one hook. Times are in seconds, and the host's.

    Attributes:
        name: the callback's class, with what tells it apart where several have that name.
        state_key: its state_key; empty for the module.
        supplier: who supplied it.
        hook: the hook, or `"all hooks"`.
        calls: how often it was called.
        total: the time of all calls, less the time of other listeners that fired inside of them.
        mean: likewise, of one call.
        max: likewise, of the longest call.
        share: the part of the time of the training batches that it spent inside of them, from 0
            to 1; None if no call was inside of one.
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
class Owner:
    """A callback, or the module, that has been called.

    Attributes:
        member: the callback; kept, so that no other object gets its identity.
        lane: its number among all, from 1 on.
        judged: what it spent in training batches that count for the budget, in ns.
        is_reported: whether it was warned of.
    """

    member: Member
    lane: int
    judged: int = 0
    is_reported: bool = False

    @property
    def name(self) -> str:
        """Its class."""
        return type(self.member.implementer).__qualname__

    @property
    def state_key(self) -> str:
        """Its state_key, or an empty string."""
        key = getattr(self.member.implementer, "state_key", "")
        return key if isinstance(key, str) else ""


@dataclass(slots=True, eq=False)
class Tally:
    """What one callback spent at one hook, in ns.

    Attributes:
        owner: the callback.
        hook: the hook.
        calls: how often it was called.
        total: the time of all calls.
        longest: the time of the longest one.
        calls_in_batches: how many calls were inside of training batches that are done.
        in_batches: the time of those.
    """

    owner: Owner
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
        """Count the same call as one inside of a training batch, once that is done."""
        self.calls_in_batches += 1
        self.in_batches += elapsed

    def clear(self) -> None:
        """Forget all calls."""
        self.calls = self.total = self.longest = self.calls_in_batches = self.in_batches = 0


class Ledger:
    """The tallies of all callbacks and hooks."""

    def __init__(self) -> None:
        self._owners: dict[int, Owner] = {}
        self._tallies: dict[tuple[int, str], Tally] = {}

    def tally(self, member: Member, hook: str) -> Tally:
        """Return the tally of a member's implementer at a hook, the same one each time."""
        key = id(member.implementer), hook
        if key not in self._tallies:
            owner = self._owners.setdefault(key[0], Owner(member, len(self._owners) + 1))
            self._tallies[key] = Tally(owner, hook)
        return self._tallies[key]

    def clear(self) -> None:
        """Forget all calls; what counts for the budget stays."""
        for tally in self._tallies.values():
            tally.clear()

    def costliest(self, owner: Owner) -> Tally:
        """Return the hook in which a callback spent most of its time in training batches."""
        own = [tally for tally in self._tallies.values() if tally.owner is owner]
        return max(own, key=lambda tally: tally.in_batches)

    def costs(self, batch_ns: int) -> tuple[HookCost, ...]:
        """Return a record for each callback and hook that was called, by time, most first.

        Args:
            batch_ns: the time of the training batches, of which shares are told.
        """
        titles = self.titles()
        used = [tally for tally in self._tallies.values() if tally.calls]
        return _by_time(_cost(t.hook, [t], titles[t.owner], batch_ns) for t in used)

    def totals(self, batch_ns: int) -> tuple[HookCost, ...]:
        """Return likewise a record for each callback over all its hooks."""
        titles = self.titles()
        found: dict[Owner, list[Tally]] = {}
        for tally in self._tallies.values():
            if tally.calls:
                found.setdefault(tally.owner, []).append(tally)
        return _by_time(
            _cost(ALL_HOOKS, tallies, titles[owner], batch_ns) for owner, tallies in found.items()
        )

    def titles(self) -> dict[Owner, str]:
        """Return how each callback is called: by its class, and more where that is not enough."""
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


def _cost(hook: str, tallies: list[Tally], title: str, batch_ns: int) -> HookCost:
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


def show_costs(
    records: Sequence[HookCost], totals: Sequence[HookCost], title: str, file: TextIO | None
) -> None:
    """Print a table of costs, most time first, with a total where a callback has several records.

    Args:
        records: a cost for each callback and hook.
        totals: likewise, a cost for each callback.
        title: a line above it.
        file: where to; standard output unless given.
    """
    hooks_of = Counter(record.name for record in records)
    several = [total for total in totals if hooks_of[total.name] > 1]
    rows = [_row(cost) for cost in _by_time([*several, *records])]
    show_table(_HEADER, rows, title=title, right=_FLUSH_RIGHT, file=file)


def duration(seconds: float) -> str:
    """Return a time in words, in the largest unit of which it has one.

    Microseconds are "us", which every terminal and log file can show.
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"


def _row(cost: HookCost) -> tuple[str, ...]:
    times = (duration(seconds) for seconds in (cost.total, cost.mean, cost.max))
    share = "-" if cost.share is None else f"{cost.share:.2%}"
    return (cost.name, cost.supplier, cost.hook, str(cost.calls), *times, share)
