"""Collectives over several ranks by torch.distributed, under a watchdog."""

from __future__ import annotations

import atexit
import time
import uuid
import zlib
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from trainer_hooks._log import log
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.runtime.processes import Processes
from trainer_hooks.runtime.rank_watchdog import RankWatchdog, SignalInbox
from trainer_hooks.runtime.rendezvous import has_lasting_store, open_attempt_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from trainer_hooks.runtime.launcher import LaunchedProcesses
    from trainer_hooks.runtime.topology import Topology

Decision = TypeVar("Decision")

_EXIT_SEEN_S = 1.0
"""Seconds in which the exit of a process is seen once its connections are closed."""
_POLL_S = 0.05

_MOST_DIMENSIONS = 8
"""Dimensions of a tensor that are compared before it is gathered."""

_GROUPS: dict[Any, tuple[Any, Any, RankWatchdog]] = {}
"""Own groups and watchdog for each default process group, shared by all trainers.

A process group outlives the trainers that use it.
"""


class ProcessGroup(Processes):
    """Several ranks, which meet at the first call that needs the others.

    A process group that exists is used and left alone. One that is made here lasts until the
    process ends, so that each further fit of any trainer uses the same.

    Args:
        device: device of this process.
        topology: the ranks, and which of them this process is.
        options: options of the strategy.
    """

    is_distributed = True

    def __init__(self, device: torch.device, topology: Topology, options: Any) -> None:
        super().__init__(device, topology)
        self.options = options
        self.has_common_buffers = options.broadcast_buffers
        self._watchdog: RankWatchdog | None = None
        self._launched: LaunchedProcesses | None = None
        self._host_device = torch.device("cpu")

    @property
    def watchdog(self) -> RankWatchdog:
        """The watchdog that ends all ranks if one fails."""
        self.start()
        assert self._watchdog is not None
        return self._watchdog

    @property
    def _control_group(self) -> Any:
        """The group for collectives that callbacks may call."""
        self.start()
        return _GROUPS[dist.group.WORLD][0]

    @property
    def training_group(self) -> Any:
        """The group for gradients; None for torch's default group.

        On the host it is a group of its own: a reduction that a user's code calls on one rank only
        is never matched with gradients.
        """
        self.start()
        return _GROUPS[dist.group.WORLD][1]

    @property
    def _training_host_group(self) -> Any:
        """The group for control messages of the training itself, on the host."""
        return self.training_group or self._control_group

    def start(self) -> None:
        """Join the process group and start the watchdog, if that is not done."""
        if self._watchdog is not None:
            return
        if not dist.is_initialized():
            self._make_group()
        elif dist.group.WORLD not in _GROUPS:
            self._log_backend(str(dist.get_backend()))
        self._require_same_ranks()
        if self.root_device.type == "cuda":
            # NCCL and CUDA calls without a device use the current one, which is GPU 0 by default.
            torch.cuda.set_device(self.root_device)
        # control messages go over gloo on the host and do not wait for the GPU. Collectives of
        # callbacks and those of the training have separate groups, so that a call on one rank only
        # is never matched with the wrong one
        world = dist.group.WORLD
        if world not in _GROUPS:
            timeout, is_on_host = self.options.timeout, self.root_device.type == "cpu"
            # groups must be created by all ranks in the same order
            group = dist.new_group(backend="gloo", timeout=timeout)
            training = dist.new_group(backend="gloo", timeout=timeout) if is_on_host else None
            patience = self.options.patience.total_seconds()
            watchdog = RankWatchdog(_attempt_store(group), self.topology, patience)
            atexit.register(watchdog.join)  # before `stop`: the last registered is called first
            _GROUPS[world] = group, training, watchdog
            if self._launched is not None:
                self._launched.watch(watchdog.report_rank_failure)
        # last, as it marks the group as started
        self._watchdog = _GROUPS[world][2]

    def make_groups(self) -> None:
        """Make the further process groups of a run as it begins, while the watchdog watches.

        To make a group, the ranks wait for each other in the store, where the death of a rank goes
        unnoticed. Later in the run, a signal could not end such a wait.
        """

    def remote_failure(self, error: BaseException) -> str:
        """Return the failure of another rank that may have caused `error`, or an empty text."""
        text = self.watchdog.remote_failure()
        # a lost connection is a RuntimeError
        if text or not isinstance(error, RuntimeError):
            return text
        # the rank that launched the others sees how they exit; others only that one is gone
        find = self.watchdog.find_dead_rank if self._launched is None else self._launched.find_exit
        deadline = time.monotonic() + _EXIT_SEEN_S
        rank, text = find()
        while not text and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            rank, text = find()
        if text:
            # before the error of this rank, which follows from that, and is longer
            self.watchdog.report_rank_failure(rank, text)
        return text

    def signal_inbox(self, numbers: Collection[int]) -> SignalInbox:
        """Return where signals are received while the ranks wait for each other."""
        self.watchdog.signals = SignalInbox(numbers)
        return self.watchdog.signals

    def barrier(self, name: str | None = None) -> None:
        """Wait until all ranks have called this."""
        with self.watchdog.waiting(f"a barrier{f' ({name})' if name else ''}"):
            dist.all_reduce(torch.zeros(1), group=self._control_group)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return the object of rank `src`; any object that can be pickled."""
        holder = [obj]
        with self.watchdog.waiting("a broadcast"):
            dist.broadcast_object_list(
                holder, src, group=self._control_group, device=self._host_device
            )
        return holder[0]

    def run_on_rank_zero(self, decide: Callable[[], Decision]) -> Decision:
        """Call a function on rank 0 alone; return its result, or raise its error, on all ranks.

        Raises:
            TrainerHooksError: the error of rank 0; on the other ranks a CheckpointError with its
                text.
        """
        return self._agree_on(decide)

    def gather(self, obj: Any) -> list[Any]:
        """Return the objects of all ranks, by rank."""
        gathered: list[Any] = [None] * self.world_size
        with self.watchdog.waiting("objects of all"):
            dist.all_gather_object(gathered, obj, group=self._control_group)
        return gathered

    def gather_to_zero(self, obj: Any) -> list[Any]:
        """Return the objects of all ranks on rank 0, and an empty list on the others."""
        gathered: list[Any] | None = [None] * self.world_size if self.is_global_zero else None
        with self.watchdog.waiting("objects for rank 0"):
            dist.gather_object(obj, gathered, group=self._control_group)
        return gathered or []

    def reduce(self, tensor: Any, group: Any = None, reduce_op: str | None = "mean") -> Any:
        """Return a number or tensor reduced over all ranks; the argument is not changed."""
        operations: dict[str, Callable[..., Any]] = {
            "sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM,
            "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
        }  # fmt: skip
        name = "sum" if reduce_op is None else str(reduce_op).lower()
        if name not in operations:
            raise UsageError(f"reduce_op {reduce_op!r}: must be one of {', '.join(operations)}.")
        # a copy, as all_reduce works in place
        reduced = torch.as_tensor(tensor).detach().clone()
        is_mean = name in ("mean", "avg")
        # the mean of integers is no integer
        if is_mean and not reduced.is_floating_point():
            reduced = reduced.to(torch.get_default_dtype())
        with self.watchdog.waiting("a reduction"):
            dist.all_reduce(reduced, operations[name], group=group or self._group_of(reduced))
        # divided here: gloo has no operation for the mean
        return reduced / dist.get_world_size(group) if is_mean else reduced

    def all_reduce_max(self, numbers: torch.Tensor, purpose: str) -> None:
        """Replace numbers on the host by their maximum over the ranks, in place."""
        with self.watchdog.waiting(purpose):
            dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self._training_host_group)

    def all_gather_rows(self, numbers: torch.Tensor, purpose: str) -> torch.Tensor:
        """Return the numbers of all ranks on the host, a row for each rank."""
        gathered = torch.empty(self.world_size, len(numbers), dtype=numbers.dtype)
        with self.watchdog.waiting(purpose):
            dist.all_gather(list(gathered.unbind()), numbers, group=self._training_host_group)
        return gathered

    def all_gather(
        self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False
    ) -> torch.Tensor:
        """Return the tensors of all ranks stacked along a new first dimension.

        Args:
            tensor: a tensor of the same shape on all ranks.
            group: a process group of torch; all ranks by default.
            sync_grads: whether gradients flow back to the rank that a part came from.

        Raises:
            UsageError: the shapes or types differ.
        """
        if group is None:
            self._require_one_shape(tensor)
        group = group or self._group_of(tensor)
        # torch's all_gather requires contiguous memory.
        tensor = tensor.contiguous()
        with self.watchdog.waiting("tensors of all"):
            if sync_grads:
                from torch.distributed.nn.functional import all_gather

                parts = all_gather(tensor, group or dist.group.WORLD)  # type: ignore[no-untyped-call]
                return torch.stack(parts)
            gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
            dist.all_gather(gathered, tensor.detach(), group=group)
            return torch.stack(gathered)

    def _require_one_shape(self, tensor: torch.Tensor) -> None:
        """Raise on all ranks unless they have tensors of one shape and type to gather.

        gloo and NCCL do not compare them: they mix up the values, or end a process.
        """
        numbers = torch.full((2 + _MOST_DIMENSIONS,), -1)
        numbers[0], numbers[1] = zlib.crc32(str(tensor.dtype).encode()), tensor.ndim
        shape = tensor.shape[:_MOST_DIMENSIONS]
        numbers[2 : 2 + len(shape)] = torch.tensor(shape, dtype=torch.int64)
        rows = self.all_gather_rows(numbers, "the shapes of tensors")
        if (rows == rows[0]).all():
            return
        given = ", ".join(
            f"rank {rank} {tuple(row[2:][row[2:] >= 0].tolist())}" for rank, row in enumerate(rows)
        )
        raise UsageError(
            f"all_gather was given tensors of different shapes or types: {given}. They must be "
            "alike. Where the ranks have shares of different size, as at the end of a validation, "
            "pad the tensors to one shape, gather sums and counts, or use "
            "torch.distributed.all_gather_object."
        )

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:  # noqa: A002
        """Return whether all ranks decide True, or whether any does."""
        # all agree if none disagrees, so that one maximum serves both cases
        wanted = torch.tensor([float(not decision if all else decision)])
        with self.watchdog.waiting("a decision"):
            dist.all_reduce(wanted, dist.ReduceOp.MAX, group=self._control_group)
        return bool(wanted[0]) is not all

    def broadcast_module_buffers(self, module: torch.nn.Module) -> None:
        """Copy rank 0's buffers to all ranks, if the strategy's `broadcast_buffers` is set."""
        if self.has_common_buffers:
            with self.watchdog.waiting("buffers"):
                for tensor in module.buffers():
                    dist.broadcast(tensor, 0, group=self._group_of(tensor))

    def _group_of(self, tensor: torch.Tensor) -> Any:
        """Return the group for a tensor: on the host the control group, else torch's default."""
        return self._control_group if tensor.device.type == "cpu" else None

    def _make_group(self) -> None:
        """Initialise torch's default process group."""
        is_cuda = self.root_device.type == "cuda"
        backend = self.options.process_group_backend or ("nccl" if is_cuda else "gloo")
        if backend == "nccl" and not is_cuda:
            raise OptionError(
                f"process_group_backend='nccl' on device {str(self.root_device)!r}: NCCL reduces "
                "tensors of CUDA alone. Leave it out."
            )
        uses_nccl = backend == "nccl"
        self._log_backend(backend)
        store = None  # torch reads the address from the environment
        if self.topology.starts or self.topology.address:
            from trainer_hooks.runtime.rendezvous import open_rendezvous_store

            store, self._launched = open_rendezvous_store(self.topology, self.options.timeout)
        elif has_lasting_store():
            store = open_attempt_store(self.topology, self.options.timeout)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if uses_nccl else "gloo",
            store=store,
            timeout=self.options.timeout,
            world_size=self.world_size,
            rank=self.global_rank,
            # binds NCCL to the GPU of this rank; without it NCCL guesses the GPU from the rank
            device_id=self.root_device if uses_nccl else None,
        )
        atexit.register(self.stop)

    def _log_backend(self, backend: str) -> None:
        """Log the number of ranks, the backend and the launcher, on rank 0."""
        if self.is_global_zero:
            device_type, topology = self.root_device.type, self.topology
            device = {"cpu": "CPU", "cuda": "CUDA"}.get(device_type, device_type)
            log.info("%d processes (%s, %s), %s", self.world_size, backend, device, topology.origin)

    def _require_same_ranks(self) -> None:
        """Check that torch's process group has the ranks that the Trainer has.

        Raises:
            OptionError: it was made after the Trainer, with others.
        """
        own_rank = dist.get_rank(), dist.get_world_size()
        if own_rank != (self.global_rank, self.world_size):
            raise OptionError(
                f"the process group has this process as rank {own_rank[0]} of {own_rank[1]}, and "
                f"the Trainer found rank {self.global_rank} of {self.world_size} when it was made: "
                "make the process group before the Trainer, or leave it to the Trainer."
            )

    def stop(self) -> None:
        """Destroy the process group that was made here, as this process exits."""
        _GROUPS.clear()
        # after a failure a destruction would wait for ranks that are gone
        if dist.is_initialized() and not (
            self._watchdog is not None and self._watchdog.has_seen_failure
        ):
            dist.destroy_process_group()


def _attempt_store(group: Any) -> Any:
    """Return the key-value store of the default group, with a prefix that only this attempt uses.

    It is a separate connection: a collective that waits may block the other one. The prefix keeps
    apart the records of ranks that died in an earlier attempt.
    """
    from torch.distributed import distributed_c10d

    store = distributed_c10d._get_default_store()  # noqa: SLF001 - there is no public way to it
    name = [uuid.uuid4().hex]
    dist.broadcast_object_list(name, 0, group=group, device=torch.device("cpu"))
    return distributed_c10d.PrefixStore(
        name[0], store.clone() if hasattr(store, "clone") else store
    )
