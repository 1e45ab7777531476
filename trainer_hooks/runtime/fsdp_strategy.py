"""The strategy of processes that each keep a shard of the weights."""

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

_KINDS = ("full", "sharded")


@dataclass(frozen=True, slots=True, kw_only=True)
class FSDPStrategy:
    """Train in several processes, each with a shard of the weights: torch's `fully_shard`.

    Names are Lightning's where it has the thing, and `fully_shard`'s otherwise. Layers that the
    module's own `configure_model` has sharded stay as they are.

    Args:
        auto_wrap_policy: which layers are gathered on their own: a class or several, a function of
            a layer, or a number: layers of at least so many parameters that are in no other. None:
            the module as a whole.
        activation_checkpointing_policy: which layers compute their activations again in the
            backward, likewise. None: none.
        mixed_precision: a `MixedPrecisionPolicy` of torch's; that of `Trainer(precision=...)`
            unless given.
        cpu_offload: whether shards, gradients and optimizer states lie on the host; or an
            `OffloadPolicy` of torch's.
        reshard_after_forward: whether layers let go of their whole weights until the backward; see
            `fully_shard`.
        device_mesh: a `DeviceMesh`, or its two sizes: copies, and shards of each (HSDP).
        tensor_parallel_size: how many processes share a batch; the module's `configure_model`
            divides its layers among them, by `self.device_mesh["tensor_parallel"]`.
        state_dict_type: `"full"` to save one file, `"sharded"` a folder with a part of each.
        find_unused_parameters: whether parameters may get no gradient in a step, which then is
            zero; without it such a parameter is an error that names it.
        broadcast_buffers: whether buffers are rank 0's at the first forward of each window.
        timeout: how long one process waits for another in a collective.
        patience: how long all may wait for different things before that is an error.

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
        if self.state_dict_type not in _KINDS:
            raise OptionError(
                f"FSDPStrategy(state_dict_type={self.state_dict_type!r}): must be 'full' or "
                "'sharded'."
            )
        for name in ("auto_wrap_policy", "activation_checkpointing_policy"):
            chosen_by(getattr(self, name), name)
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


def chosen_by(policy: Any, name: str) -> Callable[[nn.Module], bool] | int | None:
    """Return what says of a layer whether a policy means it; the number of one that goes by size.

    Raises:
        OptionError: it is no policy.
    """
    if policy is None or (isinstance(policy, int) and not isinstance(policy, bool) and policy > 0):
        return policy
    if isinstance(policy, type):
        policy = (policy,)
    if isinstance(policy, set | frozenset | list | tuple) and policy:
        kinds = tuple(policy)
        if all(isinstance(kind, type) for kind in kinds):
            return lambda layer: isinstance(layer, kinds)
    elif callable(policy):
        found: Callable[[nn.Module], bool] = policy
        return found
    raise OptionError(
        f"FSDPStrategy({name}={policy!r}): must be a class of layers, a set of those, a function "
        "of a layer, or a positive number of parameters."
    )
