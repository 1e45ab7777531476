"""The agreement of ranks on requests, after a resume, with flags that come one window late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from trainer_hooks.clock.timing import Time
from trainer_hooks.context.requests import REQUESTS_OF_A_RANK, RunRequests
from trainer_hooks.context.run_state import RunState
from trainer_hooks.loops.duration import DurationLimit
from trainer_hooks.loops.rank_consensus import RankConsensus
from trainer_hooks.runtime.process_group import ProcessGroup

if TYPE_CHECKING:
    from torch import Tensor


class LoneRank(ProcessGroup):
    """A group whose other ranks request nothing."""

    def __init__(self) -> None:
        """Join no group."""
        self.num_exchanges = 0

    def all_reduce_max(self, values: Tensor, purpose: str) -> None:
        self.num_exchanges += 1

    def gather(self, obj: str) -> list[str]:
        return [obj]


class Sync:
    """Sends flags with the gradients as a device does: to be read with the next ones, if late."""

    def __init__(self, is_late: bool) -> None:
        self.is_request_delayed = is_late
        self.has_request = bool
        self._sent = False
        self._any_rank_requests = True

    def backward(self) -> None:
        before, self._sent = self._sent, self.has_request()
        self._any_rank_requests |= before if self.is_request_delayed else self._sent

    def any_rank_requests(self) -> bool:
        answer, self._any_rank_requests = self._any_rank_requests, False
        return answer


class Run:
    """The windows of a run on one rank."""

    def __init__(
        self, is_late: bool, local: RunRequests | None = None, max_duration: Time | None = None
    ) -> None:
        watch = SimpleNamespace(is_read=False, measure=lambda: (0.0, 0.0), agreed=None)
        metrics = SimpleNamespace(current_aggregators=list, shares_steps=False)
        self.progress = progress = SimpleNamespace(
            steps_completed=0,
            is_validation_requested=False,
            is_checkpoint_requested=False,
            is_epoch_end_requested=False,
        )
        self.requests, self.local = RunRequests(), local or RunRequests()
        self.sync, self.ranks = Sync(is_late), LoneRank()
        context = SimpleNamespace(
            processes=self.ranks,
            requests=self.requests,
            local_requests=self.local,
            state=RunState(),
            batch=SimpleNamespace(is_last=False),
            plan=SimpleNamespace(max_steps=-1, max_duration=max_duration),
            data=SimpleNamespace(train_stream=SimpleNamespace(looks_ahead=False)),
            training=SimpleNamespace(
                progress=progress, metrics=metrics, timekeeper=SimpleNamespace(stopwatch=watch)
            ),
        )
        self.consensus = RankConsensus(context, DurationLimit(context), self.sync)

    def window(self, kind: str = "", when: str = "") -> bool:
        """Run a window, with a request before or after its backward; return if one was served."""
        if when == "before":
            setattr(self.local, kind, True)
        self.sync.backward()
        self.consensus.after_window()
        if when == "after":
            setattr(self.local, kind, True)
        served = [self.requests.is_stopping, *vars(self.progress).values()]
        for name in vars(self.progress):
            setattr(self.progress, name, 0)
        return any(served)


@pytest.mark.parametrize("kind", REQUESTS_OF_A_RANK)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
def test_a_resumed_run_serves_a_request_in_the_window_of_the_uncut_one(is_late, when, kind) -> None:
    """A request that was not sent when the checkpoint was saved waits as long as it would have."""
    uncut = Run(is_late)
    # the flag of the first window is always set, so the second may exchange, too
    assert [uncut.window(), uncut.window()] == [False, False]
    served = [uncut.window(kind, when)]
    is_sent = kind not in uncut.local.unsent
    served += [uncut.window(), uncut.window(), uncut.window()]
    if served[0]:
        # agreed on in its own window, so no request of one rank is in the checkpoint
        assert (when, is_late) == ("before", False)
        return
    assert is_sent is (when == "before")
    # what the checkpoint restores
    local = RunRequests(sent=frozenset({kind} if is_sent else ()))
    setattr(local, kind, True)
    resumed = Run(is_late, local)
    assert [resumed.window() for _ in range(3)] == served[1:]


def test_a_stop_in_the_first_window_of_a_fit_is_served_there() -> None:
    """Nothing was sent before it, and the ranks exchange in that window in any case."""
    assert Run(is_late=True).window("is_stopping", "before")


def test_a_limit_on_samples_is_exchanged_in_each_window() -> None:
    """Each rank counts its own, so the flag in the gradients would come too late."""
    run = Run(is_late=True, max_duration=Time(8, "sp"))
    for samples, is_over in [(4, False), (6, False), (8, True)]:
        run.progress.samples_completed = samples
        run.window()
        assert run.consensus.is_over() is is_over


def test_without_requests_the_first_windows_alone_are_exchanged() -> None:
    """An exchange costs a reduction, which the flag of the gradients saves."""
    run = Run(is_late=True)
    run.sync.any_rank_requests()
    num_exchanges = []
    for _ in range(3):
        run.window()
        num_exchanges.append(run.ranks.num_exchanges)
    # the flag of the first window is always set, and is late
    assert num_exchanges == [1, 2, 2]
