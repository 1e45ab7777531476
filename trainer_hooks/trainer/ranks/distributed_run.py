"""Coordination of the ranks of one run: common start, shared metrics and loggers, common end."""

from __future__ import annotations

import pickle
import sys
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import torch

from trainer_hooks._log import silence_below_errors
from trainer_hooks._output import losing_output
from trainer_hooks.errors import TerminationSignal, add_note
from trainer_hooks.loggers.run_folder import run_dir
from trainer_hooks.runtime.process_group import ProcessGroup
from trainer_hooks.runtime.rendezvous import RestartNotes, can_be_restarted
from trainer_hooks.runtime.rng import reseed
from trainer_hooks.trainer.messages.failed_start import update_start
from trainer_hooks.trainer.options.defaults import root_dir

if TYPE_CHECKING:
    from trainer_hooks.trainer.core.run_inputs import RunInputs
    from trainer_hooks.trainer.core.trainer_core import TrainerCore

_MOST_SEEDS = 2**32
_OWN_SEEDS: set[int] = set()
"""Seeds that this process drew already: a later run continues with its random state."""


class DistributedRun:
    """The other ranks of a run, from its setup on.

    Args:
        core: the trainer's core.
    """

    def __init__(self, core: TrainerCore) -> None:
        assert isinstance(core.processes, ProcessGroup)
        self._core = core
        self._processes = core.processes
        if not self._processes.is_global_zero:
            # rank 0 says what all would say
            silence_below_errors()
        self._watchdog = self._processes.watchdog
        self._watchdog.start()
        # where the watchdog ends this process, `fit` records no failed start
        self._watchdog.on_end = partial(update_start, core)

    def make_groups(self) -> None:
        """Make the process groups that the run needs besides those of all runs."""
        self._processes.make_groups()

    def share_metrics(self) -> None:
        """Aggregate the metrics of an epoch over all ranks."""
        from trainer_hooks.metrics.rank_reduction import RankReducer

        self._core.training.metrics.rank_reducer = RankReducer(self._processes)

    def find_folders(self, inputs: RunInputs) -> None:
        """Reuse the run folder of a training that was killed before its first checkpoint.

        A checkpoint would name the folder; without one, torchrun's store does.
        """
        core = self._core
        if inputs.fn == "fit" and inputs.ckpt_path is None and core.start_checkpoint.is_auto:
            pickled = RestartNotes().load(f"loggers/{self._watchdog.run}")
            if pickled and self._processes.is_global_zero:
                # pickle is safe: rank 0 of this training wrote it. Others: `share_loggers`
                core.guards.resume(pickle.loads(pickled))

    def share_loggers(self) -> None:
        """Let loggers write in rank 0 alone, and give the other ranks its folders."""
        from trainer_hooks.loggers.dummy import RankZeroLoggerProxy

        core = self._core
        if core.state.fn == "fit" and self._processes.is_global_zero and can_be_restarted():
            RestartNotes().save(f"loggers/{self._watchdog.run}", pickle.dumps(core.guards.state()))
        root = root_dir(core.config)
        places = [
            (g.name, g.version, g.save_dir, g.log_dir, run_dir(g, root)) for g in core.loggers
        ]
        places = self._processes.broadcast(places)
        if not self._processes.is_global_zero:
            # the guards of the loggers that are replaced here
            core.guards.release()
            loggers = [*core.loggers, *repeat(None, len(places))]  # rank 0 may have more
            core.loggers[:] = [
                RankZeroLoggerProxy(name, version, save_dir, log_dir, folder, logger)
                for (name, version, save_dir, log_dir, folder), logger in zip(
                    places, loggers, strict=False
                )
            ]
            core.guards.install(core.loggers)

    def spread_random_numbers(self) -> None:
        """Reseed every rank but the first with the seed plus its rank.

        Until here the random states were equal, so that all ranks built the same module and data.
        """
        seed = torch.initial_seed() % _MOST_SEEDS
        rank = (
            self._processes.data_topology.global_rank
        )  # ranks that share a batch must draw the same
        if rank and seed not in _OWN_SEEDS:
            rank_seed = (seed + rank) % _MOST_SEEDS
            _OWN_SEEDS.add(rank_seed)
            reseed(rank_seed)

    def meet_at_end(self) -> None:
        """Wait until all ranks have completed the run; a later failure is a rank's own."""
        self._processes.barrier("the end of the run")
        self._watchdog.stop()

    def tell_failure(self, error: BaseException) -> None:
        """Make the other ranks fail too, and note on the error which rank failed first."""
        rank, world_size = self._processes.global_rank, self._processes.world_size
        context = self._core.context
        is_by_signal = isinstance(error, TerminationSignal | KeyboardInterrupt)
        if is_by_signal and context is not None and context.requests.agreed_signal:
            return  # the ranks have agreed to stop, so this is no failure of one of them
        # first: a lost connection here may only follow from the failure of another rank
        heard = self._processes.remote_failure(error)
        add_note(error, heard or f"in rank {rank} of {world_size}")
        if heard and isinstance(error, RuntimeError):
            # at once: the error is that of a lost connection, whose text is long and names nobody
            with losing_output():
                print(f"rank {rank}: {heard.splitlines()[0]}", file=sys.stderr, flush=True)
        self._watchdog.report_failure(error)

    def leave(self) -> None:
        """Disarm the watchdog; the run is over."""
        self._watchdog.stop()
