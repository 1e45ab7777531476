"""The strategy that trains with all weights on each rank."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "DDPStrategy",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DDPStrategy:
    """Train on several ranks, each with all weights, by torch's DistributedDataParallel.

    Most arguments are those of that class; its documentation says more.

    Args:
        find_unused_parameters: whether parameters may get no gradient in a step. It costs a search
            through the graph; without it such a parameter is an error that names it.
        static_graph: whether all steps have the same graph, which allows optimizations; then no
            batch can be skipped.
        gradient_as_bucket_view: whether gradients are views of the communication buckets.
        broadcast_buffers: whether rank 0's buffers are copied to all ranks at the first forward of
            each accumulation window.
        bucket_cap_mb: size of a communication bucket in megabytes; None for torch's default.
        ddp_comm_hook: averages the gradients of a bucket in place of torch: a function of its state
            and the bucket, from `torch.distributed.algorithms.ddp_comm_hooks` or your own. A hook
            outside of that package's `default_hooks` costs one more small reduction in each step,
            in which the ranks share their requests. Its state is not in checkpoints.
        ddp_comm_state: state for that function, such as a `PowerSGDState`.
        ddp_comm_wrapper: wraps that function, such as `fp16_compress_wrapper`.
        timeout: longest time that a rank waits for another in a collective.
        patience: time for which all ranks must wait for different collectives until they are ended,
            as none can go on. A rank that computes ends no run.

    Raises:
        OptionError: a value breaks its rule.
    """

    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = False
    broadcast_buffers: bool = True
    bucket_cap_mb: float | None = None
    ddp_comm_hook: Callable[[Any, Any], Any] | None = None
    ddp_comm_state: object = None
    ddp_comm_wrapper: Callable[[Any], Any] | None = None
    timeout: timedelta = timedelta(minutes=30)
    patience: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        hook, wrapper = self.ddp_comm_hook, self.ddp_comm_wrapper
        for name, value in (("ddp_comm_hook", hook), ("ddp_comm_wrapper", wrapper)):
            if value is not None and not callable(value):
                raise OptionError(f"DDPStrategy({name}={value!r}): must be a function, or None.")
        if hook is None and (self.ddp_comm_state is not None or wrapper is not None):
            option = "ddp_comm_wrapper" if wrapper is not None else "ddp_comm_state"
            raise OptionError(
                f"DDPStrategy({option}=...): it is for a ddp_comm_hook, and there is none. Pass "
                "one."
            )

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for DistributedDataParallel."""
        option: dict[str, Any] = {
            "find_unused_parameters": self.find_unused_parameters,
            "static_graph": self.static_graph,
            "gradient_as_bucket_view": self.gradient_as_bucket_view,
        }
        # Passed only if needed: newer torch releases warn of this argument.
        if not self.broadcast_buffers:
            option["broadcast_buffers"] = False
        if self.bucket_cap_mb is not None:
            option["bucket_cap_mb"] = self.bucket_cap_mb
        return option
