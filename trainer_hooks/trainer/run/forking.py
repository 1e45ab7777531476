"""Forked runs: run in processes forked from this one, and copy their results back.

This is for notebooks, whose cells no launcher can start again. The notebook's process never trains
itself, so it can fork for any number of runs, on GPUs too, and survives their errors.

Processes may be spawned instead: each is a fresh Python, which imports the program's main module
and gets the trainer, the module and the data as a pickle.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    start_processes,
)

from trainer_hooks._log import ensure_visible_log
from trainer_hooks._output import flush_output
from trainer_hooks.checkpoint.paths import absolute_path, open_whole
from trainer_hooks.context.run_state import TrainerStatus
from trainer_hooks.context.training import TrainingState
from trainer_hooks.errors import TerminationSignal, UsageError, add_note
from trainer_hooks.module.optimization import import_compiler
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.device import pick_device, usable_cpus
from trainer_hooks.runtime.launcher import end_with_parent, how_ended, rank_environment
from trainer_hooks.runtime.nested_tensors import map_tensors
from trainer_hooks.runtime.process_group import ProcessGroup
from trainer_hooks.runtime.strategy import resolve_strategy
from trainer_hooks.trainer.core.registered_state import build_state_registry
from trainer_hooks.trainer.run.checkpoint_saving import write_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.trainer.core.run_inputs import RunInputs
    from trainer_hooks.trainer.core.trainer_core import TrainerCore

_BACK = (
    "progress", "wall_times", "clock", "metrics", "evaluated", "metric_objects", "history",
    "callbacks",
)  # fmt: skip
"""Entries of the state registry that are copied back; a later fit reads the rest from a file."""

_GRACE_S = 10.0


@dataclass
class _ForkResult:
    """The result that a forked process saves before it exits.

    Attributes:
        at: when it ended, in seconds since 1970.
        error: the exception that ended its run; None if the run completed.
        trace: the traceback of that error.
        result: the return value of the run.
        status: the status of the trainer.
        stop_reason: the reason of a requested stop.
        was_stopping: whether the run was requested to stop.
        weights: the module's weights.
        parts: the other entries of the state registry.
        is_kept: whether a checkpoint to resume from was written.
    """

    at: float
    error: BaseException | None = None
    trace: str = ""
    result: Any = None
    status: str = ""
    stop_reason: str = ""
    was_stopping: bool = False
    weights: dict[str, Any] | None = None
    parts: dict[str, Any] | None = None
    is_kept: bool = False


class ForkedRuns:
    """The runs of a trainer in processes forked from this one.

    Args:
        core: the trainer's core.
        trainer: the trainer, for the hooks.
        place: the folder of the process that spawned this one, where this one is a rank.
    """

    def __init__(self, core: TrainerCore, trainer: Trainer, place: Path | None = None) -> None:
        self._core, self._trainer = core, trainer
        # deleted with the object that made it, and so not by a spawned rank
        if place is None:
            place = Path(tempfile.mkdtemp(prefix="trainer_hooks-"))
            # no TemporaryDirectory: that warns where nobody deletes it at an earlier moment
            weakref.finalize(self, shutil.rmtree, place, ignore_errors=True)
        self._place = place
        self._runs = 0
        # whether the user's own CheckpointIO has it, which need not write files
        self._is_kept_elsewhere = False

    @property
    def kept(self) -> Path | None:
        """The checkpoint at the end of this module's last fit, if there is one."""
        path = self._place / "fit.ckpt"
        return path if self._is_kept_elsewhere or path.exists() else None

    def copy_kept(self, path: str | os.PathLike[str], storage_options: Any = None) -> str:
        """Copy that checkpoint to another path; return its absolute path."""
        target, io = absolute_path(path), self._core.custom_io
        if io is not None:
            kept_path = str(self._place / "fit.ckpt")
            io.write(io.read(kept_path), target, storage_options=storage_options)
            return target
        with (self._place / "fit.ckpt").open("rb") as source, open_whole(target) as file:
            shutil.copyfileobj(source, file)
        return target

    def run(self, inputs: RunInputs, work: Callable[[RunInputs], Any]) -> Any:
        """Run in as many processes as the trainer has, and return rank 0's result.

        Args:
            inputs: the inputs of the run.
            work: executes a run, in each process.

        Raises:
            UsageError: CUDA is initialised here, so that no process can be forked; or a process was
                killed.
        """
        is_spawned = self._core.processes.topology.starts == "spawn"
        if torch.cuda.is_initialized() and not is_spawned:  # type: ignore[no-untyped-call]
            raise UsageError(
                "this process has used CUDA already, which a process that is forked from it "
                "cannot: restart the notebook, and put nothing on a GPU before fit. The trainer "
                "does that in its processes."
            )
        core, topology = self._core, self._core.processes.topology
        if is_spawned and getattr(multiprocessing.current_process(), "_inheriting", False):
            raise UsageError(
                f"{inputs.fn} was called as a process of strategy='ddp_spawn' imported the "
                "program: put the calls of the main module below `if __name__ == '__main__':`, "
                "or take strategy='ddp'."
            )
        inputs = self._going_on(inputs)
        # asked for here, so that a logger's version is fixed once, and not anew in each fork
        _ = [(logger.name, logger.version) for logger in core.loggers]
        # rendezvous through a file: a TCP store would have threads, which a fork does not copy
        meeting = self._place / f"meeting-{self._runs}"
        self._runs += 1
        for path in self._place.glob("*.end"):
            path.unlink()
        # torch imports this for the first optimizer, in seconds: once here, not in each fork
        import_compiler()
        # a fork copies unwritten buffers, and would print them once more
        flush_output()
        if is_spawned:
            function: Callable[..., None] = _work_spawned
            arguments: tuple[Any, ...] = (os.getpid(), meeting, self._pickled(inputs))
        else:
            function, arguments = self._work, (os.getpid(), meeting, inputs, work)
        context = start_processes(  # type: ignore[no-untyped-call]
            function, arguments, topology.world_size, join=False, start_method=topology.starts
        )
        self._wait(context)
        meeting.unlink(missing_ok=True)
        result = self._ended(0)
        assert result is not None
        self._take_over(inputs, result)
        if result.error is not None:
            raise result.error
        return result.result

    # --- in this process ---

    def _pickled(self, inputs: RunInputs) -> Path:
        """Write the trainer, the inputs and the random states to a file for spawned processes.

        Raises:
            UsageError: something cannot be pickled.
        """
        path = self._place / "run.pickle"
        self._core.is_sent = True
        try:
            # by pickle itself: multiprocessing's own would share the memory of tensors, so that all
            # ranks trained one set of weights
            content = pickle.dumps((self._trainer, inputs, rng.capture()))
        except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
            raise UsageError(
                f"strategy='ddp_spawn' cannot send the run to its processes: {error}. Define its "
                "classes and functions in a module, or take strategy='ddp', which pickles nothing."
            ) from error
        finally:
            self._core.is_sent = False
        path.write_bytes(content)
        return path

    def _going_on(self, inputs: RunInputs) -> RunInputs:
        """Return the inputs for the processes: a second fit resumes at the end of the first."""
        training = self._core.training
        if inputs.fn != "fit":
            return inputs
        if inputs.module is not training.module:
            self._core.training = TrainingState(inputs.module)
            (self._place / "fit.ckpt").unlink(missing_ok=True)
            self._is_kept_elsewhere = False
        elif inputs.ckpt_path is None and self.kept is not None:
            return replace(inputs, ckpt_path=str(self.kept))
        return inputs

    def _wait(self, context: ProcessContext) -> None:
        """Wait for all processes; a failure of one terminates the others.

        Raises:
            BaseException: the error of the process that failed first.
        """
        while True:
            try:
                # it returns whenever one has ended; if one failed, it ends the others and raises
                if context.join(grace_period=_GRACE_S):
                    return
            except KeyboardInterrupt:
                # the forks have process groups of their own, so that the terminal's Ctrl-C does
                # not reach them; rank 0 gets it from here and shares it with the others
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
        results = [result for index in range(world_size) if (result := self._ended(index))]
        # by time: the errors of the other ranks are mostly consequences of the first
        failed = sorted(
            (result for result in results if result.error is not None), key=lambda result: result.at
        )
        if by is not None or not failed:
            how = how_ended(getattr(end, "exit_code", 1))
            raise UsageError(f"rank {rank} of {world_size} {how}.") from None
        error = failed[0].error
        assert error is not None
        add_note(error, f"there:\n{failed[0].trace}")
        raise error from None

    def _ended(self, rank: int) -> _ForkResult | None:
        path = self._place / f"{rank}.end"
        if not path.exists():
            return None
        # with code: our own fork wrote it, into a folder that only this user can open
        result: _ForkResult = torch.load(path, map_location="cpu", weights_only=False)
        return result

    def _take_over(self, inputs: RunInputs, result: _ForkResult) -> None:
        """Copy the results of a run into the objects of this process."""
        core, module = self._core, inputs.module
        core.module, core.compiled, core.datamodule = module, inputs.compiled, inputs.datamodule
        core.has_run, core.state.fn = True, inputs.fn
        core.state.status = TrainerStatus(result.status)
        core.state.stop_reason, core.was_stopping = result.stop_reason, result.was_stopping
        if result.is_kept and core.custom_io is not None:
            self._is_kept_elsewhere = True
        if result.weights is not None and result.parts is not None:
            if result.weights.keys() != module.state_dict().keys():
                # only the forks have the layers that it builds so far
                module.configure_model()
            module.load_state_dict(result.weights)
            build_state_registry(core, module, None).load_some(result.parts, _BACK)
            # only guards resume loggers; they are installed for that alone
            core.guards.install(core.loggers)
            core.guards.resume(result.parts["trainer_hooks"]["loggers"])
            core.guards.release()

    # --- in the forked ones ---

    def _work(
        self,
        rank: int,
        parent: int,
        meeting: Path,
        inputs: RunInputs,
        work: Callable[[RunInputs], Any],
    ) -> None:
        end_with_parent(parent)
        os.setpgid(0, 0)  # a process group of its own: the parent passes Ctrl-C on
        core, before = self._core, self._core.processes.topology
        os.environ.update(rank_environment(before, rank))
        config = core.config
        # once more, now that the environment names this rank
        topology, options = resolve_strategy(config.strategy, config.devices, config.num_nodes)
        topology = replace(topology, reason=before.reason, address=f"file:{meeting}")
        core.device = pick_device(config.accelerator, config.devices, topology)
        processes = ProcessGroup(core.device, topology, options)
        core.processes = processes
        if before.starts == "fork":
            # a fork does not copy the threads of the parent's OpenMP pool, so that waiting for
            # them would hang
            torch.set_num_threads(1)
        elif "OMP_NUM_THREADS" not in os.environ:  # as `LaunchedProcesses` does
            torch.set_num_threads(max(1, usable_cpus() // before.local_world_size))
        ended = _ForkResult(0.0)
        try:
            ended.result = work(inputs)
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            ended.error, ended.trace = _sendable(error), traceback.format_exc()
        is_in_order = isinstance(ended.error, KeyboardInterrupt | TerminationSignal)
        ended.at = time.time()
        try:
            if ended.error is None or (is_in_order and not processes.watchdog.has_seen_failure):
                self._note_end(inputs, ended)
        except Exception as error:  # noqa: BLE001 - the parent raises it
            ended.error, ended.trace = _sendable(error), traceback.format_exc()
            is_in_order = False
        torch.save(ended, self._place / f"{rank}.end")
        if ended.error is not None and not is_in_order:
            # `join` in the parent learns of a failure by the exit code alone
            sys.exit(1)
        processes.stop()

    def _note_end(self, inputs: RunInputs, ended: _ForkResult) -> None:
        """Record the state that the parent process takes over; a collective of all ranks."""
        core = self._core
        if inputs.fn == "fit":
            ended.is_kept = True
            write_now(core, self._trainer, self._place / "fit.ckpt", weights_only=False)
        if not core.processes.is_global_zero:
            ended.result = None
            return
        parts: dict[str, Any] = {"trainer_hooks": {}}
        build_state_registry(core, inputs.module, None).write(parts, {})
        ended.status = str(core.state.status)
        ended.stop_reason, ended.was_stopping = core.state.stop_reason, core.was_stopping
        ended.weights, ended.parts = map_tensors(
            (inputs.module.state_dict(), parts), lambda tensor: tensor.detach().cpu()
        )


def _work_spawned(rank: int, parent: int, meeting: Path, pickled: Path) -> None:
    """Run one rank in a spawned process.

    Args:
        rank: the rank.
        parent: the id of the process that spawned it.
        meeting: the file of the rendezvous.
        pickled: the file with the trainer, the inputs and the random states.
    """
    trainer, inputs, random_states = pickle.loads(pickled.read_bytes())
    ensure_visible_log()
    rng.restore(random_states)
    runs = ForkedRuns(trainer._core, trainer, pickled.parent)  # noqa: SLF001 - its own part
    runs._work(rank, parent, meeting, inputs, trainer._run)  # noqa: SLF001 - as above


def _sendable(error: BaseException) -> BaseException:
    """Return an error that can be pickled, a RuntimeError with its text if it cannot."""
    try:
        pickle.loads(pickle.dumps(error))  # an error whose __init__ has other arguments fails here
    except Exception:  # noqa: BLE001 - pickling calls methods of any class
        return RuntimeError(f"{type(error).__qualname__}: {error}")
    return error
