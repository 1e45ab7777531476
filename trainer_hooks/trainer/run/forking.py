"""Forking: run in processes that are forked from this one, and bring back what came of it.

It is for a notebook, whose cells no command can run again. The process of the notebook trains
nothing itself, so that it can fork for any number of runs, on GPUs, too, and outlives their errors.
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    start_processes,
)

from trainer_hooks.checkpoint import located, write_whole
from trainer_hooks.context import TrainerFn, TrainerStatus, Training
from trainer_hooks.errors import TerminationSignal, UsageError, add_note
from trainer_hooks.runtime import (
    ProcessGroup,
    choose_processes,
    environment_of,
    map_tensors,
    pick_device,
    tie_to_parent,
)
from trainer_hooks.trainer.run import snapshot
from trainer_hooks.trainer.run.parts import moving_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context import Trainer
    from trainer_hooks.trainer.run.job import Job
    from trainer_hooks.trainer.run.session import Session

__all__ = ["Forks"]

_BACK = (
    "progress", "wall_times", "clock", "metrics", "evaluated", "metric_objects", "history",
    "callbacks",
)  # fmt: skip
"""What comes back beside the weights; what a later fit goes on with besides is in its file."""

_GRACE_S = 10.0


@dataclass
class _Ended:
    """What a process leaves as it ends.

    Attributes:
        at: when it ended, in seconds.
        error: what its run ended with; None where it went through.
        trace: where that was raised.
        result: what the run returned.
        status: what the trainer's state says of it.
        weights: the module's.
        parts: all else that moved.
        is_kept: whether a checkpoint was written to go on from.
    """

    at: float
    error: BaseException | None = None
    trace: str = ""
    result: Any = None
    status: str = ""
    weights: dict[str, Any] | None = None
    parts: dict[str, Any] | None = None
    is_kept: bool = False


class Forks:
    """The runs of a trainer whose processes are forked from this one.

    Args:
        session: whose runs they are.
        trainer: what hooks are given.
    """

    def __init__(self, session: Session, trainer: Trainer) -> None:
        self._session, self._trainer = session, trainer
        self._folder = tempfile.TemporaryDirectory(prefix="trainer_hooks-")
        self._place = Path(self._folder.name)
        self._runs = 0

    @property
    def kept(self) -> Path | None:
        """The checkpoint that the last fit of this module ended with, if there is one."""
        path = self._place / "fit.ckpt"
        return path if path.exists() else None

    def copy_kept(self, path: str | os.PathLike[str]) -> str:
        """Save that one under another name; return its absolute path."""
        target = located(path)

        def write(file: IO[bytes]) -> None:
            with (self._place / "fit.ckpt").open("rb") as kept:
                shutil.copyfileobj(kept, file)
            file.flush()
            os.fsync(file.fileno())

        write_whole(Path(target), write)
        return target

    def run(self, job: Job, work: Callable[[Job], Any]) -> Any:
        """Run a job in as many processes as the trainer has, and return what the first returned.

        Args:
            job: what was asked for.
            work: does it, in each of them.

        Raises:
            UsageError: CUDA is in use here, so that no process can be forked; or one was killed.
        """
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            raise UsageError(
                "this process has used CUDA already, which a process that is forked from it "
                "cannot: restart the notebook, and put nothing on a GPU before fit. The trainer "
                "does that in its processes."
            )
        session, topology = self._session, self._session.processes.topology
        job = self._going_on(job)
        _ = [(logger.name, logger.version) for logger in session.loggers]  # the same for all runs
        # a file, since a server would be threads, which a fork cuts off wherever they are
        meeting = self._place / f"meeting-{self._runs}"
        self._runs += 1
        for path in self._place.glob("*.end"):
            path.unlink()
        # the first optimizer imports it, which takes seconds: here once, not in each fork
        importlib.import_module("torch._dynamo")
        sys.stdout.flush()
        sys.stderr.flush()
        context = start_processes(  # type: ignore[no-untyped-call]
            self._work, (os.getpid(), meeting, job, work), topology.world_size, join=False,
            start_method="fork",
        )  # fmt: skip
        self._wait(context)
        meeting.unlink(missing_ok=True)
        found = self._ended(0)
        assert found is not None
        self._take_over(job, found)
        if found.error is not None:
            raise found.error
        return found.result

    # --- in this process ---

    def _going_on(self, job: Job) -> Job:
        """Return the job as the processes are to do it: a fit goes on where the last one ended."""
        training = self._session.training
        if job.fn != "fit":
            return job
        if job.module is not training.module:
            self._session.training = Training(job.module)
            (self._place / "fit.ckpt").unlink(missing_ok=True)
        elif job.ckpt_path is None and self.kept is not None:
            return replace(job, ckpt_path=str(self.kept))
        return job

    def _wait(self, context: ProcessContext) -> None:
        """Wait for all processes; one that fails ends the others.

        Raises:
            BaseException: that of the first that failed.
        """
        while True:
            try:
                if context.join(grace_period=_GRACE_S):
                    return
            except KeyboardInterrupt:
                # they are not in this one's group, so that each Ctrl-C reaches one of them once
                for process in context.processes[:1]:
                    if process.is_alive():
                        os.kill(process.pid, signal.SIGINT)
            except (ProcessExitedException, ProcessRaisedException) as end:
                self._raise_first(end, len(context.processes))

    def _raise_first(
        self, end: ProcessExitedException | ProcessRaisedException, world_size: int
    ) -> None:
        by = getattr(end, "signal_name", None)
        rank = end.error_index
        found = [one for index in range(world_size) if (one := self._ended(index))]
        failed = sorted((one for one in found if one.error is not None), key=lambda one: one.at)
        if by is not None or not failed:
            how = f"by {by}" if by else f"with exit code {getattr(end, 'exit_code', 1)}"
            raise UsageError(f"rank {rank} of {world_size} has ended {how}.") from None
        error = failed[0].error
        assert error is not None
        add_note(error, f"there:\n{failed[0].trace}")
        raise error from None

    def _ended(self, rank: int) -> _Ended | None:
        path = self._place / f"{rank}.end"
        if not path.exists():
            return None
        found: _Ended = torch.load(path, map_location="cpu", weights_only=False)
        return found

    def _take_over(self, job: Job, found: _Ended) -> None:
        """Put what the run has made into the objects of this process."""
        session, module = self._session, job.module
        session.module, session.compiled, session.datamodule = module, job.compiled, job.datamodule
        session.has_run, session.state.fn = True, TrainerFn(job.fn)
        session.state.status = TrainerStatus(found.status)
        if found.weights is not None and found.parts is not None:
            if found.weights.keys() != module.state_dict().keys():
                module.configure_model()
            module.load_state_dict(found.weights)
            moving_parts(session, module, None).load_some(found.parts, _BACK)
            session.guards.install(session.loggers)
            session.guards.resume(found.parts["trainer_hooks"]["loggers"])
            session.guards.release()

    # --- in the forked ones ---

    def _work(
        self, rank: int, parent: int, meeting: Path, job: Job, work: Callable[[Job], Any]
    ) -> None:
        tie_to_parent(parent)
        os.setpgid(0, 0)  # Ctrl-C comes to the notebook, which passes it on
        # the threads of the parent's OpenMP are not there, and it would wait for them
        torch.set_num_threads(1)
        session, before = self._session, self._session.processes.topology
        os.environ.update(environment_of(before, rank))
        config = session.config
        found, options = choose_processes(config.strategy, config.devices, config.num_nodes)
        found = replace(found, reason=before.reason, address=f"file:{meeting}")
        session.device = pick_device(config.accelerator, config.devices, found)
        processes = ProcessGroup(session.device, found, options)
        session.processes = processes
        ended = _Ended(0.0)
        try:
            ended.result = work(job)
        except BaseException as error:  # noqa: BLE001 - raised in the parent
            ended.error, ended.trace = _sendable(error), traceback.format_exc()
        is_in_order = isinstance(ended.error, KeyboardInterrupt | TerminationSignal)
        ended.at = time.time()
        try:
            if ended.error is None or (is_in_order and not processes.alarm.has_gone_off):
                self._note_end(job, ended)
        except Exception as error:  # noqa: BLE001 - likewise
            ended.error, ended.trace = _sendable(error), traceback.format_exc()
            is_in_order = False
        torch.save(ended, self._place / f"{rank}.end")
        if ended.error is not None and not is_in_order:
            sys.exit(1)
        processes.stop()

    def _note_end(self, job: Job, ended: _Ended) -> None:
        """Note what the parent is to take over; all processes take part."""
        session = self._session
        if job.fn == "fit":
            ended.is_kept = True
            snapshot.keep(session, self._trainer, self._place / "fit.ckpt")
        if not session.processes.is_global_zero:
            ended.result = None
            return
        parts: dict[str, Any] = {"trainer_hooks": {}}
        moving_parts(session, job.module, None).write(parts, {})
        ended.status = str(session.state.status)
        ended.weights, ended.parts = map_tensors(
            (job.module.state_dict(), parts), lambda tensor: tensor.detach().cpu()
        )


def _sendable(error: BaseException) -> BaseException:
    """Return an error as it can be told to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does
        return RuntimeError(f"{type(error).__qualname__}: {error}")
    return error
