"""The strategy that shards the weights over the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["FSDPStrategy", "Policy"]

Policy = "type[nn.Module] | Collection[type[nn.Module]] | Callable[[nn.Module], bool] | int | None"

_STATE_DICT_TYPES = ("full", "sharded")


@dataclass(frozen=True, slots=True, kw_only=True)
class FSDPStrategy:
    """Train on several ranks, each with a shard of the weights, by torch's `fully_shard`.

    Arguments have Lightning's name where Lightning has the option, and `fully_shard`'s otherwise.
    Layers that the module's own `configure_model` has sharded stay as they are.

    Args:
        auto_wrap_policy: layers that are gathered separately: a class or several, a function of a
            layer, or a number for layers of at least so many parameters. None: the whole module.
        activation_checkpointing_policy: layers that compute their activations again in the
            backward, in the same forms. None: no layer.
        mixed_precision: a `MixedPrecisionPolicy` of torch; by default that of
            `Trainer(precision=...)`.
        cpu_offload: whether shards, gradients and optimizer states are kept on the host; or an
            `OffloadPolicy` of torch.
        reshard_after_forward: whether layers release gathered weights until the backward; see
            `fully_shard`.
        device_mesh: a `DeviceMesh`, or its two sizes: replicas, and shards of each (HSDP).
        tensor_parallel_size: number of ranks that share a batch; the module's `configure_model`
            splits its layers over `self.device_mesh["tensor_parallel"]`.
        state_dict_type: `"full"` to save one file, `"sharded"` to save a folder with a file per
            rank.
        find_unused_parameters: whether a parameter may get no gradient in a step, which is then
            zero; without it such a parameter is an error that names it.
        broadcast_buffers: whether rank 0's buffers are copied to all ranks at the first forward of
            each accumulation window.
        timeout: longest time that a rank waits for another in a collective.
        patience: time for which all ranks must wait for different collectives before that is an
            error.

    Raises:
        OptionError: a value breaks its rule.
    """

    auto_wrap_policy: Any = None
    activation_checkpointing_policy: Any = None
    mixed_precision: Any = None
    cpu_offload: Any = False
    reshard_after_forward: bool | int | None = None
    device_mesh: DeviceMesh | tuple[int, int] | None = None
    tensor_parallel_size: int = 1
    state_dict_type: str = "full"
    find_unused_parameters: bool = False
    broadcast_buffers: bool = True
    timeout: timedelta = timedelta(minutes=30)
    patience: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        if self.state_dict_type not in _STATE_DICT_TYPES:
            raise OptionError(
                f"FSDPStrategy(state_dict_type={self.state_dict_type!r}): must be 'full' or "
                "'sharded'."
            )
        for name in ("auto_wrap_policy", "activation_checkpointing_policy"):
            parse_policy(getattr(self, name), name)
        size = self.tensor_parallel_size
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise OptionError(
                f"FSDPStrategy(tensor_parallel_size={size!r}): must be an integer of at least 1."
            )
        if size > 1 and self.device_mesh is not None:
            raise OptionError(
                f"FSDPStrategy(tensor_parallel_size={size}, device_mesh=...): one of them. Give "
                "the mesh a dimension of the name 'tensor_parallel'."
            )


def parse_policy(policy: Any, name: str) -> Callable[[nn.Module], bool] | int | None:
    """Return a predicate of a layer for a policy; a policy by size is returned as its number.

    Raises:
        OptionError: the value is no policy.
    """
    if policy is None or (isinstance(policy, int) and not isinstance(policy, bool) and policy > 0):
        return policy
    if isinstance(policy, type):
        policy = (policy,)
    if isinstance(policy, set | frozenset | list | tuple) and policy:
        classes = tuple(policy)
        if all(isinstance(cls, type) for cls in classes):
            return lambda layer: isinstance(layer, classes)
    elif callable(policy):
        selects: Callable[[nn.Module], bool] = policy
        return selects
    raise OptionError(
        f"FSDPStrategy({name}={policy!r}): must be a class of layers, a set of those, a function "
        "of a layer, or a positive number of parameters."
    )
