"""Memory, where Lightning has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.refusing import refusing
from trainer_hooks.runtime import free_memory as garbage_collection_cuda
from trainer_hooks.runtime import is_out_of_memory as is_oom_error
from trainer_hooks.runtime import map_tensors

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["garbage_collection_cuda", "is_oom_error", "recursive_detach"]

_ONE = "use is_oom_error, which knows them all"

__getattr__ = refusing(
    __name__,
    {
        "is_cuda_out_of_memory": _ONE,
        "is_cudnn_snafu": _ONE,
        "is_out_of_cpu_memory": _ONE,
    },
)


def recursive_detach(in_dict: Any, to_cpu: bool = False) -> Any:
    """Return a nesting with its tensors detached.

    Args:
        in_dict: dicts, lists and tuples in one another.
        to_cpu: whether they are brought to the host.
    """

    def detached(tensor: Tensor) -> Tensor:
        found = tensor.detach()
        return found.cpu() if to_cpu else found

    return map_tensors(in_dict, detached)
