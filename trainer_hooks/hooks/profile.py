"""HookProfile: what the callbacks cost, by callback and hook."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, TextIO

from trainer_hooks._files import replace_file
from trainer_hooks._log import warn
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.hooks.batch_clock import BatchClock
from trainer_hooks.hooks.costs import HookCost, Ledger, Owner, Tally, duration, show_costs
from trainer_hooks.hooks.member import Member
from trainer_hooks.hooks.trace import Span, chrome_trace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from trainer_hooks.hooks.relay import HookRelay

__all__ = ["HookProfile"]

_SETTLING = 5
"""First training batches that do not count for the budget: what is done once is done in them."""

_WARM_UP = 20
"""Training batches before anybody is held to the budget, so that one slow call proves nothing."""

_BATCHES_LANE = 0


class HookProfile:
    """Time every call of every callback, and of the module's hooks, while it is in a relay.

    `trainer.profile_hooks()` puts one in; `stop()`, or the end of its `with` block, takes it out.

    - Times are the host's. With a GPU, a hook that hands it work is cheap here, and one that waits
      for it, as `.item()` does, has the whole wait.
    - A call counts with its own time. What it fires in turn, as `trainer.save_checkpoint` and
      `trainer.call_event` do, counts for those that are called there; so nothing counts twice,
      and all times add up. In the trace a call has its whole length.
    - A training batch goes from the first thing at `on_before_dataloader` to the last thing at
      `on_batch_checkpoint`, less a validation in between. A callback's share is its time inside of
      those batches by the time of those batches. Other hooks have none. A batch that is cut off,
      by an error say, counts for no share.
    - The first 5 training batches do not count for the budget, and nobody is held to it before the
      20th. The module is not held to it.

    Args:
        budget: the share of the training batches' time, over 0 and under 1, that a callback may
            take. One that takes more is warned of, once. None for no limit.
        max_events: how many calls and batches the trace remembers: the last ones.
        clock: tells the time in ns.

    Attributes:
        opening: the relay's first member, which begins training batches.
        closing: its last member, which ends them.

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
        self.opening = Member(
            SimpleNamespace(
                on_before_dataloader=self._begin_batch,
                on_validation_run_start=self._pause_batch,
                teardown=self._abandon_batch,
            ),
            "the hook profile",
        )
        self.closing = Member(
            SimpleNamespace(
                on_validation_run_end=self._resume_batch, on_batch_checkpoint=self._end_batch
            ),
            "the hook profile",
        )
        self._clock = clock
        self._ledger = Ledger()
        self._batch = BatchClock(clock)
        self._calls_in_batch: list[tuple[Tally, int]] = []
        self._spans: deque[Span] = deque(maxlen=max_events)
        self._recorded = 0
        self._nested = 0
        self._seen = 0
        self._judged = 0
        self._relay: HookRelay | None = None

    # --- in and out ---

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
        """Whether it is in a relay."""
        return self._relay is not None

    def start(self, relay: HookRelay) -> Self:
        """Time the calls of a relay from its next firing on; return this profile."""
        self._relay = relay
        relay.observe(self)
        return self

    def stop(self) -> None:
        """Take it out, so that hooks cost what they cost before; what was found stays."""
        if self._relay is not None:
            self._relay.leave(self)
            self._relay = None
            self._abandon_batch()

    def clear(self) -> None:
        """Forget all calls and batches; what counts for the budget stays."""
        self._ledger.clear()
        self._batch.clear()
        self._calls_in_batch.clear()
        self._spans.clear()
        self._recorded = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- what it found ---

    @property
    def batches(self) -> int:
        """How many training batches were timed from their beginning to their end."""
        return self._batch.batches

    @property
    def batch_seconds(self) -> float:
        """The time of those, in seconds."""
        return self._batch.total / 1e9

    @property
    def dropped_events(self) -> int:
        """How many calls and batches the trace does not remember any more."""
        return self._recorded - len(self._spans)

    @property
    def records(self) -> tuple[HookCost, ...]:
        """What each callback cost at each hook at which it was called, most time first."""
        return self._ledger.costs(self._batch.total)

    @property
    def totals(self) -> tuple[HookCost, ...]:
        """What each callback cost over all its hooks, most time first."""
        return self._ledger.totals(self._batch.total)

    def table(self, file: TextIO | None = None) -> None:
        """Print the records, most time first, and where a callback has several, their total.

        Args:
            file: where to; standard output unless given. If it is a terminal, rich draws it.
        """
        spent = f", which took {duration(self.batch_seconds)}" if self.batches else ""
        title = f"Own time of hooks on the host; share of {self.batches} training batches{spent}"
        if self.dropped_events:
            title += (
                f". The trace has the last {len(self._spans)} of {self._recorded} events: "
                f"{self.dropped_events} were dropped"
            )
        show_costs(self.records, self.totals, title, file)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> str:
        """Write a trace for chrome://tracing or ui.perfetto.dev, whole or not at all.

        Each callback has a lane, and so do the training batches. The records stand in it too, under
        `otherData`, where `trainer-hooks report` finds them.

        Args:
            path: the file; its folder is made.

        Returns:
            The file's absolute path.
        """
        lanes = {_BATCHES_LANE: "training batches"}
        lanes.update({owner.lane: title for owner, title in self._ledger.titles().items()})
        facts = {
            "events": len(self._spans),
            "dropped_events": self.dropped_events,
            "training_batches": self.batches,
            "batch_seconds": self.batch_seconds,
            "costs": [asdict(cost) for cost in self.records],
        }
        trace = chrome_trace(self._spans, lanes, facts)
        target = Path(path).absolute()
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, lambda file: json.dump(trace, file))
        return str(target)

    # --- measuring ---

    def watched(self, hook: str, member: Member, call: Callable[..., object]) -> Callable[..., Any]:
        """Return a function that calls `call` and counts how long that took."""
        tally = self._ledger.tally(member, hook)
        clock = self._clock

        def timed(*args: Any) -> object:
            enclosing, self._nested = self._nested, 0
            start = clock()
            try:
                return call(*args)
            finally:
                elapsed = clock() - start
                own = elapsed - self._nested
                self._nested = enclosing + elapsed
                self._count(tally, own)
                self._remember((tally.owner.lane, hook, start, elapsed))

        return timed

    def _count(self, tally: Tally, own: int) -> None:
        tally.add(own)
        if self._batch.is_running:
            self._calls_in_batch.append((tally, own))

    def _remember(self, span: Span) -> None:
        self._spans.append(span)
        self._recorded += 1

    def _begin_batch(self, *_: object) -> None:
        self._calls_in_batch.clear()
        self._batch.begin()

    def _pause_batch(self, *_: object) -> None:
        self._batch.pause()

    def _resume_batch(self, *_: object) -> None:
        self._batch.resume()

    def _abandon_batch(self, *_: object) -> None:
        self._calls_in_batch.clear()
        self._batch.abandon()

    def _end_batch(self, *_: object) -> None:
        done = self._batch.end()
        if done is None:  # the profile came in, or the run was resumed, in the middle of it
            return
        start, length, elapsed = done
        self._remember((_BATCHES_LANE, f"batch {self.batches}", start, length))
        calls, self._calls_in_batch = self._calls_in_batch, []
        for tally, own in calls:
            tally.add_in_batch(own)
        self._seen += 1
        if self._seen > _SETTLING:
            self._judged += elapsed
            for tally, own in calls:
                tally.owner.judged += own
        if self._budget is not None and self._seen >= _WARM_UP:
            self._hold_to_budget({tally.owner: None for tally, _ in calls}, self._budget)

    def _hold_to_budget(self, owners: Iterable[Owner], budget: float) -> None:
        """Warn of those that are over the budget; only who did something can have come over it."""
        for owner in owners:
            is_callback = owner.member.skip == 0
            if is_callback and not owner.is_reported and owner.judged > budget * self._judged:
                owner.is_reported = True
                worst = self._ledger.costliest(owner)
                warn(
                    f"{owner.member.label} takes {100 * owner.judged / self._judged:.3g}% of the "
                    f"time of a training batch, most of it in {worst.hook!r}: the hook budget is "
                    f"{100 * budget:.3g}%. Let it do less, or do it less often; take it out; or "
                    "raise the budget. trainer.hook_profile.table() shows what each hook costs.",
                    TrainerHooksWarning,
                )
