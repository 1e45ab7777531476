"""Others: what a run of several processes does so that they begin, go and end together."""

from __future__ import annotations

import pickle
from itertools import repeat
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import log_nothing_below_errors
from trainer_hooks.errors import TerminationSignal, add_note
from trainer_hooks.runtime import Notes, ProcessGroup, can_be_restarted, reseed

if TYPE_CHECKING:
    from trainer_hooks.trainer.run.job import Job
    from trainer_hooks.trainer.run.session import Session

__all__ = ["Others"]

_MOST_SEEDS = 2**32
_OWN_SEEDS: set[int] = set()
"""Those that this process was given apart from the others; it goes on with them in later runs."""


class Others:
    """The other processes of a run, from its beginning on.

    Args:
        session: whose run it is.
    """

    def __init__(self, session: Session) -> None:
        assert isinstance(session.processes, ProcessGroup)
        self._session = session
        self._processes = session.processes
        if not self._processes.is_global_zero:
            log_nothing_below_errors()
        self._alarm = self._processes.alarm
        self._alarm.arm()

    def share_metrics(self) -> None:
        """Let the values of an epoch be the same in all processes."""
        from trainer_hooks.metrics import SharedValues

        self._session.training.metrics.others = SharedValues(self._processes)

    def find_folders(self, job: Job) -> None:
        """Let loggers begin anew in the folder of a training that was killed before it saved.

        Its checkpoint would say which it is; where there is none, torchrun's store does.
        """
        session = self._session
        if job.fn == "fit" and job.ckpt_path is None and session.start.is_auto:
            found = Notes().find(f"loggers/{self._alarm.run}")
            if found and self._processes.is_global_zero:
                session.guards.resume(pickle.loads(found))

    def share_loggers(self) -> None:
        """Let loggers write in rank 0 alone, and the others know where they do."""
        from trainer_hooks.loggers.elsewhere import LoggerElsewhere

        session = self._session
        if session.state.fn == "fit" and self._processes.is_global_zero and can_be_restarted():
            Notes().keep(f"loggers/{self._alarm.run}", pickle.dumps(session.guards.state()))
        places = [(g.name, g.version, g.save_dir, g.log_dir) for g in session.loggers]
        places = self._processes.broadcast(places)
        if not self._processes.is_global_zero:
            session.guards.release()
            own = [*session.loggers, *repeat(None, len(places))]  # others may have fewer
            session.loggers[:] = [
                LoggerElsewhere(name, version, save_dir, log_dir, one)
                for (name, version, save_dir, log_dir), one in zip(places, own, strict=False)
            ]
            session.guards.install(session.loggers)

    def spread_random_numbers(self) -> None:
        """Give each process but the first random numbers of its own, as of the seed plus its rank.

        Until here they were the same, so that all have built the same module and data.
        """
        seed = torch.initial_seed() % _MOST_SEEDS
        rank = self._processes.data_topology.global_rank  # those that share a batch draw the same
        if rank and seed not in _OWN_SEEDS:
            own = (seed + rank) % _MOST_SEEDS
            _OWN_SEEDS.add(own)
            reseed(own)

    def own_part(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Return a checkpoint as this process is to see it."""
        from trainer_hooks.trainer.run.together import own_part

        return own_part(checkpoint, self._processes)

    def meet_at_end(self) -> None:
        """Wait until all have come through the run; what fails from here on is each one's own."""
        self._processes.barrier("the end of the run")
        self._alarm.disarm()

    def tell_failure(self, error: BaseException) -> None:
        """Let the others end, too, and say which process failed first."""
        rank, world_size = self._processes.global_rank, self._processes.world_size
        context = self._session.context
        is_by_signal = isinstance(error, TerminationSignal | KeyboardInterrupt)
        if is_by_signal and context is not None and context.asked.agreed_signal:
            return  # all of them leave
        heard = self._processes.heard(error)
        add_note(error, heard or f"in rank {rank} of {world_size}")
        self._alarm.sound(error)

    def leave(self) -> None:
        """Forget the others; the run is over."""
        self._alarm.disarm()
