"""What several processes do together: torch's collectives, and an alarm that ends all of them."""

from __future__ import annotations

import atexit
import uuid
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from trainer_hooks._log import log
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.runtime.alarm import Alarm
from trainer_hooks.runtime.attempt import has_lasting_store, store_of_attempt
from trainer_hooks.runtime.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.runtime.launch import StartedProcesses
    from trainer_hooks.runtime.strategy import DDPStrategy
    from trainer_hooks.runtime.topology import Topology

__all__ = ["ProcessGroup"]


_KNOWN: dict[Any, tuple[Any, Any, Alarm]] = {}
"""Of each process group of this process what all trainers share: they come and go, it stays."""


class ProcessGroup(Processes):
    """Several processes, which find each other when the first of them is asked for something.

    A process group that is there is used and left alone; one that is made here lasts until the
    process ends, so that one fit after another, of any trainers, has the same.

    Args:
        device: where this process computes.
        topology: which process this is.
        options: how they train together.
    """

    is_several = True

    def __init__(self, device: torch.device, topology: Topology, options: DDPStrategy) -> None:
        super().__init__(device, topology)
        self.options = options
        self.has_common_buffers = options.broadcast_buffers
        self._alarm: Alarm | None = None
        self._started: StartedProcesses | None = None
        self._host = torch.device("cpu")

    @property
    def alarm(self) -> Alarm:
        """What ends all processes where one fails."""
        self.start()
        assert self._alarm is not None
        return self._alarm

    @property
    def _group(self) -> Any:
        """The group for what callbacks may ask for; who kept it would outlive torch's own end."""
        self.start()
        return _KNOWN[dist.group.WORLD][0]

    @property
    def training_group(self) -> Any:
        """The group for gradients; None for torch's, of all.

        On the host it is one of its own: what users reduce through torch.distributed in one process
        alone is never taken for gradients.
        """
        self.start()
        return _KNOWN[dist.group.WORLD][1]

    @property
    def _own_group(self) -> Any:
        """The group for what the training itself tells, on the host."""
        return self.training_group or self._group

    def start(self) -> None:
        """Find the others, if that is not done yet."""
        if self._alarm is not None:
            return
        if not dist.is_initialized():
            self._make_group()
        elif dist.group.WORLD not in _KNOWN:
            self._tell_choice(str(dist.get_backend()))
        self._require_same_ranks()
        if self.root_device.type == "cuda":
            torch.cuda.set_device(self.root_device)
        # small things are told on the host, which does not wait for the device; what callbacks may
        # ask for goes apart from what the training does, so that the two are never taken for one
        world = dist.group.WORLD
        if world not in _KNOWN:
            timeout, is_on_host = self.options.timeout, self.root_device.type == "cpu"
            group = dist.new_group(backend="gloo", timeout=timeout)
            training = dist.new_group(backend="gloo", timeout=timeout) if is_on_host else None
            patience = self.options.patience.total_seconds()
            alarm = Alarm(_store(group), self.topology, patience)
            _KNOWN[world] = group, training, alarm
            if self._started is not None:
                self._started.watch(alarm.sound_of)
        self._alarm = _KNOWN[world][2]

    def heard(self, error: BaseException) -> str:
        """Return what another process failed with, of which `error` may be the consequence here."""
        text = self.alarm.heard()
        if text or self._started is None or not isinstance(error, RuntimeError):
            return text
        # its end closes the connections a moment before it can be seen
        return self._started.wait_for_end()

    def barrier(self, name: str | None = None) -> None:
        """Wait until all processes have come here."""
        with self.alarm.waiting(f"a barrier{f' ({name})' if name else ''}"):
            dist.all_reduce(torch.zeros(1), group=self._group)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return what process `src` has given; any object that can be pickled."""
        box = [obj]
        with self.alarm.waiting("a broadcast"):
            dist.broadcast_object_list(box, src, group=self._group, device=self._host)
        return box[0]

    def gather(self, obj: Any) -> list[Any]:
        """Return what all processes have given, in their order."""
        found: list[Any] = [None] * self.world_size
        with self.alarm.waiting("objects of all"):
            dist.all_gather_object(found, obj, group=self._group)
        return found

    def gather_to_zero(self, obj: Any) -> list[Any]:
        """Return what all processes have given to the first; an empty list to the others."""
        found: list[Any] | None = [None] * self.world_size if self.is_global_zero else None
        with self.alarm.waiting("objects for rank 0"):
            dist.gather_object(obj, found, group=self._group)
        return found or []

    def reduce(self, tensor: Any, group: Any = None, reduce_op: str | None = "mean") -> Any:
        """Return a number or tensor reduced over all processes; the one that is given stays."""
        operations: dict[str, Callable[..., Any]] = {
            "sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM,
            "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
        }  # fmt: skip
        name = "sum" if reduce_op is None else str(reduce_op).lower()
        if name not in operations:
            raise UsageError(f"reduce_op {reduce_op!r}: must be one of {', '.join(operations)}.")
        reduced = torch.as_tensor(tensor).detach().clone()
        is_mean = name in ("mean", "avg")
        if is_mean and not reduced.is_floating_point():
            reduced = reduced.to(torch.get_default_dtype())
        with self.alarm.waiting("a reduction"):
            dist.all_reduce(reduced, operations[name], group=group or self._group_of(reduced))
        return reduced / dist.get_world_size(group) if is_mean else reduced

    def highest(self, numbers: torch.Tensor, purpose: str) -> None:
        """Put into numbers on the host the highest that any process has, in place."""
        with self.alarm.waiting(purpose):
            dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self._own_group)

    def rows(self, numbers: torch.Tensor, purpose: str) -> torch.Tensor:
        """Return a list of numbers on the host of all processes, a row for each."""
        found = torch.empty(self.world_size, len(numbers), dtype=numbers.dtype)
        with self.alarm.waiting(purpose):
            dist.all_gather(list(found.unbind()), numbers, group=self._own_group)
        return found

    def all_gather(
        self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False
    ) -> torch.Tensor:
        """Return the tensors of all processes in one, with a new first dimension.

        Args:
            tensor: it; of one shape on all.
            group: a group of torch's; all unless given.
            sync_grads: whether gradients flow back to the process that a part came from.
        """
        group = group or self._group_of(tensor)
        tensor = tensor.contiguous()
        with self.alarm.waiting("tensors of all"):
            if sync_grads:
                from torch.distributed.nn.functional import all_gather

                parts = all_gather(tensor, group or dist.group.WORLD)  # type: ignore[no-untyped-call]
                return torch.stack(parts)
            found = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
            dist.all_gather(found, tensor.detach(), group=group)
            return torch.stack(found)

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:  # noqa: A002
        """Return whether all processes say so, or whether any does."""
        wanted = torch.tensor([float(not decision if all else decision)])
        with self.alarm.waiting("a decision"):
            dist.all_reduce(wanted, dist.ReduceOp.MAX, group=self._group)
        return bool(wanted[0]) is not all

    def share_buffers(self, module: torch.nn.Module) -> None:
        """Make a module's buffers rank 0's, where they are to be one."""
        if self.has_common_buffers:
            with self.alarm.waiting("buffers"):
                for tensor in module.buffers():
                    dist.broadcast(tensor, 0, group=self._group_of(tensor))

    def _group_of(self, tensor: torch.Tensor) -> Any:
        return self._group if tensor.device.type == "cpu" else None

    def _make_group(self) -> None:
        is_cuda = self.root_device.type == "cuda"
        self._tell_choice("nccl" if is_cuda else "gloo")
        store = None  # torch finds the place in the environment
        if self.topology.starts or self.topology.address:
            from trainer_hooks.runtime.meeting import meet

            store, self._started = meet(self.topology, self.options.timeout)
        elif has_lasting_store():
            store = store_of_attempt(self.topology, self.options.timeout)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if is_cuda else "gloo",
            store=store,
            timeout=self.options.timeout,
            world_size=self.world_size,
            rank=self.global_rank,
            device_id=self.root_device if is_cuda else None,
        )
        atexit.register(self.stop)

    def _tell_choice(self, backend: str) -> None:
        if self.is_global_zero:
            kind, topology = self.root_device.type, self.topology
            device = {"cpu": "CPU", "cuda": "CUDA"}.get(kind, kind)
            log.info("%d processes (%s, %s), %s", self.world_size, backend, device, topology.origin)

    def _require_same_ranks(self) -> None:
        place = dist.get_rank(), dist.get_world_size()
        if place != (self.global_rank, self.world_size):
            raise OptionError(
                f"the process group has this process as rank {place[0]} of {place[1]}, and the "
                f"Trainer found rank {self.global_rank} of {self.world_size} when it was made: "
                "make the process group before the Trainer, or leave it to the Trainer."
            )

    def stop(self) -> None:
        """End what was made here, as this process ends."""
        _KNOWN.clear()
        if dist.is_initialized() and not (self._alarm is not None and self._alarm.has_gone_off):
            dist.destroy_process_group()


def _store(group: Any) -> Any:
    """Return the key-value store through which the processes found each other.

    It is a connection of its own: the other one may be held by a collective that waits. And it has
    a place of its own: processes that died may have left their last words there.
    """
    from torch.distributed import distributed_c10d

    store = distributed_c10d._get_default_store()  # noqa: SLF001 - there is no public way to it
    name = [uuid.uuid4().hex]
    dist.broadcast_object_list(name, 0, group=group, device=torch.device("cpu"))
    return distributed_c10d.PrefixStore(
        name[0], store.clone() if hasattr(store, "clone") else store
    )
