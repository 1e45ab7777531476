"""torch's own records of sharded layers, for which it has no public names.

The records have changed with torch's versions. Other files take them from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.fsdp import FSDPModule

from trainer_hooks.runtime.parameter_names import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn


def sharded_layers(module: nn.Module) -> list[FSDPModule]:
    """Return the layers that `fully_shard` was called with, the outer ones first."""
    return [layer for layer in module.modules() if isinstance(layer, FSDPModule)]


def parameter_groups(layer: FSDPModule) -> Sequence[Any]:
    """Return torch's groups of a layer's parameters, each gathered by one collective."""
    state = layer._get_fsdp_state()  # noqa: SLF001 - there is no public way to it
    if hasattr(state, "_fsdp_param_groups"):
        groups: list[Any] = state._fsdp_param_groups  # noqa: SLF001
        return groups
    # torch 2.10 and older have one group in a layer, or none
    group = state._fsdp_param_group  # noqa: SLF001
    return [] if group is None else [group]


def begin_run(module: nn.Module) -> None:
    """Prepare the records as the first forward does; repeated calls change nothing."""
    module._get_fsdp_state()._lazy_init()  # type: ignore[operator] # noqa: SLF001


def accumulated_gradients(module: nn.Module) -> dict[str, Tensor]:
    """Return the gradients that a window accumulates until its end, by name and unsharded."""
    gradients = {}
    for name, fsdp_parameter in _fsdp_parameters(module):
        gradient = fsdp_parameter.unsharded_accumulated_grad
        if gradient is None and hasattr(fsdp_parameter, "_unsharded_param"):
            gradient = fsdp_parameter._unsharded_param.grad  # noqa: SLF001
        if gradient is not None:
            gradients[name] = gradient
    return gradients


def set_accumulated_gradients(module: nn.Module, gradients: Mapping[str, Tensor]) -> None:
    """Restore the gradients that a window accumulates until its end.

    Args:
        module: the sharded module.
        gradients: unsharded gradients by name. All ranks have some, or none has.
    """
    parameters = (parameter for _, parameter in _fsdp_parameters(module))
    if gradients and any(map(_accumulates_in_parameter, parameters)):
        # a parameter exists once it was gathered, which is a collective
        begin_run(module)
        for layer in sharded_layers(module):
            layer.unshard()
            layer.reshard()
    for name, fsdp_parameter in _fsdp_parameters(module):
        gradient = gradients.get(name)
        if gradient is not None:
            device = fsdp_parameter.sharded_param.to_local().device
            gradient = gradient.detach().clone().to(device)
        is_made = hasattr(fsdp_parameter, "_unsharded_param")
        if _accumulates_in_parameter(fsdp_parameter):
            if is_made:
                fsdp_parameter._unsharded_param.grad = gradient  # noqa: SLF001
            continue
        if is_made:
            fsdp_parameter._unsharded_param.grad = None  # noqa: SLF001
        fsdp_parameter.unsharded_accumulated_grad = gradient


def reduce_accumulated_gradients(module: nn.Module) -> None:
    """Reduce the gradients that a window has accumulated, without a backward of the model."""
    # the reduction works on unsharded parameters, which a forward would have gathered
    module.unshard()  # type: ignore[operator]
    state: Any = module._get_fsdp_state()  # type: ignore[operator] # noqa: SLF001
    # torch reduces at the end of each backward, also the layers that had no part in it: here all
    loss = torch.zeros((), requires_grad=True)
    loss.register_hook(lambda _: state._register_root_post_backward_final_callback())  # type: ignore[no-untyped-call]  # noqa: SLF001
    loss.backward()  # type: ignore[no-untyped-call]


def _accumulates_in_parameter(fsdp_parameter: Any) -> bool:
    """Whether a window's gradients are those of the unsharded parameter, as from torch 2.15 on."""
    name = "unsharded_accumulated_grad"
    return isinstance(getattr(type(fsdp_parameter), name, None), property)


def _fsdp_parameters(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield torch's FSDP record of each sharded parameter, with the parameter's name."""
    names = {id(parameter): plain_name(name) for name, parameter in module.named_parameters()}
    for layer in sharded_layers(module):
        for group in parameter_groups(layer):
            for fsdp_parameter in group.fsdp_params:
                name = names.get(id(fsdp_parameter.sharded_param))
                # while a layer is gathered, the module has the unsharded parameter in place of
                # this one
                if name is None:
                    name = names[id(fsdp_parameter._unsharded_param)]  # noqa: SLF001
                yield name, fsdp_parameter
