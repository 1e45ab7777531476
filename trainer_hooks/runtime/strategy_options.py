"""The options of the strategies: all weights on each rank (DDP), or a shard of them (FSDP)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import answers_keywords_of_init
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh


_BACKENDS = (None, "gloo", "nccl")
_START_METHODS = ("popen", "fork", "spawn")


def _check_backend(owner: str, value: object) -> None:
    if value not in _BACKENDS:
        raise OptionError(
            f"{owner}(process_group_backend={value!r}): must be 'gloo', 'nccl' or None."
        )


@answers_keywords_of_init
@dataclass(frozen=True, slots=True, kw_only=True)
class DDPStrategy:
    """Train on several ranks, each with all weights, by torch's DistributedDataParallel.

    Most arguments are those of that class; its documentation says more.

    Args:
        find_unused_parameters: whether parameters may get no gradient in a step. It costs a search
            through the graph; without it such a parameter is an error that names it.
        static_graph: whether all steps have the same graph, which allows optimizations; then no
            batch can be skipped, and no gradients accumulated.
        gradient_as_bucket_view: whether gradients are views of the communication buckets.
        broadcast_buffers: whether rank 0's buffers are copied to all ranks at the first forward of
            each accumulation window.
        bucket_cap_mb: size of a communication bucket in megabytes; None for torch's default.
        ddp_comm_hook: averages the gradients of a bucket in place of torch: a function of its state
            and the bucket, from `torch.distributed.algorithms.ddp_comm_hooks` or your own. A hook
            outside of that package's `default_hooks` costs one more small reduction in each step,
            in which the ranks share their requests. Its state is not in checkpoints, so that a
            resume with one, such as a `PowerSGDState`, is not exact, and says so.
        ddp_comm_state: state for that function, such as a `PowerSGDState`.
        ddp_comm_wrapper: wraps that function, such as `fp16_compress_wrapper`.
        process_group_backend: `"gloo"` or `"nccl"`, the backend for tensors on the device; None for
            that of the device.
        start_method: how one process starts the others: `"popen"` runs the script again, `"fork"`
            forks, as the strategy `"ddp_fork"` does, and `"spawn"` starts a fresh Python for each
            rank of each run, as `"ddp_spawn"` does.
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
    process_group_backend: str | None = None
    start_method: str = "popen"
    timeout: timedelta = timedelta(minutes=30)
    patience: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        _check_backend("DDPStrategy", self.process_group_backend)
        if self.start_method not in _START_METHODS:
            raise OptionError(
                f"DDPStrategy(start_method={self.start_method!r}): must be 'popen', which runs the "
                "script again, 'fork' or 'spawn'."
            )
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
        # passed only if needed: newer torch releases warn of this argument
        if not self.broadcast_buffers:
            option["broadcast_buffers"] = False
        if self.bucket_cap_mb is not None:
            option["bucket_cap_mb"] = self.bucket_cap_mb
        return option


_STATE_DICT_TYPES = ("full", "sharded")


@answers_keywords_of_init
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
        activation_checkpointing: an older name of `activation_checkpointing_policy`.
        reshard_after_forward: whether layers release gathered weights until the backward; see
            `fully_shard`.
        sharding_strategy: an older way to say that: `"FULL_SHARD"` releases them,
            `"SHARD_GRAD_OP"` keeps them, `"HYBRID_SHARD"` goes with a `device_mesh`.
        limit_all_gathers: True, as `fully_shard` always does.
        use_orig_params: True, as `fully_shard` always does.
        device_mesh: a `DeviceMesh`, or its two sizes: replicas, and shards of each (HSDP).
        tensor_parallel_size: number of ranks that share a batch; the module's `configure_model`
            splits its layers over `self.device_mesh["tensor_parallel"]`.
        state_dict_type: `"full"` to save one file, `"sharded"` to save a folder with a file per
            rank.
        find_unused_parameters: whether a parameter may get no gradient in a step, which is then
            zero; without it such a parameter is an error that names it.
        broadcast_buffers: whether rank 0's buffers are copied to all ranks at the first forward of
            each accumulation window.
        process_group_backend: as for `DDPStrategy`.
        timeout: longest time that a rank waits for another in a collective.
        patience: time for which all ranks must wait for different collectives before that is an
            error.

    Raises:
        OptionError: a value breaks its rule.
    """

    auto_wrap_policy: Any = None
    activation_checkpointing_policy: Any = None
    mixed_precision: Any = None
    activation_checkpointing: Any = None
    cpu_offload: Any = False
    reshard_after_forward: bool | int | None = None
    sharding_strategy: Any = None
    limit_all_gathers: bool = True
    use_orig_params: bool = True
    device_mesh: DeviceMesh | tuple[int, int] | None = None
    tensor_parallel_size: int = 1
    state_dict_type: str = "full"
    find_unused_parameters: bool = False
    broadcast_buffers: bool = True
    process_group_backend: str | None = None
    timeout: timedelta = timedelta(minutes=30)
    patience: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        _check_backend("FSDPStrategy", self.process_group_backend)
        for name in ("limit_all_gathers", "use_orig_params"):
            if getattr(self, name) is not True:
                raise OptionError(
                    f"FSDPStrategy({name}={getattr(self, name)!r}): torch's fully_shard knows only "
                    "True. Leave it out."
                )
        self._take_older_names()
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

    def _take_older_names(self) -> None:
        """Set the options that `sharding_strategy` and `activation_checkpointing` stand for."""
        if self.activation_checkpointing is not None:
            if self.activation_checkpointing_policy is not None:
                raise OptionError(
                    "FSDPStrategy(activation_checkpointing=..., activation_checkpointing_policy="
                    "...): both say the same. Leave the first one out."
                )
            # a frozen dataclass sets its own attributes by this alone
            policy = self.activation_checkpointing
            object.__setattr__(self, "activation_checkpointing_policy", policy)
        if self.sharding_strategy is None:
            return
        # torch's enum for FSDP1 has these names
        strategy = getattr(self.sharding_strategy, "name", self.sharding_strategy)
        hybrid = strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
        if strategy not in _SHARDING and not hybrid:
            raise OptionError(
                f"FSDPStrategy(sharding_strategy={strategy!r}): must be one of "
                f"{', '.join(map(repr, _SHARDING))}, or 'HYBRID_SHARD' with a device_mesh. To keep "
                "all weights on each rank take a DDPStrategy."
            )
        if hybrid and self.device_mesh is None:
            raise OptionError(
                f"FSDPStrategy(sharding_strategy={strategy!r}): the ranks must be divided. Pass "
                "device_mesh=(replicas, shards of each)."
            )
        if self.reshard_after_forward is None:
            reshards = strategy in ("FULL_SHARD", "HYBRID_SHARD")
            object.__setattr__(self, "reshard_after_forward", reshards)


_SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP")


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
